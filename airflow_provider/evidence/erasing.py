"""Erase documents: everything about them below a root, and their jobs at the service. Digests stay.

The chain gets a record before anything is removed, which has the digests, and another one at the end. In
between no night can be closed and nothing else erased. Completing an erasure that was killed adds a record of
its own. Rows of closed nights go last, those of ingestion after all others: what is left names the document.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_provider.assess.tables import copy_csv, copy_parquet
from airflow_provider.evidence.chain import Chain, ChainRecord
from airflow_provider.evidence.holds import (
    ERASED,
    ERASURE,
    check_holds,
    check_not_erasing,
    describe,
    read_holds,
)
from airflow_provider.evidence.manifests import FINDINGS
from airflow_provider.evidence.tables import download
from airflow_provider.evidence.verifier import ABSENT, DIGESTS, Problem, find_object, read_blocks, to_address
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.reports.cutting import cut, name_pattern
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import GZIP, SUFFIXES, TableFile, parse_line, read_lines
from airflow_provider.storage.layout import EVIDENCE_FOLDER, HOLDS, MANIFEST, NIGHTS, WORK_FOLDER
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.nights import Entry

SOURCE = re.compile(rb'"source":\s*("(?:[^"\\]|\\.)*")')
OBJECT_COLUMNS, JOB_COLUMNS = ("path", "results_path", "text_path"), ("uuid", "assessment_id")


@dataclass(frozen=True)
class Sealing:
    """A table as a record has it; paths are below the root."""

    path: str
    salts: str
    digests: str


@dataclass
class Traces:
    """What there is of documents below a root.

    :param tables: with rows about them, and how many, in the order in which these go
    :param jobs: at the service: column, id and account
    :param objects: texts and results, by their paths below the root
    :param keys: by which entries of nights find their rows
    :param digests: of their rows in closed nights
    :param reports: of closed nights that name them: SHA-256 before and after; empty for what is removed
    """

    tables: dict[str, int] = field(default_factory=dict)
    jobs: set[tuple[str, str, str]] = field(default_factory=set)
    objects: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    digests: dict[str, None] = field(default_factory=dict)
    reports: dict[str, str] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add what a row of a table or a journal names."""
        account = str(row.get("account") or "")
        self.jobs |= {(name, str(row[name]), account) for name in JOB_COLUMNS if row.get(name)}
        self.keys |= {str(row["source"]), f"{row['source']}\n{row.get('framework_id', '')}"}


class Erasure:
    """Erases documents below a root.

    :param sources: as rows name them
    :param by: who erases
    :param task: identifies the task instance, whose next attempt completes what this one has begun
    :param resume: complete an erasure that was killed
    """

    def __init__(
        self,
        root: Location,
        sources: Collection[str],
        reason: str,
        by: str,
        log: Any,
        *,
        task: str = "",
        resume: bool = False,
    ) -> None:
        self._root, self._reason, self._by, self._log = root, reason, by, log
        self._task, self._resume = task, resume
        self.chain = Chain(root)
        self.sources = set(sources)
        self._sealings: list[Sealing] = []
        self._erased: set[str] = set()  # digests of earlier erasures, which may not be complete
        self._stored: dict[str, set[str]] = {}  # reports and patterns of holds: SHA-256, then and now
        self._names: list[str] = []
        self._patterns: set[str] = set()  # of holds that are not in force, by path
        self._places: list[tuple[str, Any]] = []  # what stands for the root in paths of rows

    def find(self, head: ChainRecord | None = None) -> Traces:
        """Return what there is, without changing anything; an error if documents are held."""
        head = head or self.chain.find_head()
        if not (head or (self._root / NIGHTS).list_names()):
            raise ComplianceInputError(f"There are no nights at '{self._root}': give their root.")
        self._read_chain(head)
        self._names = sorted(
            name for name in self._find_names() if not name.startswith(f"{EVIDENCE_FOLDER}/")
        )
        is_open = bool(head and head.record.get("erasing"))
        if is_open:
            self.sources |= self._find_unfinished()
        holds = read_holds(self.chain, head)
        check_holds(holds, sorted(self.sources))
        traces = Traces()
        for name in self._tables():
            for line in read_lines(self._root / name):
                if self._is_about(line):
                    row = parse_line(line, f"A line of '{self._root / name}'")
                    traces.add(row)
                    traces.tables[name] = traces.tables.get(name, 0) + 1
                    traces.objects |= self._objects(row)
        sealed = {sealing.path for sealing in self._sealings}
        last = sorted(
            traces.tables, key=lambda name: (name in sealed, name.rpartition("/")[2].startswith(MANIFEST))
        )
        traces.tables = {name: traces.tables[name] for name in last}
        for sealing in self._sealings:
            if sealing.path in traces.tables:
                traces.digests |= dict.fromkeys(digest for digest, _ in self._blocks(sealing))
        self._patterns = {name for name in self._names if name.startswith(f"{HOLDS}/")}
        for hold in holds:  # its pattern may be similar, but covers none of them
            self._patterns.discard(hold.path)
            self._stored.pop(hold.path, None)
        traces.reports = self._find_reports()
        if not (traces.tables or traces.reports or is_open):
            named = ", ".join(sorted(self.sources)[:3])
            raise ComplianceInputError(
                f"No night below '{self._root}' has the document '{named}': give its source as rows name it."
            )
        return traces

    def run(self, delete_jobs: Callable[[Collection[tuple[str, str, str]]], None]) -> ChainRecord:
        """Erase; return the record that says so.

        :param delete_jobs: deletes jobs at the service; an error ends the erasure, to be resumed
        """
        found: list[Traces] = []

        def begin(head: ChainRecord | None) -> dict[str, Any]:
            resumed = self._check_open(head)
            found[:] = [traces := self.find(head)]
            earlier = self.chain.read(resumed).record["rows"] if resumed else {}
            return {
                **describe(self._root, ERASURE, self._reason, self._by),
                "task": self._task or None,
                "resumes": resumed,
                "documents": len(self.sources),
                "digests": list(traces.digests),
                "rows": dict(Counter(traces.tables) | Counter(earlier)),  # some may be gone already
                "reports": traces.reports,
                "erasing": head.number + 1 if head else 1,
            }

        entry = self.chain.append(begin)
        (traces,) = found
        self._erased.update(traces.digests)
        shared = self._shared(traces)
        delete_jobs({job for job in traces.jobs if job[1] not in shared})
        for name in sorted(traces.objects - shared):
            (self._root / name).remove()
        self._rewrite_derived()
        entries = list(self._entries())
        for name in traces.tables:
            self._rewrite_table(name, entries, traces.keys)
        for sealing in self._sealings:
            self._mark_salts(sealing)
        done = {**describe(self._root, ERASED, self._reason, self._by), "completes": entry.number}
        self.chain.append(lambda _: {**done, "jobs": len(traces.jobs), "erasing": None})
        self._log.info("Erased %s documents: see %s.", len(self.sources), entry.uri)
        return entry

    def is_begun(self) -> bool:
        """Return whether an earlier attempt of the task has begun an erasure that is not complete."""
        number = (head := self.chain.find_head()) and head.record.get("erasing")
        return bool(number and self._task and self.chain.read(number).record.get("task") == self._task)

    def _check_open(self, head: ChainRecord | None) -> int | None:
        """Return the erasure that this one completes."""
        number = head.record.get("erasing") if head else None
        if not number:
            return None
        task = self.chain.read(number).record.get("task")
        if not self._resume and not (task and task == self._task):
            check_not_erasing(head, "Documents can be erased")
        return int(number)

    # -- what there is

    def _read_chain(self, head: ChainRecord | None) -> None:
        """Read where all tables and reports of closed nights are, and what was erased before."""
        sealings: dict[Sealing, None] = {}
        roots, after = {self._root.uri}, dict[str, set[str]]()
        self._stored = {}
        for entry in self.chain.newest_first(head):
            record = entry.record
            roots.add(str(record.get("root")))
            self._erased.update(record.get("digests") or ())
            for before, sha256 in (record.get("reports") or {}).items():
                after.setdefault(before, {before}).update(after.get(sha256, {sha256}))
            for table in record.get("manifests") or ():
                sealings[Sealing(table["path"], table["salts"], table["digests"])] = None
            for stored in filter(None, (record.get("report"), *(record.get("objects") or ()))):
                if not stored["path"].startswith(f"{EVIDENCE_FOLDER}/"):
                    self._stored[stored["path"]] = after.get(stored["sha256"], {stored["sha256"]})
        self._sealings = list(sealings)
        places = sorted(map(to_address, roots), key=len, reverse=True)
        self._places = [(place, self._root) for place in (*places, ".")]

    def _find_names(self) -> Iterator[str]:
        fs, root = self._root.fs, self._root.path.rstrip("/")
        with storage_errors(self._root, "searched"):
            fs.invalidate_cache()
            found = fs.find(root)
        return (path[path.rindex(root) + len(root) + 1 :] for path in found)

    def _tables(self) -> Iterator[str]:
        return (name for name in self._names if name.endswith(SUFFIXES))

    def _is_about(self, line: bytes) -> bool:
        found = SOURCE.search(line)
        return found is not None and json.loads(found[1]) in self.sources

    def _objects(self, row: Mapping[str, Any]) -> set[str]:
        """Return the objects below the root that a row names; others are not ours to remove."""
        found = set()
        for path in (row.get(name) for name in OBJECT_COLUMNS):
            try:
                found.add(find_object(self._places, path)[1])
            except Problem:
                continue
        return found

    def _blocks(self, sealing: Sealing, erased: Collection[str] = ()) -> list[tuple[str, bytes]]:
        """Return digest and first line of blocks about the documents, or of those that are to be erased.

        A table may have changed elsewhere, or was written again since: only blocks as they were sealed count.
        """
        digests = (self._root / DIGESTS / f"{sealing.digests}.txt").read() or b""
        found = []
        folders = tempfile.TemporaryDirectory(prefix="erase-")
        with suppress(ComplianceInputError, Problem), folders as folder:
            table, salts = Path(folder) / "table", Path(folder) / "salts"
            download(self._root / sealing.path, table)
            download(self._root / sealing.salts, salts)
            with table.open("rb") as rows, salts.open("rb") as file:
                for digest, _, lines in read_blocks(rows, file, digests, sealing.path):
                    if lines and (digest in erased if erased else self._is_about(lines[0])):
                        found.append((digest, lines[0]))
        return found

    def _find_unfinished(self) -> set[str]:
        """Return the documents that an erasure has not completed, as far as rows of them are left."""
        found = set()
        for sealing in self._sealings:
            for _, line in self._blocks(sealing, self._erased):
                found.add(str(json.loads(line).get("source")))
        return found

    def _find_reports(self) -> dict[str, str]:
        """Return how reports of closed nights change, and which patterns of released holds go."""
        found = {}
        for path, known in self._stored.items():
            data = (self._root / path).read()
            if data and (sha256 := hashlib.sha256(data).hexdigest()) in known:
                new = self._change_small(path, data)
                if new != data:
                    found[sha256] = hashlib.sha256(new).hexdigest() if new else ""
        return found

    def _change_small(self, name: str, data: bytes) -> bytes:
        """Return a small object without the documents; empty if it has to go."""
        text = data.decode("utf-8", "surrogateescape")
        if name.endswith(".html"):
            return cut(text, self.sources).encode("utf-8", "surrogateescape")
        return b"" if name_pattern(self.sources).search(text) else data

    def _shared(self, traces: Traces) -> set[str]:
        """Return jobs and objects that rows of other documents name, too: those of an equal text."""
        wanted, shared = traces.objects | {job for _, job, _ in traces.jobs}, set()
        for name in self._tables():
            # What findings name, assessments do, too.
            for line in () if name.rpartition("/")[2].startswith(FINDINGS) else read_lines(self._root / name):
                if SOURCE.search(line) and not self._is_about(line):
                    row = parse_line(line, f"A line of '{self._root / name}'")
                    shared |= wanted & (self._objects(row) | {str(row.get(name)) for name in JOB_COLUMNS})
        return shared

    # -- what is changed

    def _rewrite_derived(self) -> None:
        """Take the documents out of all that is not a table: reports, CSV, Parquet, and work in progress."""
        for name in self._names:
            location, is_small = self._root / name, name in self._stored or name in self._patterns
            if name.endswith((".csv", f".csv{GZIP}")):
                self._rewrite(location, copy_csv)
            elif name.endswith(".parquet"):
                self._rewrite(location, copy_parquet)
            elif (
                is_small
                or name.endswith("/report.html")
                or (name.endswith(".json") and WORK_FOLDER in name.split("/"))
            ):
                data = location.read() or b""
                new = self._change_small(name, data)
                if data and not new:
                    location.remove()
                elif new != data:
                    put_sync(location, new)

    def _rewrite(self, location: Location, copy: Callable[[Path, Path, Collection[str]], int]) -> None:
        """Replace an object by what a function leaves of it, if that is less, by way of the disk."""
        with tempfile.TemporaryDirectory(prefix="erase-") as folder:
            suffix = GZIP if location.path.endswith(GZIP) else ""
            old, new = Path(folder) / f"old{suffix}", Path(folder) / f"new{suffix}"
            download(location, old)
            if copy(old, new, self.sources):
                put_sync(location, new)

    def _rewrite_table(self, name: str, entries: list[Entry], keys: Collection[str]) -> None:
        """Write a table without the rows; first the entries by which later nights know its hash.

        So a table that is not written yet still has its rows, and the next attempt does the same again.
        """
        table = TableFile(self._root / name, keeps_name=True)
        for line in read_lines(self._root / name):
            if not self._is_about(line):
                table.write(line)
        table.complete()
        for number, entry in enumerate(entries):
            tables = {
                key: replace(known, sha256=table.sha256)
                if entry.location(key).uri == table.location.uri
                else known
                for key, known in entry.tables.items()
            }
            if tables != entry.tables:
                entries[number] = replace(entry, tables=tables).without(keys)
                put_sync(self._root / entry.path, entries[number].dump())
        table.publish()

    def _entries(self) -> Iterator[Entry]:
        for name in self._names:
            if name.startswith(f"{NIGHTS}/") and (content := (self._root / name).read()):
                try:
                    yield Entry.parse(content, self._root)
                except ValueError as error:
                    self._log.warning("Ignored the damaged entry '%s' of a night: %s", name, error)

    def _mark_salts(self, sealing: Sealing) -> None:
        """Remove the salts of blocks that are erased."""
        content = (self._root / DIGESTS / f"{sealing.digests}.txt").read() or b""
        digests = [line[:64].decode() for line in content.splitlines()]
        location = self._root / sealing.salts
        salts = (location.read() or b"").splitlines(keepends=True)
        if len(salts) == len(digests):
            marked = [
                ABSENT if digest in self._erased else salt
                for digest, salt in zip(digests, salts, strict=True)
            ]
            if marked != salts:
                put_sync(location, b"".join(marked))
