"""Erase documents: everything about them below a root, and their jobs at the service. Digests stay.

The chain gets a record before anything is removed, which has the digests, and another one at the end. In
between no night can be closed and nothing else erased. Completing an erasure that was killed adds a record of
its own. Rows of closed nights go last, those of ingestion after all others: what is left names the document.
"""

from __future__ import annotations

import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider.assess.tables import copy_csv, copy_parquet
from airflow_provider.evidence.chain import ChainRecord
from airflow_provider.evidence.holds import (
    ERASED,
    ERASURE,
    check_not_erasing,
    describe,
)
from airflow_provider.evidence.tables import below, download
from airflow_provider.evidence.traces import INTENT, Sealing, TraceFinder, Traces
from airflow_provider.evidence.verifier import ABSENT, DIGESTS
from airflow_provider.exceptions import ComplianceError
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import GZIP, TableFile, read_lines, to_lines
from airflow_provider.storage.layout import HOLDS, NIGHTS, WORK_FOLDER
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import Entry

PART = re.compile(r"\.[0-9a-f]{16}\.part")  # see storage.atomic
MAX_WRITE_TIME = timedelta(hours=1)  # a part that is younger may be complete soon


class Erasure(TraceFinder):
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
        super().__init__(root, sources)
        self._reason, self._by, self._log, self._task, self._resume = reason, by, log, task, resume
        self.unread: list[str] = []  # files that may name the documents, but can't be read

    def run(self, delete_jobs: Callable[[Collection[tuple[str, str, str]]], None]) -> ChainRecord:
        """Erase; return the record that says so.

        :param delete_jobs: deletes jobs at the service; an error ends the erasure, to be resumed
        """
        found: list[Traces] = []
        intent = self._root / HOLDS / f"{secrets.token_hex(8)}{INTENT}"

        def begin(head: ChainRecord | None) -> dict[str, Any]:
            resumed = self._check_open(head)
            found[:] = [traces := self.find(head)]
            earlier = self.chain.read(resumed).record["rows"] if resumed else {}
            put_sync(intent, to_lines({"source": source} for source in sorted(self.sources)))
            return {
                **describe(self._root, ERASURE, self._reason, self._by),
                "task": self._task or None,
                "resumes": resumed,
                "sources": below(intent, self._root),
                "documents": len(self.sources),
                "digests": list(traces.digests),
                "rows": dict(Counter(traces.tables) | Counter(earlier)),  # some may be gone already
                "reports": traces.reports,
                "erasing": head.number + 1 if head else 1,
            }

        try:
            entry = self.chain.append(begin)
        except ComplianceError:
            intent.remove()
            raise
        (traces,) = found
        self._erased.update(traces.digests)
        delete_jobs({job for job in traces.jobs if job[1] not in traces.shared})
        for name in sorted(traces.objects - traces.shared):
            (self._root / name).remove()
        self._rewrite_derived()
        entries = list(self._entries())
        for name in traces.tables:
            self._rewrite_table(name, entries, traces.keys)
        for sealing in self._sealings:
            self._mark_salts(sealing)
        for name in (self._root / HOLDS).list_names():
            if name.endswith(INTENT):
                (self._root / HOLDS / name).remove()
        done = {**describe(self._root, ERASED, self._reason, self._by), "completes": entry.number}
        self.chain.append(
            lambda _: {**done, "jobs": len(traces.jobs), "unread": len(self.unread), "erasing": None}
        )
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

    def _rewrite_derived(self) -> None:
        """Take the documents out of all that is not a table: reports, CSV, Parquet, and work in progress."""
        for name in self._names:
            location, is_small = self._root / name, name in self._stored or name in self._patterns
            if PART.fullmatch(name.rpartition("/")[2]):
                self._remove_part(location)
            elif name.endswith((".csv", f".csv{GZIP}")):
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

    def _remove_part(self, location: Location) -> None:
        """Remove what a write has left that was killed."""
        with suppress(FileNotFoundError, NotImplementedError):
            written_at = location.fs.modified(location.path)
            if datetime.now(UTC) - written_at.astimezone(UTC) > MAX_WRITE_TIME:
                location.remove()

    def _rewrite(self, location: Location, copy: Callable[[Path, Path, Collection[str]], int]) -> None:
        """Replace an object by what a function leaves of it, if that is less, by way of the disk."""
        with tempfile.TemporaryDirectory(prefix="erase-") as folder:
            suffix = GZIP if location.path.endswith(GZIP) else ""
            old, new = Path(folder) / f"old{suffix}", Path(folder) / f"new{suffix}"
            download(location, old)
            try:
                is_changed = copy(old, new, self.sources)
            except Exception as error:  # of any library: a file of others, or a damaged one
                self.unread.append(str(location))
                self._log.warning("Check '%s' by hand, and remove it: it can't be read: %s", location, error)
                return
            if is_changed:
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
