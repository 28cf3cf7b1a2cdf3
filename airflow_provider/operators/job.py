"""What the operators have in common that have the service process something, and may wait for it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator, conf

from airflow_provider.compat import name_mapped_task
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.failing import without_retries
from airflow_provider.operators.links import JOB_URL, ComplianceJobLink
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.triggers.waiting import UNKNOWN, Ending, Limit, problem, wait_for_jobs

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.client.models import ContentJob

STATE_KEY = "compliance_job"


class ComplianceJobOperator(BaseOperator):
    """Base of the operators that have the service process something, and may wait for it.

    A retry or clear goes on with the job of an earlier attempt (Airflow 3.3 and newer): it waits on where the
    job is under way, is done where it is completed, and begins anew where it failed or is gone, also when it
    goes only now: after a clear, Airflow may cancel the old job when the next attempt already waits for it.

    :param conn_id: the Airflow connection
    :param wait_for_completion: succeed when the job is completed; otherwise as soon as the service has it
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time in seconds between two looks; a young job is looked at sooner
    :param timeout: seconds to wait; then the job is cancelled, and the task fails
    :param cancel_on_kill: cancel the job when the task is killed, marked, cleared or timed out
    :param refresh_failed: have a failed job of an earlier attempt processed again, not submitted anew
    """

    template_fields: Sequence[str] = ("conn_id",)
    ui_color = "#dce8f5"
    operator_extra_links = (ComplianceJobLink(),)

    def __init__(
        self,
        *,
        conn_id: str = ComplianceHook.default_conn_name,
        wait_for_completion: bool = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float = 30.0,
        timeout: float = 24 * 3600.0,
        cancel_on_kill: bool = True,
        refresh_failed: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.cancel_on_kill = cancel_on_kill
        self.refresh_failed = refresh_failed
        self._uuid: str | None = None

    @abstractmethod
    def begin(self, hook: ComplianceHook) -> ContentJob:
        """Have the service begin."""

    @property
    @abstractmethod
    def source(self) -> str:
        """What is processed; a stored job of another source is not gone on with."""

    def execute(self, context: Context) -> str:
        """Begin or go on, then wait if asked to."""
        name_mapped_task(self, context)
        hook = ComplianceHook(self.conn_id)
        if job := self._earlier(context, hook):
            return self._go_on(context, hook, job, found=True)
        return self._go_on(context, hook, self._begin(context, hook))

    def execute_complete(
        self, context: Context, event: Any = None, uuid: str = "", limit: str = "timeout", found: bool = False
    ) -> str:
        """Go on after the trigger's event."""
        name_mapped_task(self, context)
        return self._conclude(context, Ending.of(event), Limit(limit), uuid, found)

    def _go_on(self, context: Context, hook: ComplianceHook, job: ContentJob, found: bool = False) -> str:
        """Wait for a job if asked to.

        :param found: it is the job of an earlier attempt
        """
        self._uuid = job.uuid
        if url := hook.console_url(job.uuid):
            context["ti"].xcom_push(key=JOB_URL, value=url)
        if not self.wait_for_completion:
            return job.uuid
        limit = Limit.of(context, self.timeout, self.execution_timeout)
        if not self.deferrable or job.status.is_final:
            ending = wait_for_jobs(hook, [job.uuid], self.poll_interval, limit.deadline, self.log)
            return self._conclude(context, ending, limit, job.uuid, found)
        self.log.info("Waiting for job %s in the triggerer.", job.uuid)
        trigger = ComplianceContentTrigger(
            self.conn_id, [job.uuid], self.poll_interval, limit.deadline, self.cancel_on_kill
        )
        return self.defer(
            trigger=trigger,
            method_name="execute_complete",
            kwargs={"uuid": job.uuid, "limit": limit.name, "found": found},
            timeout=limit.for_airflow,
        )

    def on_kill(self) -> None:
        """Cancel the job, if there is one."""
        if self._uuid and self.cancel_on_kill:
            self._cancel(self._uuid, "The task was killed")

    def _conclude(self, context: Context, ending: Ending, limit: Limit, uuid: str, found: bool) -> str:
        """Say how it ended; the one end of all ways of waiting."""
        if found and ending.jobs.get(uuid, {}).get("status") in ("CANCELLED", UNKNOWN):
            self.log.info("Job %s of an earlier attempt was cancelled meanwhile: beginning anew.", uuid)
            hook = ComplianceHook(self.conn_id)
            return self._go_on(context, hook, self._begin(context, hook))
        error = problem(ending, [uuid])
        if error is None:
            self.log.info("Job %s completed; waited %.0f s for it.", uuid, ending.seconds)
            return uuid
        if ending.kind == "timeout":
            if self.cancel_on_kill:
                self._cancel(uuid, "The time is up")
            raise limit.exceeded(error)
        raise error if error.transient else without_retries(error)

    def _cancel(self, uuid: str, why: str) -> None:
        try:
            ComplianceHook(self.conn_id).cancel(uuid)
            self.log.info("%s: job %s is cancelled.", why, uuid)
        except ComplianceNotFoundError:
            self.log.info("%s: job %s is gone already.", why, uuid)
        except ComplianceError as error:
            self.log.warning("%s, but job %s could not be cancelled: %s", why, uuid, error)

    def _begin(self, context: Context, hook: ComplianceHook) -> ContentJob:
        job = self.begin(hook)
        self.log.info("The service has taken %s as job %s.", self.source, job.uuid)
        if (store := context.get("task_state_store")) is not None:
            store.set(STATE_KEY, {"uuid": job.uuid, "source": self.source})
        return job

    def _earlier(self, context: Context, hook: ComplianceHook) -> ContentJob | None:
        """Find the job of the attempt before, if it is still good for something."""
        store = context.get("task_state_store")
        stored: Any = (None if store is None else store.get(STATE_KEY)) or {}
        if stored.get("source") != self.source:
            return None
        uuid = str(stored["uuid"])
        try:
            job = hook.get_status(uuid)
        except ComplianceNotFoundError:
            self.log.info("Job %s of an earlier attempt is gone: beginning anew.", uuid)
            return None
        if job.status == "FAILED" and self.refresh_failed:
            self.log.info("Job %s of an earlier attempt failed (%s): refreshing it.", uuid, job.error)
            return hook.refresh(uuid)
        if job.status in ("FAILED", "CANCELLED"):
            self.log.info(
                "Job %s of an earlier attempt is %s (%s): beginning anew.", uuid, job.status, job.error
            )
            return None
        self.log.info("Going on with job %s of an earlier attempt, which is %s.", uuid, job.status)
        return job
