"""Stream texts from the service into a store, in constant memory."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceError
from airflow_provider.storage.atomic import BLOCK_BYTES, AtomicFile, create, discard, put
from airflow_provider.storage.locations import Location, storage_errors

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

log = logging.getLogger(__name__)

SINGLE_PUT_BYTES = 1 << 20  # texts up to this size are written in one request
BATCH_BYTES = BLOCK_BYTES // 2  # of a larger one, written at a time
MAX_REFETCHES = 2  # of a text whose download broke off
REFETCH_DELAY_SECONDS = 0.5  # before the first one; doubles
_GZIP = 31  # wbits for gzip; without name and time, so that equal texts give equal bytes
EMPTY_GZIP_BYTES = 20  # of an empty gzip file

Confirm = Callable[[], Awaitable[None]]
"""Called just before a text gets its name; raises if it must not."""


@dataclass(frozen=True)
class Written:
    """Size and hash of a stored object."""

    bytes: int
    sha256: str


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


async def _store(
    pieces: AsyncIterator[bytes], location: Location, compress: bool, confirm: Confirm | None = None
) -> Written:
    batch = bytearray()
    writer: _Writer | None = None
    try:
        async for piece in pieces:
            batch += piece
            if len(batch) >= (BATCH_BYTES if writer else SINGLE_PUT_BYTES + 1):
                writer = writer or _Writer(location, compress)
                await in_thread(writer.write, batch)
                batch = bytearray()
        if writer:
            await in_thread(writer.write, batch, is_last=True)
        if confirm:
            await confirm()
        if writer:
            return await in_thread(writer.commit)
    except BaseException:
        if writer:
            await in_thread(writer.discard)
        raise
    data = zlib.compress(batch, wbits=_GZIP) if compress else bytes(batch)
    await put(location, data)
    return Written(len(data), hashlib.sha256(data).hexdigest())


class _Writer:
    """Writes a large text batch by batch, each in a thread; it appears when it is committed."""

    def __init__(self, location: Location, compress: bool) -> None:
        self._location = location
        self._compressor = zlib.compressobj(wbits=_GZIP) if compress else None
        self._hash = hashlib.sha256()
        self._size = 0
        self._file: AtomicFile | None = None

    def write(self, batch: bytearray, *, is_last: bool = False) -> None:
        data: bytes | bytearray = batch
        if self._compressor:
            data = self._compressor.compress(batch) + (self._compressor.flush() if is_last else b"")
        self._hash.update(data)
        self._size += len(data)
        with storage_errors(self._location):
            self._file = self._file or create(self._location)
            self._file.write(data)

    def commit(self) -> Written:
        if self._file:
            with storage_errors(self._location):
                self._file.commit()
        return Written(self._size, self._hash.hexdigest())

    def discard(self) -> None:
        if self._file:
            discard(self._file, self._location)
