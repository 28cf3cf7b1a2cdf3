"""What the operators have in common that have the service do something, and may wait for it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from airflow.providers.common.compat.sdk import BaseOperator, conf

from airflow_provider.compat import name_mapped_task
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.failing import without_retries
from airflow_provider.triggers.here import wait_here
from airflow_provider.triggers.waiting import UNKNOWN, Ending, Limit, problem

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.client.models import Assessment, ContentJob
    from airflow_provider.triggers.base import ComplianceWaitTrigger
    from airflow_provider.triggers.work import Work

STATE_KEY = "compliance_job"
Job = TypeVar("Job", bound="ContentJob | Assessment")


class ComplianceJobOperator(BaseOperator, Generic[Job]):
    """Base of the operators that have the service do something, and may wait for it.

    A retry or clear goes on with the job of an earlier attempt (Airflow 3.3 and newer): it waits on where the
    job is under way, is done where it is completed, and begins anew where it failed or is gone, also when it
    goes only now: after a clear, Airflow may cancel the old job when the next attempt already waits for it.

    :param conn_id: the Airflow connection
    :param wait_for_completion: succeed when the job is completed; otherwise as soon as the service has it
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time in seconds between two looks; a young job is looked at sooner
    :param timeout: seconds to wait; then the job is cancelled, and the task fails
    :param cancel_on_kill: cancel the job when the task is killed, marked, cleared or timed out
    """

    work: ClassVar[Work]
    hook_class: ClassVar[type[ComplianceHook]] = ComplianceHook

    template_fields: Sequence[str] = ("conn_id",)
    ui_color = "#dce8f5"

    def __init__(
        self,
        *,
        conn_id: str = ComplianceHook.default_conn_name,
        wait_for_completion: bool = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float = 30.0,
        timeout: float = 24 * 3600.0,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.cancel_on_kill = cancel_on_kill
        self._id: str | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """What is worked on; a stored job of another source is not gone on with."""

    @abstractmethod
    def begin(self, hook: ComplianceHook) -> Job:
        """Have the service begin."""

    @abstractmethod
    def id_of(self, job: Job) -> str:
        """Return what the service calls the job."""

    @abstractmethod
    def look(self, hook: ComplianceHook, identifier: str) -> Job:
        """Ask for a job."""

    @abstractmethod
    def make_trigger(self, identifier: str, deadline: float) -> ComplianceWaitTrigger:
        """Return what waits in the triggerer."""

    def begin_again(self, hook: ComplianceHook, job: Job) -> Job | None:
        """Have the service try a failed job of an earlier attempt once more, if that is wanted."""
        return None

    def announce(self, context: Context, hook: ComplianceHook, identifier: str) -> None:
        """Tell Airflow's users of the job."""

    def execute(self, context: Context) -> str:
        """Begin or go on, then wait if asked to."""
        name_mapped_task(self, context)
        hook = self.hook_class(self.conn_id)
        if job := self._earlier(context, hook):
            return self._go_on(context, hook, job, found=True)
        return self._go_on(context, hook, self._begin(context, hook))

    def execute_complete(
        self, context: Context, event: Any = None, uuid: str = "", limit: str = "timeout", found: bool = False
    ) -> str:
        """Go on after the trigger's event."""
        name_mapped_task(self, context)
        ending = Ending.of(event)
        identifier = uuid or next(iter(ending.jobs), "")  # `dag.test()` hands on the event alone
        return self._conclude(context, ending, Limit(limit), identifier, found)

    def _go_on(self, context: Context, hook: ComplianceHook, job: Job, found: bool = False) -> str:
        """Wait for a job if asked to.

        :param found: it is the job of an earlier attempt
        """
        self._id = identifier = self.id_of(job)
        self.announce(context, hook, identifier)
        if not self.wait_for_completion:
            return identifier
        limit = Limit.of(context, self.timeout, self.execution_timeout)
        if not self.deferrable or job.status.is_final:
            ending = wait_here(self.work, hook, [identifier], self.poll_interval, limit.deadline, self.log)
            return self._conclude(context, ending, limit, identifier, found)
        self.log.info("Waiting for %s %s in the triggerer.", self.work.noun, identifier)
        return self.defer(
            trigger=self.make_trigger(identifier, limit.deadline),
            method_name="execute_complete",
            kwargs={"uuid": identifier, "limit": limit.name, "found": found},
            timeout=limit.for_airflow,
        )

    def on_kill(self) -> None:
        """Cancel the job, if there is one."""
        if self._id and self.cancel_on_kill:
            self._cancel(self._id, "The task was killed")

    def _conclude(self, context: Context, ending: Ending, limit: Limit, identifier: str, found: bool) -> str:
        """Say how it ended; the one end of all ways of waiting."""
        noun = self.work.noun
        if found and ending.jobs.get(identifier, {}).get("status") in ("CANCELLED", UNKNOWN):
            self.log.info(
                "%s %s of an earlier attempt was cancelled meanwhile: beginning anew.",
                noun.capitalize(),
                identifier,
            )
            hook = self.hook_class(self.conn_id)
            return self._go_on(context, hook, self._begin(context, hook))
        error = problem(ending, [identifier], noun)
        if error is None:
            self.log.info(
                "%s %s completed; waited %.0f s for it.", noun.capitalize(), identifier, ending.seconds
            )
            return identifier
        if ending.kind == "timeout":
            if self.cancel_on_kill:
                self._cancel(identifier, "The time is up")
            raise limit.exceeded(error)
        raise error if error.transient else without_retries(error)

    def _cancel(self, identifier: str, why: str) -> None:
        noun = self.work.noun
        try:
            self.work.cancel_now(self.hook_class(self.conn_id), identifier)
            self.log.info("%s: %s %s is cancelled.", why, noun, identifier)
        except ComplianceNotFoundError:
            self.log.info("%s: %s %s is gone already.", why, noun, identifier)
        except ComplianceError as error:
            self.log.warning("%s, but %s %s could not be cancelled: %s", why, noun, identifier, error)

    def _begin(self, context: Context, hook: ComplianceHook) -> Job:
        job = self.begin(hook)
        identifier = self.id_of(job)
        self.log.info("The service has taken %s as %s %s.", self.source, self.work.noun, identifier)
        if (store := context.get("task_state_store")) is not None:
            store.set(STATE_KEY, {"uuid": identifier, "source": self.source})
        return job

    def _earlier(self, context: Context, hook: ComplianceHook) -> Job | None:
        """Find the job of the attempt before, if it is still good for something."""
        store = context.get("task_state_store")
        stored: Any = (None if store is None else store.get(STATE_KEY)) or {}
        if stored.get("source") != self.source:
            return None
        identifier = str(stored["uuid"])
        noun = self.work.noun
        name = f"{noun.capitalize()} {identifier} of an earlier attempt"
        try:
            job = self.look(hook, identifier)
        except ComplianceNotFoundError:
            self.log.info("%s is gone: beginning anew.", name)
            return None
        if job.status == "FAILED" and (again := self.begin_again(hook, job)):
            self.log.info("%s failed (%s): refreshing it.", name, job.error)
            return again
        if job.status in ("FAILED", "CANCELLED"):
            self.log.info("%s is %s (%s): beginning anew.", name, job.status, job.error)
            return None
        self.log.info("Going on with %s %s of an earlier attempt, which is %s.", noun, identifier, job.status)
        return job
