"""The checkpoint of a bulk task: what is done is in its store, so that the next attempt resumes from there.

Object stores can't append, so the journal is many small objects. Records that arrive while one is being
written go into the next one together. A record counts once it is in the store.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from airflow_provider.bulk.items import I, Item
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceSupersededError
from airflow_provider.storage.errors import storage_errors
from airflow_provider.storage.files import put, put_sync
from airflow_provider.storage.locations import Location

log = logging.getLogger(__name__)

SEGMENT = "journal-"
LEASE = "lease.json"
MAX_REREADS = 3  # times, if segments vanish while they are read


class Lease:
    """A small object that every process overwrites when it starts: the last writer owns the task instance.

    Airflow may take a running attempt for dead, and start the next one beside it.

    :param folder: the folder of the task instance
    :param try_number: of the task, for people; a random token identifies the owner
    """

    def __init__(self, folder: Location, try_number: int) -> None:
        self._place = folder / LEASE
        self._try_number = try_number
        self._token = secrets.token_hex(8)

    def acquire(self) -> None:
        """Take it from whoever has it; in the task's own thread, before the journal is read."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = {"token": self._token, "try_number": self._try_number, "at": at}
        put_sync(self._place, json.dumps(record).encode())

    async def check(self) -> None:
        """Raise if another process has taken it; a missing lease does not mean that."""
        with storage_errors(self._place, "read"):
            try:
                found = json.loads(await self._read())
            except (FileNotFoundError, ValueError):
                return
        if isinstance(found, dict) and found.get("token", self._token) != self._token:
            raise ComplianceSupersededError(
                f"Attempt {found.get('try_number')} of this task has taken over at {found.get('at')}. This "
                f"process (attempt {self._try_number}) stops, and cancels and removes nothing. See the log "
                "of that attempt."
            )

    async def _read(self) -> Any:
        fs = self._place.fs
        if not fs.async_impl:
            return await in_thread(fs.cat_file, self._place.path)
        # On the event loop of the store's own library, as the journal is written.
        call = fs._cat_file(self._place.path)  # noqa: SLF001 - fsspec's names of coroutines
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, fs.loop))


class Journal:
    """The journal of one task instance; each process writes segments of its own names.

    :param folder: where it is
    :param after: the time of the last record of an earlier attempt, whose clock may be ahead of ours
    :param lease: checked after each write
    :param clock: returns the wall-clock time
    """

    def __init__(
        self,
        folder: Location,
        after: float = 0.0,
        lease: Lease | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._at = after
        self._lease = lease
        self._clock = clock
        self._flushing = asyncio.Lock()
        self._writer = secrets.token_hex(6)
        self._number = 0
        self._records: list[dict[str, Any]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._has_records = asyncio.Event()

    def append(self, item: Item) -> asyncio.Future[None]:
        """Add a record of an item as it is now; the future is done when it is in the store."""
        self._at = max(self._clock(), self._at + 1e-6)
        self._records.append(item.record() | {"at": self._at})
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
            await self._flush()

    async def _flush(self) -> None:
        self._has_records.clear()
        records, waiting = self._records, self._waiting
        self._records, self._waiting = [], []
        if not records:
            return
        try:
            self._number += 1
            name = f"{SEGMENT}{self._writer}-{self._number:06}.jsonl"
            await put(self.folder / name, _lines(records))
            if self._lease:
                # After the write: if the lease is ours now, whoever takes it later reads what was written.
                await self._lease.check()
        except BaseException:
            self._records, self._waiting = records + self._records, waiting + self._waiting
            raise
        for written in waiting:
            if not written.done():
                written.set_result(None)


def read(folder: Location, item_type: type[I], manifest: str) -> tuple[dict[str, I], float]:
    """Read what earlier attempts have done: the last record of each item by key, and the time of the last.

    It is in the manifest, if there is one, and in the journal, which is always younger.
    """
    for _ in range(1 + MAX_REREADS):
        contents, is_whole = _contents(folder, manifest)
        if is_whole:
            break  # else another attempt has just replaced the journal by the manifest
    records: list[tuple[float, I]] = []
    for path, content in contents.items():
        for line in content.splitlines():
            try:
                record = json.loads(line)
                records.append((float(record.get("at", 0.0)), item_type.from_record(record)))
            except (ValueError, TypeError, AttributeError):
                log.warning("An invalid line of '%s' is ignored.", path)
    records.sort(key=lambda record: record[0])
    return {item.key: item for _, item in records}, records[-1][0] if records else 0.0


def _contents(folder: Location, manifest: str) -> tuple[dict[str, bytes], bool]:
    """Return the contents of manifest and journal, and whether nothing vanished meanwhile."""
    fs = folder.fs
    contents: dict[str, bytes] = {}
    with storage_errors(folder, "read"):
        fs.invalidate_cache()
        found = sorted(fs.find(folder.path)) if fs.exists(folder.path.rstrip("/")) else []
        wanted = [path for path in found if path.rpartition("/")[2].startswith((SEGMENT, manifest))]
        for path in wanted:
            with suppress(FileNotFoundError):
                contents[path] = fs.cat_file(path)
    return contents, len(contents) == len(wanted)


def remove(folder: Location) -> None:
    """Remove the segments, after the manifest has everything that was in them."""
    fs = folder.fs
    with storage_errors(folder, "cleaned up"):
        fs.invalidate_cache()
        segments = [path for path in fs.find(folder.path) if path.rpartition("/")[2].startswith(SEGMENT)]
        try:
            if segments:
                fs.rm(segments)  # one request for many, where a store can do that
        except FileNotFoundError:
            for path in segments:
                with suppress(FileNotFoundError):
                    fs.rm_file(path)


async def write_manifest(target: Location, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a manifest atomically."""
    await put(target, _lines(rows))


def _lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    # In ASCII: a file name that is not UTF-8 has no other form that reads back to the same name.
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)
