"""Stream texts from the service into a store, in constant memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from airflow_provider.exceptions import ComplianceError
from airflow_provider.runtime.event_loop import in_thread
from airflow_provider.storage.atomic import Draft, keep, put_sync
from airflow_provider.storage.locations import Location

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

log = logging.getLogger(__name__)

BATCH_BYTES = 2 << 20  # texts up to this size stay in memory; larger ones go to a disk in such batches
MAX_REFETCHES = 2  # for a text whose download broke off
REFETCH_DELAY_SECONDS = 0.5  # before the first one; doubles
GZIP_LEVEL = 6
EMPTY_GZIP_BYTES = 20  # for an empty gzip file

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

    :param replace: an existing text; otherwise a text whose name is taken gets a name with its hash
    """
    for attempt in count():
        # A request that fails before the body was retried by the client already.
        async with client.stream_content(uuid) as pieces:
            try:
                return await _store(pieces, location, compress, replace, confirm)
            except ComplianceError as error:
                if not error.transient or attempt == MAX_REFETCHES:
                    raise
                log.warning("Restarting the download of job %s, which broke off: %s", uuid, error)
        await asyncio.sleep(REFETCH_DELAY_SECONDS * 2**attempt)
    raise AssertionError("unreachable")


async def _store(
    pieces: AsyncIterator[bytes],
    location: Location,
    compress: bool = False,
    replace: bool = True,
    confirm: Confirm | None = None,
) -> Written:
    batch, draft = bytearray(), Draft(location, GZIP_LEVEL if compress else None)
    try:
        async for piece in pieces:
            batch += piece
            if len(batch) >= BATCH_BYTES:
                await in_thread(draft.add, batch)
                batch = bytearray()
        if confirm:
            await confirm()
        return await in_thread(_publish, draft, batch, location, replace)
    finally:
        draft.close()


def _publish(draft: Draft, rest: bytearray, location: Location, replace: bool) -> Written:
    """Add the last part, and give the text its name."""
    content = draft.add(rest, is_last=True)
    if replace:
        put_sync(location, content)
    else:
        location = keep(location, content, draft.sha256)
    return Written(location.uri, draft.size, draft.sha256)
