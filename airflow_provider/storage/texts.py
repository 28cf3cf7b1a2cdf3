"""A text on its way from the service into a store, in constant memory."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceError, ComplianceStorageDeniedError
from airflow_provider.storage.errors import error_text, storage_errors
from airflow_provider.storage.files import BLOCK_BYTES, AtomicFile, create, put
from airflow_provider.storage.locations import Location

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

log = logging.getLogger(__name__)

SINGLE_PUT_BYTES = 1 << 20  # bytes up to which a text is written at once
BATCH_BYTES = BLOCK_BYTES // 2  # bytes of a larger one that go to the store's thread at a time
MAX_REFETCHES = 2  # so often a text that broke off is fetched again
REFETCH_DELAY_SECONDS = 0.5  # seconds before that
_GZIP = 31  # the window of zlib that means gzip; without name and time, so that equal texts give equal bytes
EMPTY_GZIP_BYTES = 20  # bytes of a gzip file with nothing in it

Overwrite = Literal["replace", "skip", "fail"]


@dataclass(frozen=True)
class Written:
    """What is in the store: the object's size and hash; no hash where an older object was left."""

    bytes: int
    sha256: str | None


async def store_text(
    client: AsyncComplianceClient, uuid: str, location: Location, *, compress: bool = False
) -> Written:
    """Stream the text of a completed job into a store; it is there whole, or not at all.

    One that breaks off on the way is fetched again, from its beginning.
    """
    attempt = 0
    while True:
        begun = False
        try:
            async with client.stream_content(uuid) as pieces:
                begun = True
                return await _store(pieces, location, compress)
        except ComplianceError as error:
            # What did not even begin has been tried again by the client.
            if not (begun and error.transient) or attempt == MAX_REFETCHES:
                raise
            log.warning("The transfer of job %s broke off, beginning it again: %s", uuid, error)
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
    """Write the texts of completed jobs, so many at a time; an object that is left as it is has no hash.

    :param targets: where each text goes, by uuid
    :param overwrite: what to do where there is an object already
    :param log: the task's log
    """
    there = {} if overwrite == "replace" else await _existing(targets, concurrency)
    if there and overwrite == "fail":
        first = targets[next(iter(there))]
        more = f", and {len(there) - 1} more," if len(there) > 1 else ""
        raise ComplianceStorageDeniedError(
            f"'{first}'{more} exists already, so nothing was written. Remove it, or choose "
            "overwrite='replace' or 'skip'."
        )

    async def store(uuid: str) -> Written:
        target = targets[uuid]
        written = await store_text(client, uuid, target, compress=compress)
        if written.bytes <= (EMPTY_GZIP_BYTES if compress else 0):
            log.warning("Job %s is completed, but its text is empty: '%s' is too.", uuid, target)
        else:
            log.debug("The text of job %s is at '%s': %s bytes.", uuid, target, written.bytes)
        return written

    results = await for_each(store, [uuid for uuid in targets if uuid not in there], concurrency)
    for uuid, size in there.items():
        log.info("'%s' is there already, with %s bytes: not written.", targets[uuid], size)
        results[uuid] = Written(size, None)
    return results


async def _existing(targets: Mapping[str, Location], concurrency: int) -> dict[str, int]:
    """Find the objects that are there already, with their sizes."""

    async def look(uuid: str) -> int | None:
        return await in_thread(targets[uuid].size)

    next(iter(targets.values())).fs.invalidate_cache()  # others may have written meanwhile
    found = await for_each(look, list(targets), concurrency)
    return {uuid: size for uuid, size in found.items() if size is not None}


async def store_bytes(data: bytes, location: Location) -> Written:
    """Write a small object at once."""
    await put(location, data)
    return Written(len(data), hashlib.sha256(data).hexdigest())


async def _store(pieces: AsyncIterator[bytes], location: Location, compress: bool) -> Written:
    begin = bytearray()
    async for piece in pieces:
        begin += piece
        if len(begin) > SINGLE_PUT_BYTES:
            return await _store_large(begin, pieces, location, compress)
    return await store_bytes(zlib.compress(begin, wbits=_GZIP) if compress else bytes(begin), location)


async def _store_large(
    begin: bytearray, pieces: AsyncIterator[bytes], location: Location, compress: bool
) -> Written:
    sink = _Sink(location, compress)
    writing: asyncio.Task[None] | None = None
    try:
        try:
            async for batch in _batches(begin, pieces):
                # The next batch is fetched while the last one is hashed and written.
                if writing:
                    await writing
                writing = asyncio.create_task(in_thread(sink.write, batch))
            if writing:
                await writing
        finally:
            if writing:
                await asyncio.gather(writing, return_exceptions=True)
        return await in_thread(sink.finish)
    except BaseException:
        await in_thread(sink.discard)
        raise


async def _batches(begin: bytearray, pieces: AsyncIterator[bytes]) -> AsyncIterator[memoryview]:
    """Fill two buffers in turn: each is free again when the next but one is asked for.

    A large call of the store or the hash gives Python's lock away once; many small ones would wait for it
    each time.
    """
    buffers = memoryview(bytearray(BATCH_BYTES)), memoryview(bytearray(BATCH_BYTES))
    turn, filled = 0, 0
    async for piece in _after(begin, pieces):
        rest = memoryview(piece)
        while rest:
            part = rest[: BATCH_BYTES - filled]
            buffers[turn][filled : filled + len(part)] = part
            filled += len(part)
            rest = rest[len(part) :]
            if filled == BATCH_BYTES:
                yield buffers[turn]
                turn, filled = 1 - turn, 0
    yield buffers[turn][:filled]


async def _after(begin: bytearray, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes | bytearray]:
    yield begin
    async for piece in pieces:
        yield piece


class _Sink:
    """Compresses, writes, hashes and counts; used in threads, by one at a time."""

    def __init__(self, location: Location, compress: bool) -> None:
        self._location = location
        self._compressor = zlib.compressobj(wbits=_GZIP) if compress else None
        self._hash = hashlib.sha256()
        self._size = 0
        self._file: AtomicFile | None = None

    def write(self, data: bytes | memoryview) -> None:
        self._write(self._compressor.compress(data) if self._compressor else data)

    def finish(self) -> Written:
        self._write(self._compressor.flush() if self._compressor else b"")
        with storage_errors(self._location):
            self._open().commit()
        return Written(self._size, self._hash.hexdigest())

    def discard(self) -> None:
        if self._file:
            try:
                self._file.discard()
            except Exception as error:
                # The store is gone, most likely; the error that led here says more.
                log.warning(
                    "What was written of '%s' could not be removed: %s", self._location, error_text(error)
                )

    def _write(self, data: bytes | memoryview) -> None:
        with storage_errors(self._location):
            self._open().write(data)
        self._hash.update(data)
        self._size += len(data)

    def _open(self) -> AtomicFile:
        self._file = self._file or create(self._location)
        return self._file
