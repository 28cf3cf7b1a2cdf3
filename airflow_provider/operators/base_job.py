"""Base of the operators that submit something to the service and may wait for it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSkipException, conf

from airflow_provider import metrics
from airflow_provider.compat import ON_KILL_ENDS_TASK, read_task_state
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInterruptedError,
    ComplianceProtocolError,
    ComplianceStateError,
    ComplianceSupersededError,
    ComplianceUncertainError,
)
from airflow_provider.hooks.compliance import check_hook_class
from airflow_provider.operators.base import (
    JOB_URL,
    ComplianceBaseOperator,
    ComplianceJobLink,
    WaitMixin,
    entry_point,
    fails_for_good,
)
from airflow_provider.params import as_seconds
from airflow_provider.storage.task_state import (
    JOB_KEY,
    SubmitState,
    has_same_input,
    open_state_store,
)
from airflow_provider.text import mask_address
from airflow_provider.triggers.base import ENDED_TASK
from airflow_provider.waiting.deadlines import Deadline
from airflow_provider.waiting.kinds import ASSESSMENTS
from airflow_provider.waiting.results import FINAL, UNKNOWN, Record, WaitResult, error_for, polling_error
from airflow_provider.waiting.rules import RefreshCheck, accept_final, is_new_result
from airflow_provider.waiting.waits import cancel_in_worker, poll_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.client.models import Assessment, ContentJob
    from airflow_provider.hooks.compliance import ComplianceHook

CANCEL_GRACE_SECONDS = 15.0  # for the cancellation of a killed task's job
# With stored state, Airflow is asked for the owner first. On Airflow 3 the task continues after `on_kill`,
# and is killed 5 s after the signal: so `on_kill` may return before its thread is done, and must, if the
# interrupted code holds a lock.
CANCEL_GRACE_SECONDS_WITH_STORE = 3.0
CLEARED = "restarting"  # the state of a task that was cleared while it ran


class ComplianceBaseJobOperator(WaitMixin, ComplianceBaseOperator):
    """Base of the operators that submit something to the service and may wait for it.

    A retry re-attaches to the job of the previous attempt: it keeps waiting for a job in flight, returns a
    completed one, and submits again what failed or is gone. A clear re-attaches to a job in flight only,
    because clear means run again. Both submit again if the input has changed, and cancel the superseded job
    if it is in flight. The job is stored below the connection's `state_path`, else in Airflow's task state
    store (since 3.3); without either, every attempt submits.

    A task that fails for good, without a retry, cancels its job if it is in flight.

    :param wait_for_completion: succeed when the job is completed; otherwise, by default, as soon as it is
        submitted
    :param deferrable: wait in the triggerer, not in a worker; by default `[operators] default_deferrable`
        of Airflow's configuration
    :param poll_interval: seconds or timedelta between two polls at most, by default 30 s; a new job is polled
        more often
    :param timeout: seconds or timedelta to wait, by default one day; then the job is cancelled and the task
        fails
    :param cancel_on_kill: cancel a job in flight when the task is killed, marked, timed out or fails for
        good; on by default
    """

    _supports_durable_execution: ClassVar[bool] = True
    operator_extra_links = (ComplianceJobLink(),)
    ui_color = "#dce8f5"

    def __init__(
        self,
        *,
        wait_for_completion: bool = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | timedelta = 30.0,
        timeout: float | timedelta = 24 * 3600.0,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.poll_interval = as_seconds(poll_interval, "poll_interval")
        self.timeout = as_seconds(timeout, "timeout")
        self.cancel_on_kill = cancel_on_kill
        self._id: str | None = None
        self._before: Record | None = None
        self._account = ""  # of the job
        self._ti: Any = None
        self._state = SubmitState(None, None, None)
        self._killing: threading.Thread | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """The input; a stored job of another input is not re-attached to."""

    @property
    def address(self) -> str:
        """The input as it was given, where it may have a login or a signature."""
        return ""

    @property
    def topic(self) -> object:
        """What the task is about."""
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
        self._prepare(context, open_state_store(context, self.hook))
        if self.deferrable and self.wait_for_completion:
            check_hook_class(self.hook_class)  # before a job is submitted that could not be waited for
        with self._cancelling_at_the_end():
            if record := self._previous_job():
                return self._wait_or_return(context, record, is_reattached=True)
            return self._wait_or_return(context, self._submit())

    def execute_complete(  # decorated in the base class: a second time would log errors twice
        self,
        context: Context,
        event: Any = None,
        limit: str = "timeout",
        *,
        before: Record | None = None,
        **resumed: Any,
    ) -> str:
        """Resume after the trigger's event."""
        self._before = before
        self._resume(context)
        self._id = resumed.get("uuid")
        with self._cancelling_at_the_end():
            identifier: str = super().execute_complete(context, event, limit, **resumed)
        return identifier

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume; if the trigger itself has failed, Airflow drops what was kept for `execute_complete`."""
        if next_method != "__fail__":
            return super().resume_execution(next_method, next_kwargs, context)
        self._resume(context)
        with self._cancelling_at_the_end():
            try:
                return super().resume_execution(next_method, next_kwargs, context)
            except Exception:
                self._id = self._stored_id()
                raise

    def _stored_id(self) -> str | None:
        """Return which job an attempt has waited for."""
        try:
            return self._state.read().get("uuid")
        except Exception as error:
            self.log.warning("Could not find out which %s to cancel: %s", self.kind.noun, error)
            return None

    def _resume(self, context: Context) -> None:
        """Open the store again; the end of a wait can do without it."""
        try:
            self._prepare(context, open_state_store(context, self.hook))
        except Exception as error:  # also of a secrets backend
            self.log.warning("The state of this task is not available: %s", error)
            self._prepare(context, None, error)

    def _prepare(self, context: Context, store: Any, error: Exception | None = None) -> None:
        """Keep what `on_kill` needs, because it gets no context."""
        self._ti = context.get("ti")
        self._state = SubmitState(store, self._ti, self.log, error)

    @contextmanager
    def _cancelling_at_the_end(self) -> Iterator[None]:
        """Cancel the job in flight if an error fails the task for good: no attempt will wait for it."""
        try:
            yield
        except AirflowSkipException:
            raise
        except Exception as error:
            if self._id and self.cancel_on_kill and fails_for_good(error, self._ti):
                self.log.info("The task fails for good: its job is cancelled, if it is in flight.")
                self._cancel_own(self._id)
            raise

    def _wait_or_return(self, context: Context, record: Record, *, is_reattached: bool = False) -> str:
        """Wait for a job if asked to.

        :param is_reattached: it is the job of a previous attempt
        """
        self._id = identifier = str(record[self.kind.id_name])
        self._account = self.hook.account_digest
        # Even an empty link: Airflow logs an error for a link whose XCom is missing.
        context["ti"].xcom_push(key=JOB_URL, value=self.console_url(identifier) or "")
        if not self.wait_for_completion:
            return self._done(identifier)
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
            uuid=identifier,
            is_reattached=is_reattached,
            before=self._before,
            account=self._account,
        )
        return result

    def on_kill(self) -> None:
        """Cancel the job, if it is in flight and belongs to this attempt."""
        if not self._id or not self.cancel_on_kill or self._killing:
            return
        # In a thread: this runs in a signal handler, and the interrupted code may hold a lock.
        self._killing = threading.Thread(target=self._kill, args=(self._id,), daemon=True)
        self._killing.start()
        must_wait = ON_KILL_ENDS_TASK or not self._state.is_persistent
        self._killing.join(CANCEL_GRACE_SECONDS if must_wait else CANCEL_GRACE_SECONDS_WITH_STORE)

    def _kill(self, identifier: str) -> None:
        name = f"{self.kind.noun} {identifier}"
        try:
            if self._state.is_in_object_storage:
                state = read_task_state(self._ti)
                if state not in (*ENDED_TASK, "running"):
                    self.log.info("The task is %s, not ended: %s is not cancelled.", state, name)
                    return
            self.log.info("The task was killed: cancelling %s, if it is in flight.", name)
            hook = self.hook_class(self.conn_id)
            if self._is_forgotten(identifier):
                cancel_in_worker(self.kind, hook, identifier, self.log, self._account)
            else:
                self._cancel_own(identifier, hook)
        except Exception as error:
            self.log.warning("The task was killed, but %s could not be cancelled: %s", name, error)

    def _is_forgotten(self, identifier: str) -> bool:
        """Return whether a clear has emptied Airflow's store, so that no other attempt knows the job."""
        if self._state.survives_clear or self._state.owns(identifier):
            return False
        return read_task_state(self._ti) == CLEARED

    def _cancel_own(self, identifier: str, hook: ComplianceHook | None = None) -> Record | None:
        """Cancel a job if it is in flight and belongs to this attempt; return its record if it has ended."""
        name = f"{self.kind.noun.capitalize()} {identifier}"
        try:
            if not self._state.owns(identifier):
                self.log.warning("%s belongs to another attempt now: it is not cancelled.", name)
                return None
            return cancel_in_worker(self.kind, hook or self.renew_hook(), identifier, self.log, self._account)
        except Exception as error:  # it must not hide why the task ends
            self.log.warning("%s could not be cancelled: %s", name, error)
            return None

    def _finish(
        self,
        context: Context,
        result: WaitResult,
        deadline: Deadline,
        *,
        uuid: str = "",
        is_reattached: bool = False,
        account: str = "",
        **_: Any,
    ) -> str:
        self._account = account
        # `dag.test()` passes on the event alone.
        identifier = uuid or next(iter([*result.records, *result.pending]), "")
        name = f"{self.kind.noun.capitalize()} {identifier}"
        record = self._mask(result.records.get(identifier, {}))
        status = record.get("status")
        if is_reattached and status in ("CANCELLED", UNKNOWN):
            self.log.info("%s of a previous attempt was cancelled meanwhile: submitting again.", name)
            self._before = self._id = None
            self.renew_hook()
            return self._wait_or_return(context, self._submit())
        error = error_for(result, [identifier], self.kind.noun)
        if error is None:
            self.log.info("%s is completed after %.0f s.", name, result.seconds)
            self._count("completed")
            return self._done(identifier)
        if result.status != "timeout":
            if result.status == "success":  # it has ended, but not well; otherwise that is not known yet
                self._count("failed")
            if status in FINAL:
                self._id = None
            raise error
        ended, self._id = None, None
        if self.cancel_on_kill and identifier:
            self.log.info("Timed out: cancelling %s, if it is in flight.", self.kind.describe([identifier]))
            ended = self._cancel_own(identifier)
        if ended and ended["status"] == "COMPLETED" and not self._is_stale(ended):
            self.log.info("%s was completed at the last moment.", name)
            self._count("completed")
            return self._done(identifier)
        self._count("failed")
        raise deadline.timeout_error(error)

    def _mask(self, record: Record) -> Record:
        """Mask what the service quotes of an address that has a login or a signature."""
        if record.get("error"):
            record["error"] = mask_address(record["error"], self.address)
        return record

    def _count(self, outcome: str) -> None:
        metric = metrics.ASSESSMENTS if self.kind is ASSESSMENTS else metrics.DOCUMENTS
        metrics.count(metric, self.conn_id, outcome=outcome)

    def _done(self, identifier: str) -> str:
        """Return the id; a kill from now on does not cancel the job."""
        self._id = None
        return identifier

    def _submit(self) -> Record:
        if self._killing:
            self._killing.join(CANCEL_GRACE_SECONDS)
            raise ComplianceInterruptedError("The task was killed: nothing more is submitted.")
        given = self._input() if self._state.is_persistent else {}  # before the submit, as it is sent
        self._state.save_intent(given)
        try:
            job = self.submit()
        except (ComplianceUncertainError, ComplianceProtocolError):  # the service may have accepted it
            raise
        except ComplianceError:  # the service surely has not accepted it
            self._state.remove_intent()
            raise
        identifier: str = getattr(job, self.kind.id_name)
        self.log.info("Submitted %s as %s %s.", self.source, self.kind.noun, identifier)
        try:
            self._state.save_job(identifier, given, self._before)
        except ComplianceSupersededError:
            # No other attempt knows this job, unless the service gives equal documents the same one.
            if self.cancel_on_kill and self._state.store.get(JOB_KEY).get("uuid") != identifier:
                cancel_in_worker(self.kind, self.hook, identifier, self.log)
            raise
        if not self.wait_for_completion:
            self._count("submitted")
        return {self.kind.id_name: identifier, "status": str(job.status)}

    def _input(self) -> dict[str, Any]:
        """Return what a job is for; a stored one for another input is not re-attached to."""
        return {
            "source": self.source,
            "fingerprint": self.fingerprint,
            "connection": self.conn_id,
            "account": self.hook.account_digest,
        }

    def _read_state(self) -> dict[str, Any]:
        try:
            return self._state.read()
        except ComplianceStateError as error:
            self.log.warning("Submitting, perhaps for the second time: %s", error)
            return {}

    def _previous_job(self) -> Record | None:
        """Return the job of a previous attempt if it can be used, and take ownership of it."""
        stored = self._read_state()
        identifier = str(stored.get("uuid") or "")
        if not identifier and not stored.get("intent"):
            return None
        given = self._input()
        if not identifier:
            self._warn_of_intent(stored, given)
            return None
        name = f"{self.kind.noun.capitalize()} {identifier} of a previous attempt"
        if not has_same_input(stored, given):
            self.log.info("%s has another input: submitting again.", name)
            if self.cancel_on_kill:
                self._cancel_superseded(stored, identifier)
            return None
        result = poll_in_worker(self.kind, self.hook, [identifier], self.log)
        if result.status == "error":
            raise polling_error(result)
        record = self._mask(result.records[identifier])
        status, reason = record["status"], record.get("error")
        self._before = stored.get("before")
        is_stale = self._is_stale(record)
        if self._before and is_new_result(self._before, record):
            self._before = None
        if status not in FINAL or is_stale:
            pass  # in flight
        elif status != "COMPLETED" or self._state.is_cleared(stored):
            self.log.info("%s is %s%s: submitting again.", name, status, f" ({reason})" if reason else "")
            self._before = None
            return None
        given["fingerprint"] = given["fingerprint"] or stored.get("fingerprint")
        self._state.save_job(identifier, given, self._before)
        self.log.info("Re-attached: %s is %s.", name[0].lower() + name[1:], status)
        return record

    def _cancel_superseded(self, stored: dict[str, Any], identifier: str) -> None:
        """Cancel a job for another input, at the service and with the account that it was submitted with."""
        name = f"{self.kind.noun.capitalize()} {identifier}"
        try:
            hook = self.hook
            if stored.get("account") != hook.account_digest:
                hook = self.hook_class(str(stored.get("connection")))
            if stored.get("account") != hook.account_digest:
                self.log.warning("%s is not cancelled: its connection has another host or account now.", name)
                return
            cancel_in_worker(self.kind, hook, identifier, self.log)
        except Exception as error:  # the old connection may be gone, and this attempt does not need it
            self.log.warning("%s is not cancelled: %s", name, error)

    def _warn_of_intent(self, stored: dict[str, Any], given: dict[str, Any]) -> None:
        """Log that an attempt ended while it submitted the same input, so that it may be submitted twice."""
        if has_same_input(stored, given):
            self.log.warning(
                "A previous attempt ended while it submitted %s at %s: submitting again, though the service "
                "may have accepted it.", self.source, stored["intent"],
            )  # fmt: skip

    def _is_stale(self, record: Record) -> bool:
        """Return whether a record is from before the job was refreshed."""
        return self._before is not None and is_new_result(self._before, record) is False
