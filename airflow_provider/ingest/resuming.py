"""What is left to do: what earlier attempts of the task have not finished, and what has changed since."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED, SUBMITTED, resume
from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import (
    ComplianceInputError,
    ComplianceStorageDeniedError,
    ComplianceStorageError,
)
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.sources import fingerprint, is_page, version_in
from airflow_provider.storage.infos import find_infos
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import printable

SOURCE_SECONDS = 60.0  # for a store to say which version of a source it has
MAX_UNKNOWN = 4  # sources whose store gives no version; more than that are an outage

Stores = dict[tuple[str, str | None], Exception | None]


def resume_documents(
    addresses: Mapping[str, str], earlier: Mapping[str, Document], *, is_new_attempt: bool, log: Any
) -> list[Document]:
    """Return all documents, each as far as it has come; in the task's own thread.

    :param addresses: of all documents, by source
    :param is_new_attempt: failed documents are processed again; not so after a deferral
    """
    if earlier:
        log.info("Resuming from an earlier attempt: %s documents are known.", len(earlier))
    documents = resume(addresses, earlier, Document, is_new_attempt=is_new_attempt)
    stores: Stores = {}
    for document in documents:
        document.set_address(addresses[document.source])
        error = _source_error(document.address, stores)
        if error and document.state is PENDING:
            document.fail(error)
    return documents


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
        except Exception as error:  # whatever it is: other sources may be fine
            stores[store] = error
    return stores[store]


async def reset_outdated(documents: list[Document], concurrency: int, log: Any) -> list[str]:
    """Reset documents whose text was removed or whose source has changed; return outdated jobs in flight.

    A few sources whose version can't be read are processed again, and their submit shows what is wrong; many
    of them are an outage of their store.
    """
    outdated: list[str] = []
    unknown: list[Exception] = []

    async def check(number: int) -> None:
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
            if not document.state.is_final:
                outdated.append(document.job_id)
            documents[number] = document.reset()
        elif document.state in (COMPLETED, SKIPPED) and not await _has_text(document):
            is_own = document.state is COMPLETED
            documents[number] = replace(document, state=SUBMITTED) if is_own else document.reset()

    started = [number for number, each in enumerate(documents) if each.state is not FAILED and each.job_id]
    valid = await _find_valid([documents[number] for number in started])
    await for_each(check, [each for each in started if documents[each].key not in valid], concurrency)
    kept = {each.job_id for each in documents}
    return [job_id for job_id in outdated if job_id not in kept]


async def _find_valid(documents: Sequence[Document]) -> set[str]:
    """Return the sources that have not changed, and whose texts are there, as far as listings tell."""
    texts = [each for each in documents if each.state in (COMPLETED, SKIPPED)]
    files = [each for each in documents if each.source_version]
    found = await find_infos(
        [*(each.path for each in texts), *(each.address for each in files)], SOURCE_SECONDS
    )
    nothing: Mapping[str, Any] = {}
    outdated = {
        each.key
        for each in texts
        if (info := found.get(each.path, nothing)).get("type") != "file" or info["size"] != each.bytes
    }
    outdated |= {
        each.key for each in files if version_in(found.get(each.address, nothing)) != each.source_version
    }
    return {each.key for each in documents} - outdated


async def _has_text(document: Document) -> bool:
    return bool(document.path) and await in_thread(Location(document.path).size) == document.bytes


async def _has_changed(document: Document) -> bool:
    """Tell whether the source is another one now; one that is gone has not changed."""
    try:
        async with asyncio.timeout(SOURCE_SECONDS):
            return await asyncio.to_thread(fingerprint, document.address) != document.source_version
    except (ComplianceStorageDeniedError, FileNotFoundError):
        return False
    except TimeoutError:
        raise ComplianceStorageError(
            f"The version of '{document.label}' can't be read: its store did not answer within "
            f"{SOURCE_SECONDS:.0f} s."
        ) from None
