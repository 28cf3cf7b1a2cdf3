"""The nights before the one that is closed."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.evidence.chain import Chain, ChainRecord
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import Night

TREND_NIGHTS = 30


Series = tuple[str, str, str]
"""DAG, task and map index of what closes one night after the other."""


@dataclass(frozen=True)
class NightKey:
    """Which night is closed: what a DAG has left for one logical date at one destination.

    Several tasks of a run may close it, such as one before and one after the review, and so may another run
    for the same date, which writes to the same place.

    :param at: its logical date; nights are ordered by it
    :param run: DAG and run
    :param series: of the task that closes it, unless another one has closed it before
    """

    at: str
    run: str
    destination: str
    series: Series

    @classmethod
    def of(cls, context: Any, destination: Location) -> NightKey:
        """Return the night of a task's context."""
        night, ti = Night.of(context), context["ti"]
        series = str(ti.dag_id), str(ti.task_id), str(ti.map_index)
        return cls(night.at, night.run, destination.uri.rstrip("/"), series)

    def is_night_of(self, entry: ChainRecord) -> bool:
        """Tell whether a record is a revision of this night."""
        destination = str(entry.record.get("destination")).rstrip("/")
        is_same_run = entry.record.get("run") == self.run
        is_same_date = _night(entry) == self.at and entry.record.get("dag_id") == self.series[0]
        return destination == self.destination and (is_same_run or is_same_date)


@dataclass(frozen=True)
class EarlierNights:
    """What was closed before.

    :param revision: of the same night, the one in force
    :param nights: of the same series, the latest before this one, newest first
    """

    revision: ChainRecord | None
    nights: list[ChainRecord]


def series_of(entry: ChainRecord) -> Series:
    """Return the series that a record belongs to: that of the first revision of its night."""
    record = entry.record
    series = record.get("series")
    if isinstance(series, list) and len(series) == 3:
        return str(series[0]), str(series[1]), str(series[2])
    return str(record.get("dag_id")), str(record.get("task_id")), str(record.get("map_index", -1))


def next_revision(revision: ChainRecord | None) -> int:
    """Return the number of the revision that replaces this one."""
    number = revision.record.get("revision") if revision else 0
    return (number if isinstance(number, int) else 1) + 1


def find_earlier(chain: Chain, head: ChainRecord | None, key: NightKey) -> EarlierNights:
    """Find what was closed before, and read no more of the chain than that takes."""
    revision: ChainRecord | None = None
    found: dict[Series, dict[str, ChainRecord]] = {}  # by run
    for entry in chain.newest_first(head):
        series = series_of(revision) if revision else key.series
        nights = found.get(series, {})
        # No night from here on is later than that.
        latest = str(entry.record.get("latest") or entry.record.get("night") or "")
        if (
            (revision or latest < key.at)
            and len(nights) >= TREND_NIGHTS
            and latest <= min(map(_night, _latest(nights)))
        ):
            break
        if key.is_night_of(entry):
            revision = revision or entry
        elif _night(entry) < key.at:
            of_series = found.setdefault(series_of(entry), {})
            of_series.setdefault(str(entry.record.get("run")), _without_manifests(entry))
    return EarlierNights(revision, _latest(found.get(series_of(revision) if revision else key.series, {})))


def _without_manifests(entry: ChainRecord) -> ChainRecord:
    """Keep what is compared: there may be thousands of manifests in a record."""
    return replace(entry, record={name: entry.record[name] for name in entry.record if name != "manifests"})


def _latest(nights: dict[str, ChainRecord]) -> list[ChainRecord]:
    return heapq.nlargest(TREND_NIGHTS, nights.values(), key=_night)


def _night(entry: ChainRecord) -> str:
    return str(entry.record.get("night"))
