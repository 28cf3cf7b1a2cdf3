"""What is left to do: what earlier attempts of the task have not finished, or whose source has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageDeniedError
from airflow_provider.ingest.documents import FAILED, SKIPPED, Document
from airflow_provider.ingest.sources import fingerprint
from airflow_provider.storage.locations import Location

SOURCE_SECONDS = 60.0  # for a store to say which version of a source it has


def documents_of(
    sources: Iterable[str], earlier: Mapping[str, Document], *, retries: bool, log: Any
) -> list[Document]:
    """Return all documents, each as far as it has come; in the task's own thread.

    :param retries: documents that have failed before are tried again
    """
    if earlier:
        log.info("Going on where an earlier attempt was: %s documents are known.", len(earlier))
    documents: list[Document] = []
    stores: dict[tuple[str, str | None], Exception | None] = {}
    for source in sources:
        document = earlier.get(source) or Document(source)
        if retries:
            document = _for_retry(document)
        document.is_inherited = bool(document.uuid)
        documents.append(document)
        if not document.is_page and (error := _store_error(source, stores)) and not document.status:
            document.fail(error)
    return documents


def _for_retry(document: Document) -> Document:
    if document.status != FAILED:
        document.refreshed = 0
        return document
    again = document.anew()
    if document.uuid and document.completed_at:  # only its text was not fetched in time
        again.uuid, again.submitted_at = document.uuid, document.submitted_at
        again.source_version = document.source_version
    return again


def _store_error(source: str, stores: dict[tuple[str, str | None], Exception | None]) -> Exception | None:
    """Ask Airflow for the connection of a source, once for each store; return what is wrong with it."""
    try:
        location = Location(source)
    except ComplianceInputError as error:
        return error
    store = location.protocol, location.conn_id
    if store not in stores:
        try:
            _ = location.fs
            stores[store] = None
        except Exception as error:  # of this source, whatever it is: others may be good
            stores[store] = error
    return stores[store]


async def find_outdated(documents: list[Document], concurrency: int, log: Any) -> list[str]:
    """Let documents be done again whose text was removed or whose source has changed; return jobs to cancel.

    The latter are jobs under way that would process the source as it was.
    """
    superseded: list[str] = []

    async def look(number: int) -> None:
        document = documents[number]
        if document.source_version and await _has_changed(document):
            log.info("'%s' has changed since it was submitted: it is submitted anew.", document.source)
            if not document.status:
                superseded.append(document.uuid)
            documents[number] = document.anew()
        elif document.status and not await _has_text(document):
            if document.status == SKIPPED:
                documents[number] = document.anew()
            document.status = ""

    started = [number for number, each in enumerate(documents) if each.status != FAILED and each.uuid]
    await for_each(look, started, concurrency)
    kept = {each.uuid for each in documents}
    return [uuid for uuid in superseded if uuid not in kept]


async def _has_text(document: Document) -> bool:
    return bool(document.path) and await in_thread(Location(document.path).size) == document.bytes


async def _has_changed(document: Document) -> bool:
    """Tell whether the source is another one now; one that is gone can't be."""
    try:
        async with asyncio.timeout(SOURCE_SECONDS):
            return await asyncio.to_thread(fingerprint, document.source) != document.source_version
    except (ComplianceStorageDeniedError, FileNotFoundError):
        return False
    except Exception:
        return True  # whoever submits it will say what is wrong
