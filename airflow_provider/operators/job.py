"""What the operators have in common that have the service do something, and may wait for it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from airflow.providers.common.compat.sdk import BaseOperator, conf

from airflow_provider.compat import apply_map_index_template
from airflow_provider.exceptions import ComplianceInterruptedError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.errors import as_non_retryable
from airflow_provider.params import as_seconds
from airflow_provider.waiting.results import (
    FINAL,
    UNKNOWN,
    Deadline,
    Record,
    WaitResult,
    as_error,
    error_for,
)
from airflow_provider.waiting.rules import RefreshCheck, is_new_result, may_cancel
from airflow_provider.waiting.worker import cancel_in_worker, poll_in_worker, wait_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.client.models import Assessment, ContentJob
    from airflow_provider.triggers.base import ComplianceWaitTrigger
    from airflow_provider.waiting.kinds import JobKind

STATE_KEY = "compliance_job"
KILL_SECONDS = 15.0  # for the cancellation of a killed task's job
# With a state store (Airflow 3.3) the task goes on after `on_kill`, until it is killed 5 s after the signal:
# so `on_kill` may return before its thread is done, and must, where the interrupted code holds a lock.
KILL_SECONDS_WITH_STORE = 3.0
Job = TypeVar("Job", bound="ContentJob | Assessment")


class ComplianceJobOperator(BaseOperator, Generic[Job]):
    """Base of the operators that have the service do something, and may wait for it.

    On Airflow 3.3 and newer a retry goes on with the job of the attempt before: it waits on where the job is
    in flight, is done where it is completed, and submits again where it failed or is gone. A clear goes on
    with a job in flight only: clear means run again. Either submits again where the input has changed, and
    cancels the superseded job if that is in flight.

    :param conn_id: the Airflow connection
    :param wait_for_completion: succeed when the job is completed; otherwise as soon as the service has it
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time between two polls, in seconds or as a timedelta; a young job is polled
        sooner
    :param timeout: how long to wait, in seconds or as a timedelta; then the job is cancelled, and the task
        fails
    :param cancel_on_kill: cancel the job, unless it has come to its end, when the task is killed, marked or
        timed out
    """

    kind: ClassVar[JobKind]
    hook_class: ClassVar[type[ComplianceHook]] = ComplianceHook

    template_fields: Sequence[str] = ("conn_id",)
    ui_color = "#dce8f5"

    def __init__(
        self,
        *,
        conn_id: str = ComplianceHook.default_conn_name,
        wait_for_completion: bool = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | timedelta = 30.0,
        timeout: float | timedelta = 24 * 3600.0,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.poll_interval = as_seconds(poll_interval, "poll_interval")
        self.timeout = as_seconds(timeout, "timeout")
        self.cancel_on_kill = cancel_on_kill
        self._id: str | None = None
        self._before: Record | None = None
        self._store: Any = None
        self._try_number = 0
        self._killing: threading.Thread | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """What is worked on; a stored job of another source is not gone on with."""

    @property
    def fingerprint(self) -> str | None:
        """What tells a version of the source from others; None where there is no such thing."""
        return None

    @abstractmethod
    def submit(self, hook: ComplianceHook) -> Job:
        """Have the service begin."""

    @abstractmethod
    def id_of(self, job: Job) -> str:
        """Return what the service calls the job."""

    @abstractmethod
    def make_trigger(self, identifier: str, deadline: float) -> ComplianceWaitTrigger:
        """Return what waits in the triggerer."""

    def resubmit(self, hook: ComplianceHook, identifier: str) -> bool:
        """Have the service try a failed job of an earlier attempt once more, if that is wanted."""
        return False

    def push_link(self, context: Context, hook: ComplianceHook, identifier: str) -> None:
        """Tell Airflow's users of the job."""

    def execute(self, context: Context) -> str:
        """Begin or go on, then wait if asked to."""
        apply_map_index_template(self, context)
        self._remember(context)
        hook = self.hook_class(self.conn_id)
        if record := self._previous_job(context, hook):
            return self._wait_or_return(context, hook, record, found=True)
        return self._wait_or_return(context, hook, self._submit(context, hook))

    def execute_complete(
        self,
        context: Context,
        event: Any = None,
        uuid: str = "",
        limit: str = "timeout",
        found: bool = False,
        before: Record | None = None,
    ) -> str:
        """Go on after the trigger's event."""
        apply_map_index_template(self, context)
        self._before = before
        self._remember(context)
        result = WaitResult.from_event(event)
        identifier = uuid or next(iter(result.records), "")  # `dag.test()` hands on the event alone
        return self._finish(context, result, Deadline(limit), identifier, found)

    def _remember(self, context: Context) -> None:
        """Keep what `on_kill` needs, which gets no context."""
        self._store = context.get("task_state_store")
        self._try_number = getattr(context.get("ti"), "try_number", 0)

    def _wait_or_return(
        self, context: Context, hook: ComplianceHook, record: Record, found: bool = False
    ) -> str:
        """Wait for a job if asked to.

        :param found: it is the job of an earlier attempt
        """
        self._id = identifier = self._id_in(record)
        self.push_link(context, hook, identifier)
        if not self.wait_for_completion:
            return self._done(identifier)
        limit = Deadline.of(context, self.timeout, self.execution_timeout)
        is_over = record["status"] in FINAL and not self._before
        if not self.deferrable or is_over:
            accepts = RefreshCheck({identifier: self._before}).accepts if self._before else None
            result = wait_in_worker(
                self.kind, hook, [identifier], self.poll_interval, limit.deadline, self.log, accepts
            )
            return self._finish(context, result, limit, identifier, found)
        self.log.info("Waiting for %s %s in the triggerer.", self.kind.noun, identifier)
        return self.defer(
            trigger=self.make_trigger(identifier, limit.deadline),
            method_name="execute_complete",
            kwargs={"uuid": identifier, "limit": limit.name, "found": found, "before": self._before},
            timeout=limit.for_airflow,
        )

    def on_kill(self) -> None:
        """Cancel the job, if there is one that is in flight and of this attempt."""
        if not self._id or not self.cancel_on_kill or self._killing:
            return
        # In a thread: this runs in a signal handler, and the code that it interrupts may hold a lock.
        self._killing = threading.Thread(target=self._kill, args=(self._id,), daemon=True)
        self._killing.start()
        self._killing.join(KILL_SECONDS if self._store is None else KILL_SECONDS_WITH_STORE)

    def _kill(self, identifier: str) -> None:
        why = "The task was killed"
        try:
            if self._store is not None:
                # Airflow answers with nothing to an attempt that another one has followed.
                stored: Any = self._store.get(STATE_KEY)
                stored = stored if isinstance(stored, dict) else {}
                if (stored.get("uuid"), stored.get("try_number")) != (identifier, self._try_number):
                    self.log.warning("%s, but %s %s is not of this attempt any more: it is not cancelled.",
                                     why, self.kind.noun, identifier)  # fmt: skip
                    return
            cancel_in_worker(self.kind, self.hook_class(self.conn_id), identifier, why, self.log)
        except Exception as error:
            self.log.warning(
                "%s, but %s %s could not be cancelled: %s", why, self.kind.noun, identifier, error
            )

    def _finish(
        self, context: Context, result: WaitResult, limit: Deadline, identifier: str, found: bool
    ) -> str:
        """Say how it ended; the one end of all ways of waiting."""
        noun = self.kind.noun
        if found and result.records.get(identifier, {}).get("status") in ("CANCELLED", UNKNOWN):
            self.log.info(
                "%s %s of an earlier attempt was cancelled meanwhile: beginning anew.",
                noun.capitalize(),
                identifier,
            )
            hook = self.hook_class(self.conn_id)
            self._before = None
            return self._wait_or_return(context, hook, self._submit(context, hook))
        error = error_for(result, [identifier], noun)
        if error is None:
            self.log.info(
                "%s %s completed; waited %.0f s for it.", noun.capitalize(), identifier, result.seconds
            )
            return self._done(identifier)
        if result.status == "timeout":
            seen = None
            if self.cancel_on_kill and identifier:
                hook = self.hook_class(self.conn_id)
                seen = cancel_in_worker(self.kind, hook, identifier, "The time is up", self.log)
            if seen and seen["status"] == "COMPLETED" and not self._is_stale(seen):
                self.log.info("%s %s completed at the last moment.", noun.capitalize(), identifier)
                return self._done(identifier)
            raise limit.exceeded(error)
        raise error if error.transient else as_non_retryable(error)

    def _done(self, identifier: str) -> str:
        """Leave the job to whoever comes next: a kill from now on does not cancel it."""
        self._id = None
        return identifier

    def _submit(self, context: Context, hook: ComplianceHook) -> Record:
        if self._killing:
            self._killing.join(KILL_SECONDS)
            raise ComplianceInterruptedError("The task was killed: nothing is submitted any more.")
        fingerprint = None if self._store is None else self.fingerprint  # of what is sent, so before it is
        job = self.submit(hook)
        identifier = self.id_of(job)
        self.log.info("The service has taken %s as %s %s.", self.source, self.kind.noun, identifier)
        self._save(context, identifier, fingerprint)
        return {self.kind.id_name: identifier, "status": str(job.status)}

    def _save(self, context: Context, identifier: str, fingerprint: str | None) -> None:
        """Keep for later attempts which job there is, of what, and whose it is now."""
        if self._store is None:
            return
        state = {
            "uuid": identifier,
            "source": self.source,
            "fingerprint": fingerprint,
            "try_number": self._try_number,
            "max_tries": context["ti"].max_tries,
            "before": self._before,
        }
        try:
            self._store.set(STATE_KEY, state)
        except Exception as error:  # of Airflow's API: the job is there, and this attempt can go on with it
            self.log.warning(
                "%s %s can't be kept for later attempts, which would submit again: %s",
                self.kind.noun.capitalize(), identifier, error,
            )  # fmt: skip

    def _previous_job(self, context: Context, hook: ComplianceHook) -> Record | None:
        """Find the job of an earlier attempt, if it is still good for something."""
        stored: Any = None if self._store is None else self._store.get(STATE_KEY)
        if not isinstance(stored, dict) or not stored.get("uuid"):
            return None
        identifier = str(stored["uuid"])
        noun = self.kind.noun
        name = f"{noun.capitalize()} {identifier} of an earlier attempt"
        fingerprint = self.fingerprint
        # Where one of them is not known, nothing says that the input has changed.
        is_changed = bool(fingerprint and stored.get("fingerprint")) and fingerprint != stored["fingerprint"]
        if stored.get("source") != self.source or is_changed:
            self.log.info("%s is of another input: beginning anew.", name)
            if self.cancel_on_kill:
                cancel_in_worker(self.kind, hook, identifier, "The input has changed", self.log)
            return None
        result = poll_in_worker(self.kind, hook, [identifier], self.log)
        if result.status == "error":
            raise as_error(result) if result.transient else as_non_retryable(as_error(result))
        record = result.records[identifier]
        status, reason = record["status"], record.get("error")
        self._before = stored.get("before")
        is_stale = self._is_stale(record)
        if self._before and is_new_result(self._before, record):
            self._before = None
        # A clear raises `max_tries`; a retry does not.
        max_tries = context["ti"].max_tries
        is_cleared = stored.get("max_tries", max_tries) != max_tries
        if may_cancel(record) or is_stale:
            pass  # in flight
        elif status == "FAILED" and self.resubmit(hook, identifier):
            self.log.info("%s failed (%s): refreshing it.", name, reason)
            self._before = record
        elif status != "COMPLETED" or is_cleared:
            self.log.info("%s is %s (%s): beginning anew.", name, status, reason)
            self._before = None
            return None
        self._save(context, identifier, fingerprint or stored.get("fingerprint"))
        self.log.info("Going on with %s %s of an earlier attempt, which is %s.", noun, identifier, status)
        return record

    def _is_stale(self, record: Record) -> bool:
        """Tell whether a record is from before the job was refreshed."""
        return self._before is not None and is_new_result(self._before, record) is False

    def _id_in(self, record: Record) -> str:
        return str(record[self.kind.id_name])
