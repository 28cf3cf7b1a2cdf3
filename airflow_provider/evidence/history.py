"""The records before the one that is added: earlier revisions of the same night, and earlier nights."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.evidence.chain import Chain, ChainRecord

TREND_NIGHTS = 30
DATE = re.compile(
    r"(?<!\d)20\d\d(?:[-_./]|/month=)?(?:[01]|W[0-5])\d"  # a month or a week
    r"(?:(?:[-_./]|/day=)?[0-3]\d)?"
    r"(?:(?:[T_ -]|/hour=)\d\d(?::?\d\d)*(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)"
)


def task_of(record: Mapping[str, Any]) -> str:
    """Return the task that has closed a night: DAG, task and map index."""
    return "/".join(str(record.get(name)) for name in ("dag_id", "task_id", "map_index"))


@dataclass(frozen=True)
class RecordKey:
    """Which records are revisions of one night: what a DAG has left for one date at one destination.

    Several tasks of a run may close it, such as one before and one after the review, and so may another run
    for the same date, which writes to the same place.

    :param at: its logical date; nights are ordered by it
    :param run: DAG and run, with a slash between them
    :param destination: below the root
    :param task: that closes it now
    """

    at: str
    dag_id: str
    run: str
    destination: str
    task: str

    @property
    def series(self) -> str:
        """What it has in common with other nights: DAG and destination, without what differs by run."""
        run_id = re.escape(self.run.removeprefix(f"{self.dag_id}/"))
        place = re.sub(rf"(?<![0-9A-Za-z]){run_id}(?![0-9A-Za-z])", "*", self.destination)
        return f"{self.dag_id}/{DATE.sub('*', place)}"

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record is a revision of this night."""
        is_same_date = (_night(record), record.get("dag_id")) == (self.at, self.dag_id)
        is_same_run = record.get("run") == self.run
        return record.get("destination") == self.destination and (is_same_run or is_same_date)


def find_earlier(
    chain: Chain, head: ChainRecord | None, key: RecordKey
) -> tuple[ChainRecord | None, list[ChainRecord]]:
    """Return the revision of the same night that is in force, and the latest nights before it, newest first.

    Those are nights of the same series, whichever tasks have closed them; or those that the same task has
    closed, if there is a later one, because the destination was moved, or differs by run in another way, such
    as by the name of a weekday. No more of the chain is read than that takes.
    """
    revision: ChainRecord | None = None
    series = key.series
    in_force: dict[tuple[str, ...], ChainRecord] = {}  # by night, DAG and destination
    found: dict[str, dict[tuple[str, ...], ChainRecord]] = {}  # the same, by series and by task
    nights: list[ChainRecord] = []
    for entry in chain.newest_first(head):
        record = entry.record
        # No night from here on is later than that.
        latest = str(record.get("latest") or record.get("night") or "")
        is_complete = len(nights) >= TREND_NIGHTS and latest <= _night(nights[-1].record)
        if is_complete and (revision or latest < key.at):
            break
        if key.matches(record):
            revision = revision or entry
        elif _night(record) < key.at:
            # Without its manifests: there may be thousands.
            kept = replace(entry, record={name: record[name] for name in record if name != "manifests"})
            place = _night(record), str(record.get("dag_id")), str(record.get("destination"))
            for name in (str(record.get("series")), task_of(record)):
                found.setdefault(name, {})[place] = in_force.setdefault(place, kept)
        names = series, key.task, task_of(revision.record) if revision else ""
        several = [found[name].values() for name in names if name in found]
        latest_of = [
            heapq.nlargest(TREND_NIGHTS, same, key=lambda night: _night(night.record)) for same in several
        ]
        nights = max(latest_of, key=lambda some: _night(some[0].record), default=[])
    return revision, nights


def _night(record: Mapping[str, Any]) -> str:
    return str(record.get("night"))
