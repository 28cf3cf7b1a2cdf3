"""Verdicts of earlier nights below the same root, so that only what has changed is assessed again.

Each task keeps one object with the verdicts of its cells, and reads those of all tasks: documents may move
from shard to shard. A verdict that is lost costs an assessment, and its findings have nothing to be compared
with, so the index is not scratch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider.assess.cells import Cell
from airflow_provider.assess.findings import as_before
from airflow_provider.review.decisions import KEPT_DAYS
from airflow_provider.storage.atomic import writing
from airflow_provider.storage.jsonl import find_tables, read_valid_rows, to_line
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import Night
from airflow_provider.storage.spool import Spool

log = logging.getLogger(__name__)


@dataclass
class EarlierVerdicts:
    """What earlier nights have found about tonight's cells.

    :param verdicts: by the digest of a cell, the latest; and by digest and key, see `verdict_of`
    :param before: category and `first_seen` of each criterion in the last night, by the key of a cell
    :param last_night: the latest night that tonight's verdicts are compared with
    :param rates: cells per second of earlier nights
    """

    verdicts: Spool = field(default_factory=Spool)
    before: Spool = field(default_factory=Spool)
    last_night: str = ""
    rates: list[float] = field(default_factory=list)
    _verdict_nights: dict[str, str] = field(default_factory=dict)
    _before_nights: dict[str, str] = field(default_factory=dict)

    def add(self, verdict: Mapping[str, Any], cells: set[str], keys: set[str], night: Night) -> None:
        """Keep a verdict if it is the latest of a cell, and what it says about the last night."""
        digest, key, at = str(verdict["cell"]), str(verdict["key"]), str(verdict["night"])
        # A second run for the same date is the same night.
        is_this_run = verdict["run"] == night.run or at == night.at
        categories, _ = as_before(verdict["findings"]), verdict["assessment_id"]  # both are needed later
        if digest in cells and (is_this_run or _origin_of(verdict) <= night.at):
            # A verdict of a later night would let this one point into its future.
            self._add_verdict(verdict, digest, f"{digest}\n{key}" if key in keys else "", at)
        if key in keys and (is_this_run or at < night.at) and at >= self._before_nights.get(key, ""):
            # A run that is cleared still compares with the night before, not with itself.
            self._before_nights[key] = at
            self.before[key] = verdict["before"] if is_this_run else categories
            compared_with = verdict.get("last_night") or "" if is_this_run else at
            self.last_night = max(self.last_night, compared_with)
        elif key in keys and at > night.at:
            self._add_later({**verdict["before"], **categories}, verdict["before"], key, night)

    def _add_later(
        self, found: Mapping[str, Sequence[str]], before: Mapping[str, Sequence[str]], key: str, night: Night
    ) -> None:
        """Compare with what a later night tells about those before tonight; it may have replaced theirs.

        :param found: category and `first_seen` of each criterion in the later night
        :param before: the same in the night before that
        """
        latest = {name: seen if seen[1] < night.at else before.get(name) for name, seen in found.items()}
        known = {name: seen for name, seen in latest.items() if seen and seen[1] < night.at}
        at = max((seen[1] for seen in known.values()), default="")
        if known and at > self._before_nights.get(key, ""):
            self._before_nights[key] = at
            self.before[key] = known
            self.last_night = max(self.last_night, at)

    def _add_verdict(self, verdict: Mapping[str, Any], digest: str, own: str, at: str) -> None:
        if own and at >= self._verdict_nights.get(own, ""):
            self._verdict_nights[own] = at
            self.verdicts[own] = verdict
        if at >= self._verdict_nights.get(digest, ""):
            self._verdict_nights[digest] = at
            if own and self._verdict_nights[own] == at:
                self.verdicts.link(digest, own)
            else:
                self.verdicts[digest] = verdict

    def verdict_of(self, cell: Cell) -> Any:
        """Return the verdict on a cell: of the same source, else of an equal text; None if there is none."""
        return self.verdicts.get(f"{cell.digest}\n{cell.key}") or self.verdicts.get(cell.digest)

    def restore(self, location: Location, keys: set[str]) -> None:
        """Compare with what an earlier attempt of this run compared with, even if the index has moved on."""
        for record in read_valid_rows(location):
            if "last_night" in record:
                self.last_night = str(record["last_night"])
            elif str(record.get("key")) in keys and isinstance(record.get("before"), dict):
                self.before[str(record["key"])] = record["before"]

    def comparison(self, cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
        """Yield what `restore` reads."""
        yield {"last_night": self.last_night}
        for each in cells:
            yield {"key": each.key, "before": self.before.get(each.key) or {}}

    def close(self) -> None:
        """Remove the temporary files."""
        self.verdicts.close()
        self.before.close()


class VerdictIndex:
    """The verdicts below a root.

    :param folder: where it is
    :param name: of the object of this task, the same every night
    """

    def __init__(self, folder: Location, name: str) -> None:
        self._folder = folder
        self._own = folder / f"{name}.jsonl"

    def read(self, cells: Iterable[Cell], night: Night) -> EarlierVerdicts:
        """Read what earlier nights have found about these cells."""
        digests = {each.digest for each in cells} - {""}
        keys = {each.key for each in cells}
        earlier = EarlierVerdicts()
        for _, location in find_tables(self._folder):
            for record in read_valid_rows(location):
                try:
                    if "cells_per_second" in record:
                        earlier.rates.append(float(record["cells_per_second"]))
                    else:
                        earlier.add(record, digests, keys, night)
                except (KeyError, TypeError, ValueError) as error:
                    log.warning("An invalid verdict in '%s' is ignored: %r", location, error)
        return earlier

    def write(self, verdicts: Iterable[Mapping[str, Any]], night: Night, cells_per_second: float) -> None:
        """Write tonight's verdicts, and those of documents that did not come tonight.

        A run of an earlier night, such as one that is cleared or a backfill, replaces no later verdict.
        """
        oldest = (datetime.fromisoformat(night.at) - timedelta(days=KEPT_DAYS)).isoformat()
        later: set[tuple[str, str]] = set()
        for record in read_valid_rows(self._own):
            if _night_of(record) > night.at:
                later.add(_identity(record))
            # A night that has carried everything forward says nothing about the rate.
            cells_per_second = cells_per_second or record.get("cells_per_second") or 0.0
        written: set[tuple[str, str]] = set()
        with writing(self._own) as write:
            if cells_per_second:
                write(to_line({"cells_per_second": cells_per_second}))
            for verdict in verdicts:
                if (identity := _identity(verdict)) not in later:
                    written.add(identity)
                    write(to_line(verdict))
            for record in read_valid_rows(self._own):
                if "cell" in record and _identity(record) not in written and _night_of(record) > oldest:
                    write(to_line(record))


def _identity(record: Mapping[str, Any]) -> tuple[str, str]:
    """Identify what a verdict is about; equal documents from two sources have one each."""
    return str(record.get("cell")), str(record.get("key"))


def _origin_of(verdict: Mapping[str, Any]) -> str:
    """Return the night that has made a verdict; others have carried it forward since."""
    return str((verdict.get("carried_from") or verdict)["night"])


def _night_of(record: Mapping[str, Any]) -> str:
    return str(record.get("night") or "")
