"""Base of the operators that submit something to the service and may wait for it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceProtocolError,
    ComplianceStateError,
    ComplianceSupersededError,
    ComplianceUncertainError,
)
from airflow_provider.hooks.compliance import check_hook_class
from airflow_provider.operators.base import (
    SUBMITTED_KEY,
    TimedWaitingOperator,
    entry_point,
    fails_for_good,
    is_last_attempt,
)
from airflow_provider.operators.links import JOB_URL, ComplianceJobLink
from airflow_provider.redaction.text import mask_address
from airflow_provider.runtime import metrics
from airflow_provider.runtime.compat import ENDED_TASK, ON_KILL_ENDS_TASK, read_task_states
from airflow_provider.storage.task_state import (
    JOB_KEY,
    StoredJob,
    SubmitState,
    open_state_store,
)
from airflow_provider.waiting.kinds import ASSESSMENTS
from airflow_provider.waiting.results import FINAL, Record, WaitResult, error_for, polling_error
from airflow_provider.waiting.rules import RefreshCheck, accept_final, is_new_result
from airflow_provider.waiting.waits import Deadline, cancel_in_worker, poll_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.client.models import Assessment, ContentJob

# For the cancellation of a killed task's job. On Airflow 3 the task continues after `on_kill`, and is killed
# 5 s after the signal: so `on_kill` may return before its thread is done, and must, if the interrupted code
# holds a lock.
CANCEL_GRACE_SECONDS = 15.0 if ON_KILL_ENDS_TASK else 3.0
CLEARED = "restarting"  # the state of a task that was cleared while it ran


class ComplianceBaseJobOperator(TimedWaitingOperator):
    """Base of the operators that submit something to the service and may wait for it.

    A retry resumes the job of the previous attempt: it keeps waiting for a job in flight, returns a completed
    one, and submits again if the job failed or is gone. A cleared task resumes only a job in flight, because
    clearing means running again. Both submit again if the input changed, and cancel the superseded job if it
    is in flight. The job is stored below the connection's `state_path`, otherwise in Airflow's task state
    store (since 3.3); without either, every attempt submits.

    A task that fails for good, without a retry, cancels its job if it is in flight.

    :param wait_for_completion: succeed when the job is completed; otherwise, by default, as soon as it is
        submitted
    :param timeout: how long to wait, a timedelta or seconds, by default one day; then the job is cancelled
        and the task fails
    :param cancel_on_kill: cancel a job in flight when the task is killed, marked, timed out or fails for
        good; on by default
    """

    _supports_durable_execution: ClassVar[bool] = True
    operator_extra_links = (ComplianceJobLink(),)
    ui_color = "#dce8f5"

    def __init__(
        self, *, wait_for_completion: bool = False, cancel_on_kill: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.wait_for_completion = wait_for_completion
        self.cancel_on_kill = cancel_on_kill
        self._ti: Any = None
        self._state = SubmitState(lambda: None, None, None)
        self._job = StoredJob()  # that a kill cancels
        self._before: Record | None = None  # the record of a job from before its refresh
        self._killing: threading.Thread | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """The input; a stored job of another input is not resumed."""

    @property
    def address(self) -> str:
        """The input as it was given, where it may have a login or a signature."""
        return ""

    @property
    def topic(self) -> object:
        """The subject of the task."""
        return self.source

    @property
    def fingerprint(self) -> str | None:
        """The version of the input; None if it has none."""
        return None

    @abstractmethod
    def submit(self) -> ContentJob | Assessment:
        """Submit to the service."""

    def console_url(self, identifier: str) -> str | None:
        """Return where a person finds the job, if the connection says so."""
        return self.hook.console_url(identifier)

    @entry_point
    def execute(self, context: Context) -> str:
        """Submit or re-attach, then wait if asked to."""
        self._prepare(context)
        if self.deferrable and self.wait_for_completion:
            check_hook_class(self.hook_class)  # before a job is submitted that could not be waited for
        with self._cancelling_at_the_end():
            return self._wait_or_return(context, self._previous_job() or self._submit())

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume; if the trigger itself failed, Airflow drops the arguments of `execute_complete`."""
        self._prepare(context)
        self._job = StoredJob.parse((next_kwargs or {}).get("job", {}))
        if next_method == "__fail__":
            try:
                self._job = self._state.read()
            except Exception as error:  # also of a secrets backend
                self.log.warning("Could not find out which %s to cancel: %s", self.kind.noun, error)
        with self._cancelling_at_the_end():
            return super().resume_execution(next_method, next_kwargs, context)

    def _prepare(self, context: Context) -> None:
        """Keep what `on_kill` needs, because it gets no context."""
        self._ti = context.get("ti")
        self._state = SubmitState(lambda: open_state_store(context, self.hook), self._ti, self.log)

    @contextmanager
    def _cancelling_at_the_end(self) -> Iterator[None]:
        """Cancel the job in flight if an error fails the task for good: no attempt will wait for it."""
        try:
            yield
        except Exception as error:
            if self._job.uuid and self.cancel_on_kill and fails_for_good(error, self._ti):
                self.log.info("The task fails for good: its job is cancelled, if it is in flight.")
                self._cancel(self._job)
            raise

    def _wait_or_return(self, context: Context, record: Record) -> str:
        identifier = str(record[self.kind.id_name])
        self._job = StoredJob(uuid=identifier, account=self.hook.account_digest, before=self._before)
        # Even an empty link: Airflow logs an error for a link whose XCom is missing.
        context["ti"].xcom_push(key=JOB_URL, value=self.console_url(identifier) or "")
        job = {"id": identifier, "account": self.hook.account_digest, "conn_id": self.conn_id}
        context["ti"].xcom_push(key=SUBMITTED_KEY, value=job)
        if not self.wait_for_completion:
            self._job = StoredJob()  # a kill from now on does not cancel it
            return identifier
        before = {identifier: self._before} if self._before else None
        result: str = self._wait_and_finish(
            context,
            [identifier],
            is_final=record["status"] in FINAL and not before,
            accepts=RefreshCheck(before).accepts if before else accept_final,
            trigger_options={
                "cancel_on_kill": self.cancel_on_kill,
                "is_durable": self._state.survives_clear,
                **({"before": before} if before else {}),
            },
            job=self._job.dump(),
        )
        return result

    def on_kill(self) -> None:
        """Cancel the job, if it is in flight and belongs to this attempt."""
        if not self._job.uuid or not self.cancel_on_kill or self._killing:
            return
        # In a thread: this runs in a signal handler, and the interrupted code may hold a lock.
        self._killing = threading.Thread(target=self._kill, args=(self._job,), daemon=True)
        self._killing.start()
        self._killing.join(CANCEL_GRACE_SECONDS)

    def _kill(self, job: StoredJob) -> None:
        name = f"{self.kind.noun} {job.uuid}"
        try:
            state = "running" if self._state.store is None else read_task_states([self._ti])[0]
            is_lost = state == CLEARED and not self._state.survives_clear  # no other attempt knows the job
        except Exception as error:
            self.log.warning("The task was killed, but %s could not be cancelled: %s", name, error)
            return
        if not is_lost and state not in (*ENDED_TASK, "running"):
            self.log.info("The task is %s, not ended: %s is not cancelled.", state, name)
            return
        self.log.info("The task was killed: cancelling %s, if it is in flight.", name)
        self._cancel(job, checks_owner=not is_lost)

    def _cancel(self, job: StoredJob, conn_id: str = "", *, checks_owner: bool = True) -> Record:
        """Cancel a job if it is in flight; return its record if it ended. An error is a warning.

        :param conn_id: the connection of the service that has it, if not the task's own
        :param checks_owner: not if it belongs to another attempt
        """
        name = f"{self.kind.noun.capitalize()} {job.uuid}"
        try:
            if not checks_owner or self._state.owns(job.uuid):
                hook = self.hook_class(conn_id or self.conn_id)  # which may change during a long wait
                return cancel_in_worker(self.kind, hook, job.uuid, self.log, job.account) or {}
            self.log.warning("%s belongs to another attempt now: it is not cancelled.", name)
        except Exception as error:  # it must not hide why the task ends
            self.log.warning("%s could not be cancelled: %s", name, error)
        return {}

    def _finish(
        self, context: Context, result: WaitResult, deadline: Deadline, *, job: Any = None, **_: Any
    ) -> str:
        # `dag.test()` passes on the event alone.
        first = next(iter([*result.records, *result.pending]), "")
        self._job = submitted = StoredJob.parse(job or {"uuid": first})
        identifier, is_timeout = submitted.uuid, result.status == "timeout"
        record = self._mask(result.records.get(identifier, {}))
        error = error_for(result, [identifier], self.kind.noun)
        if is_timeout or record.get("status") in FINAL:
            self._job = StoredJob()
        if error is None:
            self.log.info("Completed %s %s after %.0f s.", self.kind.noun, identifier, result.seconds)
            self._count("completed")
            return identifier
        is_over = deadline.name != "execution_timeout" or is_last_attempt(self._ti)
        if is_timeout and not is_over and self._state.store is not None:
            self.log.info("The next attempt waits for %s again.", self.kind.describe([identifier]))
        elif is_timeout and self.cancel_on_kill:
            self.log.info("Timed out: cancelling %s, if it is in flight.", self.kind.describe([identifier]))
            ended, before = self._cancel(submitted), submitted.before
            is_stale = before and is_new_result(before, ended) is False
            if ended.get("status") == "COMPLETED" and not is_stale:  # while the task waited for a worker
                self._count("completed")
                return identifier
        if result.status != "error":  # then it is not known yet how the job ends
            self._count("failed")
            metrics.count(metrics.FAILURES, self.conn_id, failure_kind=error.failure_kind)
        raise deadline.timeout_error(error) if is_timeout else error

    def _mask(self, record: Record) -> Record:
        """Mask quotes, by the service, of an address that has a login or a signature."""
        if record.get("error"):
            record["error"] = mask_address(record["error"], self.address)
        return record

    def _count(self, outcome: str) -> None:
        metric = metrics.ASSESSMENTS if self.kind is ASSESSMENTS else metrics.DOCUMENTS
        metrics.count(metric, self.conn_id, outcome=outcome)

    def _is_gone(self) -> bool:
        """Return whether the service itself says that the job to process again does not exist."""
        return False

    def _submit(self) -> Record:
        self._before, given = None, self._input()  # before the submit, as it is sent
        intent = replace(given, intent=datetime.now(UTC).isoformat(timespec="seconds"))
        self._state.save(intent, ComplianceError)  # if the state path can't be written, nothing is submitted
        try:
            job = self.call(self.submit, self._is_gone)
        except (ComplianceUncertainError, ComplianceProtocolError):  # the service may have accepted it
            raise
        except ComplianceError:  # the service surely did not accept it
            self._state.save(StoredJob())
            raise
        identifier: str = getattr(job, self.kind.id_name)
        self.log.info("Submitted %s as %s %s.", self.source, self.kind.noun, identifier)
        try:
            self._state.save(replace(given, uuid=identifier, before=self._before), ComplianceSupersededError)
        except ComplianceSupersededError:
            # No other attempt knows this job, unless the service gives equal documents the same one.
            if self.cancel_on_kill and self._state.store.get(JOB_KEY).get("uuid") != identifier:
                self._cancel(StoredJob(uuid=identifier, account=given.account), checks_owner=False)
            raise
        if not self.wait_for_completion:
            self._count("submitted")
        return {self.kind.id_name: identifier, "status": str(job.status)}

    def _input(self) -> StoredJob:
        """Return the input of a job; a task does not re-attach to a stored job with another input."""
        account = self.hook.account_digest
        return StoredJob(
            source=self.source, fingerprint=self.fingerprint, connection=self.conn_id, account=account
        )

    def _previous_job(self) -> Record | None:
        """Return the job of a previous attempt if it can be used, and take ownership of it."""
        try:
            stored = self._state.read()
        except ComplianceStateError as error:
            self.log.warning("Submitting, perhaps for the second time: %s", error)
            return None
        given, identifier = self._input(), stored.uuid
        is_same = stored.has_same_input(given)
        if not identifier:
            if is_same and stored.intent:
                self.log.warning(
                    "A previous attempt ended while it submitted %s at %s: submitting again, though the "
                    "service may have accepted it.", self.source, stored.intent,
                )  # fmt: skip
            return None
        name = f"{self.kind.noun} {identifier} of a previous attempt"
        if not is_same:
            self.log.info("Another input than %s has: submitting again.", name)
            if self.cancel_on_kill:  # at the service and with the account that it was submitted with
                conn_id = "" if stored.account == given.account else stored.connection
                self._cancel(stored, conn_id, checks_owner=False)
            return None
        result = poll_in_worker(self.kind, self.hook, [identifier], self.log)
        if result.status == "error":
            raise polling_error(result)
        record = self._mask(result.records[identifier])
        status, reason = record["status"], record.get("error")
        before = stored.before
        is_new = is_new_result(before, record) if before else None
        is_in_flight = status not in FINAL or is_new is False  # the record is from before the refresh
        if not is_in_flight and (status != "COMPLETED" or self._state.is_cleared(stored)):
            self.log.info("Found %s %s%s: submitting again.", name, status, f" ({reason})" if reason else "")
            return None
        self._before = None if is_new else before
        given = replace(given, fingerprint=given.fingerprint or stored.fingerprint)
        self._state.save(replace(given, uuid=identifier, before=self._before), ComplianceSupersededError)
        self.log.info("Re-attached: %s is %s.", name, status)
        return record
