"""Erase documents: everything about them below a root, and their jobs at the service. Digests stay.

The chain gets a record before anything is removed, which has the digests, and another one at the end. In
between no night can be closed and nothing else erased, and an object names the documents, so that an erasure
that was killed can be completed. Rows of closed nights go last, those of ingestion after all others.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceSupersededError
from airflow_provider.nights.assess.tables import copy_csv, copy_parquet
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.holds import (
    ERASED,
    ERASURE,
    check_holds,
    check_not_erasing,
    describe,
    read_holds,
)
from airflow_provider.nights.evidence.tables import below, download
from airflow_provider.nights.evidence.traces import Traces
from airflow_provider.nights.evidence.verifier import ABSENT, DIGESTS
from airflow_provider.nights.index.nights import Entry
from airflow_provider.runtime.params import required
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import TableFile, read_lines
from airflow_provider.storage.layout import HOLDS, NIGHTS
from airflow_provider.storage.locations import Location, parse_json

INTENT = ".sources"  # names the documents as long as an erasure is not complete
PART = re.compile(r"\.[0-9a-f]{16}\.part")  # see storage.atomic
MAX_WRITE_TIME = timedelta(hours=1)  # a part that is younger may be complete soon

DeleteJobs = Callable[[Collection[tuple[str, str, str]]], None]


class Erasure:
    """Erases documents below a root.

    :param sources: as rows name them
    :param by: who erases
    :param task: identifies the task instance, whose next attempt completes what this one has begun
    :param resume: complete an erasure that was killed
    :ivar unread: files that may name the documents, but can't be read
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
        self.chain = Chain(root)
        self.sources = set(sources)
        self.unread: list[str] = []
        self._reason = str(required(reason, "reason"))
        self._root, self._by, self._log, self._task, self._resume = root, by, log, task, resume

    def find(self) -> Traces:
        """Return what would be erased, without changing anything; an error if documents are held."""
        head, begun = self.chain.find_head(), self.find_begun()
        return self._find(head, self.sources | (self._read_intent(begun)[0] if begun else set()))

    def run(self, delete_jobs: DeleteJobs) -> ChainRecord:
        """Erase; return the record that says so.

        :param delete_jobs: deletes jobs at the service; an error ends the erasure, to be resumed
        """
        begun = self.find_begun()
        if begun:
            self._complete(begun, delete_jobs)
            if not self.sources:
                return begun
        intent = self._root / HOLDS / f"{secrets.token_hex(8)}{INTENT}"
        found: list[Traces] = []  # by the latest try to add the record

        def begin(head: ChainRecord | None) -> dict[str, Any] | ChainRecord:
            check_not_erasing(head, "Documents can be erased")
            done = begun or self._find_own(head)
            traces = self._find(head, self.sources, is_required=not done)
            found[:] = [traces]
            if done and traces.is_empty:
                return done
            put_sync(intent, _dump_intent(self.sources, traces.tables))
            return {
                **describe(self._root, ERASURE, self._reason, self._by),
                "task": self._task or None,
                "sources": below(intent, self._root),
                "documents": len(self.sources),
                "digests": traces.digests(),
                "rows": traces.tables,
                "reports": traces.evidence_changes(),
                "erasing": head.number + 1 if head else 1,
            }

        try:
            entry = self.chain.append(begin)
        except ComplianceError:
            intent.remove()
            raise
        if found[0].is_empty:
            self._log.info("Nothing of the documents is left: see %s.", entry.uri)
        else:
            self._complete(entry, delete_jobs, found[0])
        return entry

    def _find_own(self, head: ChainRecord | None) -> ChainRecord | None:
        """Return what an earlier attempt of this task has just erased, if it has died after that."""
        number = head.record.get("completes") if head else None
        entry = self.chain.read(number) if self._task and number else None
        own = self._task, len(self.sources)
        return entry if entry and (entry.record["task"], entry.record["documents"]) == own else None

    def find_begun(self) -> ChainRecord | None:
        """Return the erasure that is not complete, if this one is to complete it."""
        head = self.chain.find_head()
        if head and head.record.get("erasing"):
            begun = self.chain.read(head.record["erasing"])
            is_own = bool(self._task) and begun.record.get("task") == self._task
            return begun if self._resume or is_own else None
        if self._resume and not self.sources:
            raise ComplianceInputError(f"No erasure is open at '{self._root}': there is nothing to complete.")
        return None

    def _find(
        self, head: ChainRecord | None, sources: Collection[str], *, is_required: bool = True
    ) -> Traces:
        if not (head or (self._root / NIGHTS).list_names()):
            raise ComplianceInputError(f"There are no nights at '{self._root}': give their root.")
        check_holds(read_holds(self.chain, head), sorted(sources))
        traces = Traces(self.chain, head, sources)
        if is_required and traces.is_empty:
            named = ", ".join(sorted(sources)[:3])
            raise ComplianceInputError(
                f"No night below '{self._root}' has the document '{named}': give its source as rows name it."
            )
        return traces

    # -- what is left of an erasure until it is complete

    def _read_intent(self, entry: ChainRecord) -> tuple[set[str], Counter[str]]:
        """Return the documents that are still to be erased, and how many rows of each table were found."""
        intent = parse_json((self._root / str(entry.record["sources"])).read() or b"")
        if not isinstance(intent, dict):
            self._check_open(entry)
            documents, digests = entry.record["documents"], set(entry.record["digests"])
            given = Traces(self.chain, entry, self.sources)
            if len(self.sources) != documents or not digests.issuperset(given.digests()):
                raise ComplianceInputError(
                    f"The list of documents of the erasure {entry.uri} is missing: resume it with --source "
                    f"for each of them, {documents} in all, and for no other."
                )
            intent = {"sources": self.sources}
        return set(intent.get("sources", ())), Counter(intent.get("rows", {}))

    def _write_intent(self, entry: ChainRecord, sources: Collection[str], rows: Counter[str]) -> None:
        location = self._root / entry.record["sources"]
        self._check_open(entry)
        put_sync(location, _dump_intent(sources, rows))
        try:
            self._check_open(entry)
        except ComplianceSupersededError:  # it was completed in between, and its list removed
            location.remove()
            raise

    def _check_open(self, entry: ChainRecord) -> None:
        """Stop if another attempt has completed the erasure, while this one has hung."""
        head = self.chain.find_head()
        if not head or head.record.get("erasing") != entry.number:
            raise ComplianceSupersededError("Another attempt has completed this erasure.")

    def _complete(self, entry: ChainRecord, delete_jobs: DeleteJobs, found: Traces | None = None) -> None:
        """Remove what there still is of the documents of an erasure."""
        sources, rows = self._read_intent(entry)
        traces = found or Traces(self.chain, entry, sources)
        rows |= Counter(traces.tables)  # those that were written since it was begun count, too
        self._write_intent(entry, traces.sources, rows)
        delete_jobs(traces.jobs)
        for name in sorted(traces.objects):
            (self._root / name).remove()
        for name in traces.pages:
            if new := traces.change(name, (self._root / name).read() or b""):
                put_sync(self._root / name, new)
            else:
                (self._root / name).remove()
        for name in traces.names:
            if PART.fullmatch(name.rpartition("/")[2]):
                self._remove_part(self._root / name)
            elif name.endswith(".csv"):
                self._copy(self._root / name, copy_csv, traces.sources)
            elif name.endswith(".parquet"):
                self._copy(self._root / name, copy_parquet, traces.sources)
        entries = list(self._entries(traces))
        for name in traces.tables:
            self._write_table(name, traces, entries, entry)
        for table in traces.sealed:
            self._mark_salts(table["salts"], table["digests"], set(entry.record["digests"]))
        self._write_intent(entry, (), rows)
        self._remove_lists(entry)
        done = {
            **describe(self._root, ERASED, self._reason, self._by),
            "completes": entry.number,
            "jobs": len(traces.jobs),
            "unread": len(self.unread),
            "rows": rows - Counter(entry.record["rows"]),
            "erasing": None,
        }
        self.chain.append(lambda head: done if head and head.record.get("erasing") == entry.number else entry)
        (self._root / entry.record["sources"]).remove()
        self._log.info("Erased %s documents: see %s.", entry.record["documents"], entry.uri)

    def _remove_lists(self, entry: ChainRecord) -> None:
        """Remove lists of documents of erasures that never began: none can while this one is open."""
        folder = self._root / HOLDS
        names = folder.list_names()
        self._check_open(entry)  # after that: what begins now has no list among these
        for name in names:
            is_list = name.endswith(INTENT) or PART.fullmatch(name)
            if is_list and below(folder / name, self._root) != entry.record["sources"]:
                (folder / name).remove()

    def _remove_part(self, location: Location) -> None:
        """Remove what a write has left that was killed."""
        with suppress(FileNotFoundError, NotImplementedError):
            written_at = location.fs.modified(location.path)
            if datetime.now(UTC) - written_at.astimezone(UTC) > MAX_WRITE_TIME:
                location.remove()

    def _copy(
        self,
        location: Location,
        copy: Callable[[Path, Path, Collection[str]], int],
        sources: Collection[str],
    ) -> None:
        """Replace a file by a copy without the rows of documents, if it has some, by way of the disk."""
        with tempfile.TemporaryDirectory(prefix="erase-") as folder:
            old, new = Path(folder) / "old", Path(folder) / "new"
            download(location, old)
            try:
                is_changed = copy(old, new, sources)
            except Exception as error:  # of any library: a file of others, or a damaged one
                self.unread.append(str(location))
                self._log.warning("Check '%s' by hand, and remove it: it can't be read: %s", location, error)
                return
            if is_changed:
                put_sync(location, new)

    def _write_table(self, name: str, traces: Traces, entries: list[Entry], erasure: ChainRecord) -> None:
        """Write a table without the rows; first the entries by which later nights know its hash.

        So a table that is not written yet still has its rows, and the next attempt does the same again.
        """
        table = TableFile(self._root / name)
        for line in read_lines(self._root / name):
            if not traces.is_about(line):
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
                entries[number] = replace(entry, tables=tables).without(traces.keys)
                put_sync(self._root / entry.path, entries[number].dump())
        self._check_open(erasure)
        table.replace()

    def _entries(self, traces: Traces) -> Iterator[Entry]:
        for name in traces.names:
            if name.startswith(f"{NIGHTS}/") and (content := (self._root / name).read()):
                try:
                    yield Entry.parse(content, self._root)
                except ValueError as error:
                    self._log.warning("Ignored the damaged entry '%s' of a night: %s", name, error)

    def _mark_salts(self, salts: str, digests: str, erased: Collection[str]) -> None:
        """Remove the salts of blocks that are erased."""
        blocks = ((self._root / DIGESTS / f"{digests}.txt").read() or b"").splitlines()
        lines = ((self._root / salts).read() or b"").splitlines(keepends=True)
        if len(lines) == len(blocks):
            marked = [
                ABSENT if block[:64].decode() in erased else salt
                for block, salt in zip(blocks, lines, strict=True)
            ]
            if marked != lines:
                put_sync(self._root / salts, b"".join(marked))


def _dump_intent(sources: Collection[str], rows: Mapping[str, int]) -> bytes:
    return json.dumps({"sources": sorted(sources), "rows": rows}).encode()
