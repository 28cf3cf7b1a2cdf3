"""Verdicts of earlier nights below the same root on tonight's cells: their tables are the index."""

from __future__ import annotations

import marshal
import os
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from sys import intern
from typing import Any

from airflow_provider.nights.assess.cells import AssessedFramework, Cell, cell_key
from airflow_provider.nights.assess.findings import BEFORE_COLUMNS, VERDICT_COLUMNS
from airflow_provider.nights.index.nights import EarlierNights, Entry, entries_with

TABLE, FINDINGS = "assessments", "findings"  # names of tables in an entry
# Facts of an entry.
ROOT, RATE, FRAMEWORKS, JUDGED_SINCE = "root", "cells_per_second", "frameworks", "judged_since"

LENGTH_BITS = 40  # per spooled record

Row = Mapping[str, Any]


class Spool:
    """Keeps the last value of each key in a temporary file, which no other process sees.

    Thousands of verdicts with their rationales would not fit into a worker's memory. Values are what JSON
    has. Python's own format is quicker, and nothing else reads the file.
    """

    def __init__(self) -> None:
        # Read and written at given places: threads and forked processes would share a position.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the spool
        self._end = 0
        self._places: dict[str, int] = {}  # where a value starts, and in the last bits its length

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __setitem__(self, key: str, value: Any) -> None:
        data = memoryview(marshal.dumps(value))
        start, self._end = self._end, self._end + len(data)
        written = 0
        while written < len(data):  # a full disk may take a part, then raises
            written += os.pwrite(self._file.fileno(), data[written:], start + written)
        self._places[key] = start << LENGTH_BITS | len(data)

    def __getitem__(self, key: str) -> Any:
        start, length = divmod(self._places[key], 1 << LENGTH_BITS)
        return marshal.loads(os.pread(self._file.fileno(), length, start))  # noqa: S302 - written above

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        return self[key] if key in self._places else None

    def close(self) -> None:
        """Remove it."""
        self._file.close()

    def __del__(self) -> None:
        self.close()


@dataclass
class EarlierVerdicts:
    """Facts about tonight's cells, by their keys.

    :param carried: fields of cells that an earlier night decided; `verdicts` are the verdicts on them
    :param before: `BEFORE_COLUMNS` of each criterion in the night to compare with
    :param causes: why a cell may have another verdict than in that night: see `Cell.find_cause`
    :param rules: the fingerprint of the framework in that night
    :param inputs: the inputs of the assessments of those nights, by id
    :param compared_with: the newest of those nights
    """

    carried: dict[str, dict[str, Any]] = field(default_factory=dict)
    verdicts: Spool = field(default_factory=Spool)
    before: Spool = field(default_factory=Spool)
    causes: dict[str, str] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Hashable] = field(default_factory=dict)
    compared_with: str = ""


@dataclass
class _Wanted:
    """What to read in the findings of one entry, by the keys of its own cells.

    :param carried: tonight's cells that get the same verdict, each with its new fields
    :param compared: the cells to compare with
    """

    entry: Entry
    carried: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    compared: dict[str, str] = field(default_factory=dict)  # to the same key, in memory once


def read_earlier_verdicts(
    nights: EarlierNights,
    cells: Iterable[Cell],
    *,
    gone: Iterable[str] = (),
    changed_only: bool = True,
    judged_since: Mapping[str, str] | None = None,
) -> EarlierVerdicts:
    """Read what earlier nights say about cells.

    :param gone: keys of cells of frameworks that are no longer listed, which are only compared with
    :param changed_only: whether to carry verdicts forward
    :param judged_since: verdicts on a framework that are older are not carried forward, by its id
    """
    cells = list(cells)
    by_key = {cell.key: cell for cell in cells}
    wanted: dict[str, _Wanted] = {}
    carried = find_carried(nights, cells, judged_since or {}) if changed_only else ()
    for cell, entry, row in carried:
        place = wanted.setdefault(entry.path, _Wanted(entry))
        fields = _carry(row, entry, nights.root.uri)
        place.carried.setdefault(cell_key(row), []).append((cell.key, fields))
    found = EarlierVerdicts()
    for key, entry, row in find_compared(nights, cells, gone):
        if own := by_key.get(key):
            found.causes.setdefault(own.key, own.find_cause(row))
            if (then := row.get("text_bytes")) and own.text_bytes is not None and own.text_change is None:
                is_new = own.text_sha256 != row["text_sha256"]
                own.text_change = round(own.text_bytes / then - 1, 3) if is_new else None
            if row["text_sha256"]:
                found.inputs[row["assessment_id"]] = Cell.from_record(row).input
            found.rules.setdefault(own.key, intern(str(row["framework_fingerprint"])))
        wanted.setdefault(entry.path, _Wanted(entry)).compared[key] = own.key if own else key
        found.compared_with = max(found.compared_with, entry.night.at)
    for place in sorted(wanted.values(), key=lambda place: place.entry.night.at, reverse=True):
        _read_findings(place, found)
    return found


def find_carried(
    nights: EarlierNights, cells: Iterable[Cell], judged_since: Mapping[str, str]
) -> Iterator[tuple[Cell, Entry, Row]]:
    """Yield the newest verdict on each cell: of the same source, else of an equal text of another one.

    :param judged_since: see `read_earlier_verdicts`
    """
    wanted: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        if digest := cell.digest:
            wanted.setdefault(digest, {})[cell.key] = cell
    of_any: dict[str, tuple[Entry, Row]] = {}
    row: Row
    for entry in entries_with(nights.entries(same_time=True), TABLE, wanted):
        for row in entry.rows(TABLE):
            digest = row["cell"]
            # Criteria that the service did not answer are asked again.
            if digest not in wanted or row["status"] != "COMPLETED" or row["unanswered"]:
                continue
            since = judged_since.get(row["framework_id"])
            if since and to_utc(row["completed_at"]) < since:
                continue  # by a judge that drifted since
            of_any.setdefault(digest, (entry, row))
            if (key := cell_key(row)) in wanted[digest]:
                yield wanted[digest].pop(key), entry, row
                if not wanted[digest]:
                    del wanted[digest]
    for digest, (entry, row) in of_any.items():
        for cell in wanted.get(digest, {}).values():
            yield cell, entry, row


def find_compared(
    nights: EarlierNights, cells: Iterable[Cell], gone: Iterable[str] = ()
) -> Iterator[tuple[str, Entry, Row]]:
    """Yield what each cell is compared with: earlier nights of this task, back to one with all answers.

    If the task has none, verdicts of other tasks count that were made with the same payload.
    """
    payloads = {cell.key: cell.payload_digest for cell in cells}
    missing = {*payloads, *gone}
    found: set[str] = set()
    for is_own in (True, False):
        for entry in entries_with(entries_of(nights, is_own=is_own), TABLE, missing):
            for row in entry.rows(TABLE) if entry.is_intact(FINDINGS) else ():
                key = cell_key(row)
                if key not in missing or row["status"] != "COMPLETED":
                    continue
                if is_own or payloads[key] == row["payload_digest"]:
                    yield key, entry, row
                    found.add(key)
                    if not row["unanswered"]:
                        missing.discard(key)
        missing = payloads.keys() - found


def entries_of(nights: EarlierNights, *, is_own: bool = True) -> Iterator[Entry]:
    """Return the entries of this task, or of others."""
    return (entry for entry in nights.entries() if entry.task.is_same_task(nights.task) is is_own)


def _read_findings(place: _Wanted, found: EarlierVerdicts) -> None:
    """Read the findings of one entry; a verdict with missing findings is not carried forward."""
    left = dict(place.carried)

    def add(key: str, rows: list[Row]) -> None:
        if key in place.compared:
            before = {row["criterion"]: [row.get(name) for name in BEFORE_COLUMNS] for row in rows}
            found.before[place.compared[key]] = before | (found.before.get(key) or {})
        verdicts = [{name: row[name] for name in VERDICT_COLUMNS} for row in rows]
        for own, fields in left.pop(key, ()):
            if len(rows) == fields["findings"]:
                found.carried[own], found.verdicts[own] = fields, verdicts

    for key, rows in groupby(place.entry.rows(FINDINGS), cell_key):
        if key in place.compared or key in left:
            add(key, list(rows))
    for key in list(left):
        add(key, [])  # the service found nothing


def _carry(row: Row, entry: Entry, root: str) -> dict[str, Any]:
    """Return the fields of a cell that is carried forward."""
    own = {"run": entry.night.run, "night": entry.night.at, "assessment_id": row["assessment_id"]}
    path, old_root = str(row["results_path"] or ""), str(entry.facts.get(ROOT) or root)
    if path.startswith(old_root):  # the whole tree may have been moved since
        path = root + path.removeprefix(old_root)
    return {
        "job_id": row["assessment_id"],
        "completed_at": row["completed_at"],
        "results_path": path,
        "results_sha256": row["results_sha256"],
        "findings": row["findings"],
        "carried_from": row["carried_from"] or own,
    }


@dataclass(frozen=True)
class Shrinkage:
    """Frameworks and criteria that the previous night had, and the service no longer lists.

    :param frameworks: names of frameworks, by id
    :param criteria: how many criteria a framework has, and had before, by its name
    """

    frameworks: Mapping[str, str] = field(default_factory=dict)
    criteria: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def describe_frameworks(frameworks: Iterable[AssessedFramework]) -> dict[str, tuple[str, int]]:
    """Return the fact that the next night compares its frameworks with: name and number of criteria."""
    return {framework.id: (framework.code_name, len(framework.criteria)) for framework in frameworks}


def to_utc(at: object) -> str:
    """Return a time so that it compares with others: services have time zones; empty if it is none."""
    try:
        time = datetime.fromisoformat(str(at))
    except ValueError:
        return ""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat("T", "microseconds")


def read_judged_since(nights: EarlierNights) -> dict[str, str]:
    """Return when the latest drift of the judge of a framework became known, by framework id.

    Every night keeps the times of the night before: an older verdict is never carried forward again.
    These are times of the clock, because another run may have an equal or a later logical date.
    """
    known: dict[str, str] = {}
    newest = ""
    for entry in entries_of(nights):
        if entry.night.at < newest:
            break
        newest = entry.night.at
        for key, at in entry.facts.get(JUDGED_SINCE, {}).items():
            known[key] = max(at, known.get(key, ""))
    return known


def find_shrinkage(
    nights: EarlierNights, frameworks: Iterable[AssessedFramework], listed: Iterable[str]
) -> Shrinkage:
    """Compare frameworks with the newest earlier night of this task.

    :param listed: ids of all frameworks that the service lists, wanted or not
    """
    own = next(entries_of(nights), None)
    before: Mapping[str, Any] = own.facts.get(FRAMEWORKS, {}) if own else {}
    return Shrinkage(
        {key: name for key, (name, _) in before.items() if key not in set(listed)},
        {
            framework.code_name: (len(framework.criteria), before[framework.id][1])
            for framework in frameworks
            if framework.id in before and len(framework.criteria) < before[framework.id][1]
        },
    )
