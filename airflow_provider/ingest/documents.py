"""The documents of an ingest, as journal and manifest keep them, and what is done with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_provider.bulk.items import Item
from airflow_provider.bulk.pipeline import Steps
from airflow_provider.ingest.sources import SourceFile, is_page
from airflow_provider.storage.locations import Location
from airflow_provider.storage.texts import Confirm, store_text
from airflow_provider.waiting.kinds import JOBS, JobKind, job_record
from airflow_provider.waiting.results import Record

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.ingest.unchanged import UnchangedIndex

COLUMNS = (
    "source", "uuid", "status", "error", "path", "bytes", "sha256", "submitted_at", "completed_at",
    "attempts", "source_version",
)  # fmt: skip


@dataclass(slots=True)
class Document(Item):
    """One document; its key is its source.

    :param path: where its text is
    :param bytes: of its text
    :param sha256: of its text
    :param source_version: fingerprint of the file that was submitted, to see whether it has changed since
    """

    column_names: ClassVar[Mapping[str, str]] = {"key": "source", "job_id": "uuid", "state": "status"}

    path: str = ""
    bytes: int | None = None
    sha256: str | None = None
    source_version: str = ""

    @property
    def source(self) -> str:
        """Where it comes from."""
        return self.key

    def row(self) -> dict[str, Any]:
        """Return its row of the manifest."""
        record = self.record()
        return {name: record.get(name, 0 if name == "attempts" else None) for name in COLUMNS}

    def fail(self, error: object) -> None:
        """Give it up."""
        super(Document, self).fail(error)  # slots rule out a bare super()
        self.path, self.bytes, self.sha256 = "", None, None

    def for_retry(self) -> Self:
        """Return it as the next attempt of the task starts with it: a failed one is processed again."""
        again = super(Document, self).for_retry()
        if again.job_id:
            again.source_version = self.source_version
        return again


class IngestSteps(Steps[Document]):
    """What an ingest does with a document.

    :param target: returns where the text of a document goes
    :param unchanged: documents of earlier runs, where unchanged ones are skipped
    :param confirm: raises if this attempt may no longer write
    """

    kind: ClassVar[JobKind] = JOBS
    noun: ClassVar[str] = "documents"

    def __init__(
        self,
        client: AsyncComplianceClient,
        target: Callable[[Document], Location],
        unchanged: UnchangedIndex | None = None,
        confirm: Confirm | None = None,
    ) -> None:
        self._client = client
        self._target = target
        self._unchanged = unchanged
        self._confirm = confirm

    async def skip(self, item: Document) -> bool:
        """Tell whether a document is unchanged since an earlier run."""
        return self._unchanged is not None and await self._unchanged.skip(item)

    async def submit(self, item: Document) -> Record:
        """Submit a page or a file."""
        if is_page(item.source):
            job = await self._client.submit_url(item.source)
        else:
            file = SourceFile(item.source)
            try:
                job = await self._client.submit_file(file)
            finally:
                item.source_version = file.version or item.source_version
        return job_record(job.uuid, job)

    async def retry(self, item: Document) -> Record:
        """Have the service process a document again."""
        job = await self._client.refresh(item.job_id)
        return job_record(job.uuid, job)

    async def fetch(self, item: Document) -> None:
        """Stream the text to its place, and keep what the next run compares with."""
        target = self._target(item)
        written = await store_text(self._client, item.job_id, target, confirm=self._confirm)
        item.path, item.bytes, item.sha256 = target.uri, written.bytes, written.sha256
        if self._unchanged:
            await self._unchanged.remember(item)
