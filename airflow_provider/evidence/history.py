"""The records before the one that is added: earlier revisions of the same night, and earlier nights."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.evidence.chain import Chain, ChainRecord
from airflow_provider.storage.nights import Night

TREND_NIGHTS = 30

Closer = tuple[str, str, str]
"""DAG, task and map index of a task that closes nights."""


@dataclass(frozen=True)
class RecordKey:
    """Which records are revisions of one night: what a DAG has left for one date at one destination.

    Several tasks of a run may close it, such as one before and one after the review, and so may another run
    for the same date, which writes to the same place.

    :param at: its logical date; nights are ordered by it
    :param run: DAG and run
    :param destination: below the root
    :param closer: the task that closes it now
    """

    at: str
    run: str
    destination: str
    closer: Closer

    @classmethod
    def of(cls, context: Any, destination: str) -> RecordKey:
        """Return the key of a task's context."""
        night, ti = Night.of(context), context["ti"]
        return cls(night.at, night.run, destination, (str(ti.dag_id), str(ti.task_id), str(ti.map_index)))

    def matches(self, entry: ChainRecord) -> bool:
        """Return whether a record is a revision of this night."""
        record = entry.record
        is_same_date = _night(entry) == self.at and record.get("dag_id") == self.closer[0]
        return record.get("destination") == self.destination and (
            record.get("run") == self.run or is_same_date
        )


@dataclass(frozen=True)
class EarlierRecords:
    """What was closed before.

    :param revision: of the same night, the one in force
    :param nights: that the same task closed first, the latest before this one, newest first
    """

    revision: ChainRecord | None
    nights: list[ChainRecord]


def closer_of(entry: ChainRecord) -> Closer:
    """Return the task that has written a record."""
    record = entry.record
    return str(record.get("dag_id")), str(record.get("task_id")), str(record.get("map_index", -1))


def first_closer_of(entry: ChainRecord) -> Closer:
    """Return the task that closed the night of a record first: its nights are compared with each other."""
    closer = entry.record.get("first_closer")
    if isinstance(closer, list) and len(closer) == 3:
        return str(closer[0]), str(closer[1]), str(closer[2])
    return closer_of(entry)


def next_revision(revision: ChainRecord | None) -> int:
    """Return the number of the revision that replaces this one."""
    number = revision.record.get("revision") if revision else 0
    return (number if isinstance(number, int) else 1) + 1


def find_earlier(chain: Chain, head: ChainRecord | None, key: RecordKey) -> EarlierRecords:
    """Find what was closed before, and read no more of the chain than that takes."""
    revision: ChainRecord | None = None
    found: dict[Closer, dict[str, ChainRecord]] = {}  # by run
    for entry in chain.newest_first(head):
        nights = found.get(first_closer_of(revision) if revision else key.closer, {})
        # No night from here on is later than that.
        latest = str(entry.record.get("latest") or entry.record.get("night") or "")
        if (
            (revision or latest < key.at)
            and len(nights) >= TREND_NIGHTS
            and latest <= min(map(_night, _latest(nights)))
        ):
            break
        if key.matches(entry):
            revision = revision or entry
        elif _night(entry) < key.at:
            of_closer = found.setdefault(first_closer_of(entry), {})
            of_closer.setdefault(str(entry.record.get("run")), _without_manifests(entry))
    nights = found.get(first_closer_of(revision) if revision else key.closer, {})
    return EarlierRecords(revision, _latest(nights))


def _without_manifests(entry: ChainRecord) -> ChainRecord:
    """Keep what is compared: there may be thousands of manifests in a record."""
    return replace(entry, record={name: entry.record[name] for name in entry.record if name != "manifests"})


def _latest(nights: dict[str, ChainRecord]) -> list[ChainRecord]:
    return heapq.nlargest(TREND_NIGHTS, nights.values(), key=_night)


def _night(entry: ChainRecord) -> str:
    return str(entry.record.get("night"))
