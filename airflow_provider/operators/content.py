"""Operators for content processing: submit, refresh, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import ComplianceError
from airflow_provider.operators.base import CancelOperator
from airflow_provider.operators.base_job import ComplianceBaseJobOperator
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import one_line
from airflow_provider.runtime.params import RedactedField, as_id, required
from airflow_provider.waiting.kinds import JOBS, JobKind, job_record
from airflow_provider.waiting.results import CANCELLED, UNKNOWN
from airflow_provider.waiting.waits import status_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.client.models import ContentJob


class ComplianceContentOperator(ComplianceBaseJobOperator):
    """Base of the operators that submit content and may wait for it."""

    kind: ClassVar[JobKind] = JOBS


class ComplianceSubmitFileOperator(ComplianceContentOperator):
    """Submit a PDF or DOCX document; returns the uuid of its job.

    :param file: a path, an object-storage URI such as `s3://conn@bucket/key`, or an ObjectStoragePath
    :param file_name: file name to send to the service; by default the file's own
    """

    template_fields: Sequence[str] = ("conn_id", "file", "file_name")
    file = RedactedField()

    def __init__(self, *, file: Any, file_name: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file = file
        self.file_name = file_name

    @property
    def topic(self) -> object:
        """The subject of the task."""
        return self.file_name or self.source

    @property
    def source(self) -> str:
        """The file, without secrets."""
        return one_line(redact(str(self.file)))

    @property
    def fingerprint(self) -> str | None:
        """Size and ETag or modification time of the file, if they can be read without opening it."""
        from airflow_provider.storage.sources import fingerprint

        if hasattr(self.file, "read"):
            return None
        try:
            return f"{fingerprint(str(self.file))} {self.file_name or ''}"
        except (ComplianceError, OSError) as error:
            self.log.info("The version of %s is unknown: %s", self.source, error)
            return None

    def submit(self) -> ContentJob:
        """Upload the file."""
        file_name = None if self.file_name is None else required(self.file_name, "file_name")
        return self.hook.submit_file(required(self.file, "file"), file_name)


class ComplianceSubmitUrlOperator(ComplianceContentOperator):
    """Submit a web page; returns the uuid of its job.

    :param url: the URL of the page
    """

    template_fields: Sequence[str] = ("conn_id", "url")
    url = RedactedField()

    def __init__(self, *, url: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.url = url

    @property
    def source(self) -> str:
        """The page, without secrets."""
        return one_line(redact(self.address))

    @property
    def address(self) -> str:
        """The page as it was given."""
        return str(self.url)

    def submit(self) -> ContentJob:
        """Submit the page."""
        return self.hook.submit_url(required(self.url, "url"))


class ComplianceRefreshContentOperator(ComplianceContentOperator):
    """Process a job again, because it failed or its content is stale; returns its uuid.

    :param uuid: the job
    :param timeout: seconds or timedelta to wait, by default one day; then the task fails
    :param cancel_on_kill: cancel, and so delete, a job in flight when the task is killed, marked or timed
        out; off by default, because the job existed before the task
    """

    template_fields: Sequence[str] = ("conn_id", "uuid")

    def __init__(self, *, uuid: str, cancel_on_kill: bool = False, **kwargs: Any) -> None:
        super().__init__(cancel_on_kill=cancel_on_kill, **kwargs)
        self.uuid = uuid

    @property
    def source(self) -> str:
        """The job itself."""
        return as_id(self.uuid, "uuid")

    def _prepare(self, context: Context) -> None:
        super()._prepare(context)
        self._check_submitted(context, [self.source])

    def submit(self) -> ContentJob:
        """Refresh the job; its record from before tells the new result from the old one."""
        # Not by the status of the single job: a completed one answers with a redirect, without its times.
        uuid = self.source
        before = self.hook.get_statuses([uuid]).get(uuid)
        job = self.hook.refresh(uuid)
        self._before = job_record(uuid, before) if before and before.status.is_final else None
        return job

    def _is_gone(self) -> bool:
        return status_in_worker(self.kind, self.hook, self.source, self.log) in (CANCELLED, UNKNOWN)


class ComplianceCancelContentOperator(CancelOperator):
    """Cancel a job, which deletes it; succeeds if the job no longer exists.

    :param uuid: the job
    """

    kind: ClassVar[JobKind] = JOBS
    template_fields: Sequence[str] = ("conn_id", "uuid")
    named_after: ClassVar[str] = "uuid"

    def __init__(self, *, uuid: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.uuid = uuid
