"""Stream texts from the service into a store, in constant memory."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceError, ComplianceHttpError, ComplianceStorageDeniedError
from airflow_provider.storage.atomic import BLOCK_BYTES, AtomicFile, create, put
from airflow_provider.storage.locations import Location, error_text, storage_errors

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

log = logging.getLogger(__name__)

SINGLE_PUT_BYTES = 1 << 20  # texts up to this size are written in one request
BATCH_BYTES = BLOCK_BYTES // 2  # of a larger one, written by a thread at a time; at least
SYNC_BYTES = 64 << 20  # of it, flushed to the disk while more is written, so that its end is short
MAX_REFETCHES = 2  # of a text whose download broke off
REFETCH_DELAY_SECONDS = 0.5  # before the first one; doubles
_GZIP = 31  # wbits for gzip; without name and time, so that equal texts give equal bytes
EMPTY_GZIP_BYTES = 20  # of an empty gzip file

Overwrite = Literal["replace", "skip", "fail"]
Confirm = Callable[[], Awaitable[None]]
"""Called just before a text gets its name; raises if it must not."""


@dataclass(frozen=True)
class Written:
    """Size and hash of a stored object; no hash if an existing object was kept."""

    bytes: int
    sha256: str | None


def read_text(uri: str, limit: int) -> str:
    """Read the first bytes of a stored text, compressed or not.

    :param limit: how many
    """
    location = Location(uri)
    with (
        storage_errors(location, "read"),
        location.fs.open(location.path, "rb", compression="infer") as file,
    ):
        return str(file.read(limit).decode(errors="replace"))


async def store_text(
    client: AsyncComplianceClient,
    uuid: str,
    location: Location,
    *,
    compress: bool = False,
    confirm: Confirm | None = None,
) -> Written:
    """Stream the text of a completed job into a store, atomically.

    If the download breaks off, it is restarted from its beginning.
    """
    attempt = 0
    while True:
        has_started = False
        try:
            async with client.stream_content(uuid) as pieces:
                has_started = True
                return await _store(pieces, location, compress, confirm)
        except ComplianceError as error:
            # A request that failed before the body was retried by the client already.
            if not (has_started and error.transient) or attempt == MAX_REFETCHES:
                raise
            log.warning("Restarting the download of job %s, which broke off: %s", uuid, error)
        await asyncio.sleep(REFETCH_DELAY_SECONDS * 2**attempt)
        attempt += 1


async def store_texts(
    client: AsyncComplianceClient,
    targets: Mapping[str, Location],
    *,
    overwrite: Overwrite,
    compress: bool,
    concurrency: int,
    log: Any,
) -> dict[str, Written]:
    """Write the texts of completed jobs concurrently; an object that is kept has no hash.

    :param targets: where each text goes, by uuid
    :param overwrite: what to do if an object exists already
    :param log: the task's log
    """
    existing = {} if overwrite == "replace" else await _find_existing(targets, concurrency)
    if existing and overwrite == "fail":
        first = targets[next(iter(existing))]
        more = f", and {len(existing) - 1} more," if len(existing) > 1 else ""
        raise ComplianceStorageDeniedError(
            f"'{first}'{more} exists already, so nothing was written. Remove it, or choose "
            "overwrite='replace' or 'skip'."
        )

    async def store(uuid: str) -> Written:
        target = targets[uuid]
        try:
            written = await store_text(client, uuid, target, compress=compress)
        except ComplianceHttpError as error:
            if error.status in (404, 409):  # the job was completed just before: its text may lag behind
                error.transient = True
            raise
        if written.bytes <= (EMPTY_GZIP_BYTES if compress else 0):
            log.warning("Wrote an empty text to '%s': job %s is completed without one.", target, uuid)
        else:
            log.debug("Wrote the text of job %s to '%s': %s bytes.", uuid, target, written.bytes)
        return written

    results = await for_each(store, [uuid for uuid in targets if uuid not in existing], concurrency)
    for uuid, size in existing.items():
        log.info("Kept '%s', which exists already, with %s bytes.", targets[uuid], size)
        results[uuid] = Written(size, None)
    return results


async def _find_existing(targets: Mapping[str, Location], concurrency: int) -> dict[str, int]:
    """Return the sizes of the objects that exist already."""

    async def get_size(uuid: str) -> int | None:
        return await in_thread(targets[uuid].size)

    next(iter(targets.values())).fs.invalidate_cache()  # others may have written in the meantime
    found = await for_each(get_size, list(targets), concurrency)
    return {uuid: size for uuid, size in found.items() if size is not None}


async def _store(
    pieces: AsyncIterator[bytes], location: Location, compress: bool, confirm: Confirm | None = None
) -> Written:
    head = bytearray()
    async for piece in pieces:
        head += piece
        if len(head) > SINGLE_PUT_BYTES:
            return await _store_large(head, pieces, location, compress, confirm)
    data = zlib.compress(head, wbits=_GZIP) if compress else bytes(head)
    if confirm:
        await confirm()
    await put(location, data)
    return Written(len(data), hashlib.sha256(data).hexdigest())


async def _store_large(
    batch: bytearray,
    pieces: AsyncIterator[bytes],
    location: Location,
    compress: bool,
    confirm: Confirm | None,
) -> Written:
    """Write in batches: large calls of the store and the hash release the GIL once.

    The next batch is downloaded while the previous one is hashed and written, each in a thread of its own.
    """
    sink = _Sink(location, compress)
    try:
        try:
            async for piece in pieces:
                batch += piece
                if len(batch) >= BATCH_BYTES:
                    await sink.write(batch)
                    batch = bytearray()
            await sink.write(batch, is_last=True)
            await sink.flush()
        finally:
            await sink.wait_for_threads()
        if confirm:
            await confirm()
        return await in_thread(sink.commit)
    except BaseException:
        await in_thread(sink.discard)
        raise


class _Sink:
    """Compresses a batch, then hashes and writes it at the same time, and syncs what was written before."""

    def __init__(self, location: Location, compress: bool) -> None:
        self._location = location
        self._compressor = zlib.compressobj(wbits=_GZIP) if compress else None
        self._hash = hashlib.sha256()
        self._size = 0
        self._synced_size = 0
        self._file: AtomicFile | None = None
        self._storing: asyncio.Task[None] | None = None
        self._syncing: asyncio.Task[None] | None = None

    async def write(self, data: bytearray, *, is_last: bool = False) -> None:
        """Begin with a batch when the previous one is written, or raise the error of that."""
        if self._storing:
            await self._storing
        if self._size - self._synced_size >= SYNC_BYTES and (not self._syncing or self._syncing.done()):
            if self._syncing:
                await self._syncing
            self._synced_size = self._size
            self._syncing = asyncio.create_task(in_thread(self._sync))
        self._storing = asyncio.create_task(self._store(data, is_last))

    async def flush(self) -> None:
        """Wait until everything is written, or raise the error of that."""
        for call in (self._storing, self._syncing):
            if call:
                await call

    async def wait_for_threads(self) -> None:
        """Wait until no thread works on it any more, whatever has become of it."""
        await asyncio.gather(*filter(None, (self._storing, self._syncing)), return_exceptions=True)

    def commit(self) -> Written:
        with storage_errors(self._location):
            self._open().commit()
        return Written(self._size, self._hash.hexdigest())

    def discard(self) -> None:
        if self._file:
            try:
                self._file.discard()
            except Exception as error:
                # The store is probably unreachable; the original error says more.
                log.warning("Could not remove the incomplete '%s': %s", self._location, error_text(error))

    async def _store(self, batch: bytearray, is_last: bool) -> None:
        data: bytes | bytearray = batch
        if self._compressor:
            data = await in_thread(_compress, self._compressor, batch, is_last)
        hashing = asyncio.create_task(in_thread(self._hash.update, data))
        try:
            await in_thread(self._write, data)
        finally:
            await hashing
        self._size += len(data)

    def _write(self, data: bytes | bytearray) -> None:
        with storage_errors(self._location):
            self._open().write(data)

    def _sync(self) -> None:
        with storage_errors(self._location):
            self._open().sync()

    def _open(self) -> AtomicFile:
        self._file = self._file or create(self._location)
        return self._file


def _compress(compressor: zlib._Compress, data: bytearray, is_last: bool) -> bytes:
    return compressor.compress(data) + (compressor.flush() if is_last else b"")
