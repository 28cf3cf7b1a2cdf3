"""Whether the source or the text of a document changed after it was processed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from airflow_provider.exceptions import ComplianceError, ComplianceStorageDeniedError, ComplianceStorageError
from airflow_provider.nights.bulk.items import COMPLETED, SKIPPED
from airflow_provider.runtime.event_loop import for_each, in_thread
from airflow_provider.storage.infos import Info, find_infos
from airflow_provider.storage.locations import Location
from airflow_provider.storage.sources import fingerprint, version_in

if TYPE_CHECKING:
    from airflow_provider.nights.ingest.documents import Document

SOURCE_SECONDS = 60.0  # for a store to say which version of a source it has
MAX_UNKNOWN = 4  # sources whose store gives no version; more, and more than a tenth of all, are an outage


class Outdated(Enum):
    """Why a document is outdated that an earlier attempt or night processed."""

    SOURCE = "its source has changed"
    TEXT = "its text is gone"
    GONE = "its source is gone"


async def find_outdated(
    documents: Iterable[Document], concurrency: int
) -> dict[str, Outdated | ComplianceError]:
    """Return which documents are outdated, and why; an error where the store of the source can't tell now.

    Many errors are an outage of the store, which is raised.
    """
    by_key = {document.key: document for document in documents}
    outdated: dict[str, Outdated | ComplianceError] = {}
    # Listings are quicker than a request for each, but never decide that something is outdated.
    sources = [
        document.address
        for document in by_key.values()
        if document.source_version and not document.listed_version
    ]
    texts = [document.path for document in by_key.values() if document.path]
    infos = await find_infos([*sources, *texts], SOURCE_SECONDS)

    async def check(key: str) -> None:
        document = by_key[key]
        unread: Outdated | ComplianceError | None = None
        version = document.source_version
        listed = document.listed_version or version_in(infos.get(document.address, {}))
        try:
            if version and listed != version and await read_version(document) != version:
                outdated[key] = Outdated.SOURCE
                return
        except ComplianceStorageDeniedError:
            unread = Outdated.GONE
        except ComplianceError as error:
            unread = outdated[key] = error
            unknown = sum(isinstance(reason, ComplianceError) for reason in outdated.values())
            if unknown > max(MAX_UNKNOWN, len(by_key) // 10):
                raise
        if document.state in (COMPLETED, SKIPPED) and not await _has_text(document, infos):
            outdated[key] = Outdated.TEXT
        elif unread:
            outdated[key] = unread

    await for_each(check, by_key, concurrency)
    return outdated


async def read_version(document: Document) -> str:
    """Return the current version of its source; an error if its store takes too long."""
    try:
        async with asyncio.timeout(SOURCE_SECONDS):
            # Not `in_thread`: a source that hangs is abandoned when the task ends.
            return await asyncio.to_thread(fingerprint, document.address)
    except TimeoutError:
        raise ComplianceStorageError(
            f"The version of '{document.label}' can't be read: its store did not answer within "
            f"{SOURCE_SECONDS:.0f} s."
        ) from None


async def _has_text(document: Document, infos: Mapping[str, Info]) -> bool:
    info = infos.get(document.path, {})
    if info.get("type") == "file" and info["size"] == document.bytes:
        return True
    return bool(document.path) and await in_thread(Location(document.path).size) == document.bytes
