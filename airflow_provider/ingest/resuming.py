"""What is left to do: what earlier attempts of the task have not finished, and what has changed since."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from airflow_provider.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED, SUBMITTED, resume
from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceStorageDeniedError,
    ComplianceStorageError,
)
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.sources import fingerprint, is_page, version_in
from airflow_provider.reports.page import plural
from airflow_provider.storage.infos import Info, find_infos
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import printable

SOURCE_SECONDS = 60.0  # for a store to say which version of a source it has
MAX_UNKNOWN = 4  # sources whose store gives no version; more, and more than a tenth of all, are an outage

Stores = dict[tuple[str, str | None], Exception | None]


def resume_documents(
    addresses: Mapping[str, str], earlier: Mapping[str, Document], *, is_new_attempt: bool, log: Any
) -> list[Document]:
    """Return all documents, each as far as it has come; in the task's own thread.

    :param addresses: of all documents, by source
    :param is_new_attempt: failed documents are processed again; not so after a deferral
    """
    if earlier:
        log.info("Resuming from an earlier attempt, which knew %s.", plural(len(earlier)))
    documents = resume(addresses, earlier, Document, is_new_attempt=is_new_attempt)
    stores: Stores = {}
    for document in documents:
        document.set_address(addresses[document.source])
        error = _source_error(document.address, stores)
        if error and document.state is PENDING:
            document.fail(error)
    return documents


def find_removed(known: Mapping[str, Document], listed: Collection[str], log: Any) -> list[str]:
    """Return the jobs in flight of documents that are no longer listed, to be cancelled."""
    kept = {document.job_id for source, document in known.items() if source in listed}
    removed = [document for source, document in known.items() if source not in listed]
    jobs = {document.job_id for document in removed if document.job_id and not document.state.is_final} - kept
    if jobs:
        log.warning("No longer listed: %s in flight: %s", plural(len(jobs), "job"), sorted(jobs))
    return sorted(jobs)


def _source_error(source: str, stores: Stores) -> Exception | None:
    """Return what is wrong with a source before it is submitted; Airflow is asked once for each store."""
    if not source.strip():
        return ComplianceInputError("The source is blank: remove the empty entry from the list.")
    if is_page(source):
        is_text = printable(source) == source
        return None if is_text else ComplianceInputError(f"'{printable(source)}' is not a valid URL.")
    try:
        location = Location(source)
    except ComplianceInputError as error:
        return error
    store = location.protocol, location.conn_id
    if store not in stores:
        try:
            _ = location.fs
            stores[store] = None
        except Exception as error:  # of any kind: other sources may be fine
            stores[store] = error
    return stores[store]


class Outdated(Enum):
    """What is outdated about a document that an earlier attempt or night has processed."""

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
    sources = [document.address for document in by_key.values() if document.source_version]
    texts = [document.path for document in by_key.values() if document.path]
    infos = await find_infos([*sources, *texts], SOURCE_SECONDS)

    async def check(key: str) -> None:
        document = by_key[key]
        unread: Outdated | ComplianceError | None = None
        version, info = document.source_version, infos.get(document.address, {})
        try:
            if version and version_in(info) != version and await read_version(document) != version:
                outdated[key] = Outdated.SOURCE
                return
        except (ComplianceStorageDeniedError, FileNotFoundError):
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
    """Return which version of its source there is now; an error if its store takes too long."""
    try:
        async with asyncio.timeout(SOURCE_SECONDS):
            # Not `in_thread`: a source that hangs is abandoned when the task ends.
            return await asyncio.to_thread(fingerprint, document.address)
    except TimeoutError:
        raise ComplianceStorageError(
            f"The version of '{document.label}' can't be read: its store did not answer within "
            f"{SOURCE_SECONDS:.0f} s."
        ) from None


async def reset_outdated(documents: list[Document], concurrency: int, log: Any) -> list[str]:
    """Reset documents whose text was removed or whose source has changed; return outdated jobs in flight.

    A source that is gone, or whose version can't be read, has not changed as far as is known.
    """
    jobs: list[str] = []
    ended = (FAILED, SKIPPED)  # what is unchanged since an earlier night is decided later
    started = [document for document in documents if document.state not in ended and document.job_id]
    outdated = await find_outdated(started, concurrency)
    for number, document in enumerate(documents):
        reason = outdated.get(document.key)
        if reason is Outdated.TEXT:
            documents[number] = replace(document, state=SUBMITTED)
        elif reason is Outdated.SOURCE:
            documents[number] = document.reset()
            log.info("'%s' has changed since it was submitted: submitting it again.", document.label)
            jobs += [] if document.state.is_final else [document.job_id]
    kept = {document.job_id for document in documents}
    return [job_id for job_id in jobs if job_id not in kept]


async def _has_text(document: Document, infos: Mapping[str, Info]) -> bool:
    info = infos.get(document.path, {})
    if info.get("type") == "file" and info["size"] == document.bytes:
        return True
    return bool(document.path) and await in_thread(Location(document.path).size) == document.bytes
