"""Reports from what tasks have left: manifests of ingestion, or tables of assessments and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from airflow_provider.assess.cells import cell_key
from airflow_provider.assess.output import ASSESSMENTS, COMPARISON, FINDINGS
from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.ingest.output import MANIFEST
from airflow_provider.provenance import TASK_COLUMNS
from airflow_provider.reports.assess import VerdictStats, render_verdicts
from airflow_provider.reports.ingest import Run, render_report
from airflow_provider.reports.page import read_time
from airflow_provider.storage.jsonl import Row, find_tables, parse_line, read_lines
from airflow_provider.storage.locations import Location

MAX_NAMES = 3  # of DAGs, tasks and runs in the title
INGEST, ASSESS = "ingest", "assess"
WANTED = {INGEST: ("source", "status"), ASSESS: ("source", "framework", "status")}


@dataclass
class Report:
    """A report, and the numbers in it."""

    kind: str
    html: str
    counts: dict[str, int]


@dataclass
class _Facts:
    """What the rows say about the run that has written them."""

    names: dict[str, dict[str, None]] = field(default_factory=lambda: {name: {} for name in TASK_COLUMNS})
    started: float | None = None
    ended: float | None = None
    statuses: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        for name in TASK_COLUMNS:
            if row.get(name) is not None:
                self.names[name][str(row[name])] = None
        self.statuses[str(row.get("status"))] += 1
        if row.get("status") == "SKIPPED" or row.get("carried_from"):
            return  # its times are of an earlier night
        if (submitted := read_time(row.get("submitted_at"))) is not None:
            self.started = min(submitted, self.started or submitted)
        if (completed := read_time(row.get("completed_at"))) is not None:
            self.ended = max(completed, self.ended or completed)

    def run(self, manifests: Sequence[Location]) -> Run:
        shards = list(self.names["map_index"])
        return Run(
            dag_id=self._join("dag_id"),
            task_id=self._join("task_id"),
            run_id=self._join("run_id"),
            map_index=int(shards[0]) if len(shards) == 1 and shards[0].isdecimal() else -1,
            started=None if self.started is None else datetime.fromtimestamp(self.started, UTC),
            ended=None if self.ended is None else datetime.fromtimestamp(self.ended, UTC),
            manifest=manifests[0].uri if len(manifests) == 1 else None,
        )

    def _join(self, name: str) -> str:
        first, more = list(self.names[name])[:MAX_NAMES], len(self.names[name]) - MAX_NAMES
        return ", ".join(first or ["unknown"]) + (f" and {more} more" if more > 0 else "")


def find_manifests(locations: Iterable[Location]) -> list[Location]:
    """Return these manifests, and those below these folders; findings stand for their assessments."""
    found: dict[str, Location] = {}
    for location in locations:
        if location.path.endswith(".jsonl"):
            folder, _, name = location.uri.rpartition("/")
            if name == FINDINGS:
                findings, location = location, Location(f"{folder}/{ASSESSMENTS}")
                location.fs = findings.fs
            found[location.uri] = location
            continue
        below = [
            each for name, each in find_tables(location) if name.rpartition("/")[2] in (MANIFEST, ASSESSMENTS)
        ]
        if not below:
            raise ComplianceInputError(
                f"There is no {MANIFEST} or {ASSESSMENTS} below '{location}': give a manifest, or the folder "
                "_ingest or _assess of a night."
            )
        found |= {each.uri: each for each in below}
    return list(found.values())


def build_report(manifests: Sequence[Location]) -> Report:
    """Build the report of manifests of one kind; one that is missing or damaged is an error."""
    facts, kinds = _Facts(), set()
    for manifest in manifests:
        kind = ASSESS if manifest.uri.rpartition("/")[2] == ASSESSMENTS else INGEST
        for number, row in enumerate(_read(manifest), 1):
            if number == 1 and "framework_id" in row:
                kind = ASSESS
            if missing := [name for name in WANTED[kind] if not isinstance(row.get(name), str)]:
                raise ComplianceInputError(
                    f"'{manifest}' is not a manifest: its row {number} has no {' and no '.join(missing)}."
                )
            facts.add(row)
        kinds.add(kind)
    if len(kinds) > 1:
        raise ComplianceInputError(
            "These are manifests of ingestion and of assessments: make a report of each. In a folder of a "
            "night, they are below _ingest and _assess."
        )
    run = facts.run(manifests)
    return _build_assess(manifests, run) if ASSESS in kinds else _build_ingest(manifests, run, facts)


def _build_ingest(manifests: Sequence[Location], run: Run, facts: _Facts) -> Report:
    html = render_report((row for each in manifests for row in _read(each)), run)
    statuses = {status.lower(): facts.statuses[status] for status in ("COMPLETED", "FAILED", "SKIPPED")}
    counts = {"manifests": len(manifests), "documents": facts.statuses.total(), **statuses}
    return Report(INGEST, html, counts)


def _build_assess(tables: Sequence[Location], run: Run) -> Report:
    stats = VerdictStats()
    night = last_night = ""
    is_compared = False
    files: dict[str, str] = {}
    for table in tables:
        folder = Location(table.uri.rpartition("/")[0])
        folder.fs = table.fs
        findings = _Groups(_read_findings(folder / FINDINGS))
        before, latest = _read_comparison(folder / COMPARISON)
        is_compared = is_compared or latest != ""
        last_night = max(last_night, latest or "")
        for cell in _read(table):
            rows = findings.take((cell["source"], str(cell.get("framework_id"))))
            night = max([night, *(str(row.get("night") or "") for row in rows)])
            stats.add(cell, rows, before.get(cell_key(cell), ()))
        if findings.is_left:
            raise ComplianceInputError(
                f"'{folder / FINDINGS}' has findings of which '{table}' has no assessment: they are not of "
                "the same task."
            )
        number = f" {len(files) // 2 + 1}" if len(tables) > 1 else ""
        files |= {f"Assessments{number}": table.uri, f"Findings{number}": (folder / FINDINGS).uri}
    html = render_verdicts(
        stats, run, night=night, last_night=last_night if is_compared else None, without_text=(), files=files
    )
    counts = {"assessments": stats.assessed + stats.carried + stats.failed}
    counts |= {name: getattr(stats, name) for name in ("assessed", "carried", "failed", "changed")}
    return Report(ASSESS, html, {"manifests": len(tables), **counts})


def _read_comparison(location: Location) -> tuple[dict[str, list[str]], str | None]:
    """Return the criteria of each cell in the last night, and when that was: empty if it was the first one.

    None if that was removed: then nobody knows.
    """
    before: dict[str, list[str]] = {}
    last_night: str | None = None
    if location.size() is None:
        return before, None
    for row in _read(location):
        if "last_night" in row:
            last_night = str(row["last_night"])
        elif row.get("before") and isinstance(row["before"], dict):
            before[str(row.get("key"))] = list(row["before"])
    return before, last_night


class _Groups:
    """Findings by source and framework, where those of an assessment follow each other."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._groups = groupby(rows, lambda row: (str(row["source"]), str(row.get("framework_id"))))
        self._next: tuple[tuple[str, str], Iterator[Row]] | None = next(self._groups, None)

    def take(self, key: tuple[str, str]) -> list[Row]:
        """Return the rows of the next group if it has this key, else none."""
        if self._next is None or self._next[0] != key:
            return []
        rows = list(self._next[1])
        self._next = next(self._groups, None)
        return rows

    @property
    def is_left(self) -> bool:
        """Whether there are more groups."""
        return self._next is not None


def _read_findings(location: Location) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(_read(location), 1):
        if missing := [name for name in ("source", "criterion", "category") if row.get(name) is None]:
            raise ComplianceInputError(
                f"'{location}' has no findings: its row {number} has no {' and no '.join(missing)}."
            )
        yield row


def _read(location: Location) -> Iterator[dict[str, Any]]:
    try:
        for number, line in enumerate(read_lines(location), 1):
            if line.strip():
                yield parse_line(line, f"The manifest is damaged: line {number} of '{location}'")
    except FileNotFoundError:
        raise ComplianceStorageError(
            f"'{location}' does not exist: correct the path, or restore it from a backup."
        ) from None
