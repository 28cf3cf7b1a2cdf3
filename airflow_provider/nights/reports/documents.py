"""Documents over all nights below a root, as the tables of the nights have them. Everything here blocks."""

from __future__ import annotations

import hashlib
import json
import math
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Any

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.nights.index.nights import EarlierNights, Entry, Night, TaskKey, entries_with
from airflow_provider.nights.reports.page import OPEN, UNDECIDED, apply_decision, read_decision, state_of
from airflow_provider.storage.jsonl import Row, parse_line, read_blocks, read_valid_rows
from airflow_provider.storage.locations import Location, storage_errors

MAX_DOCUMENTS = 200  # for a search
MAX_NIGHTS = 60  # for a document


@dataclass
class DocumentNight:
    """One document in a night.

    :param date: the date of the night, with its time if that day has several
    :param document: its row of the manifest
    :param findings: on it, by framework and criterion
    :param decisions: the decisions of experts
    :param changed: tables of the night that are not as they were published; their rows are left out
    """

    date: str = ""
    document: Row = field(default_factory=dict)
    findings: dict[tuple[str, str], Row] = field(default_factory=dict)
    decisions: list[Row] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


class HashingReader:
    """Hashes a file while it is read."""

    def __init__(self, file: Any) -> None:
        self._file, self.hash = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Read so many bytes; fewer only at its end."""
        data: bytes = self._file.read(size)
        self.hash.update(data)
        return data


class DocumentTables:
    """The tables of the nights below a root.

    :param dag_ids: the DAGs that count; by default all
    :param seconds: after which a read stops with an error
    """

    def __init__(
        self, root: Location, dag_ids: Collection[str] | None = None, seconds: float = math.inf
    ) -> None:
        self.root = root
        self._dag_ids = dag_ids
        self._deadline = time.monotonic() + seconds

    def search(self, text: str) -> list[str]:
        """Return sources of the latest night whose name contains a text, ignoring case."""
        matching = (
            source
            for _, row in self.latest_rows()
            if text.casefold() in (source := str(row.get("source", ""))).casefold()
        )
        return list(islice(dict.fromkeys(matching), MAX_DOCUMENTS))

    def latest_rows(
        self, kind: str = "ingest", table: str = "manifest", runs: int = 1, *, is_intact: bool = False
    ) -> Iterator[tuple[str, Row]]:
        """Iterate over the rows of the latest runs that have some, with the dates of their nights.

        :param is_intact: only of tables that are as they were published
        """
        for night, entries in islice(self._by_night(kind, table), runs):
            for entry in entries:
                for row in entry.rows(table) if is_intact else read_valid_rows(entry.location(table)):
                    self._check_time()
                    yield night.date, row

    def read(self, source: str) -> list[DocumentNight]:
        """Return the nights of a document, newest first."""
        nights: dict[Night, DocumentNight] = defaultdict(DocumentNight)

        def rows(kind: str, table: str) -> Iterator[tuple[DocumentNight, Row]]:
            for at, entries in islice(self._by_night(kind, table, [source]), MAX_NIGHTS):
                # Tables of assessments and decisions have other keys than sources.
                some = entries_with(entries, table, [source]) if kind == "ingest" else entries
                for entry in reversed(list(some)):
                    found, is_intact = self._find_rows(entry, table, source)
                    if not is_intact:
                        nights[at].changed.append(str(entry.location(table)))
                    yield from ((nights[at], row) for row in found)

        for night, row in rows("ingest", "manifest"):
            night.document = row
        for night, row in rows("assess", "findings"):
            night.findings[str(row.get("framework")), str(row.get("criterion"))] = row
        for night, row in rows("review", "decisions"):
            night.decisions.append(row)
        self._apply_decisions(list(nights.values()))
        if not any(night.document or night.findings or night.decisions for night in nights.values()):
            return []
        days = Counter(at.date for at in nights)
        for at, night in nights.items():
            night.date = at.date if days[at.date] == 1 else at.at[:16].replace("T", " ")
        return [nights[at] for at in sorted(nights, key=lambda at: (at.at, at.run), reverse=True)]

    @staticmethod
    def _apply_decisions(nights: Sequence[DocumentNight]) -> None:
        """Let findings know of decisions that were made since their tables were written."""
        made = [read_decision(row) | {"cell": row.get("cell")} for night in nights for row in night.decisions]
        latest = {
            (row["cell"], row["framework"], row["criterion"]): row
            for row in sorted(made, key=lambda row: str(row["decided_at"]))
            if state_of(row) != OPEN
        }
        for night in nights:
            for key, finding in night.findings.items():
                night.findings[key] = dict(apply_decision(finding, latest.get((finding.get("cell"), *key))))

    def find_text(self, source: str, sha256: str = "") -> Row:
        """Return the newest row of a manifest with a text of a document, or an empty row.

        :param sha256: the SHA-256 of the text; by default any
        """
        for _, entries in islice(self._by_night("ingest", "manifest", [source]), MAX_NIGHTS):
            for entry in entries_with(entries, "manifest", [source]):
                for row in entry.rows("manifest"):
                    if row.get("source") == source and row.get("path") and sha256 in ("", row.get("sha256")):
                        return row
        return {}

    def count_decisions(self, runs: Collection[str]) -> Counter[str]:
        """Return how many decisions experts made in runs so far, by run."""
        counts: Counter[str] = Counter()
        for night, entries in islice(self._by_night("review", "decisions"), MAX_NIGHTS) if runs else ():
            for entry in entries if night.run in runs else ():
                counts[night.run] += sum(
                    row.get("decision") not in UNDECIDED for row in entry.rows("decisions")
                )
        return counts

    def _find_rows(self, entry: Entry, table: str, source: str) -> tuple[list[Row], bool]:
        """Return the rows of a document, and whether the table is as it was published, in one pass.

        Only blocks that may have the source are decompressed, and only lines that contain it are parsed.
        """
        location, wanted = entry.location(table), json.dumps(source).encode()
        found: list[Row] = []
        if (opened := location.open()) is None:
            return [], False
        with storage_errors(location, "read"):
            file = HashingReader(opened)
            with opened, suppress(ComplianceInputError, EOFError, zlib.error):
                for block in read_blocks(file, str(location), source):
                    self._check_time()
                    lines = block.splitlines() if wanted in block else ()
                    found += [parse_line(line, f"A line of '{location}'") for line in lines if wanted in line]
            is_intact = file.hash.hexdigest() == entry.tables[table].sha256
        return [row for row in found if is_intact and row.get("source") == source], is_intact

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise ComplianceStorageError("Reading the tables takes too long: use the command `history`.")

    def _by_night(
        self, kind: str, table: str, sources: Collection[str] = ()
    ) -> Iterator[tuple[Night, list[Entry]]]:
        """Iterate over the entries that have a table, by the run that published them, newest first.

        :param sources: only entries that may have one of these documents
        """
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        nights = EarlierNights(self.root, kind, Night(tomorrow, ""), TaskKey("", ""), sources=sources)
        counted = (
            entry
            for entry in nights.entries()
            if table in entry.tables and (self._dag_ids is None or entry.task.dag_id in self._dag_ids)
        )
        for _, entries in groupby(counted, key=lambda entry: entry.night.at):
            runs: dict[Night, list[Entry]] = {}
            for entry in entries:
                runs.setdefault(entry.night, []).append(entry)
            yield from runs.items()
