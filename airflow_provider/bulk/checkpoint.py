"""The checkpoint of a bulk task: what is done is in its store, so that the next attempt can resume."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic

from airflow_provider.bulk.items import I, Item, now
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceStorageError, ComplianceSupersededError
from airflow_provider.provenance import describe_attempt, is_newer, read_provenance
from airflow_provider.storage.atomic import put, put_sync
from airflow_provider.storage.jsonl import to_line, to_lines
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.reading import read_objects

log = logging.getLogger(__name__)

SEGMENT = "journal-"
LEASE = "lease.json"
OWNER_CHECK_SECONDS = 1.0  # for which a check of the lease counts
OWNER_CHECK_WAITING_SECONDS = 3600.0  # between checks of the lease while there is nothing to write
LOST_LEASE_SECONDS = 24 * 3600.0  # lifecycle rules delete nothing that is younger
MAX_REREADS = 3  # times, if segments vanish while they are read
MERGED_SEGMENTS = 64  # small ones, which the next one takes the place of
SMALL_BYTES = 64 << 10  # of a segment that is merged
MAX_MERGED_BYTES = 1 << 20
MAX_KEPT_BYTES = 16 << 20  # of small segments of earlier attempts, to be merged

_Line = tuple[str, float, bytes]  # of a segment: the key of its item, when it was written, and the record


class Checkpoint:
    """The journal of one task instance, its lease, and the manifest that takes their place at the end.

    Object stores can't append, so the journal is many small objects, its segments. Records that arrive while
    one is being written go into the next one together. A record counts once it is in the store. Reading
    thousands of segments takes long, so every 64th one repeats the last record of each item in the small ones
    before it, which are removed then. No segment is ever written twice: a request that arrives late replaces
    nothing.

    The lease is a small object that every process overwrites when it starts: the last writer owns the task
    instance. Airflow may take a running attempt for dead, and start the next one beside it. An attempt that
    hung before it took the lease does not take it from the next one.

    Journal and lease may be deleted at any time, such as by a lifecycle rule: then more is done again, and
    the owner writes a new lease.

    :param work_folder: of the task instance, for journal and lease
    :param output_folder: of the task instance, for the manifest
    :param manifest: file name of the manifest
    :param try_number: of the task; a random token identifies the process
    :param started_at: when the attempt started, as a timestamp; 0 if unknown
    :param expires_at: until when the attempt may wait for jobs, as a timestamp; 0 if unknown
    """

    def __init__(
        self,
        work_folder: Location,
        output_folder: Location,
        manifest: str,
        try_number: int = 0,
        started_at: float = 0.0,
        expires_at: float = 0.0,
    ) -> None:
        self.work_folder = work_folder
        self.output_folder = output_folder
        self.manifest = output_folder / manifest
        self._lease = work_folder / LEASE
        self._attempt = {"try_number": try_number, "started_at": started_at}
        self._expires_at = expires_at
        self.provenance: dict[str, Any] = {}  # of the attempt
        self.account = ""  # whose jobs these are; another one may have jobs with the same ids
        self.manifest_account = ""  # whose jobs the manifest of an earlier attempt has; by default the same
        self.foreign_jobs: dict[str, str] = {}  # of another account, by the key of their items
        self._token = secrets.token_hex(8)
        self._checked_at = -OWNER_CHECK_SECONDS
        self._owned_at: float | None = None  # when the lease was ours for certain, on the wall clock
        self.invalid_lines = 0  # of what was read
        self._last_at = 0.0
        self._published: dict[str, tuple[object, ...]] = {}  # outcomes in the manifest of an earlier attempt
        self._segments_written = 0
        self._small: dict[str, list[_Line]] = {}  # segments that are to be merged, by path
        self._flushing = asyncio.Lock()
        self._records: list[_Line] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._has_records = asyncio.Event()

    @classmethod
    def for_task(
        cls, work_folder: Location, output_folder: Location, manifest: str, ti: Any, expires_at: float = 0.0
    ) -> Checkpoint:
        """Return the checkpoint of an attempt of a task instance."""
        attempt = describe_attempt(ti)
        own = cls(work_folder, output_folder, manifest, **attempt, expires_at=expires_at)
        own.provenance = read_provenance({"ti": ti})
        return own

    def acquire(self) -> None:
        """Take the lease, unless a newer attempt has it; in the task's own thread, before `read`."""
        held = self._lease.read_json()
        if held and is_newer(held, self._attempt):
            raise self._superseded(held)
        put_sync(self._lease, self._make_lease())
        self._owned_at = time.time()

    def _make_lease(self) -> bytes:
        lease = {
            **self._attempt,
            "token": self._token,
            "expires_at": self._expires_at,
            "at": now(),
        }
        return json.dumps(lease).encode()

    async def confirm_owner(self) -> None:
        """Raise if another process has taken the lease, unless that was checked just before."""
        if time.monotonic() - self._checked_at >= OWNER_CHECK_SECONDS:
            await self.check_owner()

    async def check_owner(self) -> None:
        """Raise if another process has taken the lease, or may have."""
        checked_at, owned_at = time.monotonic(), time.time()
        lease = await in_thread(self._lease.read_json)
        if lease is None:
            await self._restore_lease()
        elif lease.get("token", self._token) != self._token:
            raise self._superseded(lease)
        elif self._owned_at is not None:
            self._owned_at = owned_at
        self._checked_at = checked_at

    async def _restore_lease(self) -> None:
        """Write a lease again that was deleted, unless the deleted one may have been of a newer attempt."""
        if self._owned_at is None:
            return
        if time.time() - self._owned_at >= LOST_LEASE_SECONDS:
            raise ComplianceSupersededError(
                f"'{self._lease}' was deleted while this process (attempt {self._attempt['try_number']}) "
                "hung, so another attempt of this task may have taken over. This process stops, and "
                "cancels and removes nothing. If no other attempt has finished, clear the task to resume."
            )
        await put(self._lease, self._make_lease())
        self._owned_at = time.time()

    def _superseded(self, lease: dict[str, Any]) -> ComplianceSupersededError:
        return ComplianceSupersededError(
            f"Attempt {lease.get('try_number')} of this task has taken over at {lease.get('at')}. This "
            f"process (attempt {self._attempt['try_number']}) stops, and cancels and removes nothing. See "
            "the log of that attempt."
        )

    def read(self, item_type: type[I]) -> dict[str, I]:
        """Read what earlier attempts have done: the last record of each item, by key.

        It is in the manifest, if there is one, and in the journal, which is always younger.
        """
        segments = self._read_segments(item_type)
        # Last: where the list of the journal lacks what is in the manifest, the manifest is written.
        published = self._read_objects(self.manifest, [self.manifest.path], item_type)
        self._published = {
            key: item.outcome for each in published.values() for key, (_, item) in each.records.items()
        }
        parts = [*segments.values(), *published.values()]
        self.invalid_lines = sum(each.invalid_lines for each in parts)
        found: dict[str, tuple[float, I]] = {}
        for each in parts:
            _keep_latest(found, each.records.items())
        # The clock of an earlier attempt may be ahead of ours.
        self._last_at = max([self._last_at, *(at for at, _ in found.values())])
        if self._owned_at is not None:
            self._keep_small(segments)
        return {key: item for key, (_, item) in found.items()}

    def _read_segments(self, item_type: type[I]) -> dict[str, _Segment[I]]:
        """Read the journal, by path and in order."""
        read: dict[str, _Segment[I]] = {}
        for _ in range(1 + MAX_REREADS):
            with storage_errors(self.work_folder, "read"):
                paths = self._find_segments()
            new = [path for path in paths if path not in read]
            read |= self._read_objects(self.work_folder, new, item_type)
            read = {path: read[path] for path in paths if path in read}
            if len(read) == len(paths):
                break  # else another attempt has just merged them, or replaced the journal by the manifest
        return read

    def _read_objects(self, place: Location, paths: list[str], item_type: type[I]) -> dict[str, _Segment[I]]:
        return {
            path: self._parse_segment(path, content, item_type)
            for path, content in read_objects(place, paths)
            if content is not None
        }

    def _parse_segment(self, path: str, content: bytes, item_type: type[I]) -> _Segment[I]:
        records: dict[str, tuple[float, I]] = {}
        lines: list[_Line] = []
        invalid_lines = 0
        for line in content.splitlines(keepends=True):
            try:
                at, item = self._parse(line, item_type)
            except (ValueError, TypeError, AttributeError):
                invalid_lines += 1
                log.warning("Ignored an invalid line of '%s'.", path)
            else:
                _keep_latest(records, [(item.key, (at, item))])
                lines.append((item.key, at, line))
        # A damaged segment stays as it is, for a person who looks for the cause.
        is_small = len(content) < SMALL_BYTES and not invalid_lines and content.endswith(b"\n")
        return _Segment(records, invalid_lines, lines if is_small else [])

    def _keep_small(self, segments: Mapping[str, _Segment[Any]]) -> None:
        """Keep the small segments of earlier attempts, to be merged by this one."""
        kept = 0
        for path, segment in segments.items():
            kept += _size(segment.small_lines)
            if segment.small_lines and kept <= MAX_KEPT_BYTES:
                self._small[path] = segment.small_lines

    def _parse(self, line: bytes, item_type: type[I]) -> tuple[float, I]:
        """Return when a record was written, and its item; with everything to do, if its job is not ours."""
        record = json.loads(line)
        item = item_type.from_record(record)
        if not isinstance(item.key, str) or not isinstance(item.job_id, str | None):
            raise TypeError
        account = record.get("account", self.manifest_account or self.account)  # rows of a manifest have none
        if self.account and account != self.account:
            log.warning("Job %s is not used: the connection had another host or account then.", item.job_id)
            if not item.state.is_final:
                self.foreign_jobs[item.key] = item.job_id
            item = item.reset()
        return float(record.get("at", 0.0)), item

    def is_published(self, item: Item) -> bool:
        """Return whether the manifest of an earlier attempt has the outcome of an item already."""
        return self._published.get(item.key) == item.outcome

    def _find_segments(self) -> list[str]:
        fs, folder = self.work_folder.fs, self.work_folder.path
        fs.invalidate_cache()
        found = sorted(fs.find(folder)) if fs.exists(folder.rstrip("/")) else []
        return [path for path in found if path.rpartition("/")[2].startswith(SEGMENT)]

    def append(self, item: Item) -> asyncio.Future[None]:
        """Add a record of an item as it is now; the future is done when it is in the store."""
        if self.provenance and item.state.is_final:
            item.set_attempt(self.provenance)
        self._last_at = max(time.time(), self._last_at + 1e-6)
        account = {"account": self.account} if self.account else {}
        line = to_line(item.record() | account | {"at": self._last_at})
        self._records.append((item.key, self._last_at, line))
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
        """Write all records, and wait for those that are being written."""
        async with self._flushing:
            self._has_records.clear()
            records, waiting = self._records, self._waiting
            self._records, self._waiting = [], []
            if not records:
                return
            try:
                merged = await self._select_small()
                lines = _last_of_each([*chain(*merged.values()), *records]) if merged else records
                self._segments_written += 1
                segment = self.work_folder / f"{SEGMENT}{self._token}-{self._segments_written:06}.jsonl"
                await put(segment, b"".join(line for _, _, line in lines))
                # After the write: if the lease is ours now, its next owner reads what was written.
                await self.check_owner()
            except BaseException:
                self._records, self._waiting = records + self._records, waiting + self._waiting
                raise
            for written in waiting:
                if not written.done():
                    written.set_result(None)
            if _size(lines) < SMALL_BYTES:
                self._small[segment.path] = lines
            if merged:
                await self._remove_merged(merged)

    async def _select_small(self) -> dict[str, list[_Line]]:
        """Return small segments for the next one to take the place of; nothing while they are few."""
        if len(self._small) < MERGED_SEGMENTS:
            return {}
        # Else an attempt that hung could bring many records back that a newer one has replaced long ago.
        await self.check_owner()
        size = 0
        selected: dict[str, list[_Line]] = {}
        for path, lines in self._small.items():
            size += _size(lines)
            if size > MAX_MERGED_BYTES:
                break
            selected[path] = lines
        return selected

    async def _remove_merged(self, merged: Mapping[str, Any]) -> None:
        """Remove segments whose records are in a later one, which was written while the lease was ours.

        So the next owner lists the later one in any case. What stays is read twice, which changes nothing.
        """
        for path in merged:
            del self._small[path]
        try:
            with storage_errors(self.work_folder, "cleaned up"):
                await in_thread(self._remove, list(merged))
        except ComplianceStorageError as error:
            log.warning("Could not remove merged segments of the journal, retrying at the end: %s", error)

    async def publish(self, rows: Iterable[Mapping[str, Any]]) -> str:
        """Write the manifest, which takes the place of the journal; return its SHA-256."""
        content = to_lines(rows)
        await put(self.manifest, content)
        await self.check_owner()
        self._small.clear()
        try:
            with storage_errors(self.work_folder, "cleaned up"):
                await in_thread(self._remove_segments)
        except ComplianceStorageError as error:
            log.warning("Could not remove the journal, which the manifest has replaced: %s", error)
        return hashlib.sha256(content).hexdigest()

    def _remove_segments(self) -> None:
        """Remove all; those of earlier attempts first, so that no older record outlives a newer one."""
        own = f"{SEGMENT}{self._token}-"
        found = self._find_segments()
        self._remove(sorted(found, key=lambda path: (path.rpartition("/")[2].startswith(own), path)))

    def _remove(self, segments: list[str]) -> None:
        fs = self.work_folder.fs
        try:
            if segments:
                fs.rm(segments)  # one request for many, where a store can do that
        except FileNotFoundError:
            for path in segments:
                with suppress(FileNotFoundError):
                    fs.rm_file(path)


@dataclass
class _Segment(Generic[I]):
    """What was read of a segment or of the manifest.

    :param records: the last one of each item, by key: when it was written, and the item
    :param small_lines: of a segment that can be merged
    """

    records: dict[str, tuple[float, I]]
    invalid_lines: int
    small_lines: list[_Line]


def _keep_latest(found: dict[str, tuple[float, I]], records: Iterable[tuple[str, tuple[float, I]]]) -> None:
    """Add records that are not older than those that are known."""
    for key, record in records:
        known = found.get(key)
        if known is None or record[0] >= known[0]:
            found[key] = record


def _last_of_each(lines: Iterable[_Line]) -> list[_Line]:
    """Return the last line of each item."""
    last: dict[str, _Line] = {}
    for line in lines:
        key, at, _ = line
        if key not in last or at >= last[key][1]:
            last[key] = line
    return list(last.values())


def _size(lines: Iterable[_Line]) -> int:
    return sum(len(line) for _, _, line in lines)
