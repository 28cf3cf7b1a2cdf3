"""Base of the operators that submit something to the service and may wait for it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import conf

from airflow_provider.compat import is_durable
from airflow_provider.exceptions import ComplianceInterruptedError
from airflow_provider.hooks.compliance import check_hook_class
from airflow_provider.operators.base import (
    JOB_URL,
    ComplianceBaseOperator,
    ComplianceJobLink,
    WaitMixin,
    entry_point,
)
from airflow_provider.params import as_seconds
from airflow_provider.waiting.deadlines import Deadline
from airflow_provider.waiting.results import FINAL, UNKNOWN, Record, WaitResult, error_for, polling_error
from airflow_provider.waiting.rules import RefreshCheck, accept_final, is_new_result
from airflow_provider.waiting.waits import cancel_in_worker, poll_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.client.models import Assessment, ContentJob

STATE_KEY = "compliance_job"
CANCEL_GRACE_SECONDS = 15.0  # for the cancellation of a killed task's job
# With a state store (Airflow 3.3) the task continues after `on_kill`, and is killed 5 s after the signal: so
# `on_kill` may return before its thread is done, and must, if the interrupted code holds a lock.
CANCEL_GRACE_SECONDS_WITH_STORE = 3.0


class ComplianceBaseJobOperator(WaitMixin, ComplianceBaseOperator):
    """Base of the operators that submit something to the service and may wait for it.

    A retry re-attaches to the job of the previous attempt (Airflow 3.3 and newer): it keeps waiting for a job
    in flight, returns a completed one, and submits again what failed or is gone. A clear re-attaches to a job
    in flight only, because clear means run again. Both submit again if the input has changed, and cancel the
    superseded job if it is in flight.

    :param conn_id: the Airflow connection
    :param wait_for_completion: succeed when the job is completed; otherwise as soon as it is submitted
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: seconds or timedelta between two polls at most; a new job is polled more often
    :param timeout: seconds or timedelta to wait; then the job is cancelled and the task fails
    :param cancel_on_kill: cancel a job in flight when the task is killed, marked or timed out
    :param durable: re-attach to the job of a previous attempt (Airflow 3.3 and newer)
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
        durable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.poll_interval = as_seconds(poll_interval, "poll_interval")
        self.timeout = as_seconds(timeout, "timeout")
        self.cancel_on_kill = cancel_on_kill
        self.durable = is_durable(durable)
        self._id: str | None = None
        self._before: Record | None = None
        self._store: Any = None
        self._try_number = 0
        self._killing: threading.Thread | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """The input; a stored job of another input is not re-attached to."""

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

    def resubmit(self, identifier: str) -> bool:
        """Have the service process a failed job of a previous attempt again; False means: submit it again."""
        return False

    def console_url(self, identifier: str) -> str | None:
        """Return where a person finds the job, if the connection says so."""
        return self.hook.console_url(identifier)

    @entry_point
    def execute(self, context: Context) -> str:
        """Submit or re-attach, then wait if asked to."""
        self._prepare_for_kill(context)
        if self.deferrable and self.wait_for_completion:
            check_hook_class(self.hook_class)  # before a job is submitted that nobody could wait for
        if record := self._previous_job(context):
            return self._wait_or_return(context, record, is_reattached=True)
        return self._wait_or_return(context, self._submit(context))

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
        self._prepare_for_kill(context)
        identifier: str = super().execute_complete(context, event, limit, **resumed)
        return identifier

    def _prepare_for_kill(self, context: Context) -> None:
        """Keep what `on_kill` needs, because it gets no context."""
        self._store = context.get("task_state_store") if self.durable else None
        self._try_number = getattr(context.get("ti"), "try_number", 0)

    def _wait_or_return(self, context: Context, record: Record, *, is_reattached: bool = False) -> str:
        """Wait for a job if asked to.

        :param is_reattached: it is the job of a previous attempt
        """
        self._id = identifier = str(record[self.kind.id_name])
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
                "is_durable": self.durable,
                **({"before": before} if before else {}),
            },
            uuid=identifier,
            is_reattached=is_reattached,
            before=self._before,
        )
        return result

    def on_kill(self) -> None:
        """Cancel the job, if it is in flight and belongs to this attempt."""
        if not self._id or not self.cancel_on_kill or self._killing:
            return
        # In a thread: this runs in a signal handler, and the interrupted code may hold a lock.
        self._killing = threading.Thread(target=self._kill, args=(self._id,), daemon=True)
        self._killing.start()
        self._killing.join(CANCEL_GRACE_SECONDS if self._store is None else CANCEL_GRACE_SECONDS_WITH_STORE)

    def _kill(self, identifier: str) -> None:
        name = f"{self.kind.noun} {identifier}"
        try:
            if self._store is not None:
                # Airflow returns nothing to an attempt that has been superseded.
                stored: Any = self._store.get(STATE_KEY)
                stored = stored if isinstance(stored, dict) else {}
                if (stored.get("uuid"), stored.get("try_number")) != (identifier, self._try_number):
                    self.log.warning("%s belongs to another attempt now: it is not cancelled.", name)
                    return
            self.log.info("The task was killed: cancelling %s, if it is in flight.", name)
            cancel_in_worker(self.kind, self.hook_class(self.conn_id), identifier, self.log)
        except Exception as error:
            self.log.warning("The task was killed, but %s could not be cancelled: %s", name, error)

    def _finish(
        self,
        context: Context,
        result: WaitResult,
        deadline: Deadline,
        *,
        uuid: str = "",
        is_reattached: bool = False,
        **_: Any,
    ) -> str:
        # `dag.test()` passes on the event alone.
        identifier = uuid or next(iter([*result.records, *result.pending]), "")
        name = f"{self.kind.noun.capitalize()} {identifier}"
        status = result.records.get(identifier, {}).get("status")
        if is_reattached and status in ("CANCELLED", UNKNOWN):
            self.log.info("%s of a previous attempt was cancelled meanwhile: submitting again.", name)
            self._before = None
            self.renew_hook()
            return self._wait_or_return(context, self._submit(context))
        error = error_for(result, [identifier], self.kind.noun)
        if error is None:
            self.log.info("%s is completed after %.0f s.", name, result.seconds)
            return self._done(identifier)
        if result.status != "timeout":
            raise error
        ended = None
        if self.cancel_on_kill and identifier:
            self.log.info("Timed out: cancelling %s, if it is in flight.", self.kind.describe([identifier]))
            ended = cancel_in_worker(self.kind, self.renew_hook(), identifier, self.log)
        if ended and ended["status"] == "COMPLETED" and not self._is_stale(ended):
            self.log.info("%s was completed at the last moment.", name)
            return self._done(identifier)
        raise deadline.timeout_error(error)

    def _done(self, identifier: str) -> str:
        """Return the id; a kill from now on does not cancel the job."""
        self._id = None
        return identifier

    def _submit(self, context: Context) -> Record:
        if self._killing:
            self._killing.join(CANCEL_GRACE_SECONDS)
            raise ComplianceInterruptedError("The task was killed: nothing more is submitted.")
        # Before the submit, because it describes what is sent.
        fingerprint = None if self._store is None else self.fingerprint
        job = self.submit()
        identifier: str = getattr(job, self.kind.id_name)
        self.log.info("Submitted %s as %s %s.", self.source, self.kind.noun, identifier)
        self._save(context, identifier, fingerprint)
        return {self.kind.id_name: identifier, "status": str(job.status)}

    def _save(self, context: Context, identifier: str, fingerprint: str | None) -> None:
        """Store for later attempts which job there is, for which input, and which attempt owns it."""
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
        except Exception as error:  # of Airflow's API: the job is there, and this attempt can wait for it
            self.log.warning(
                "%s %s can't be stored for later attempts, which would submit again: %s",
                self.kind.noun.capitalize(), identifier, error,
            )  # fmt: skip

    def _previous_job(self, context: Context) -> Record | None:
        """Return the job of a previous attempt if it can be used, and take ownership of it."""
        stored: Any = None if self._store is None else self._store.get(STATE_KEY)
        if not isinstance(stored, dict) or not stored.get("uuid"):
            return None
        identifier = str(stored["uuid"])
        name = f"{self.kind.noun.capitalize()} {identifier} of a previous attempt"
        fingerprint = self.fingerprint
        # An unknown fingerprint says nothing about a change.
        is_changed = bool(fingerprint and stored.get("fingerprint")) and fingerprint != stored["fingerprint"]
        if stored.get("source") != self.source or is_changed:
            self.log.info("%s has another input: submitting again.", name)
            if self.cancel_on_kill:
                cancel_in_worker(self.kind, self.hook, identifier, self.log)
            return None
        result = poll_in_worker(self.kind, self.hook, [identifier], self.log)
        if result.status == "error":
            raise polling_error(result)
        record = result.records[identifier]
        status, reason = record["status"], record.get("error")
        self._before = stored.get("before")
        is_stale = self._is_stale(record)
        if self._before and is_new_result(self._before, record):
            self._before = None
        # A clear raises `max_tries`; a retry does not.
        max_tries = context["ti"].max_tries
        is_cleared = stored.get("max_tries", max_tries) != max_tries
        if status not in FINAL or is_stale:
            pass  # in flight
        elif status == "FAILED" and self.resubmit(identifier):
            self.log.info("%s failed (%s): refreshing it.", name, reason)
            self._before = record
        elif status != "COMPLETED" or is_cleared:
            self.log.info("%s is %s (%s): submitting again.", name, status, reason)
            self._before = None
            return None
        self._save(context, identifier, fingerprint or stored.get("fingerprint"))
        self.log.info("Re-attached: %s is %s.", name[0].lower() + name[1:], status)
        return record

    def _is_stale(self, record: Record) -> bool:
        """Tell whether a record is from before the job was refreshed."""
        return self._before is not None and is_new_result(self._before, record) is False
