"""The checkpoint of a bulk task: what is done is in its store, so that the next attempt can resume."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from airflow_provider.bulk.items import I, Item, now
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceSupersededError
from airflow_provider.storage.atomic import put, put_sync
from airflow_provider.storage.locations import Location, storage_errors

log = logging.getLogger(__name__)

SEGMENT = "journal-"
LEASE = "lease.json"
OWNER_CHECK_SECONDS = 1.0  # for which a check of the lease counts
MAX_REREADS = 3  # times, if segments vanish while they are read


class Checkpoint:
    """The journal of one task instance, its lease, and the manifest that takes their place at the end.

    Object stores can't append, so the journal is many small objects. Records that arrive while one is being
    written go into the next one together. A record counts once it is in the store.

    The lease is a small object that every process overwrites when it starts: the last writer owns the task
    instance. Airflow may take a running attempt for dead, and start the next one beside it. An attempt that
    hung before it took the lease does not take it from the next one.

    :param folder: of the task instance
    :param manifest: file name of the manifest
    :param try_number: of the task; a random token identifies the process
    :param started_at: when the attempt started, as a timestamp; 0 if unknown
    """

    def __init__(self, folder: Location, manifest: str, try_number: int = 0, started_at: float = 0.0) -> None:
        self.folder = folder
        self.manifest = folder / manifest
        self._manifest_name = manifest
        self._lease = folder / LEASE
        self._try_number = try_number
        self._started_at = started_at
        self._token = secrets.token_hex(8)
        self._checked_at = -OWNER_CHECK_SECONDS
        self._last_at = 0.0
        self._segments_written = 0
        self._flushing = asyncio.Lock()
        self._records: list[dict[str, Any]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._has_records = asyncio.Event()

    @classmethod
    def for_task(cls, folder: Location, manifest: str, ti: Any) -> Checkpoint:
        """Return the checkpoint of an attempt of a task instance."""
        started = getattr(ti, "start_date", None)
        return cls(folder, manifest, getattr(ti, "try_number", 0), started.timestamp() if started else 0.0)

    def acquire(self) -> None:
        """Take the lease, unless a newer attempt has it; in the task's own thread, before `read`."""
        with storage_errors(self._lease, "read"):
            try:
                held = json.loads(self._lease.fs.cat_file(self._lease.path))
            except (FileNotFoundError, ValueError):
                held = None
        if isinstance(held, dict) and self._is_older_than(held):
            raise self._superseded(held)
        lease = {
            "token": self._token,
            "try_number": self._try_number,
            "started_at": self._started_at,
            "at": now(),
        }
        put_sync(self._lease, json.dumps(lease).encode())

    def _is_older_than(self, held: dict[str, Any]) -> bool:
        # The number alone does not tell: it starts again at 1 if a run is deleted and created again.
        try:
            started_earlier = 0.0 < self._started_at < float(held.get("started_at", 0.0))
            return started_earlier and self._try_number < int(held.get("try_number", 0))
        except (TypeError, ValueError):
            return False

    async def confirm_owner(self) -> None:
        """Raise if another process has taken the lease, unless that was checked just before."""
        if time.monotonic() - self._checked_at >= OWNER_CHECK_SECONDS:
            await self.check_owner()

    async def check_owner(self) -> None:
        """Raise if another process has taken the lease; a missing lease does not mean that."""
        checked_at = time.monotonic()
        with storage_errors(self._lease, "read"):
            try:
                lease = json.loads(await self._read_lease())
            except (FileNotFoundError, ValueError):
                return
        if isinstance(lease, dict) and lease.get("token", self._token) != self._token:
            raise self._superseded(lease)
        self._checked_at = checked_at

    def _superseded(self, lease: dict[str, Any]) -> ComplianceSupersededError:
        return ComplianceSupersededError(
            f"Attempt {lease.get('try_number')} of this task has taken over at {lease.get('at')}. This "
            f"process (attempt {self._try_number}) stops, and cancels and removes nothing. See the log "
            "of that attempt."
        )

    async def _read_lease(self) -> Any:
        fs = self._lease.fs
        if not fs.async_impl:
            return await in_thread(fs.cat_file, self._lease.path)
        # On the event loop of the store's own library, as the journal is written.
        call = fs._cat_file(self._lease.path)  # noqa: SLF001 - fsspec's names of coroutines
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, fs.loop))

    def read(self, item_type: type[I]) -> dict[str, I]:
        """Read what earlier attempts have done: the last record of each item, by key.

        It is in the manifest, if there is one, and in the journal, which is always younger.
        """
        for _ in range(1 + MAX_REREADS):
            contents, is_whole = self._read_files()
            if is_whole:
                break  # else another attempt has just replaced the journal by the manifest
        records: list[tuple[float, I]] = []
        for path, content in contents.items():
            for line in content.splitlines():
                try:
                    record = json.loads(line)
                    records.append((float(record.get("at", 0.0)), item_type.from_record(record)))
                except (ValueError, TypeError, AttributeError):
                    log.warning("Ignored an invalid line of '%s'.", path)
        records.sort(key=lambda record: record[0])
        # The clock of an earlier attempt may be ahead of ours.
        self._last_at = max([self._last_at, *(at for at, _ in records)])
        return {item.key: item for _, item in records}

    def _read_files(self) -> tuple[dict[str, bytes], bool]:
        """Return the contents of manifest and journal, and whether nothing vanished meanwhile."""
        fs = self.folder.fs
        contents: dict[str, bytes] = {}
        with storage_errors(self.folder, "read"):
            paths = self._find(SEGMENT, self._manifest_name)
            for path in paths:
                with suppress(FileNotFoundError):
                    contents[path] = fs.cat_file(path)
        return contents, len(contents) == len(paths)

    def _find(self, *prefixes: str) -> list[str]:
        fs = self.folder.fs
        fs.invalidate_cache()
        found = sorted(fs.find(self.folder.path)) if fs.exists(self.folder.path.rstrip("/")) else []
        return [path for path in found if path.rpartition("/")[2].startswith(prefixes)]

    def append(self, item: Item) -> asyncio.Future[None]:
        """Add a record of an item as it is now; the future is done when it is in the store."""
        self._last_at = max(time.time(), self._last_at + 1e-6)
        self._records.append(item.record() | {"at": self._last_at})
        written = asyncio.get_running_loop().create_future()
        self._waiting.append(written)
        self._has_records.set()
        return written

    async def run_writer(self) -> None:
        """Write records as they come, forever; errors of the store are raised here."""
        while True:
            await self._has_records.wait()
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
                self._segments_written += 1
                name = f"{SEGMENT}{self._token}-{self._segments_written:06}.jsonl"
                await put(self.folder / name, _json_lines(records))
                # After the write: if the lease is ours now, its next owner reads what was written.
                await self.check_owner()
            except BaseException:
                self._records, self._waiting = records + self._records, waiting + self._waiting
                raise
            for written in waiting:
                if not written.done():
                    written.set_result(None)

    async def publish(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the manifest, which takes the place of the journal."""
        await put(self.manifest, _json_lines(rows))
        await self.check_owner()
        with storage_errors(self.folder, "cleaned up"):
            await in_thread(self._remove_segments)

    def _remove_segments(self) -> None:
        fs, segments = self.folder.fs, self._find(SEGMENT)
        try:
            if segments:
                fs.rm(segments)  # one request for many, where a store can do that
        except FileNotFoundError:
            for path in segments:
                with suppress(FileNotFoundError):
                    fs.rm_file(path)


def _json_lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    # In ASCII: a file name that is not UTF-8 has no other form that reads back to the same name.
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)
