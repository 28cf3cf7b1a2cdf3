"""The steps of an ingest: submit a document, refresh its job, fetch its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from airflow_provider.bulk.pipeline import Steps
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.sources import SourceFile, is_page
from airflow_provider.ingest.unchanged import UnchangedIndex
from airflow_provider.storage.locations import Location
from airflow_provider.storage.texts import store_text
from airflow_provider.waiting.kinds import JOBS, JobKind, job_record
from airflow_provider.waiting.results import Record

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import ContentJob


class IngestSteps(Steps[Document]):
    """What an ingest does with a document.

    :param target: returns where the text of a document goes
    :param unchanged: documents of earlier runs, where unchanged ones are skipped
    """

    kind: ClassVar[JobKind] = JOBS
    noun: ClassVar[str] = "documents"

    def __init__(
        self,
        client: AsyncComplianceClient,
        target: Callable[[Document], Location],
        unchanged: UnchangedIndex | None = None,
    ) -> None:
        self._client = client
        self._target = target
        self._unchanged = unchanged

    async def skip(self, item: Document) -> bool:
        """Tell whether a document is unchanged since an earlier run."""
        return self._unchanged is not None and await self._unchanged.skip(item)

    async def submit(self, item: Document) -> Record:
        """Submit a page or a file."""
        if is_page(item.source):
            return _record(await self._client.submit_url(item.source))
        file = SourceFile(item.source)
        try:
            return _record(await self._client.submit_file(file))
        finally:
            item.source_version = file.version or item.source_version

    async def retry(self, item: Document) -> Record:
        """Have the service process a document again."""
        return _record(await self._client.refresh(item.job_id))

    async def fetch(self, item: Document) -> None:
        """Stream the text to its place."""
        target = self._target(item)
        written = await store_text(self._client, item.job_id, target)
        item.path, item.bytes, item.sha256 = target.uri, written.bytes, written.sha256

    async def remember(self, item: Document) -> None:
        """Keep what the next run compares with."""
        if self._unchanged:
            await self._unchanged.remember(item)


def _record(job: ContentJob) -> Record:
    return job_record(job.uuid, job)
