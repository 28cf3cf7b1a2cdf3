"""Stream texts from the service into a store, in constant memory."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import tempfile
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING

from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceError
from airflow_provider.storage.atomic import Content, keep, put_sync
from airflow_provider.storage.locations import Location, storage_errors

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

log = logging.getLogger(__name__)

BATCH_BYTES = 2 << 20  # texts up to this size stay in memory; larger ones go to a disk in such batches
MAX_REFETCHES = 2  # of a text whose download broke off
REFETCH_DELAY_SECONDS = 0.5  # before the first one; doubles
_GZIP = 31  # wbits for gzip; without name and time, so that equal texts give equal bytes
EMPTY_GZIP_BYTES = 20  # of an empty gzip file

Confirm = Callable[[], Awaitable[None]]
"""Called just before a text gets its name; raises if it must not."""


@dataclass(frozen=True)
class Written:
    """A stored object, with its size and hash."""

    uri: str
    bytes: int
    sha256: str


async def store_text(
    client: AsyncComplianceClient,
    uuid: str,
    location: Location,
    *,
    compress: bool = False,
    replace: bool = True,
    confirm: Confirm | None = None,
) -> Written:
    """Stream the text of a completed job into a store, atomically.

    If the download breaks off, it is restarted from its beginning.

    :param replace: what is there; else a text whose name is taken by another one gets a name with its hash
    """
    for attempt in count():
        # A request that fails before the body was retried by the client already.
        async with client.stream_content(uuid) as pieces:
            try:
                return await _store(pieces, _Draft(location, compress, replace), confirm)
            except ComplianceError as error:
                if not error.transient or attempt == MAX_REFETCHES:
                    raise
                log.warning("Restarting the download of job %s, which broke off: %s", uuid, error)
        await asyncio.sleep(REFETCH_DELAY_SECONDS * 2**attempt)
    raise AssertionError("unreachable")


async def _store(pieces: AsyncIterator[bytes], draft: _Draft, confirm: Confirm | None = None) -> Written:
    batch = bytearray()
    try:
        async for piece in pieces:
            batch += piece
            if len(batch) >= BATCH_BYTES:
                await in_thread(draft.add, batch)
                batch = bytearray()
        if confirm:
            await confirm()
        return await in_thread(draft.publish, batch)
    finally:
        draft.close()


class _Draft:
    """A text in progress: in memory while it is small, else on this machine's disk. Blocks."""

    def __init__(self, location: Location, compress: bool, replace: bool) -> None:
        self._location, self._replace = location, replace
        self._compressor = zlib.compressobj(wbits=_GZIP) if compress else None
        self._hash = hashlib.sha256()
        self._size = 0
        self._file: IO[bytes] | None = None

    def add(self, batch: bytearray, *, is_last: bool = False) -> Content:
        """Add a part; return all parts."""
        data = bytes(batch)
        if self._compressor:
            data = self._compressor.compress(data) + (self._compressor.flush() if is_last else b"")
        self._hash.update(data)
        self._size += len(data)
        if is_last and not self._file:
            return data
        with storage_errors(self._location):
            self._file = self._file or tempfile.NamedTemporaryFile()  # noqa: SIM115 - see `close`
            self._file.write(data)
            self._file.flush()
        return Path(self._file.name)

    def publish(self, rest: bytearray) -> Written:
        """Add the last part, and give the text its name."""
        content, location = self.add(rest, is_last=True), self._location
        sha256 = self._hash.hexdigest()
        if self._replace:
            put_sync(location, content)
        else:
            location = keep(location, content, sha256)
        return Written(location.uri, self._size, sha256)

    def close(self) -> None:
        """Remove what is on this machine."""
        if self._file:
            self._file.close()
