"""What is left to do: all that earlier attempts of the task have not finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.ingest.documents import COMPLETED, FAILED, Document
from airflow_provider.storage.locations import Location


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
        if not document.is_page:
            _ = Location(source).fs  # asks Airflow for the connection, once for each
    return documents


async def look_for_texts(documents: Sequence[Document], concurrency: int) -> None:
    """Let a document whose text has been removed be done again."""

    async def look(number: int) -> None:
        document = documents[number]
        if await in_thread(Location(document.path).size) != document.bytes:
            document.status = ""

    completed = [number for number, each in enumerate(documents) if each.status == COMPLETED]
    await for_each(look, completed, concurrency)
