"""The operator for bulk ingestion: documents from any source to texts in object storage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider import lineage
from airflow_provider.exceptions import ComplianceIngestError
from airflow_provider.ingest.sources import chunk
from airflow_provider.operators.bulk import ComplianceBulkOperator, check_whole_number
from airflow_provider.params import as_list, as_seconds
from airflow_provider.storage.locations import Location
from airflow_provider.triggers.ingest import ComplianceIngestTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.bulk.checkpoint import Checkpoint
    from airflow_provider.ingest.documents import Document
    from airflow_provider.waiting.deadlines import Deadline

__all__ = ["ComplianceIngestOperator", "chunk"]

MAX_SOURCE_CHARS = 80  # of the first source, in the name of a mapped task


class ComplianceIngestOperator(ComplianceBulkOperator):
    """Have many documents processed and write their texts to object storage, in one task.

    Submits, polls and fetches at the same time. A checkpoint beside the texts lets a retry, a clear or
    another worker resume. Returns the URI of the manifest and how many documents were `completed`, `failed`
    and `skipped`.

    :param sources: one or many of: a URL; a path or storage URI of a PDF or DOCX file, or a pattern such as
        `s3://conn_id@bucket/in/*.pdf`; a folder, ending with `/`; a file with a list of these, `.jsonl`,
        `.ndjson`, `.txt` or `.lst`; the result of a task
    :param destination: prefix for the texts, such as `s3://conn_id@bucket/run={{ run_id }}/`; manifest and
        report are below it in `_ingest/`
    :param file_name_template: names of the texts, with the fields `{source_name}`, `{source_stem}`,
        `{source_hash}` and `{uuid}`; one of the last two is required, so that no two texts share a name
    :param concurrency: maximum number of requests in flight; fewer for a while after a 429
    :param max_failed: how many documents may fail before the task does: a number (`int`), a share from 0.0 to
        1.0 (`float`, 1.0 is all of them), or a percentage such as `"5%"`
    :param retry_failed: how often a failed job is processed again
    :param skip_unchanged: do not submit what has not changed since a run below the same root: files by size
        and ETag or time, pages by `max_age`
    :param max_age: for how long a web page counts as unchanged: a timedelta, or seconds
    :param root: common prefix of the runs that compare for `skip_unchanged`; by default the destination up to
        its first part with a `=` in it, such as `dt=2026-01-01`
    :param report_base_url: where a person finds the destination in a browser, for the link to the report
    :param conn_id: the Airflow connection of the service
    :param deferrable: wait in the triggerer when only waiting is left
    :param poll_interval: longest time between two polls of a job, a timedelta or seconds; young ones are
        polled sooner
    :param timeout: after that time, a timedelta or seconds, unfinished documents have failed
    :param cancel_on_kill: cancel jobs in flight when the task is killed or times out
    """

    template_fields: Sequence[str] = (
        "conn_id", "sources", "destination", "file_name_template", "root", "report_base_url"
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {"sources": "json"}
    trigger_class: ClassVar[type[ComplianceIngestTrigger]] = ComplianceIngestTrigger
    ui_color = "#f4ecd8"

    def __init__(
        self,
        *,
        sources: Any,
        file_name_template: str = "{source_stem}-{source_hash}.txt",
        retry_failed: int = 1,
        skip_unchanged: bool = False,
        max_age: timedelta | float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_whole_number("retry_failed", retry_failed, at_least=0)
        self.sources = sources
        self.file_name_template = file_name_template
        self.retry_failed = retry_failed
        self.skip_unchanged = skip_unchanged
        self.max_age = None if max_age is None else as_seconds(max_age, "max_age")

    @property
    def topic(self) -> object:
        """What the task is about: its first source, and how many more there are."""
        first, *others = as_list(self.sources, "source") or ["nothing"]
        return f"{str(first)[:MAX_SOURCE_CHARS]} and {len(others)} more" if others else first

    def _process(
        self, context: Context, deadline: Deadline, started_at: str, *, is_new_attempt: bool
    ) -> dict[str, Any]:
        from airflow_provider.bulk.checkpoint import Checkpoint
        from airflow_provider.ingest.documents import Document
        from airflow_provider.ingest.output import MANIFEST, check_rows, check_template, task_folder
        from airflow_provider.ingest.resuming import resume_documents
        from airflow_provider.ingest.sources import resolve

        ends_at = self.clock() + deadline.at - time.time()
        check_template(self.file_name_template)
        ti, destination = context["ti"], Location.to_write(self.destination)
        sources = resolve(self.sources)
        checkpoint = Checkpoint.for_task(destination / task_folder(ti), MANIFEST, ti)
        checkpoint.acquire()
        earlier = checkpoint.read(Document)
        documents = resume_documents(sources, earlier, is_new_attempt=is_new_attempt, log=self.log)
        if not documents:
            self.log.warning("Found nothing to ingest.")
        self.hook.get_conn()  # asks Airflow for the connection: here, not in another thread
        ingesting = self._ingest(documents, destination, checkpoint, ends_at, is_new_attempt=is_new_attempt)
        if job_ids := self._run_in_loop(ingesting, threads=2 * self.concurrency + 2):
            self._defer(job_ids, deadline.name, ends_at, started_at)
        check_rows(documents, sources)
        return self._publish(context, documents, checkpoint, started_at)

    async def _ingest(
        self,
        documents: list[Document],
        destination: Location,
        checkpoint: Checkpoint,
        ends_at: float,
        *,
        is_new_attempt: bool,
    ) -> list[str]:
        """Process all documents; return the jobs in flight.

        :param ends_at: the deadline, on our clock
        """
        from airflow_provider.ingest.documents import IngestSteps
        from airflow_provider.ingest.output import WORK_FOLDER, common_root, text_name
        from airflow_provider.ingest.resuming import reset_outdated
        from airflow_provider.ingest.unchanged import UnchangedIndex

        def target(document: Document) -> Location:
            return destination / text_name(document, self.file_name_template)

        outdated: list[str] = []
        if is_new_attempt:
            destination.fs.invalidate_cache()
            outdated = await reset_outdated(documents, 2 * self.concurrency, self.log)
        unchanged = None
        if self.skip_unchanged:
            root = Location(str(self.root or common_root(destination.uri)))
            unchanged = UnchangedIndex(root / WORK_FOLDER / "known", self.max_age)
        async with await self.hook.get_async_conn() as client:
            steps = IngestSteps(client, target, unchanged, checkpoint.confirm_owner)
            options = self._options(ends_at, self.retry_failed)
            return await self._run_engine(client, documents, steps, checkpoint, options, outdated)

    def _publish(
        self, context: Context, documents: list[Document], checkpoint: Checkpoint, started_at: str
    ) -> dict[str, Any]:
        from airflow_provider.bulk.counts import check_failures
        from airflow_provider.bulk.items import COMPLETED
        from airflow_provider.ingest.output import build_result, publish

        destination, manifest = str(self.destination), checkpoint.manifest
        report = self._run_in_loop(
            publish(context["ti"], documents, checkpoint, destination, started_at), threads=2
        )
        result = build_result(documents, manifest)
        self._push_report_link(context, report)
        transfers = (
            lineage.Transfer(lineage.uri_origin(each.source), Location(each.path), each.bytes or 0)
            for each in documents
            if each.state is COMPLETED
        )
        self._report_written(context, self.hook, transfers, {**result, "destination": destination})
        self.log.info("Wrote manifest %s and report %s.", manifest, report)
        check_failures(documents, self.max_failed, manifest, "documents", ComplianceIngestError, self.log)
        return result
