"""Find all traces of documents below a root: rows, objects, jobs, digests, and reports that name them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.assess.tables import has_pyarrow
from airflow_provider.nights.evidence.chain import EVIDENCE_FOLDER, Chain, ChainRecord
from airflow_provider.nights.evidence.jobs import UNKNOWN, Job
from airflow_provider.nights.evidence.manifests import FINDINGS, INGEST
from airflow_provider.nights.evidence.stores import open_store
from airflow_provider.nights.evidence.verifier import (
    ABSENT,
    DIGESTS,
    Check,
    Problem,
    Verifier,
    find_object,
    to_address,
)
from airflow_provider.nights.index.nights import Entry
from airflow_provider.nights.reports.page import limit_source, render_names
from airflow_provider.redaction.addresses import redact
from airflow_provider.storage import names
from airflow_provider.storage.jsonl import find_names, log, parse_line, read_lines
from airflow_provider.storage.locations import parse_json, storage_errors
from airflow_provider.storage.names import NIGHTS, OWN_FOLDERS

SOURCE = re.compile(rb'"source":\s*("(?:[^"\\]|\\.)*")')
ACCOUNT, FRAMEWORK = re.compile(rb'"account":\s*"[^"]'), re.compile(rb'"framework_id":\s*"?([^",}]+)')
OBJECT_COLUMNS, JOB_COLUMNS = ("path", "results_path", "text_path"), ("uuid", "assessment_id")
# Written by tasks; other files below the root belong to others, and are left as they are.
_WORK = r"_work/(?:ingest|assess|state|deletes|shards)/.+"
TABLE = re.compile(
    rf"(?:.+/)?(?:_ingest/.+/manifest|_assess/.+/(?:assessments|findings|golden|agreement)|{_WORK}"
    r"|_assess/.+/(?:decisions|forms)/.+|_night/[0-9a-f]{32})(?:\.\d+)?\.jsonl(?:\.gz)?",
    re.DOTALL,
)
STATE = re.compile(rf"(?:.+/)?{_WORK}\.json", re.DOTALL)
CSV = re.compile(r"(?:.+/)?_assess/.+/csv/[^/]+\.csv", re.DOTALL)
PARQUET = re.compile(r"(?:.+/)?findings/night=[^/]+/[0-9a-f]+\.parquet", re.DOTALL)
TASK_REPORT = re.compile(r"(?:.+/)?_(?:ingest|assess)/.+/report\.html", re.DOTALL)
NIGHT_REPORT = re.compile(r"(?:.+/)?_night/report-[0-9a-f]{16}\.html", re.DOTALL)
PART = re.compile(r"(?:.+/)?\.[0-9a-f]{16}\.part", re.DOTALL)  # left by a writer: see storage.atomic


def keys_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys by which entries of nights find a row."""
    source = str(row.get("source"))
    return source, f"{source}\n{row.get('framework_id', '')}", str(row.get("cell"))


class Traces:
    """Traces of documents below a root; paths are below the root. Nothing is changed.

    :param sources: the sources of the documents, as rows name them
    :ivar tables: how many rows are about the documents, in the order they go
    :ivar damaged: tables that can't be read to their end
    :ivar objects: texts and results
    :ivar nights: numbers of the records whose reports may name them
    :ivar reports: of single tasks, and of nights that no record names, which may name them
    :ivar states: work in progress that names them
    """

    def __init__(self, chain: Chain, head: ChainRecord | None, sources: Collection[str]) -> None:
        self.root, self.sources = chain.root, sources
        self.names = [one for one in find_names(self.root) if not one.startswith(f"{EVIDENCE_FOLDER}/")]
        if not has_pyarrow() and any(map(PARQUET.fullmatch, self.names)):
            raise ComplianceInputError("Install the extra `parquet`: Parquet files have to be changed.")
        self._records = list(chain.newest_first(head))
        records = [entry.record for entry in self._records]
        tables = [table for record in records for table in record.get("manifests") or ()]
        # Digests of blocks that were erased before.
        self.erased = {one for record in records for one in record.get("digests") or ()}
        # That have had rows of documents, these or others.
        self.erased_tables = {
            one for record in records if record.get("kind") for one in record.get("rows") or ()
        }
        # Of closed nights, as records describe them.
        self.sealed = list({(table["path"], table["digests"]): table for table in tables}.values())
        roots = {to_address(uri) for uri in (self.root.uri, *(str(one.get("root")) for one in records))}
        self._places = [(place, self.root) for place in (*sorted(roots, key=len, reverse=True), ".")]
        own = {table["path"] for table in self.sealed} | {
            table.uri for entry in self.entries for table in entry.tables.values()
        }
        self._tables = [name for name in self.names if name in own or TABLE.fullmatch(name)]
        self.tables: dict[str, int] = {}
        self.damaged: set[str] = set()
        self.jobs: set[Job] = set()
        self.objects: set[str] = set()
        self._frameworks: set[bytes] = set()  # IDs of all
        self._read_tables()
        self._find_left_over()
        self._leave_shared()
        quoted = [form for one in sources for form in (json.dumps(one), f'"{one}"')]
        self.states = [name for name in filter(STATE.fullmatch, self.names) if self._has_name(name, quoted)]
        self.nights = set(self._find_nights())
        known = {str((record.get("report") or {}).get("path")) for record in records}
        folders = {name.rpartition("/")[0] for name in self.tables}
        self.reports = [
            name
            for name in self.names
            if TASK_REPORT.fullmatch(name) or (NIGHT_REPORT.fullmatch(name) and name not in known)
            if name.rpartition("/")[0] in folders or self._has_name(name, self._shown)
        ]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing below the root names the documents."""
        found = self.tables, self.states, self.nights, self.reports, self.objects
        return not any(found)

    @cached_property
    def entries(self) -> list[Entry]:
        """Published tables of nights."""
        found = []
        for name in self.names:
            if name.startswith(f"{NIGHTS}/") and (content := (self.root / name).read()):
                try:
                    found.append(Entry.parse(content, self.root))
                except ValueError as error:
                    log.warning("Ignored the damaged entry '%s' of a night: %s", name, error)
        return found

    def is_about(self, line: bytes) -> bool:
        """Return whether a row is about one of the documents."""
        found = SOURCE.search(line)
        return self.is_named(parse_json(found[1]) if found else None)

    def is_named(self, source: object) -> bool:
        """Return whether a row has the source of one of the documents."""
        # A list of addresses has them with their logins, unlike all that is made of it.
        return source in self.sources or (
            isinstance(source, str) and source.startswith("http") and redact(source) in self.sources
        )

    def digests(self) -> list[str]:
        """Return the digests of blocks about the documents.

        A table may have changed elsewhere: only blocks as they were sealed count.
        """
        found: dict[str, None] = {}
        verifier = Verifier(open_store(self.root, 1))
        for table in (table for table in self.sealed if table["path"] in self.tables):
            with storage_errors(self.root, "read"), suppress(Problem):
                for digest, _, lines in verifier.blocks(Check(0), table):
                    found |= {digest: None} if lines and self.is_about(lines[0]) else {}
        return list(found)

    def mark_salts(self, erased: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield paths and new contents of salts that have some of erased blocks, such as after a restore."""
        for table in self.sealed:
            blocks = ((self.root / DIGESTS / f"{table['digests']}.txt").read() or b"").splitlines()
            lines = ((self.root / table["salts"]).read() or b"").splitlines(keepends=True)
            if len(lines) == len(blocks):
                pairs = zip(blocks, lines, strict=True)
                marked = [ABSENT if block[:64].decode() in erased else salt for block, salt in pairs]
                if marked != lines:
                    yield table["salts"], b"".join(marked)

    def _read_tables(self) -> None:
        # Findings name jobs without their account: what any row says of a job counts.
        accounts, has_accounts = dict[tuple[str, str], set[str]](), False
        for name in self._tables:
            for line in self._read_lines(name):
                has_accounts = has_accounts or bool(ACCOUNT.search(line))
                self._frameworks.update(FRAMEWORK.findall(line))
                if not self.is_about(line):
                    continue
                row = parse_line(line, f"A line of '{self.root / name}'")
                for column in filter(row.get, JOB_COLUMNS):
                    known = accounts.setdefault((column, str(row[column])), set())
                    known |= {str(row["account"])} if row.get("account") else set()
                self.objects |= self._objects(row)
                self.tables[name] = self.tables.get(name, 0) + 1
        other = UNKNOWN if has_accounts else ""
        self.jobs = {(*job, account) for job, known in accounts.items() for account in known or {other}}
        # Closed nights go last, their ingestion after all others.
        kinds = {table["path"]: table["kind"] for table in self.sealed}
        order = sorted(
            sorted(self.tables.keys() - self.damaged),
            key=lambda name: (name in kinds, kinds.get(name) == INGEST),
        )
        self.tables = {name: self.tables[name] for name in order}

    def _read_lines(self, name: str) -> Iterator[bytes]:
        """Read a table whose end may be damaged."""
        try:
            yield from read_lines(self.root / name)
        except ComplianceInputError as error:
            self.damaged.add(name)
            log.warning("%s", error)

    def _objects(self, row: Mapping[str, Any]) -> set[str]:
        """Return the texts and results below the root that a row names; nothing else may be removed."""
        found = set()
        for path in (row.get(name) for name in OBJECT_COLUMNS):
            with suppress(Problem):
                found.add(find_object(self._places, path)[1])
        return {path for path in found if OWN_FOLDERS.isdisjoint(path.split("/"))}

    def _find_left_over(self) -> None:
        """Add texts and results that no row names any more: of cleared tasks, or restored from a backup."""
        ids = [one.decode("utf-8", "replace") for one in self._frameworks]
        cells = {f"{source}\n{framework}" for source in self.sources for framework in ids}
        digests = [f"-{names.digest(key)}" for key in {*self.sources, *cells}]
        self.objects |= {
            name for name in self.names if any(digest in name.rpartition("/")[2] for digest in digests)
        }

    def _leave_shared(self) -> None:
        """Leave jobs and objects that rows of other documents with an equal text name as well."""
        wanted, shared = self.objects | {job for _, job, _ in self.jobs}, set[str]()
        for name in self._tables:
            # Assessments name everything that findings name.
            is_needed = wanted and not name.rpartition("/")[2].startswith(FINDINGS)
            for line in self._read_lines(name) if is_needed else ():
                if SOURCE.search(line) and not self.is_about(line):
                    row = parse_line(line, f"A line of '{self.root / name}'")
                    shared |= wanted & (self._objects(row) | {str(row.get(one)) for one in JOB_COLUMNS})
        self.objects -= shared
        self.jobs = {job for job in self.jobs if job[1] not in shared}

    def _has_name(self, name: str, forms: Collection[str]) -> bool:
        text = ((self.root / name).read() or b"").decode("utf-8", "surrogateescape")
        return any(form in text for form in forms)

    @cached_property
    def _shown(self) -> set[str]:
        """How pages show the documents: as templates do, with their folders, or by their whole addresses."""
        given = {*self.sources, *map(limit_source, self.sources)}
        shown = {name for source in given for name in (html.escape(source), *render_names(source))}
        return {name.encode("utf-8", "replace").decode() for name in shown}

    def _find_nights(self) -> Iterator[int]:
        """Yield nights that had one of the documents, nights that report it as vanished, and others.

        A verifier accepts another report only where rows were erased: a similar name is no reason for one.
        """
        having, touched = set(), set()
        for entry in reversed(self._records):
            record = entry.record
            if any(table["path"] in self.tables for table in record.get("manifests") or ()):
                having.add(entry.number)
            if any(map(self._is_touched, record.get("manifests") or ())):
                touched.add(entry.number)
            report, compared = record.get("report"), record.get("compared_with") or {}
            numbers = {entry.number, compared.get("number")}
            is_named = numbers & touched and report and self._has_name(report["path"], self._shown)
            if report and (numbers & having or is_named):
                yield entry.number

    def _is_touched(self, table: Mapping[str, Any]) -> bool:
        """Return whether rows of a table were erased, or it is lost."""
        listed = (self.root / DIGESTS / f"{table['digests']}.txt").read() if self.erased else b""
        lines = (listed or b"").splitlines()
        return table["path"] not in self.names or any(line[:64].decode() in self.erased for line in lines)
