"""Find what there is of documents below a root: rows, objects, jobs, digests and reports."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.addresses import redact
from airflow_provider.assess.tables import has_pyarrow
from airflow_provider.evidence.chain import Chain, ChainRecord
from airflow_provider.evidence.holds import (
    Hold,
    check_holds,
    read_holds,
)
from airflow_provider.evidence.manifests import FINDINGS
from airflow_provider.evidence.tables import download
from airflow_provider.evidence.verifier import DIGESTS, Problem, find_object, read_blocks, to_address
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.reports.cutting import cut
from airflow_provider.storage import names
from airflow_provider.storage.jsonl import SUFFIXES, parse_line, read_lines
from airflow_provider.storage.layout import EVIDENCE_FOLDER, HOLDS, MANIFEST, NIGHTS, OWN_FOLDERS
from airflow_provider.storage.locations import Location, parse_json, storage_errors

SOURCE = re.compile(rb'"source":\s*("(?:[^"\\]|\\.)*")')
INTENT = ".sources"  # names the documents as long as an erasure is not complete
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
    :param shared: jobs and objects that rows of other documents name, too
    :param reports: of closed nights that name them: SHA-256 before and after; empty for what is removed
    """

    tables: dict[str, int] = field(default_factory=dict)
    jobs: set[tuple[str, str, str]] = field(default_factory=set)
    objects: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    digests: dict[str, None] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    reports: dict[str, str] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add what a row of a table or a journal names."""
        account = str(row.get("account") or "")
        self.jobs |= {(name, str(row[name]), account) for name in JOB_COLUMNS if row.get(name)}
        self.keys |= {str(row["source"]), f"{row['source']}\n{row.get('framework_id', '')}"}


class TraceFinder:
    """Finds what there is of documents below a root.

    :param sources: as rows name them
    """

    def __init__(self, root: Location, sources: Collection[str]) -> None:
        self._root = root
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
        if not has_pyarrow() and any(name.endswith(".parquet") for name in self._find_names()):
            raise ComplianceInputError("Install the extra `parquet`: there are Parquet files to change.")
        self._names = sorted(
            name for name in self._find_names() if not name.startswith(f"{EVIDENCE_FOLDER}/")
        )
        is_open = bool(head and head.record.get("erasing"))
        if head and is_open:
            self.sources |= self._read_intent(head.record["erasing"])
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
                traces.digests |= dict.fromkeys(self._blocks(sealing))
        traces.objects |= set(self._find_left_over(traces.keys))
        traces.shared = self._shared(traces)
        self._patterns = {
            name for name in self._names if name.startswith(f"{HOLDS}/") and name.endswith(".json")
        }
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
        return (path[path.index(root) + len(root) + 1 :] for path in found)

    def _find_left_over(self, keys: Collection[str]) -> Iterator[str]:
        """Yield texts and results that no row names any more, because a cleared task has written others."""
        digests = [f"-{names.digest(key)}" for key in keys]
        for name in self._names:
            if any(digest in name.rpartition("/")[2] for digest in digests):
                yield name

    def _tables(self) -> Iterator[str]:
        return (name for name in self._names if name.endswith(SUFFIXES))

    def _is_about(self, line: bytes) -> bool:
        found = SOURCE.search(line)
        source = parse_json(found[1]) if found else None
        # A list of addresses has them with their logins, unlike all that is made of it.
        return source in self.sources or (
            isinstance(source, str) and source.startswith("http") and redact(source) in self.sources
        )

    def _objects(self, row: Mapping[str, Any]) -> set[str]:
        """Return the texts and results below the root that a row names; nothing else may be removed."""
        found = set()
        for path in (row.get(name) for name in OBJECT_COLUMNS):
            try:
                inner = find_object(self._places, path)[1]
            except Problem:
                continue
            if OWN_FOLDERS.isdisjoint(inner.split("/")):
                found.add(inner)
        return found

    def _blocks(self, sealing: Sealing) -> list[str]:
        """Return the digests of blocks about the documents.

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
                    if lines and self._is_about(lines[0]):
                        found.append(digest)
        return found

    def _read_intent(self, number: int) -> set[str]:
        """Return the documents of an erasure that is not complete; none if all of it is done."""
        try:
            lines = list(read_lines(self._root / str(self.chain.read(number).record["sources"])))
        except FileNotFoundError:
            return set()
        return {str(parse_line(line, "A line of an erasure")["source"]) for line in lines}

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
        texts = [*map(json.dumps, self.sources), *(f'"{source}"' for source in self.sources)]
        named = any(one in text for one in texts)
        if name in self._patterns | self._stored.keys():
            pattern = str((parse_json(data) or {}).get("source"))
            hold = Hold(0, pattern, "", "")
            named = any(hold.covers(source) and names.name_in(source) in pattern for source in self.sources)
        return b"" if named else data

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
