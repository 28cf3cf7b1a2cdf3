"""The operator for bulk ingestion: documents from any source to texts in object storage."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import ComplianceIngestError, ComplianceInputError
from airflow_provider.nights.ingest.shards import chunk, find_shard
from airflow_provider.operators.base_bulk import FETCH, ComplianceBulkOperator
from airflow_provider.redaction.addresses import redact_all
from airflow_provider.redaction.text import redact_text
from airflow_provider.runtime.params import RedactedField, as_list, read_number, required
from airflow_provider.storage.locations import Location
from airflow_provider.waiting.kinds import JOBS, JobKind

if TYPE_CHECKING:
    from airflow_provider.nights.bulk.engine import BulkRun
    from airflow_provider.nights.index.nights import Night
    from airflow_provider.nights.ingest.documents import Document
    from airflow_provider.nights.ingest.earlier import EarlierDocuments

__all__ = ["ComplianceIngestOperator", "chunk"]

MAX_PLANNED_SHOWN = 20  # documents of each group, by a dry run
MAX_SOURCE_CHARS = 80  # for the first source, in the name of a mapped task


class ComplianceIngestOperator(ComplianceBulkOperator):
    """Turn many documents into texts in object storage, in one task.

    Submits, polls and fetches at the same time. A checkpoint beside the texts lets a retry, a cleared task or
    another worker resume. Returns the URI of the manifest and how many documents were `completed`, `failed`
    and `skipped`; how many of the failed ones were `given_up`; with `delete_after="fetch"` how many jobs were
    `deleted`.

    :param sources: one or many of: a URL; a path or storage URI of a PDF or DOCX file, or a pattern such as
        `s3://conn_id@bucket/in/*.pdf`; a folder, ending with `/`; a file with a list of these, `.jsonl`,
        `.ndjson`, `.txt` or `.lst`; the result of a task
    :param destination: prefix for the texts, such as `s3://conn_id@bucket/run={{ run_id }}/`; manifest and
        report are below it in `_ingest/`, the checkpoint in `_work/`
    :param file_name_template: names of the texts, with the fields `{source_name}`, `{source_stem}`,
        `{source_hash}` and `{uuid}`; one of the last two is required, so that no two texts share a name
    :param delete_after: when to delete jobs at the service: `"fetch"`, when their texts are stored and
        checked; `"assess"` leaves that to `ComplianceAssessOperator`; by default never
    :param skip_unchanged: don't submit documents that are unchanged since a run below the same root: True for
        files, by size and ETag or time; a timedelta for files, and for web pages that are younger than that;
        off by default. A document is submitted again if the service no longer knows its job, unless
        `delete_after` deletes jobs
    :param max_bytes: how large a file may be: a larger one fails before it is sent; by default any size
    :param dry_run: send and write nothing; log and return how many documents would be submitted, skipped and
        given up; off by default
    """

    template_fields: Sequence[str] = (
        "conn_id", "sources", "destination", "file_name_template", "root", "delete_after", "max_submitted"
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {"sources": "json"}
    sources = RedactedField()
    kind: ClassVar[JobKind] = JOBS
    deletes_after: ClassVar[str] = FETCH
    refreshes: ClassVar[int] = 1
    ui_color = "#f4ecd8"

    def __init__(
        self,
        *,
        sources: Any,
        file_name_template: str = "{source_stem}-{source_hash}.txt",
        skip_unchanged: bool | timedelta = False,
        max_bytes: int | None = None,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        is_age = isinstance(skip_unchanged, timedelta) and skip_unchanged > timedelta(0)
        if not is_age and not isinstance(skip_unchanged, bool):
            raise ValueError(f"skip_unchanged must be a bool or a timedelta above 0, not {skip_unchanged!r}.")
        if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 1):
            raise ValueError(f"max_bytes must be a whole number of at least 1, not {max_bytes!r}.")
        self.sources = sources
        self.file_name_template = file_name_template
        self.skip_unchanged = skip_unchanged
        self.max_bytes = max_bytes
        self.is_dry_run = dry_run

    @property
    def _max_age(self) -> float | None:
        """The seconds for which a web page counts as unchanged; None is never."""
        given = self.skip_unchanged
        return given.total_seconds() if isinstance(given, timedelta) else None

    @property
    def topic(self) -> object:
        """The subject of the task: its shard, or its first source and the number of the others."""
        if shard := find_shard(self.sources):
            return f"shard {int(shard['place']) + 1}"
        first, *others = as_list(self.sources, "source") or ["nothing"]
        first = redact_text(str(first))
        return f"{first[:MAX_SOURCE_CHARS]} and {len(others)} more" if others else first

    def _process(self, run: BulkRun) -> dict[str, Any]:
        from airflow_provider.nights.ingest.documents import Document, check_rows, check_template
        from airflow_provider.nights.ingest.earlier import EarlierDocuments, find_removed, resume_documents
        from airflow_provider.nights.ingest.sources import resolve
        from airflow_provider.storage.names import INGEST_FOLDER, INGEST_WORK, MANIFEST

        check_template(required(self.file_name_template, "file_name_template"))
        versions = resolve(self.sources)
        addresses = redact_all(versions)
        run.open("ingest", INGEST_FOLDER, INGEST_WORK, MANIFEST, addresses)
        if not self.is_dry_run:
            run.checkpoint.acquire(len(addresses))
        known = run.checkpoint.read(Document)
        documents = resume_documents(
            addresses,
            known,
            is_new_attempt=run.is_new_attempt,
            damaged=run.find_damaged(known.values()),
            log=self.log,
            versions=versions,
        )
        if not documents:
            self.log.warning("Found nothing to ingest.")
        earlier = EarlierDocuments(
            run,
            max_age=self._max_age,
            give_up_after=read_give_up_after(),
            skip_unchanged=bool(self.skip_unchanged),
        )
        if self.is_dry_run:
            return self._loop.run(self._plan(documents, earlier))
        self.hook.get_conn()  # asks Airflow for the connection: here, not in another thread
        outdated = find_removed(known, addresses, self.log)
        if job_ids := self._loop.run(self._ingest(run, documents, earlier, outdated)):
            self._defer(run, job_ids)
        check_rows(documents, list(addresses))
        return self._publish(run, documents, earlier)

    def _root(self, destination: Location, night: Night) -> Location:
        try:
            return super()._root(destination, night)
        except ComplianceInputError:
            if self.root is not None or self.skip_unchanged:
                raise
            return destination  # such as file:///dt=2026-01-01/: no earlier night to compare with

    async def _plan(self, documents: list[Document], earlier: EarlierDocuments) -> dict[str, Any]:
        """Log and return what would be done with the documents; nothing is sent or written."""
        from airflow_provider.nights.ingest.documents import group_documents

        await earlier.decide(documents)
        groups = group_documents(documents)
        for name, labels in groups.items():
            self.log.info("Dry run: %s documents would be %s.", len(labels), name.replace("_", " "))
            for label in labels[:MAX_PLANNED_SHOWN]:
                self.log.info("Would be %s: '%s'", name.replace("_", " "), label)
        return {"dry_run": True, **{name: len(labels) for name, labels in groups.items()}}

    async def _ingest(
        self, run: BulkRun, documents: list[Document], earlier: EarlierDocuments, outdated: list[str]
    ) -> list[str]:
        """Process all documents; return the jobs in flight.

        :param outdated: jobs in flight of documents that are no longer listed
        """
        from airflow_provider.nights.bulk.engine import BulkEngine
        from airflow_provider.nights.ingest.documents import IngestSteps, text_name
        from airflow_provider.nights.ingest.shards import shard_folder

        folder = shard_folder(self.sources)

        def target(document: Document) -> Location:
            return run.destination / f"{folder}{text_name(document, self.file_name_template)}"

        async with await self.hook.get_async_conn() as client:
            if run.is_new_attempt:  # after a deferral, the journal has the decisions
                run.destination.fs.invalidate_cache()
                # With `delete_after`, jobs that the service does not know are meant to be gone.
                asked = client if run.delete_after is None else None
                decided, replaced = await earlier.decide(documents, asked, run.max_submitted)
                outdated = [*outdated, *replaced]
                for document in decided:
                    run.checkpoint.append(document)
            steps = IngestSteps(client, target, run.checkpoint.confirm_owner, self.max_bytes)
            return await BulkEngine(run, client, documents, steps, outdated).run()

    def _publish(self, run: BulkRun, documents: list[Document], earlier: EarlierDocuments) -> dict[str, Any]:
        from airflow_provider.nights.bulk.counts import check_failures
        from airflow_provider.nights.bulk.items import COMPLETED
        from airflow_provider.nights.ingest.documents import (
            build_result,
            count_documents,
            finished_jobs,
            is_given_up,
        )
        from airflow_provider.storage.lineage import Lineage, Transfer, uri_origin

        report = self._loop.run(earlier.publish(documents, str(self.destination)))
        manifest = run.checkpoint.manifest
        count_documents(self.conn_id, documents, run.checkpoint)
        result = build_result(documents, manifest)
        transfers = [
            Transfer(uri_origin(document.source), Location(document.path), document.bytes or 0)
            for document in documents
            if document.state is COMPLETED
        ]
        written = Lineage(transfers, {manifest: len(documents)})
        address = self._conclude(run, result, report, partial(finished_jobs, documents), written)
        sent = [document for document in documents if not is_given_up(document)]
        check_failures(sent, self.max_failed, address, "documents", ComplianceIngestError, self.log)
        return result


def read_give_up_after() -> int | None:
    """Return in how many nights in a row a document may fail until it is given up; None is never."""
    return max(0, read_number("give_up_after")) or None
