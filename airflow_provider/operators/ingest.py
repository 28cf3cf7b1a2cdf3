"""The operator of the nightly job: documents from where they are to texts in object storage."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Asset, BaseOperator, conf

from airflow_provider import lineage
from airflow_provider.compat import apply_map_index_template
from airflow_provider.event_loop import EventLoop
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.errors import as_non_retryable, fail_without_retry
from airflow_provider.ingest import layout
from airflow_provider.ingest.chunks import chunk
from airflow_provider.operators.links import REPORT_URL, ComplianceReportLink
from airflow_provider.params import as_list, as_seconds
from airflow_provider.storage import names
from airflow_provider.storage.errors import storage_errors
from airflow_provider.storage.locations import Location
from airflow_provider.triggers.ingest import ComplianceIngestTrigger
from airflow_provider.waiting.results import Deadline, WaitResult, polling_error

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.bulk.journal import Journal
    from airflow_provider.bulk.lease import Lease
    from airflow_provider.ingest.documents import Document
    from airflow_provider.ingest.engine import IngestOptions

__all__ = ["ComplianceIngestOperator", "chunk"]

TITLE = 100  # characters
RESUME_FRACTION = 0.5  # share of the jobs under way after which a worker is worth it


class ComplianceIngestOperator(BaseOperator):
    """Have many documents processed and write their texts to object storage, in one task.

    Submits, waits and fetches at the same time. What is done is written down beside the texts, so a retry, a
    clear or another worker goes on where the last attempt was. Returns the URI of the manifest and how many
    documents were `completed`, `failed` and `skipped`.

    :param sources: one or many of: a web address; a path or storage URI of a PDF or DOCX file, or a pattern
        such as `s3://conn_id@bucket/in/*.pdf`; a folder, ending with `/`; a file with a list of these,
        `.jsonl`, `.ndjson`, `.txt` or `.lst`; the result of a task
    :param destination: prefix for the texts, such as `s3://conn_id@bucket/dt={{ ds }}/`; manifest and report
        are below it in `_ingest/`
    :param file_name_template: what the texts are called, with the fields `{source_name}`, `{source_stem}`,
        `{source_hash}` and `{uuid}`; one of the last two must be in it, so that no two texts share a name
    :param concurrency: most requests to the service at a time; after a 429 fewer, for a while
    :param max_failed: how many documents may fail before the task does: a number, or a share below 1
    :param retry_failed: how often a failed job is processed again
    :param skip_unchanged: do not send again what has not changed since a run below the same root: files by
        size and ETag or time, pages by `max_age`
    :param max_age: for how long a web page counts as unchanged: a timedelta, or seconds
    :param root: what runs have in common that compare for `skip_unchanged`; by default the destination up to
        its first part with a `=` in it, such as `dt=2026-01-01`
    :param report_base_url: where a person finds the destination in a browser, for the link to the report
    :param conn_id: the Airflow connection of the service
    :param deferrable: wait in the triggerer when only waiting is left
    :param poll_interval: longest time between two looks at a job, a timedelta or seconds; young ones are
        looked at sooner
    :param timeout: after that time, a timedelta or seconds, what is not finished counts as failed
    :param cancel_on_kill: cancel jobs that are under way when the task is killed or the time is up
    """

    template_fields: Sequence[str] = (
        "conn_id", "sources", "destination", "file_name_template", "root", "report_base_url"
    )  # fmt: skip
    ui_color = "#f4ecd8"
    operator_extra_links = (ComplianceReportLink(),)

    def __init__(
        self,
        *,
        sources: Any,
        destination: str,
        file_name_template: str = "{source_stem}-{source_hash}.txt",
        concurrency: int = 16,
        max_failed: float = 0,
        retry_failed: int = 1,
        skip_unchanged: bool = False,
        max_age: timedelta | float | None = None,
        root: str | None = None,
        report_base_url: str | None = None,
        conn_id: str = ComplianceHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: timedelta | float = 30.0,
        timeout: timedelta | float = 24 * 3600.0,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.title }}"
        super().__init__(**kwargs)
        if not _is_whole(concurrency) or concurrency < 1:
            raise ValueError(f"concurrency is at least 1, not {concurrency!r}.")
        if not _is_number(max_failed) or max_failed < 0 or (max_failed >= 1 and not _is_whole(max_failed)):
            raise ValueError(f"max_failed is a number of documents, or a share below 1, not {max_failed!r}.")
        if not _is_whole(retry_failed) or retry_failed < 0:
            raise ValueError(f"retry_failed is at least 0, not {retry_failed!r}.")
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
        self.conn_id = conn_id
        self.deferrable = deferrable
        self.poll_interval = as_seconds(poll_interval, "poll_interval")
        self.timeout = as_seconds(timeout, "timeout")
        self.cancel_on_kill = cancel_on_kill
        self._loop: EventLoop | None = None
        self._transfers: list[lineage.Transfer] = []

    @property
    def title(self) -> str:
        """What a mapped task is called: its first source, and how many more there are."""
        given = as_list(self.sources, "source")
        first, *others = [names.printable(str(source)) for source in given] or ["nothing"]
        return f"{first[:TITLE]} and {len(others)} more" if others else first[:TITLE]

    @fail_without_retry
    def execute(self, context: Context) -> dict[str, Any]:
        """Begin, or go on where an earlier attempt was."""
        return self._go_on(context, self._limit(context), _now(), retries=True)

    @fail_without_retry
    def execute_complete(
        self,
        context: Context,
        event: Any = None,
        deadline: float = 0.0,
        started: str = "",
        left: float = 0.0,
        **older: Any,
    ) -> dict[str, Any]:
        """Go on after the trigger's event.

        :param left: seconds that were left when the task deferred
        :param older: what another version of this operator wrote down when the task deferred
        """
        result = WaitResult.from_event(event)
        if result.status == "error":
            error = polling_error(result)
            raise error if result.transient else as_non_retryable(error)
        # `dag.test()` hands on the event alone.
        limit = Deadline("timeout", deadline) if deadline else self._limit(context)
        if result.status == "success" and limit.at < time.time():
            # The trigger has not seen the end of the time: this clock may be wrong, so what it waited counts.
            limit = Deadline(limit.name, time.time() + max(0.0, left - result.seconds))
        return self._go_on(context, limit, started or _now(), retries=False)

    def _limit(self, context: Context) -> Deadline:
        return Deadline.for_task(context, self.timeout, self.execution_timeout)

    def on_kill(self) -> None:
        """Write down what is done, and cancel the jobs that are under way."""
        if self._loop:
            self._loop.cancel()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Tell OpenLineage which documents went into which objects."""
        return lineage.openlineage(self._transfers)

    def _go_on(self, context: Context, limit: Deadline, started: str, *, retries: bool) -> dict[str, Any]:
        """Do what can be done now.

        :param retries: documents that have failed before are tried again, as at the begin of an attempt
        """
        from airflow_provider.bulk.journal import Journal, read
        from airflow_provider.bulk.lease import Lease
        from airflow_provider.ingest.engine import IngestOptions
        from airflow_provider.ingest.publishing import check_whole
        from airflow_provider.ingest.resuming import documents_of, find_outdated
        from airflow_provider.ingest.sources import resolve

        # Here the monotonic clock decides: the other one may jump.
        deadline = time.monotonic() + limit.at - time.time()
        apply_map_index_template(self, context)
        layout.check_template(self.file_name_template)
        destination = Location.to_write(self.destination)
        with storage_errors(destination):
            _ = destination.fs  # asks Airflow for the connection: here, not in another thread
        folder = destination / layout.task_folder(context["ti"])
        sources = resolve(self.sources)
        lease = Lease(folder, getattr(context["ti"], "try_number", 0))
        lease.acquire()
        earlier, after = read(folder)
        documents = documents_of(sources, earlier, retries=retries, log=self.log)
        if not documents:
            self.log.warning("There is nothing to ingest.")
        options = IngestOptions(
            concurrency=self.concurrency,
            retry_failed=self.retry_failed,
            poll_interval=self.poll_interval,
            deadline=deadline,
            cancel_on_kill=self.cancel_on_kill,
            may_leave=self.deferrable,
        )
        hook = ComplianceHook(self.conn_id)
        hook.get_conn()  # asks Airflow for the connection, too
        self._loop = EventLoop(threads=2 * self.concurrency + 2)
        superseded: list[str] = []
        if retries:
            destination.fs.invalidate_cache()
            superseded = self._loop.run(find_outdated(documents, 2 * self.concurrency, self.log))
        waiting = self._loop.run(
            self._ingest(
                hook, documents, destination, Journal(folder, after, lease), lease, options, superseded
            )
        )
        if waiting:
            self.log.info("Waiting for %s jobs in the triggerer.", len(waiting))
            enough = max(1, math.ceil(len(waiting) * RESUME_FRACTION))
            left = deadline - time.monotonic()
            limit = Deadline(limit.name, time.time() + left)
            self.defer(
                trigger=ComplianceIngestTrigger(
                    self.conn_id, waiting, self.poll_interval, limit.at, self.cancel_on_kill, enough
                ),
                method_name="execute_complete",
                kwargs={"deadline": limit.at, "started": started, "left": left},
                timeout=limit.trigger_timeout,
            )
        check_whole(documents, sources)
        return self._finish(context, hook, documents, folder, lease, started)

    async def _ingest(
        self,
        hook: ComplianceHook,
        documents: list[Document],
        destination: Location,
        journal: Journal,
        lease: Lease,
        options: IngestOptions,
        superseded: list[str],
    ) -> list[str]:
        from airflow_provider.ingest.engine import Ingest
        from airflow_provider.ingest.unchanged import UnchangedIndex

        def target_of(document: Document) -> Location:
            return destination / layout.name_of(document, self.file_name_template)

        known = None
        if self.skip_unchanged:
            known = UnchangedIndex(Location(str(self.root or layout.root_of(destination.uri))), self.max_age)
        async with await hook.get_async_conn() as client:
            ingest = Ingest(
                client, documents, target_of, journal, lease, options, self.log, known, superseded
            )  # fmt: skip
            await ingest.run()
            return ingest.waiting

    def _finish(
        self,
        context: Context,
        hook: ComplianceHook,
        documents: list[Document],
        folder: Location,
        lease: Lease,
        started: str,
    ) -> dict[str, Any]:
        from airflow_provider.ingest.publishing import build_result, check_failures, publish

        destination = str(self.destination)
        self._loop = EventLoop(threads=2)
        manifest, report = self._loop.run(
            publish(context["ti"], documents, folder, lease, destination, started)
        )
        result = build_result(documents, manifest)
        link = layout.link_to(report, destination, self.report_base_url)
        context["ti"].xcom_push(key=REPORT_URL, value=link)
        self._report_lineage(hook, documents)
        for outlet in self.outlets or ():
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update({**result, "destination": destination})
        self.log.info("Manifest: %s, report: %s", manifest, report)
        check_failures(documents, self.max_failed, manifest)
        return result

    def _report_lineage(self, hook: ComplianceHook, documents: list[Document]) -> None:
        from airflow_provider.ingest.documents import COMPLETED

        self._transfers = [
            lineage.Transfer(lineage.Origin.from_uri(each.source), Location(each.path), each.bytes or 0)
            for each in documents
            if each.status == COMPLETED
        ]
        lineage.report(hook, self._transfers)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value)


def _now() -> str:
    return datetime.now(UTC).isoformat()
