"""Erase documents: everything about them below a root, then their jobs at the service. Digests stay.

The chain gets a record before anything is removed, which has the digests, and another one once nothing is
left below the root. In between no night can be closed and nothing else erased, and an object names the
documents, so that a killed erasure can be completed. Rows of closed nights go last, rows of
ingestion after all others. Jobs at the service come after that: the last record has the remaining jobs.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceSupersededError
from airflow_provider.nights.assess.tables import copy_csv, copy_parquet
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.holds import (
    ERASED,
    ERASURE,
    check_holds,
    check_not_erasing,
    describe,
    patterns_in_force,
    read_holds,
)
from airflow_provider.nights.evidence.jobs import Job
from airflow_provider.nights.evidence.pages import render_night_again, render_safely, render_task_again
from airflow_provider.nights.evidence.tables import below, download
from airflow_provider.nights.evidence.traces import CSV, PARQUET, PART, Traces, keys_of
from airflow_provider.redaction.text import plural
from airflow_provider.runtime.params import required
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import TableFile, read_lines, read_valid_rows
from airflow_provider.storage.locations import Location, parse_json
from airflow_provider.storage.names import HOLDS, NIGHTS, WORK_FOLDER

LISTED = re.compile(r"[0-9a-f]{64}\.json|[0-9a-f]{16}\.sources|\.[0-9a-f]{16}\.part")
INTENT = ".sources"  # names the documents as long as an erasure is not complete
MAX_WRITE_TIME = timedelta(hours=1)  # a part that is younger may be complete soon


class JobService(Protocol):
    """Deletes the jobs of documents."""

    def check(self) -> None:
        """Raise an error of the connection, before anything is erased."""

    def delete(self, jobs: Collection[Job]) -> list[Job]:
        """Delete jobs; return the remaining ones."""


class Erasure:
    """Erases documents below a root.

    :param sources: as rows name them
    :param by: who erases
    :param task: identifies the task instance, whose next attempt completes what this one began
    :param resume: complete an erasure that was killed, and try again to delete jobs that are left
    :ivar left: files that may name the documents: they can't be read, or another process may still write them
    :ivar removed: parts of killed writes, and salts that were back after an erasure
    :ivar has_erased: it found rows or files of the documents
    :ivar is_unknown: nothing names the documents: they were erased before, or the names are wrong
    :ivar jobs_left: of these and earlier erasures that were tried again
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
        self.left: list[str] = []
        self.jobs_left: list[Job] = []
        self.removed: list[str] = []
        self.is_unknown, self.has_erased = False, True
        self._reason = str(required(reason, "reason"))
        self._root, self._by, self._log, self._task, self._resume = root, by, log, task, resume

    def find(self) -> Traces:
        """Return what would be erased, without changing anything; an error if documents are held."""
        head, begun = self.chain.find_head(), self.find_begun()
        if not (self.sources or begun):
            self._find_left()
        return self._find(head, self.sources | (self._read_intent(begun)[0] if begun else set()))

    def run(self, service: JobService) -> ChainRecord:
        """Erase; return the record that says so.

        :param service: has no say in what becomes of anything below the root
        """
        begun = self.find_begun()
        sources = self.sources
        if begun:
            sources = sources - self._read_intent(begun)[0]
            self._complete(begun)
        entry = self._erase(service, sources) if sources else begun or self._find_left()
        for number, jobs in self._find_jobs().items():
            is_own = self._task and self.chain.read(number).record["by"] == self._by  # by an earlier run
            if number == entry.number or is_own or self._resume:
                self._delete_jobs(service, number, jobs)
        return entry

    def _erase(self, service: JobService, sources: Collection[str]) -> ChainRecord:
        """Erase documents, if anything names them; return its record, otherwise the last erasure's."""
        intent = self._root / HOLDS / f"{secrets.token_hex(8)}{INTENT}"
        found: list[Traces] = []  # by the latest try to add the record

        def begin(head: ChainRecord | None) -> dict[str, Any] | ChainRecord:
            check_not_erasing(head, "Documents can be erased")
            traces = self._find(head, sources)
            found[:] = [traces]
            if traces.is_empty:
                return self._last_erasure()
            if traces.jobs:
                service.check()
            put_sync(intent, _dump_intent(sources, traces.tables, traces.jobs))
            return {
                **describe(self._root, ERASURE, self._reason, self._by),
                "task": self._task or None,
                "sources": below(intent, self._root),
                "documents": len(sources),
                "digests": traces.digests(),
                "rows": traces.tables,
                "nights": sorted(traces.nights),
                "erasing": head.number + 1 if head else 1,
            }

        try:
            entry = self.chain.append(begin)
        except BaseException:
            with suppress(ComplianceError):  # the store is down: the list can't be removed either
                self._remove_unused(intent)
            raise
        if found[0].is_empty:
            self._remove_parts(found[0])
            self._update_entries(found[0])
            self.removed += self._mark_salts(found[0])
            for name in self.removed:
                self._log.info("Removed '%s', which an erasure or a killed write left.", name)
            self.has_erased, self.is_unknown = False, not self.removed
            if self.is_unknown:
                self._log.warning("Nothing below '%s' names the documents now: check the names.", self._root)
        else:
            self._complete(entry, found[0])
        return entry

    def _remove_unused(self, intent: Location) -> None:
        """Remove a list of documents, unless a record names it: a failed write may have stored the record."""
        head = self.chain.find_head()
        number = head.record.get("erasing") if head else None
        if not number or self.chain.read(number).record["sources"] != below(intent, self._root):
            intent.remove()

    def _last_erasure(self) -> ChainRecord:
        """Return the last erasure; without one the name is wrong, which is an error."""
        for entry in self.chain.newest_first(self.chain.find_head()):
            if entry.record.get("kind") == ERASURE:
                return entry
        named = ", ".join(sorted(self.sources)[:3])
        raise ComplianceInputError(
            f"No night below '{self._root}' has the document '{named}': give its source as rows name it."
        )

    def _find_left(self) -> ChainRecord:
        """Return the last erasure that left jobs at the service, or raise an error."""
        if found := self._find_jobs():
            return self.chain.read(max(found))
        raise ComplianceInputError(f"No erasure is open at '{self._root}': there is nothing to complete.")

    def find_begun(self) -> ChainRecord | None:
        """Return the erasure that is not complete, if this one is to complete it."""
        head = self.chain.find_head()
        if not head or not head.record.get("erasing"):
            return None
        begun = self.chain.read(head.record["erasing"])
        is_own = bool(self._task) and begun.record.get("task") == self._task
        return begun if self._resume or is_own else None

    def _find(self, head: ChainRecord | None, sources: Collection[str]) -> Traces:
        if not (head or (self._root / NIGHTS).list_names()):
            raise ComplianceInputError(f"There are no nights at '{self._root}': give their root.")
        check_holds(read_holds(self.chain, head), sorted(sources))
        return Traces(self.chain, head, sources)

    # -- jobs at the service

    def _find_jobs(self) -> dict[int, list[Job]]:
        """Return the jobs that are left at the service, by the number of the erasure."""
        found: dict[int, list[Job]] = {}
        for entry in self.chain.newest_first(self.chain.find_head()):
            if entry.record.get("kind") == ERASED and entry.record["completes"] not in found:
                found[entry.record["completes"]] = [
                    (str(column), str(identifier), str(account))
                    for column, identifier, account in entry.record["left"]
                ]
        return {number: jobs for number, jobs in found.items() if jobs}

    def _delete_jobs(self, service: JobService, number: int, jobs: list[Job]) -> None:
        """Try to delete jobs; add a record that says which are left."""
        left = jobs
        try:
            left = service.delete(jobs)
        except ComplianceError as error:
            self._log.warning("Could not delete jobs at the service: %s", error)
        self.jobs_left += left
        if left:
            self._log.warning(
                "Left at the service: %s of erased documents. All else is erased. To try again, run "
                "`erase ROOT --resume --reason TEXT`.",
                plural(len(left), "job"),
            )
        if len(left) < len(jobs):
            done = {
                **describe(self._root, ERASED, self._reason, self._by),
                "completes": number,
                "jobs": len(jobs) - len(left),
                "left": sorted(left),
            }
            self.chain.append(lambda head: done)

    # -- remains of an erasure until it is complete

    def _read_intent(self, entry: ChainRecord) -> tuple[set[str], Counter[str], set[Job]]:
        """Return the documents that are still to be erased, how many rows of each table, and the jobs."""
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
        jobs = {(str(column), str(name), str(account)) for column, name, account in intent.get("jobs", ())}
        return set(intent.get("sources", ())), Counter(intent.get("rows", {})), jobs

    def _write_intent(
        self, entry: ChainRecord, sources: Collection[str], rows: Counter[str], jobs: Collection[Job]
    ) -> None:
        location = self._root / entry.record["sources"]
        self._check_open(entry)
        put_sync(location, _dump_intent(sources, rows, jobs))
        try:
            self._check_open(entry)
        except ComplianceSupersededError:  # it was completed in between, and its list removed
            location.remove()
            raise

    def _check_open(self, entry: ChainRecord) -> None:
        """Stop if another attempt completed the erasure while this one hung."""
        head = self.chain.find_head()
        if not head or head.record.get("erasing") != entry.number:
            raise ComplianceSupersededError("Another attempt completed this erasure.")

    def _complete(self, entry: ChainRecord, found: Traces | None = None) -> None:
        """Remove what there still is below the root of the documents of an erasure."""
        sources, rows, jobs = self._read_intent(entry)
        traces = found or Traces(self.chain, entry, sources)
        rows |= Counter(traces.tables)  # files written since it began count as well
        known = {job[:2] for job in jobs}  # with their accounts, whose rows may be gone now
        jobs |= {job for job in traces.jobs if job[:2] not in known}
        self._write_intent(entry, traces.sources, rows, jobs)
        gone = sorted({*traces.objects, *traces.states})
        for name in gone:
            (self._root / name).remove()
        self._remove_parts(traces)
        for name in traces.damaged:
            self._leave(self._root / name, "it can't be read")
        for name in filter(CSV.fullmatch, traces.names):
            self._copy(self._root / name, copy_csv, traces.sources)
        for name in filter(PARQUET.fullmatch, traces.names):
            self._copy(self._root / name, copy_parquet, traces.sources)
        reports = self._render_again(traces, entry)
        for name in traces.tables:
            self._write_table(name, traces, entry)
        self._update_entries(traces, rows)
        self._mark_salts(traces, entry.record["digests"])
        self._write_intent(entry, (), rows, jobs)
        self._remove_lists(entry)
        done = {
            **describe(self._root, ERASED, self._reason, self._by),
            "completes": entry.number,
            "jobs": 0,
            "left": sorted(jobs),
            "files_left": len(self.left),
            "rows": rows - Counter(entry.record["rows"]),
            "reports": reports,
            "erasing": None,
        }
        self.chain.append(lambda head: done if head and head.record.get("erasing") == entry.number else entry)
        (self._root / entry.record["sources"]).remove()
        self._log.info(
            "Erased %s and %s: see %s.",
            plural(entry.record["documents"], "document"),
            plural(len(gone), "file"),
            entry.uri,
        )

    def _render_again(self, traces: Traces, erasure: ChainRecord) -> dict[str, str]:
        """Write reports again without the documents; return the SHA-256 of reports of nights, by record."""
        reports = {}
        for number in sorted({*erasure.record["nights"], *traces.nights}):
            entry = self.chain.read(number)
            render = partial(render_night_again, self.chain, entry, traces.is_named)
            page = render_safely(render, path := entry.record["report"]["path"])
            self._check_open(erasure)
            put_sync(self._root / path, page)
            reports[str(number)] = hashlib.sha256(page).hexdigest()
        tasks = {
            next(iter(entry.tables.values())).uri.rpartition("/")[0]: entry
            for entry in traces.entries
            if entry.tables.keys() & {"manifest", "findings"}
        }
        for name in traces.reports:
            if task := tasks.get(name.rpartition("/")[0]):
                render = partial(render_task_again, task, traces.is_named)
                put_sync(self._root / name, render_safely(render, name))
            else:  # an attempt that published nothing
                (self._root / name).remove()
        return reports

    def _remove_lists(self, entry: ChainRecord) -> None:
        """Remove lists of erasures that never began, and patterns of holds that are not in force.

        No other erasure or hold can begin while this one is open.
        """
        folder, listed = self._root / HOLDS, Path(str(entry.record["sources"])).name
        names = folder.list_names()
        self._check_open(entry)  # after that: what begins now has no list among these
        kept = {listed, *patterns_in_force(self.chain, entry)}
        for name in {*filter(LISTED.fullmatch, names)} - kept:
            (folder / name).remove()

    def _remove_parts(self, traces: Traces) -> None:
        """Remove what writes left that were killed; one that may still go on is left."""
        for name in filter(PART.fullmatch, traces.names):
            location, written_at = self._root / name, datetime.now(UTC)
            with suppress(NotImplementedError):
                try:
                    written_at = location.fs.modified(location.path).astimezone(UTC)
                except FileNotFoundError:
                    continue
            if datetime.now(UTC) - written_at > MAX_WRITE_TIME:
                location.remove()
                self.removed.append(str(location))
            elif not name.startswith(f"{HOLDS}/"):  # see `_remove_lists`
                self.left.append(str(location))
                self._log.warning("'%s' may be half-written: erase again in an hour.", location)

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
            except Exception as error:  # from any library: the file is damaged
                self._leave(location, f"it can't be read: {error}")
                return
            if is_changed:
                put_sync(location, new)

    def _leave(self, location: Location, why: str) -> None:
        """Name a file that may name the documents."""
        self.left.append(str(location))
        self._log.warning("Check '%s' by hand, and remove it: %s", location, why)

    def _write_table(self, name: str, traces: Traces, erasure: ChainRecord) -> None:
        """Write a table without the rows."""
        table = TableFile(self._root / name)
        for line in read_lines(self._root / name):
            if not traces.is_about(line):
                table.write(line)
        table.complete()
        self._check_open(erasure)
        table.replace(is_private=WORK_FOLDER in name.split("/"))  # a list may have logins

    def _update_entries(self, traces: Traces, tables: Iterable[str] = ()) -> None:
        """Write entries of nights, including restored ones, with keys and hashes of their remaining tables.

        :param tables: that have had rows of documents
        """
        erased = traces.erased_tables.union(tables)
        for entry in traces.entries:
            if not any(table.uri in erased for table in entry.tables.values()):
                continue
            places = {name: entry.location(name) for name in entry.tables}
            rows = (row for place in places.values() for row in read_valid_rows(place))
            left = entry.keeping(key for row in rows for key in keys_of(row))
            now = {
                name: replace(table, sha256=places[name].sha256() or table.sha256)
                for name, table in entry.tables.items()
            }
            if (left.keys, now) != (entry.keys, entry.tables):
                put_sync(self._root / entry.path, replace(left, tables=now).dump())

    def _mark_salts(self, traces: Traces, digests: Collection[str] = ()) -> list[str]:
        """Remove the salts of erased blocks, including restored ones; return the files."""
        names = []
        for name, content in traces.mark_salts({*traces.erased, *digests}):
            put_sync(self._root / name, content)
            names.append(str(self._root / name))
        return names


def _dump_intent(sources: Collection[str], rows: Mapping[str, int], jobs: Collection[Job]) -> bytes:
    return json.dumps({"sources": sorted(sources), "rows": rows, "jobs": sorted(jobs)}).encode()
