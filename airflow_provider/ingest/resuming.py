"""What is left to do: all that earlier attempts of the task have not finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceError, ComplianceInputError
from airflow_provider.ingest.documents import COMPLETED, FAILED, Document
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import printable


def documents_of(
    sources: Iterable[str], earlier: Mapping[str, Document], *, retries: bool, log: Any
) -> list[Document]:
    """Return all documents, each as far as it has come; in the task's own thread.

    :param retries: documents that have failed before are tried again
    """
    if earlier:
        log.info("Going on where an earlier attempt was: %s documents are known.", len(earlier))
    documents: list[Document] = []
    for source in sources:
        document = earlier.get(source) or Document(source)
        document.is_inherited = bool(document.uuid)
        if document.status == FAILED and retries:
            document = Document(source, attempts=document.attempts)
        documents.append(document)
        try:
            _check(source, is_page=document.is_page)
        except ComplianceError as error:
            if not document.uuid and not document.status:
                document.fail(error)
    return documents


def _check(source: str, *, is_page: bool) -> None:
    if not source.strip():
        raise ComplianceInputError("The source is blank: the list has an entry that names nothing.")
    if is_page and printable(source) != source:
        raise ComplianceInputError(f"'{printable(source)}' is not a valid URL: it is not UTF-8.")
    if not is_page:
        _ = Location(source).fs  # asks Airflow for the connection, once for each


async def look_for_texts(documents: Sequence[Document], concurrency: int) -> None:
    """Let a document whose text has been removed be done again."""

    async def look(number: int) -> None:
        document = documents[number]
        if await in_thread(Location(document.path).size) != document.bytes:
            document.status = ""

    completed = [number for number, each in enumerate(documents) if each.status == COMPLETED]
    await for_each(look, completed, concurrency)
