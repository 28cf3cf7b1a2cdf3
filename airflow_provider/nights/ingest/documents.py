"""The documents of an ingest: steps, and how checkpoint, manifest and result show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from airflow_provider.exceptions import ComplianceIngestError, ComplianceInputError, FailureKind
from airflow_provider.nights.bulk import counts
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.nights.bulk.deletes import FinishedJob, StoredObject, collect_finished
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED, Item, Steps
from airflow_provider.nights.ingest.sources import is_page
from airflow_provider.redaction.addresses import is_redacted
from airflow_provider.redaction.text import mask_address
from airflow_provider.runtime import metrics
from airflow_provider.runtime.provenance import PROVENANCE_COLUMNS
from airflow_provider.storage import names
from airflow_provider.storage.locations import Location
from airflow_provider.storage.sources import SourceFile
from airflow_provider.storage.texts import Confirm, store_text
from airflow_provider.waiting.kinds import JOBS, JobKind, job_record
from airflow_provider.waiting.results import Record

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

PLANNED = {PENDING: "submitted", SKIPPED: "skipped", FAILED: "failed", COMPLETED: "kept"}  # by a dry run

# Of the names of texts.
SOURCE_NAME_FIELDS = ("source_name", "source_stem")
NAME_FIELDS = (*SOURCE_NAME_FIELDS, "source_hash", "uuid")
DISTINCT_FIELDS = frozenset({"source_hash", "uuid"})


def _column(of: Literal["text", "source", "failures"], default: Any) -> Any:
    """Declare a column of the manifest.

    :param of: the `text`, which a document that failed does not have; its `source`; or its `failures`.
        A skipped document has text and source of an earlier night
    """
    return field(default=default, metadata={"of": of})


@dataclass(slots=True)
class Document(Item):
    """One document; its key is its source. Each of its own fields is a column of the manifest.

    :param path: where its text is
    :param bytes: the size of its text
    :param sha256: the SHA-256 of its text
    :param source_version: fingerprint of the file that was submitted, to see whether it changed since
    :param source_etag: the ETag of the file that was submitted: its version id at the store, else its ETag
    :param source_bytes: the size of the file that was submitted
    :param source_sha256: the SHA-256 of the bytes that the service accepted
    :param failed_nights: in how many nights in a row it was sent and failed; 0 if it did not fail
    :param failed_since: the first of them
    """

    column_names: ClassVar[Mapping[str, str]] = {"key": "source", "job_id": "uuid", "state": "status"}

    path: str = _column("text", "")
    bytes: int | None = _column("text", None)
    sha256: str | None = _column("text", None)
    source_version: str = _column("source", "")
    source_etag: str | None = _column("source", None)
    source_bytes: int | None = _column("source", None)
    source_sha256: str = _column("source", "")
    failed_nights: int = _column("failures", 0)
    failed_since: str | None = _column("failures", None)
    _address: str = field(default="", compare=False, repr=False)
    _listed_version: str = field(default="", compare=False, repr=False)

    @property
    def input(self) -> Hashable:
        """The address of a page without its fragment, the bytes of a file."""
        return self.address.partition("#")[0] if is_page(self.key) else self.source_sha256 or self.key

    @property
    def source(self) -> str:
        """Where it comes from, as it is stored and shown."""
        return self.key

    @property
    def address(self) -> str:
        """Where it comes from, with all secrets; in no journal, manifest or log."""
        return self._address or self.key

    @property
    def listed_version(self) -> str:
        """The version that its file had when it was listed; empty if it was not."""
        return self._listed_version

    def set_address(self, address: str, version: str = "") -> None:
        """Keep where it comes from, for as long as the task runs.

        :param version: see `listed_version`
        """
        self._address = "" if address == self.key else address
        self._listed_version = version

    def row(self, writer: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return its row of the manifest.

        :param writer: the provenance of the attempt that writes it
        """
        record = self.record() | self.provenance(writer or {})
        return {name: record.get(name, 0 if name == "attempts" else None) for name in MANIFEST_COLUMNS}

    def set_error(self, error: object) -> None:
        """Keep why it failed; then it has no text."""
        super(Document, self).set_error(error)  # slots rule out a bare super()
        for name in columns_of("text"):
            setattr(self, name, _COLUMNS[name].default)

    def describe(self, error: object) -> str:
        """Return the text of an error, without secrets of its address."""
        return mask_address(super(Document, self).describe(error), self.address)

    def reset(self) -> Self:
        """Return the same document with everything still to do."""
        again = super(Document, self).reset()
        again.set_address(self.address, self._listed_version)
        return again


_COLUMNS = {column.name: column for column in fields(Document) if column.metadata}


def columns_of(*groups: str) -> tuple[str, ...]:
    """Return the columns of a document's text, of its source or of its failures."""
    return tuple(name for name, column in _COLUMNS.items() if column.metadata["of"] in groups)


MANIFEST_COLUMNS = (
    *("source", "uuid", "status", "error", "failure_kind", *columns_of("text")),
    *("submitted_at", "completed_at", "attempts", "failed_jobs"),
    *(*columns_of("source", "failures"), *PROVENANCE_COLUMNS, "account"),
)


class IngestSteps(Steps[Document]):
    """The steps of an ingestion for a document.

    :param target: returns where the text of a document goes
    :param confirm: raises if this attempt may no longer write
    :param max_bytes: how large a file may be
    """

    kind: ClassVar[JobKind] = JOBS
    noun: ClassVar[str] = "documents"

    def __init__(
        self,
        client: AsyncComplianceClient,
        target: Callable[[Document], Location],
        confirm: Confirm | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._client = client
        self._target = target
        self._confirm = confirm
        self._max_bytes = max_bytes

    async def submit(self, item: Document) -> Record:
        """Submit a page or a file."""
        if is_redacted(item.address):
            raise ComplianceInputError(
                "A login or signature was removed from its address when that was stored, so it can't be "
                "submitted: use the original address."
            )
        if is_page(item.address):
            job = await self._client.submit_url(item.address)
        else:
            file = SourceFile(item.address, self._max_bytes)
            item.source_sha256 = ""  # drop an earlier submit's
            try:
                job = await self._client.submit_file(file)
                item.source_sha256 = file.sha256
            finally:
                item.source_version = file.version or item.source_version
                item.source_etag, item.source_bytes = file.etag, file.size
        return job_record(job.uuid, job)

    async def retry(self, item: Document) -> Record:
        """Have the service process a document again."""
        job = await self._client.refresh(item.job_id)
        return job_record(job.uuid, job)

    async def fetch(self, item: Document) -> None:
        """Stream the text to its place, beside another text that has its name."""
        target = self._target(item)
        written = await store_text(self._client, item.job_id, target, replace=False, confirm=self._confirm)
        item.path, item.bytes, item.sha256 = written.uri, written.bytes, written.sha256


def check_template(template: str) -> None:
    """Refuse a template of names that two documents could share, in this task, another shard or another run.

    Marking equal names only would not do: the name of a text would depend on the other documents of the task,
    so a retry with another list, or another shard, would name it differently.
    """
    names.check_template(template, NAME_FIELDS)
    if DISTINCT_FIELDS.isdisjoint(names.fields_in(template)):
        raise ComplianceInputError(
            f"file_name_template {template!r} has neither {{source_hash}} nor {{uuid}}, so the texts of two "
            "documents with the same file name would overwrite each other. Add one of them, as in "
            "'{source_stem}-{source_hash}.txt'."
        )


def text_name(document: Document, template: str) -> str:
    """Name the text of a document."""
    used, values = names.fields_in(template), {}
    if not used.isdisjoint(SOURCE_NAME_FIELDS):
        values.update(names.source_fields(names.name_in(document.source), default="document"))
    if "source_hash" in used:
        values["source_hash"] = names.digest(document.source)
    if "uuid" in used:
        values["uuid"] = names.safe_distinct(document.job_id)
    return names.fill_in(template, values)


def is_given_up(document: Document) -> bool:
    """Return whether a document was not sent, because it failed in too many nights in a row."""
    return document.failure_kind is FailureKind.GIVEN_UP


def build_result(documents: Sequence[Document], manifest: Location) -> dict[str, Any]:
    """Return the result of the task."""
    found = Counter(document.state for document in documents)
    numbers = {state.lower(): found[state] for state in (COMPLETED, FAILED, SKIPPED)}
    given_up = sum(map(is_given_up, documents))
    return {"manifest": manifest.uri, **numbers, "given_up": given_up}


def group_documents(documents: Iterable[Document]) -> dict[str, list[str]]:
    """Return the labels of documents by the outcome that processing them now would have."""
    groups: dict[str, list[str]] = {name: [] for name in (*PLANNED.values(), "fetched", "given_up")}
    for document in documents:
        name = "given_up" if is_given_up(document) else PLANNED.get(document.state, "fetched")
        groups[name].append(document.label)
    return groups


def count_documents(conn_id: str, documents: Sequence[Document], checkpoint: Checkpoint) -> None:
    """Send metrics of documents that no earlier attempt counted."""
    new = [document for document in documents if not checkpoint.is_published(document)]
    for state, number in Counter(document.state for document in new).items():
        metrics.count(metrics.DOCUMENTS, conn_id, number, outcome=state.lower())
    counts.count_failure_kinds(conn_id, new)
    size = sum(document.bytes or 0 for document in new if document.state is COMPLETED)
    metrics.count(metrics.BYTES, conn_id, size)


def finished_jobs(documents: Iterable[Document]) -> tuple[list[FinishedJob], set[str]]:
    """Return the jobs whose texts this run stored, and the jobs that are needed again.

    The job of a skipped document belongs to an earlier night.
    """
    return collect_finished(
        (
            document.source,
            document.job_id,
            [StoredObject(document.path, document.sha256, document.bytes)]
            if document.state is COMPLETED
            else None,
        )
        for document in documents
        if document.job_id and document.state in (COMPLETED, FAILED)
    )


def check_rows(documents: Sequence[Document], sources: Sequence[str]) -> None:
    """Raise if each document does not have one row, in a final state, and each text one document."""
    jobs: dict[str, set[str]] = {}
    for document in documents:
        if document.state is COMPLETED:
            jobs.setdefault(document.path, set()).add(document.job_id)
    # A service may give one job to equal documents, which then have one text.
    shared = [path for path, job_ids in jobs.items() if len(job_ids) > 1 or not path]
    problems = [f"texts belong to more than one document or to none, such as '{path}'" for path in shared[:1]]
    counts.check_rows(documents, sources, ComplianceIngestError, *problems)
