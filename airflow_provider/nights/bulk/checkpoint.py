"""The checkpoint of a bulk task: finished work is in its store, so that the next attempt can resume."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from airflow_provider.exceptions import (
    ComplianceInputError,
    ComplianceStorageError,
    ComplianceSupersededError,
)
from airflow_provider.nights.bulk.items import I, Item, now
from airflow_provider.runtime.event_loop import in_thread
from airflow_provider.runtime.provenance import check_newest, is_newer
from airflow_provider.storage.atomic import put, put_sync
from airflow_provider.storage.jsonl import (
    TableFile,
    complete_once,
    find_latest,
    find_tables,
    parse_line,
    read_lines,
    split_number,
    to_line,
)
from airflow_provider.storage.locations import Location, read_objects, storage_errors

log = logging.getLogger(__name__)

SEGMENT = "journal-"
LEASE = "lease.json"
OWNER_CHECK_SECONDS = 1.0  # for which a check of the lease counts
OWNER_CHECK_WAITING_SECONDS = 3600.0  # between checks of the lease without anything to write
LOST_LEASE_SECONDS = 24 * 3600.0  # lifecycle rules delete nothing that is younger
MAX_REREADS = 3  # times, if segments vanish while they are read
MERGED_SEGMENTS = 64  # which the next one takes the place of


Records = dict[str, tuple[tuple[float, int], I]]  # the last one of each item, by key, with epoch and number


class Checkpoint:
    """The journal of one task instance, its lease, and the manifest that takes their place at the end.

    Object stores can't append, so the journal is many small objects, its segments. Records that arrive while
    one is being written go into the next one together. A record counts once it is in the store. Reading
    thousands of segments takes long, so every 65th one repeats those before it, which are removed then. No
    segment is ever written twice: a request that arrives late replaces nothing.

    The lease is a small object that every process overwrites when it starts: the last writer owns the task
    instance. Airflow may take a running attempt for dead, and start the next one beside it. An attempt that
    hung before it took the lease does not take it from the next one. Every owner has a higher epoch than all
    before it: a record that an older one writes late replaces none of its own, even if their clocks differ.

    Journal and lease may be deleted at any time, such as by a lifecycle rule: then more is done again, and
    the owner writes a new lease.

    :param work_folder: the work folder of the task instance, for journal and lease
    :param output_folder: the output folder of the task instance, for the manifest
    :param manifest: file name of the manifest
    :param try_number: the attempt number of the task; a random token identifies the process
    :param started_at: when the attempt started, as a timestamp; 0 if unknown
    :param expires_at: until when the attempt may wait for jobs, as a timestamp; 0 if unknown
    :param max_tries: how many retries Airflow allows; a clear raises it, a retry does not
    """

    def __init__(
        self,
        work_folder: Location,
        output_folder: Location,
        manifest: str,
        try_number: int = 0,
        started_at: float = 0.0,
        expires_at: float = 0.0,
        max_tries: int | None = None,
    ) -> None:
        self.name = ""  # DAG, run and task, as folders are named, of one that `find_checkpoints` returns
        self.work_folder = work_folder
        self.output_folder = output_folder
        self.manifest = output_folder / manifest  # the manifest of the first run, until it is staged
        self._lease = work_folder / LEASE
        self._attempt = {"try_number": try_number, "started_at": started_at}
        self._try_number, self._max_tries = try_number, max_tries
        self.is_first, self.first_try = True, try_number  # since a clear; known once the lease is taken
        self._expires_at = expires_at
        self._total = 0
        self.provenance: dict[str, Any] = {}  # for the attempt
        self.account = ""  # whose jobs these are; another one may have jobs with the same ids
        self.foreign_jobs: dict[str, str] = {}  # jobs of another account, by the key of their items
        self._is_foreign = False  # something that was read is of another account
        self._token = secrets.token_hex(8)
        self._checked_at = -OWNER_CHECK_SECONDS
        self._owned_at: float | None = None  # when the lease was ours for certain, on the wall clock
        self.invalid_lines = 0  # among lines that were read
        self._epoch = 0.0  # when it took the lease, but after all earlier attempts, even with another clock
        self._records = 0
        self._published: dict[str, tuple[object, ...]] = {}  # outcomes in the manifest of an earlier attempt
        self._segments_written = 0
        self._unmerged: dict[str, bytes] = {}  # segments of this attempt that are to be merged, by path
        self._flushing = asyncio.Lock()
        self._is_delayed = False  # records could not be written when they came
        self._lines: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._has_records = asyncio.Event()

    def acquire(self, total: int = 0) -> None:
        """Take the lease, unless a newer attempt has it; in the task's own thread, before `read`.

        :param total: the number of items, for readers of the lease
        """
        self._total = total
        held = self._lease.read_json({})
        check_newest(self._attempt, held)
        is_cleared = held.get("max_tries") != self._max_tries or self._try_number > (self._max_tries or 0) + 1
        goes_on = is_newer(self._attempt, held) or self._attempt.items() <= held.items()  # after a deferral
        if goes_on and not is_cleared:
            self.is_first, self.first_try = False, held.get("first_try", self._try_number)
        self._epoch = max(time.time(), float(held.get("epoch", 0.0)) + 1.0)
        put_sync(self._lease, self._make_lease())
        self._owned_at = time.time()

    @cached_property
    def held(self) -> dict[str, Any]:
        """The lease of the latest attempt, for readers; empty if it does not exist."""
        found: dict[str, Any] = self._lease.read_json({})
        return found

    @property
    def total(self) -> int:
        """How many items the latest attempt has; 0 if its lease does not say."""
        total = self.held.get("total")
        return total if isinstance(total, int) else 0

    @property
    def waits_until(self) -> float | None:
        """Until when the latest attempt may wait for jobs, as a timestamp; None if its lease does not say."""
        expires_at = self.held.get("expires_at")
        return float(expires_at) if isinstance(expires_at, int | float) and expires_at > 0 else None

    def _make_lease(self) -> bytes:
        lease = {**self._attempt, "token": self._token, "expires_at": self._expires_at, "at": now()}
        more = {"epoch": self._epoch, "total": self._total, "max_tries": self._max_tries}
        return json.dumps({**lease, **more, "first_try": self.first_try}).encode()

    async def confirm_owner(self) -> None:
        """Raise if another process took the lease, unless that was checked just before."""
        if time.monotonic() - self._checked_at >= OWNER_CHECK_SECONDS:
            await self.check_owner()

    async def check_owner(self) -> None:
        """Raise if another process took the lease, or may have."""
        checked_at, asked_at = time.monotonic(), time.time()
        lease = await in_thread(self._lease.read_json)
        if lease is not None and lease.get("token", self._token) != self._token:
            raise ComplianceSupersededError.by(lease)
        if self._owned_at is not None:
            if lease is None:
                await self._restore_lease(self._owned_at)
            self._owned_at = asked_at
        self._checked_at = checked_at

    async def _restore_lease(self, owned_at: float) -> None:
        """Write a deleted lease again, unless it may have belonged to a newer attempt."""
        if time.time() - owned_at >= LOST_LEASE_SECONDS:
            raise ComplianceSupersededError(
                f"'{self._lease}' was deleted while this process (attempt {self._attempt['try_number']}) "
                "hung, so another attempt of this task may have taken over. This process stops, and "
                "cancels and removes nothing. If no other attempt has finished, clear the task to resume."
            )
        await put(self._lease, self._make_lease())

    def read(self, item_type: type[I]) -> dict[str, I]:
        """Read what earlier attempts did: the last record of each item, by key.

        It is in the manifest, if any, and in the journal, which is always younger.
        """
        journal = self._read_journal(item_type)
        # Last: if the journal no longer lists a record, the manifest that has it is complete.
        published: Records[I] = {}
        first = split_number(self.manifest.path.rpartition("/")[2])[0]
        if name := find_latest(self.output_folder.list_names()).get(first):
            manifest = self.output_folder / name
            self._parse(manifest.path, read_lines(manifest), item_type, published)
        self._published = {key: item.outcome for key, (_, item) in published.items()}
        return {key: item for key, (_, item) in (published | journal).items()}

    def _read_journal(self, item_type: type[I]) -> Records[I]:
        """Read the journal, a few segments at a time."""
        for _ in range(1 + MAX_REREADS):
            found: Records[I] = {}
            self.invalid_lines, is_whole = 0, True
            for path, content in read_objects(self.work_folder, self._find_segments()):
                is_whole = is_whole and content is not None
                self._parse(path, (content or b"").splitlines(), item_type, found)
            if is_whole:
                break  # else another attempt has just merged them, or replaced the journal by the manifest
        return found

    def _parse(self, path: str, lines: Iterable[bytes], item_type: type[I], found: Records[I]) -> None:
        """Add the last record of each item in a segment or the manifest, with its position."""
        for line in lines:
            try:
                at, item = self._parse_line(line, item_type)
            except (ComplianceInputError, ValueError, TypeError, AttributeError):
                self.invalid_lines += 1
                log.warning("Ignored an invalid line of '%s'.", path)
            else:
                if item.key not in found or at >= found[item.key][0]:
                    found[item.key] = at, item

    def _parse_line(self, line: bytes, item_type: type[I]) -> tuple[tuple[float, int], I]:
        """Return which record it is, and its item; with everything to do, if its job is not ours."""
        record = parse_line(line, "It")
        item = item_type.from_record(record)
        if not isinstance(item.key, str) or not isinstance(item.job_id, str | None):
            raise TypeError
        if self.account and (record.get("account") or self.account) != self.account:
            if not self._is_foreign:
                log.warning("Jobs such as %s are not used: they are of another host or account.", item.job_id)
            self._is_foreign = True
            if item.job_id and item.has_left_job:
                self.foreign_jobs[item.key] = item.job_id
            item = item.reset()
        epoch, number = record.get("at", (0.0, 0))
        return (float(epoch), int(number)), item

    def is_published(self, item: Item) -> bool:
        """Return whether the manifest of an earlier attempt has the outcome of an item already."""
        return self._published.get(item.key) == item.outcome

    def _find_segments(self) -> list[str]:
        """Return the paths of all segments, in the order of their epochs."""
        names = self.work_folder.list_names()
        return [(self.work_folder / name).path for name in names if name.startswith(SEGMENT)]

    def append(self, item: Item) -> asyncio.Future[None]:
        """Add a record of an item as it is now; the future is done when it is in the store."""
        if self.provenance and item.state.is_final:
            item.set_attempt(self.provenance)
        self._records += 1
        account = {"account": self.account} if self.account else {}
        self._lines.append(to_line(item.record() | account | {"at": (self._epoch, self._records)}))
        written = asyncio.get_running_loop().create_future()
        self._waiting.append(written)
        self._has_records.set()
        return written

    async def run_writer(self) -> None:
        """Write records as they come, forever; errors of the store are raised here."""
        while True:
            try:
                async with asyncio.timeout(OWNER_CHECK_WAITING_SECONDS):
                    await self._has_records.wait()
            except TimeoutError:
                with suppress(ComplianceStorageError):  # nothing has to be written now
                    await self.check_owner()
            else:
                await self.flush()

    async def flush(self) -> None:
        """Write all records, and wait for writes in progress."""
        async with self._flushing:
            self._has_records.clear()
            lines, waiting = self._lines, self._waiting
            self._lines, self._waiting = [], []
            if not lines:
                return
            content = b"".join(lines)
            merged = dict(self._unmerged) if len(self._unmerged) >= MERGED_SEGMENTS else {}
            try:
                if merged or self._is_delayed:
                    # An attempt that hung must not bring back records that a newer attempt replaced.
                    await self.check_owner()
                self._segments_written += 1
                name = f"{SEGMENT}{self._epoch:017.6f}-{self._token}-{self._segments_written:06}.jsonl"
                segment = self.work_folder / name
                await put(segment, b"".join((*merged.values(), content)))
                # After the write: if the lease is ours now, its next owner reads the segment.
                await self.check_owner()
            except BaseException:
                self._lines, self._waiting = lines + self._lines, waiting + self._waiting
                self._is_delayed = True
                raise
            self._is_delayed = False
            for written in waiting:
                if not written.done():
                    written.set_result(None)
            if merged:
                self._unmerged.clear()
                # The next owner lists the new segment in any case. Reading an old one twice is harmless.
                await self._clean_up(lambda: list(merged))
            else:
                self._unmerged[segment.path] = content

    def stage(self, rows: Iterable[Mapping[str, Any]], *others: TableFile) -> TableFile:
        """Return the manifest, complete, to be published: the report names it.

        :param others: tables that belong to it, which get their last rows with these
        """
        staged = TableFile(self.manifest)
        for row in rows:
            staged.write(to_line({**row, "account": self.account or None}))
        complete_once([staged, *others])
        self.manifest = staged.location
        return staged

    async def publish(self, manifest: TableFile) -> None:
        """Write the manifest, which takes the place of the journal."""
        await in_thread(manifest.publish)
        await self.check_owner()
        await self._clean_up(self._find_segments)  # oldest first: no older record outlives a newer one

    async def _clean_up(self, find: Callable[[], list[str]]) -> None:
        """Remove segments that are not needed any more; an error is a warning."""
        try:
            with storage_errors(self.work_folder, "cleaned up"):
                await in_thread(lambda: self._remove(find()))
        except ComplianceStorageError as error:
            log.warning("Could not remove obsolete parts of the checkpoint: %s", error)

    def _remove(self, segments: list[str]) -> None:
        fs = self.work_folder.fs
        try:
            if segments:
                fs.rm(segments)  # one request for many, where a store can do that
        except FileNotFoundError:
            for path in segments:
                with suppress(FileNotFoundError):
                    fs.rm_file(path)


def find_checkpoints(destination: Location, work: str, output: str, manifest: str) -> list[Checkpoint]:
    """Return the checkpoints of all task instances at a destination with a journal or a manifest, to be read.

    :param work: the folder of journals and leases below the destination
    :param output: the folder of manifests below the destination
    :param manifest: the file name of manifests
    """
    found = [name.rpartition("/") for name, _ in find_tables(destination / work)]
    names = {folder for folder, _, file in found if file.startswith(SEGMENT)}
    found = [name.rpartition("/") for name, _ in find_tables(destination / output)]
    names |= {folder for folder, _, file in found if split_number(file)[0] == manifest}
    checkpoints = []
    for name in sorted(names):
        folders = destination / f"{work}/{name}", destination / f"{output}/{name}"
        checkpoints.append(Checkpoint(*folders, manifest))
        checkpoints[-1].name = name
    return checkpoints
