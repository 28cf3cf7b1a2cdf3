"""The operator for bulk ingestion: documents from any source to texts in object storage."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import Asset, conf

from airflow_provider import lineage
from airflow_provider.bulk.outcome import MaxFailed, count_allowed
from airflow_provider.event_loop import EventLoop
from airflow_provider.hooks.compliance import check_hook_class
from airflow_provider.hooks.interop import as_non_retryable
from airflow_provider.ingest.sources import chunk
from airflow_provider.operators.base import (
    REPORT_URL,
    ComplianceBaseOperator,
    ComplianceReportLink,
    WaitMixin,
    entry_point,
)
from airflow_provider.params import as_list, as_seconds
from airflow_provider.storage.errors import storage_errors
from airflow_provider.storage.locations import Location
from airflow_provider.triggers.ingest import ComplianceIngestTrigger
from airflow_provider.waiting.deadlines import Deadline
from airflow_provider.waiting.results import WaitResult, polling_error

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.bulk.engine import BulkOptions
    from airflow_provider.bulk.journal import Journal, Lease
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.ingest.documents import Document

__all__ = ["ComplianceIngestOperator", "chunk"]

MAX_SOURCE_CHARS = 80  # of the first source, in the name of a mapped task
RESUME_FRACTION = 0.5  # of the jobs in flight, after which the task leaves the triggerer


class ComplianceIngestOperator(WaitMixin, ComplianceBaseOperator):
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
    operator_extra_links = (ComplianceReportLink(),)

    def __init__(
        self,
        *,
        sources: Any,
        destination: str,
        file_name_template: str = "{source_stem}-{source_hash}.txt",
        concurrency: int = 16,
        max_failed: MaxFailed = 0,
        retry_failed: int = 1,
        skip_unchanged: bool = False,
        max_age: timedelta | float | None = None,
        root: str | None = None,
        report_base_url: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: timedelta | float = 30.0,
        timeout: timedelta | float = 24 * 3600.0,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check_whole_number("concurrency", concurrency, at_least=1)
        _check_whole_number("retry_failed", retry_failed, at_least=0)
        count_allowed(max_failed, total=0)
        self.sources = sources
        self.destination = destination
        self.file_name_template = file_name_template
        self.concurrency = concurrency
        self.max_failed = max_failed
        self.retry_failed = retry_failed
        self.skip_unchanged = skip_unchanged
        self.max_age = None if max_age is None else as_seconds(max_age, "max_age")
        self.root = root
        self.report_base_url = report_base_url
        self.deferrable = deferrable
        self.poll_interval = as_seconds(poll_interval, "poll_interval")
        self.timeout = as_seconds(timeout, "timeout")
        self.cancel_on_kill = cancel_on_kill
        self._loop: EventLoop | None = None
        self._transfers: list[lineage.Transfer] = []

    @property
    def topic(self) -> object:
        """What the task is about: its first source, and how many more there are."""
        first, *others = as_list(self.sources, "source") or ["nothing"]
        return f"{str(first)[:MAX_SOURCE_CHARS]} and {len(others)} more" if others else first

    @entry_point
    def execute(self, context: Context) -> dict[str, Any]:
        """Start, or resume from an earlier attempt."""
        if self.deferrable:
            check_hook_class(self.hook_class)  # before jobs are submitted that nobody could wait for
        return self._process(context, self._deadline(context), _now(), is_new_attempt=True)

    @entry_point
    def execute_complete(
        self,
        context: Context,
        event: Any = None,
        limit: str = "timeout",
        deadline: float = 0.0,
        started: str = "",
        left: float = 0.0,
        **older: Any,
    ) -> dict[str, Any]:
        """Resume after the trigger's event.

        :param left: seconds that were left when the task deferred
        :param older: what another version of this operator has kept when the task deferred
        """
        finished: dict[str, Any] = super().execute_complete(
            context, event, limit, at=deadline, started=started, left=left
        )
        return finished

    def _finish(
        self,
        context: Context,
        result: WaitResult,
        deadline: Deadline,
        *,
        at: float = 0.0,
        started: str = "",
        left: float = 0.0,
        **_: Any,
    ) -> dict[str, Any]:
        """Process what the jobs have completed; `deadline` has the name of the limit only."""
        if result.status == "error":
            error = polling_error(result)
            raise error if result.transient else as_non_retryable(error)
        # `dag.test()` passes on the event alone.
        deadline = Deadline(deadline.name, at) if at else self._deadline(context)
        if result.status == "success" and deadline.at < time.time():
            # The trigger has not reached the deadline: this clock may be wrong, so count what it has waited.
            deadline = Deadline(deadline.name, time.time() + max(0.0, left - result.seconds))
        return self._process(context, deadline, started or _now(), is_new_attempt=False)

    def on_kill(self) -> None:
        """Write the journal, and cancel the jobs in flight."""
        if self._loop:
            self._loop.cancel()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Report to OpenLineage which documents went into which objects."""
        return lineage.openlineage(self._transfers)

    @staticmethod
    def clock() -> float:
        """Return the time on a monotonic clock: the wall clock may jump."""
        return time.monotonic()

    def _deadline(self, context: Context) -> Deadline:
        return Deadline.for_task(context, self.timeout, self.execution_timeout)

    def _process(
        self, context: Context, limit: Deadline, started: str, *, is_new_attempt: bool
    ) -> dict[str, Any]:
        """Process what can be processed now, then finish or defer.

        :param is_new_attempt: failed documents are processed again; not so after a deferral
        """
        from airflow_provider.bulk.engine import BulkOptions
        from airflow_provider.bulk.journal import Journal, Lease, read
        from airflow_provider.ingest.documents import Document
        from airflow_provider.ingest.publishing import MANIFEST, check_rows, check_template, task_folder
        from airflow_provider.ingest.resuming import reset_outdated, resume_documents
        from airflow_provider.ingest.sources import resolve

        deadline = self.clock() + limit.at - time.time()
        check_template(self.file_name_template)
        destination = Location.to_write(self.destination)
        with storage_errors(destination):
            _ = destination.fs  # asks Airflow for the connection: here, not in another thread
        folder = destination / task_folder(context["ti"])
        sources = resolve(self.sources)
        lease = Lease(folder, getattr(context["ti"], "try_number", 0))
        lease.acquire()
        earlier, after = read(folder, Document, MANIFEST)
        documents = resume_documents(sources, earlier, is_new_attempt=is_new_attempt, log=self.log)
        if not documents:
            self.log.warning("There is nothing to ingest.")
        options = BulkOptions(
            concurrency=self.concurrency,
            retry_failed=self.retry_failed,
            poll_interval=self.poll_interval,
            deadline=deadline,
            cancel_on_kill=self.cancel_on_kill,
            may_defer=self.deferrable,
        )
        hook = self.hook
        hook.get_conn()  # asks Airflow for the connection, too
        self._loop = EventLoop(threads=2 * self.concurrency + 2)
        outdated: list[str] = []
        if is_new_attempt:
            destination.fs.invalidate_cache()
            outdated = self._loop.run(reset_outdated(documents, 2 * self.concurrency, self.log))
        journal = Journal(folder, after, lease)
        job_ids = self._loop.run(
            self._ingest(hook, documents, destination, journal, lease, options, outdated)
        )
        if job_ids:
            self._defer(job_ids, limit.name, deadline, started)
        check_rows(documents, sources)
        return self._publish(context, hook, documents, folder, lease, started)

    async def _ingest(
        self,
        hook: ComplianceHook,
        documents: list[Document],
        destination: Location,
        journal: Journal,
        lease: Lease,
        options: BulkOptions,
        outdated: list[str],
    ) -> list[str]:
        """Run the engine; return the jobs in flight."""
        from airflow_provider.bulk.engine import BulkEngine
        from airflow_provider.ingest.publishing import WORK_FOLDER, common_root, text_name
        from airflow_provider.ingest.steps import IngestSteps
        from airflow_provider.ingest.unchanged import UnchangedIndex

        def target(document: Document) -> Location:
            return destination / text_name(document, self.file_name_template)

        unchanged = None
        if self.skip_unchanged:
            root = Location(str(self.root or common_root(destination.uri)))
            unchanged = UnchangedIndex(root / WORK_FOLDER / "known", self.max_age)
        async with await hook.get_async_conn() as client:
            engine = BulkEngine(
                hook,
                client,
                documents,
                IngestSteps(client, target, unchanged),
                journal,
                lease,
                options,
                self.log,
                outdated=outdated,
                clock=self.clock,
            )
            await engine.run()
            return engine.job_ids

    def _defer(self, job_ids: list[str], limit_name: str, deadline: float, started: str) -> None:
        self.log.info("Waiting for %s jobs in the triggerer.", len(job_ids))
        left = deadline - self.clock()
        limit = Deadline(limit_name, time.time() + left)
        enough = max(1, math.ceil(len(job_ids) * RESUME_FRACTION))
        self.defer(
            trigger=self._make_trigger(job_ids, limit, cancel_on_kill=self.cancel_on_kill, enough=enough),
            method_name="execute_complete",
            kwargs={"limit": limit.name, "deadline": limit.at, "started": started, "left": left},
            timeout=limit.trigger_timeout,
        )

    def _publish(
        self,
        context: Context,
        hook: ComplianceHook,
        documents: list[Document],
        folder: Location,
        lease: Lease,
        started: str,
    ) -> dict[str, Any]:
        from airflow_provider.bulk.outcome import check_failures
        from airflow_provider.ingest.publishing import build_result, publish, report_link

        destination = str(self.destination)
        self._loop = EventLoop(threads=2)
        manifest, report = self._loop.run(
            publish(context["ti"], documents, folder, lease, destination, started)
        )
        result = build_result(documents, manifest)
        link = report_link(report, destination, self.report_base_url)
        context["ti"].xcom_push(key=REPORT_URL, value=link)
        self._report_lineage(hook, documents)
        for outlet in self.outlets or ():
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update({**result, "destination": destination})
        self.log.info("Manifest: %s, report: %s", manifest, report)
        check_failures(documents, self.max_failed, manifest, "documents", self.log)
        return result

    def _report_lineage(self, hook: ComplianceHook, documents: list[Document]) -> None:
        from airflow_provider.bulk.items import COMPLETED

        self._transfers = [
            lineage.Transfer(lineage.Origin.from_uri(each.source), Location(each.path), each.bytes or 0)
            for each in documents
            if each.state is COMPLETED
        ]
        lineage.report(hook, self._transfers)


def _check_whole_number(name: str, value: Any, at_least: int) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value % 1 != 0 or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, not {value!r}.")


def _now() -> str:
    return datetime.now(UTC).isoformat()
