"""What is left to do: what earlier attempts of the task have not finished, or whose source has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import (
    ComplianceInputError,
    ComplianceStorageDeniedError,
    ComplianceStorageError,
)
from airflow_provider.ingest.documents import FAILED, SKIPPED, Document
from airflow_provider.ingest.sources import fingerprint
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import printable

SOURCE_SECONDS = 60.0  # for a store to say which version of a source it has
MAX_UNKNOWN = 4  # sources that their store says nothing of; more than that are an outage


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
        document.from_previous_attempt = bool(document.uuid)
        documents.append(document)
        error = _source_error(document, stores)
        if error and not (document.uuid or document.status):
            document.fail(error)
    return documents


def _for_retry(document: Document) -> Document:
    if document.status != FAILED:
        document.refresh_count = 0
        return document
    again = document.reset()
    if document.uuid and document.completed_at:  # only its text was not fetched in time
        again.uuid, again.submitted_at = document.uuid, document.submitted_at
        again.source_version = document.source_version
    return again


def _source_error(
    document: Document, stores: dict[tuple[str, str | None], Exception | None]
) -> Exception | None:
    """Say what is wrong with a source before anything is sent; Airflow is asked once for each store."""
    source = document.source
    if not source.strip():
        return ComplianceInputError("The source is blank: the list has an entry that names nothing.")
    if document.is_page:
        is_text = printable(source) == source
        return None if is_text else ComplianceInputError(f"'{document.label}' is not a valid URL.")
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

    The latter are jobs under way that would process the source as it was. A few sources that can't be looked
    at are done again, and submitting them shows what is wrong; many of them are an outage of their store.
    """
    superseded: list[str] = []
    unknown: list[Exception] = []

    async def look(number: int) -> None:
        document = documents[number]
        try:
            has_changed = bool(document.source_version) and await _has_changed(document)
        except Exception as error:
            unknown.append(error)
            if len(unknown) > MAX_UNKNOWN:
                raise
            documents[number] = document.reset()
            return
        if has_changed:
            log.info("'%s' has changed since it was submitted: submitting it again.", document.label)
            if not document.status:
                superseded.append(document.uuid)
            documents[number] = document.reset()
        elif document.status and not await _has_text(document):
            if document.status == SKIPPED:
                documents[number] = document.reset()
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
    except TimeoutError:
        raise ComplianceStorageError(
            f"'{document.label}' can't be looked at: its store did not answer within {SOURCE_SECONDS:.0f} s."
        ) from None
