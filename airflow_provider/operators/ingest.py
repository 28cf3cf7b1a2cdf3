"""The operator for bulk ingestion: documents from any source to texts in object storage."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import conf

from airflow_provider import lineage
from airflow_provider.exceptions import ComplianceIngestError, ComplianceInputError
from airflow_provider.ingest.sources import chunk
from airflow_provider.operators.base_bulk import (
    FETCH,
    ComplianceBulkOperator,
    parse_delete_after,
)
from airflow_provider.params import RedactedField, as_list, required
from airflow_provider.provider_info import CONFIG_SECTION
from airflow_provider.storage.locations import Location
from airflow_provider.text import redact_all, redact_text
from airflow_provider.triggers.ingest import ComplianceIngestTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.bulk.checkpoint import Checkpoint
    from airflow_provider.bulk.items import BulkOptions
    from airflow_provider.ingest.documents import Document
    from airflow_provider.ingest.earlier import EarlierDocuments
    from airflow_provider.storage.nights import Night
    from airflow_provider.waiting.deadlines import Deadline

__all__ = ["ComplianceIngestOperator", "chunk"]

MAX_PLANNED_SHOWN = 20  # documents of each group, by a dry run
REFRESHES = 1  # of a failed job in an attempt
MAX_SOURCE_CHARS = 80  # of the first source, in the name of a mapped task


class ComplianceIngestOperator(ComplianceBulkOperator):
    """Have many documents processed and write their texts to object storage, in one task.

    Submits, polls and fetches at the same time. A checkpoint beside the texts lets a retry, a clear or
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
    :param skip_unchanged: do not submit what has not changed since a run below the same root: True for
        files, by size and ETag or time; a timedelta for files, and for web pages that are younger than that;
        off by default. A document whose job the service has forgotten is submitted again, unless
        `delete_after` deletes jobs
    :param dry_run: send and write nothing; log and return how many documents would be submitted, skipped and
        given up; off by default
    """

    template_fields: Sequence[str] = (
        "conn_id", "sources", "destination", "file_name_template", "root", "delete_after"
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {"sources": "json"}
    sources = RedactedField()
    trigger_class: ClassVar[type[ComplianceIngestTrigger]] = ComplianceIngestTrigger
    ui_color = "#f4ecd8"

    def __init__(
        self,
        *,
        sources: Any,
        file_name_template: str = "{source_stem}-{source_hash}.txt",
        skip_unchanged: bool | timedelta = False,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        is_age = isinstance(skip_unchanged, timedelta) and skip_unchanged > timedelta(0)
        if not is_age and not isinstance(skip_unchanged, bool):
            raise ValueError(f"skip_unchanged must be a bool or a timedelta above 0, not {skip_unchanged!r}.")
        self.sources = sources
        self.file_name_template = file_name_template
        self.skip_unchanged = skip_unchanged
        self.is_dry_run = dry_run

    @property
    def _max_age(self) -> float | None:
        """The seconds for which a web page counts as unchanged; None is never."""
        given = self.skip_unchanged
        return given.total_seconds() if isinstance(given, timedelta) else None

    @property
    def topic(self) -> object:
        """What the task is about: its first source, and how many more there are."""
        first, *others = as_list(self.sources, "source") or ["nothing"]
        first = redact_text(str(first))
        return f"{first[:MAX_SOURCE_CHARS]} and {len(others)} more" if others else first

    def _process(
        self, context: Context, deadline: Deadline, started_at: str, *, is_new_attempt: bool
    ) -> dict[str, Any]:
        from airflow_provider.bulk.checkpoint import Checkpoint
        from airflow_provider.ingest.documents import Document, check_template
        from airflow_provider.ingest.earlier import EarlierDocuments
        from airflow_provider.ingest.publishing import check_rows, finished_jobs
        from airflow_provider.ingest.resuming import find_removed, resume_documents
        from airflow_provider.ingest.sources import resolve
        from airflow_provider.storage.layout import INGEST_WORK, MANIFEST, task_folder
        from airflow_provider.storage.nights import EarlierNights, Night, TaskKey

        ends_at = self.clock() + deadline.at - time.time()
        check_template(required(self.file_name_template, "file_name_template"))
        delete_after = parse_delete_after(self.delete_after)
        ti, destination, night = context["ti"], Location.to_write(self.destination), Night.of(context)
        root = self._root(destination, night)
        addresses = redact_all(resolve(self.sources))
        work_folder, output_folder = destination / task_folder(ti, INGEST_WORK), destination / task_folder(ti)
        checkpoint = Checkpoint.for_task(work_folder, output_folder, MANIFEST, ti, deadline.at)
        checkpoint.account = self.hook.account_digest
        nights = EarlierNights(root, "ingest", night, TaskKey.of(ti))
        if not self.is_dry_run:
            checkpoint.acquire()
        known = checkpoint.read(Document)
        documents = resume_documents(addresses, known, is_new_attempt=is_new_attempt, log=self.log)
        if not documents:
            self.log.warning("Found nothing to ingest.")
        earlier = EarlierDocuments(
            nights,
            checkpoint.account,
            self.concurrency,
            self.log,
            max_age=self._max_age,
            give_up_after=read_give_up_after(),
            skip_unchanged=bool(self.skip_unchanged),
        )
        if self.is_dry_run:
            return self._run_in_loop(self._plan(documents, earlier), threads=2 * self.concurrency + 2)
        self.hook.get_conn()  # asks Airflow for the connection: here, not in another thread
        ingesting = self._ingest(
            documents,
            destination,
            checkpoint,
            self._options(ends_at, REFRESHES),
            earlier,
            started=() if is_new_attempt else known,
            outdated=find_removed(known, addresses, self.log),
            is_new_attempt=is_new_attempt,
            resubmit_missing=delete_after is None,  # otherwise jobs are meant to be gone
        )
        if job_ids := self._run_in_loop(ingesting, threads=2 * self.concurrency + 2):
            self._defer(job_ids, deadline.name, ends_at, started_at)
        check_rows(documents, list(addresses))

        def delete_jobs() -> int:
            finished, needed = finished_jobs(documents)
            return self._delete_jobs(context, root, checkpoint, finished, needed, ends_at)

        return self._publish(
            context,
            documents,
            checkpoint,
            started_at,
            earlier,
            delete_jobs if delete_after == FETCH else None,
        )

    def _root(self, destination: Location, night: Night) -> Location:
        try:
            return super()._root(destination, night)
        except ComplianceInputError:
            if self.root is not None or self.skip_unchanged:
                raise
            return destination  # such as file:///dt=2026-01-01/: there is nothing to compare with

    async def _plan(self, documents: list[Document], earlier: EarlierDocuments) -> dict[str, Any]:
        """Log and return what would be done with the documents; nothing is sent or written."""
        from airflow_provider.ingest.publishing import group_documents
        from airflow_provider.ingest.resuming import reset_outdated

        await reset_outdated(documents, 2 * self.concurrency, self.log)
        await earlier.decide(documents)
        groups = group_documents(documents, earlier.given_up)
        for name, labels in groups.items():
            self.log.info("Dry run: %s documents would be %s.", len(labels), name.replace("_", " "))
            for label in labels[:MAX_PLANNED_SHOWN]:
                self.log.info("Would be %s: '%s'", name.replace("_", " "), label)
        return {"dry_run": True, **{name: len(labels) for name, labels in groups.items()}}

    async def _ingest(
        self,
        documents: list[Document],
        destination: Location,
        checkpoint: Checkpoint,
        options: BulkOptions,
        earlier: EarlierDocuments,
        *,
        started: Collection[str],
        outdated: list[str],
        is_new_attempt: bool,
        resubmit_missing: bool,
    ) -> list[str]:
        """Process all documents; return the jobs in flight.

        :param started: sources that this attempt has started with before it deferred
        :param outdated: jobs in flight of documents that are no longer listed
        """
        from airflow_provider.ingest.documents import IngestSteps, text_name
        from airflow_provider.ingest.resuming import reset_outdated

        def target(document: Document) -> Location:
            return destination / text_name(document, self.file_name_template)

        if is_new_attempt:
            destination.fs.invalidate_cache()
            outdated = [*outdated, *await reset_outdated(documents, 2 * self.concurrency, self.log)]
        async with await self.hook.get_async_conn() as client:
            for document in await earlier.decide(documents, started, client if resubmit_missing else None):
                checkpoint.append(document)
            steps = IngestSteps(client, target, checkpoint.confirm_owner)
            return await self._run_engine(client, documents, steps, checkpoint, options, outdated)

    def _publish(
        self,
        context: Context,
        documents: list[Document],
        checkpoint: Checkpoint,
        started_at: str,
        earlier: EarlierDocuments,
        delete_jobs: Callable[[], int] | None,
    ) -> dict[str, Any]:
        from airflow_provider.bulk.counts import MAX_FAILURES_SHOWN, check_failures
        from airflow_provider.bulk.items import COMPLETED
        from airflow_provider.ingest.publishing import build_result, count_documents, publish

        destination, manifest = str(self.destination), checkpoint.manifest
        publishing = publish(context["ti"], documents, checkpoint, earlier, destination, started_at)
        report = self._run_in_loop(publishing, threads=self.concurrency + 2)
        count_documents(self.conn_id, documents, checkpoint)
        result = build_result(documents, manifest) | {"given_up": len(earlier.given_up)}
        if delete_jobs:
            result["deleted"] = delete_jobs()
        self._push_report_link(context, report)
        transfers = (
            lineage.Transfer(
                lineage.uri_origin(document.source), Location(document.path), document.bytes or 0
            )
            for document in documents
            if document.state is COMPLETED
        )
        tables = {manifest: len(documents)}
        self._report_written(context, self.hook, transfers, {**result, "destination": destination}, tables)
        self.log.info("Wrote manifest %s and report %s.", manifest, report)
        self._push_result(context, result)
        earlier.log_given_up(documents, MAX_FAILURES_SHOWN)
        sent = [document for document in documents if document.source not in earlier.given_up]
        check_failures(sent, self.max_failed, manifest, "documents", ComplianceIngestError, self.log)
        return result


def read_give_up_after() -> int | None:
    """Return in how many nights in a row a document may fail until it is given up; None is never."""
    return max(0, conf.getint(CONFIG_SECTION, "give_up_after", fallback=7)) or None
