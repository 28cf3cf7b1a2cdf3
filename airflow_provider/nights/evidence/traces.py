"""Find what there is of documents below a root: rows, objects, jobs, digests and reports."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.assess.tables import has_pyarrow
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.holds import Hold
from airflow_provider.nights.evidence.manifests import FINDINGS
from airflow_provider.nights.evidence.stores import open_store
from airflow_provider.nights.evidence.verifier import Check, Problem, Verifier, find_object, to_address
from airflow_provider.nights.reports.cutting import cut
from airflow_provider.redaction.addresses import redact
from airflow_provider.storage import names
from airflow_provider.storage.jsonl import SUFFIXES, find_names, parse_line, read_lines
from airflow_provider.storage.layout import (
    EVIDENCE_FOLDER,
    HOLDS,
    MANIFEST,
    NIGHT_FOLDER,
    OWN_FOLDERS,
    WORK_FOLDER,
)
from airflow_provider.storage.locations import parse_json, storage_errors

SOURCE = re.compile(rb'"source":\s*("(?:[^"\\]|\\.)*")')
OBJECT_COLUMNS, JOB_COLUMNS = ("path", "results_path", "text_path"), ("uuid", "assessment_id")


class Traces:
    """What there is of documents below a root; paths are below the root. Nothing is changed.

    :param sources: of the documents, as rows name them
    """

    def __init__(self, chain: Chain, head: ChainRecord | None, sources: Collection[str]) -> None:
        self.root, self.sources = chain.root, sources
        self.names = [one for one in find_names(self.root) if not one.startswith(f"{EVIDENCE_FOLDER}/")]
        if not has_pyarrow() and any(name.endswith(".parquet") for name in self.names):
            raise ComplianceInputError("Install the extra `parquet`: there are Parquet files to change.")
        records = [entry.record for entry in chain.newest_first(head)]
        tables = [table for record in records for table in record.get("manifests") or ()]
        # Of closed nights, as records describe them.
        self.sealed = list({(table["path"], table["digests"]): table for table in tables}.values())
        roots = {to_address(uri) for uri in (self.root.uri, *(str(one.get("root")) for one in records))}
        self._places = [(place, self.root) for place in (*sorted(roots, key=len, reverse=True), ".")]
        self.tables: dict[str, int] = {}  # how many rows are about the documents, in the order they go
        self.jobs: set[tuple[str, str, str]] = set()  # at the service: column, id and account
        self.objects: set[str] = set()  # texts and results
        self.keys: set[str] = set()  # by which entries of nights find their rows
        self._read_tables()
        self._find_left_over()
        self._leave_shared()
        # Reports, patterns and states that name them: SHA-256 before and after; empty if it goes.
        self.pages: dict[str, tuple[str, str]] = {}
        for name in filter(_may_name_documents, self.names):
            data = (self.root / name).read() or b""
            if (new := self.change(name, data)) != data:
                self.pages[name] = _sha256(data), _sha256(new) if new else ""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing below the root names the documents."""
        return not (self.tables or self.pages)

    def is_about(self, line: bytes) -> bool:
        """Return whether a row is about one of the documents."""
        found = SOURCE.search(line)
        source = parse_json(found[1]) if found else None
        # A list of addresses has them with their logins, unlike all that is made of it.
        return source in self.sources or (
            isinstance(source, str) and source.startswith("http") and redact(source) in self.sources
        )

    def change(self, name: str, data: bytes) -> bytes:
        """Return a report, a pattern or a state without the documents; empty if it has to go."""
        text = data.decode("utf-8", "surrogateescape")
        if name.endswith(".html"):
            return cut(text, self.sources).encode("utf-8", "surrogateescape")
        if name.startswith(f"{HOLDS}/"):  # released: those in force cover none of the documents
            hold = Hold(0, str((parse_json(data) or {}).get("source")))
            is_named = any(hold.covers(one) and names.name_in(one) in hold.pattern for one in self.sources)
        else:
            is_named = any(json.dumps(one) in text or f'"{one}"' in text for one in self.sources)
        return b"" if is_named else data

    def evidence_changes(self) -> dict[str, str]:
        """Return the hashes, before and after, of what records name; the content of others can be guessed."""
        return dict(
            hashes
            for name, hashes in self.pages.items()
            if NIGHT_FOLDER in name.split("/") or name.startswith(f"{HOLDS}/")
        )

    def digests(self) -> list[str]:
        """Return the digests of blocks about the documents.

        A table may have changed elsewhere, or was written again since: only blocks as they were sealed count.
        """
        found: dict[str, None] = {}
        verifier = Verifier(open_store(self.root, 1))
        for table in (table for table in self.sealed if table["path"] in self.tables):
            with storage_errors(self.root, "read"), suppress(Problem):
                for digest, _, lines in verifier.blocks(Check(0), table):
                    found |= {digest: None} if lines and self.is_about(lines[0]) else {}
        return list(found)

    def _read_tables(self) -> None:
        for name in self._table_names():
            for line in filter(self.is_about, read_lines(self.root / name)):
                row = parse_line(line, f"A line of '{self.root / name}'")
                account = str(row.get("account") or "")
                self.jobs |= {
                    (column, str(row[column]), account) for column in JOB_COLUMNS if row.get(column)
                }
                self.keys |= {str(row["source"]), f"{row['source']}\n{row.get('framework_id', '')}"}
                self.objects |= self._objects(row)
                self.tables[name] = self.tables.get(name, 0) + 1
        # Those of closed nights go last, those of ingestion after all others.
        closed = {table["path"] for table in self.sealed}
        order = sorted(
            self.tables, key=lambda name: (name in closed, name.rpartition("/")[2].startswith(MANIFEST))
        )
        self.tables = {name: self.tables[name] for name in order}

    def _table_names(self) -> Iterator[str]:
        return (name for name in self.names if name.endswith(SUFFIXES))

    def _objects(self, row: Mapping[str, Any]) -> set[str]:
        """Return the texts and results below the root that a row names; nothing else may be removed."""
        found = set()
        for path in (row.get(name) for name in OBJECT_COLUMNS):
            with suppress(Problem):
                found.add(find_object(self._places, path)[1])
        return {path for path in found if OWN_FOLDERS.isdisjoint(path.split("/"))}

    def _find_left_over(self) -> None:
        """Add texts and results that no row names any more, because a cleared task has written others."""
        digests = [f"-{names.digest(key)}" for key in self.keys]
        self.objects |= {
            name for name in self.names if any(digest in name.rpartition("/")[2] for digest in digests)
        }

    def _leave_shared(self) -> None:
        """Leave jobs and objects that rows of other documents name, too: those of an equal text."""
        wanted, shared = self.objects | {job for _, job, _ in self.jobs}, set[str]()
        for name in self._table_names():
            # What findings name, assessments do, too.
            is_needed = wanted and not name.rpartition("/")[2].startswith(FINDINGS)
            for line in read_lines(self.root / name) if is_needed else ():
                if SOURCE.search(line) and not self.is_about(line):
                    row = parse_line(line, f"A line of '{self.root / name}'")
                    shared |= wanted & (self._objects(row) | {str(row.get(one)) for one in JOB_COLUMNS})
        self.objects -= shared
        self.jobs = {job for job in self.jobs if job[1] not in shared}


def _may_name_documents(name: str) -> bool:
    """Return whether an object is a report, the pattern of a hold, or work in progress."""
    *folders, last = name.split("/")
    if last.endswith(".html"):
        return last == "report.html" or NIGHT_FOLDER in folders
    return last.endswith(".json") and (WORK_FOLDER in folders or folders == [HOLDS])


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
