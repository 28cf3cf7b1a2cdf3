"""Operators for content processing: submit, refresh, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider.compat import apply_map_index_template
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.job import ComplianceJobOperator
from airflow_provider.operators.links import JOB_URL, ComplianceJobLink
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.kinds import JOBS, JobKind, record_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.client.models import ContentJob


class ComplianceContentOperator(ComplianceJobOperator["ContentJob"]):
    """Base of the operators that have content processed, and may wait for it.

    :param refresh_failed: have a failed job of an earlier attempt processed again, not submitted anew
    """

    kind: ClassVar[JobKind] = JOBS
    operator_extra_links = (ComplianceJobLink(),)

    def __init__(self, *, refresh_failed: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.refresh_failed = refresh_failed

    def id_of(self, job: ContentJob) -> str:
        """Return its uuid."""
        return job.uuid

    def resubmit(self, hook: ComplianceHook, identifier: str) -> bool:
        """Refresh the job, where asked to."""
        if self.refresh_failed:
            hook.refresh(identifier)
        return self.refresh_failed

    def push_link(self, context: Context, hook: ComplianceHook, identifier: str) -> None:
        """Link to the job, where the connection says how."""
        # Also where there is none: Airflow looks for it at the end, and complains if it finds nothing.
        context["ti"].xcom_push(key=JOB_URL, value=hook.console_url(identifier) or "")

    def make_trigger(self, identifier: str, deadline: float) -> ComplianceContentTrigger:
        """Return what waits in the triggerer."""
        before = {identifier: self._before} if self._before else None
        return ComplianceContentTrigger(
            self.conn_id, [identifier], self.poll_interval, deadline, self.cancel_on_kill, before=before
        )


class ComplianceSubmitFileOperator(ComplianceContentOperator):
    """Submit a PDF or DOCX document; returns the uuid of its job.

    :param file: a path, an object-storage URI such as `s3://conn@bucket/key`, or an ObjectStoragePath
    :param file_name: name to tell the service; by default the file's own
    :param conn_id: the Airflow connection
    :param wait_for_completion: succeed when the job is completed; otherwise as soon as the service has it
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time between two polls, in seconds or as a timedelta; a young job is polled
        sooner
    :param timeout: how long to wait, in seconds or as a timedelta; then the job is cancelled, and the task
        fails
    :param cancel_on_kill: cancel the job, unless it has come to its end, when the task is killed, marked or
        timed out
    :param refresh_failed: have a failed job of an earlier attempt processed again, not submitted anew
    """

    template_fields: Sequence[str] = ("conn_id", "file", "file_name")

    def __init__(self, *, file: Any, file_name: str | None = None, **kwargs: Any) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.file_name or task.file }}"
        super().__init__(**kwargs)
        self.file = file
        self.file_name = file_name

    @property
    def source(self) -> str:
        """The file."""
        return str(self.file)

    @property
    def fingerprint(self) -> str | None:
        """Size and ETag or time of the file, where it can be looked at without opening it."""
        from airflow_provider.ingest.sources import fingerprint

        if hasattr(self.file, "read"):
            return None
        try:
            return f"{fingerprint(self.source)} {self.file_name or ''}"
        except (ComplianceError, OSError) as error:
            self.log.info("The version of %s can't be told: %s", self.source, error)
            return None

    def submit(self, hook: ComplianceHook) -> ContentJob:
        """Upload the file."""
        return hook.submit_file(self.file, self.file_name)


class ComplianceSubmitUrlOperator(ComplianceContentOperator):
    """Submit a web page; returns the uuid of its job.

    :param url: the page's address
    :param conn_id: the Airflow connection
    :param wait_for_completion: succeed when the job is completed; otherwise as soon as the service has it
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time between two polls, in seconds or as a timedelta; a young job is polled
        sooner
    :param timeout: how long to wait, in seconds or as a timedelta; then the job is cancelled, and the task
        fails
    :param cancel_on_kill: cancel the job, unless it has come to its end, when the task is killed, marked or
        timed out
    :param refresh_failed: have a failed job of an earlier attempt processed again, not submitted anew
    """

    template_fields: Sequence[str] = ("conn_id", "url")

    def __init__(self, *, url: str, **kwargs: Any) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.url }}"
        super().__init__(**kwargs)
        self.url = url

    @property
    def source(self) -> str:
        """The page."""
        return self.url

    def submit(self, hook: ComplianceHook) -> ContentJob:
        """Submit the page."""
        return hook.submit_url(self.url)


class ComplianceRefreshContentOperator(ComplianceContentOperator):
    """Have a job processed again, because it failed or its content is stale; returns its uuid.

    :param uuid: the job
    :param conn_id: the Airflow connection
    :param wait_for_completion: succeed when the job is completed; otherwise as soon as the service has it
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time between two polls, in seconds or as a timedelta; a young job is polled
        sooner
    :param timeout: how long to wait, in seconds or as a timedelta; then the task fails
    :param cancel_on_kill: cancel, and so delete, the job when the task is killed or timed out while it is in
        flight; off by default, because the job was there before the task
    """

    template_fields: Sequence[str] = ("conn_id", "uuid")

    def __init__(self, *, uuid: str, cancel_on_kill: bool = False, **kwargs: Any) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.uuid }}"
        super().__init__(cancel_on_kill=cancel_on_kill, **kwargs)
        self.uuid = uuid

    @property
    def source(self) -> str:
        """The job itself."""
        return self.uuid

    def submit(self, hook: ComplianceHook) -> ContentJob:
        """Refresh the job; the record from before tells the new result from the old one."""
        # Not by the status of the one job: a completed one answers that with a redirect, without its times.
        before = hook.get_statuses([self.uuid]).get(self.uuid)
        job = hook.refresh(self.uuid)
        self._before = record_of(self.uuid, before) if before and before.status.is_final else None
        return job


class ComplianceCancelContentOperator(BaseOperator):
    """Cancel a job and delete it.

    :param uuid: the job
    :param conn_id: the Airflow connection
    :param ignore_missing: succeed also where the service does not know the job
    """

    template_fields: Sequence[str] = ("conn_id", "uuid")
    ui_color = "#f5e3dc"

    def __init__(
        self,
        *,
        uuid: str,
        conn_id: str = ComplianceHook.default_conn_name,
        ignore_missing: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.uuid }}"
        super().__init__(**kwargs)
        self.uuid = uuid
        self.conn_id = conn_id
        self.ignore_missing = ignore_missing

    def execute(self, context: Context) -> None:
        """Cancel the job."""
        apply_map_index_template(self, context)
        try:
            ComplianceHook(self.conn_id).cancel(self.uuid)
            self.log.info("Job %s is cancelled.", self.uuid)
        except ComplianceNotFoundError:
            if not self.ignore_missing:
                raise
            self.log.info("Job %s is gone already.", self.uuid)
