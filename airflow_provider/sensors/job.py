"""What the sensors have in common."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider.compat import apply_map_index_template
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.errors import as_non_retryable
from airflow_provider.params import as_seconds
from airflow_provider.waiting import rules as polling
from airflow_provider.waiting.results import Deadline, Record, WaitResult, error_for, is_transient
from airflow_provider.waiting.rules import outage_error
from airflow_provider.waiting.worker import WorkerWait, wait_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.exceptions import ComplianceError
    from airflow_provider.triggers.base import ComplianceWaitTrigger
    from airflow_provider.waiting.kinds import JobKind

OUTAGE_KEY = "compliance_outage"
OUTAGE_GAP_SECONDS = 300.0  # for a scheduler that is late, and a call that takes long


class ComplianceJobSensor(BaseSensorOperator):
    """Base of the sensors: wait until all of some work has come to its end.

    What failed, was cancelled or is not known fails the task without retries, or skips it with `soft_fail` or
    `never_fail`; the same when deferred and when not. A sensor never cancels anything.

    :param conn_id: the Airflow connection
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time between two polls, in seconds or as a timedelta; the same as
        `poke_interval`
    """

    kind: ClassVar[JobKind]
    hook_class: ClassVar[type[ComplianceHook]] = ComplianceHook
    ui_color = "#e2efe4"

    def __init__(
        self,
        *,
        conn_id: str = ComplianceHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        if poll_interval is not None:
            kwargs["poke_interval"] = as_seconds(poll_interval, "poll_interval")
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.deferrable = deferrable

    @property
    @abstractmethod
    def ids(self) -> list[str]:
        """What to wait for, without doubles."""

    @abstractmethod
    def make_trigger(self, ids: list[str], deadline: float) -> ComplianceWaitTrigger:
        """Return what waits in the triggerer."""

    def format_result(self, records: list[Record]) -> Any:
        """Return what the task returns, of the records in the order of the ids."""
        return records

    def execute(self, context: Context) -> Any:
        """Wait: in the triggerer, or here, or from time to time."""
        apply_map_index_template(self, context)
        ids = self.ids
        if not ids:
            self.log.info("There is no %s to wait for.", self.kind.noun)
            return self.format_result([])
        limit = Deadline.of(context, self.timeout, self.execution_timeout)
        if self.deferrable:
            self.log.info("Waiting for %s %ss in the triggerer.", len(ids), self.kind.noun)
            self.defer(
                trigger=self.make_trigger(ids, limit.deadline),
                method_name="execute_complete",
                kwargs={"limit": limit.name},
                timeout=limit.for_airflow,
            )
        try:
            if self.reschedule:
                return super().execute(context)
            hook = self.hook_class(self.conn_id)
            result = wait_in_worker(self.kind, hook, ids, self.poke_interval, limit.deadline, self.log)
        except (AirflowTaskTimeout, AirflowSensorTimeout) as error:
            raise self._skip_or_error(error) from None
        return self._finish(result, limit)

    def execute_complete(self, context: Context, event: Any = None, limit: str = "timeout") -> Any:
        """Go on after the trigger's event."""
        apply_map_index_template(self, context)
        return self._finish(WaitResult.from_event(event), Deadline(limit))

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Poll once; for `mode="reschedule"`."""
        hook = self.hook_class(self.conn_id)
        wait = WorkerWait(self.kind, hook, self.ids, self.poke_interval, self.log)
        pause = wait.poll()
        while wait.has_unknown and not wait.obstacle:
            # What is unknown is soon known, or surely gone; the next poke remembers nothing.
            time.sleep(pause)
            pause = wait.poll()
        error = wait.error or self._outage(context, wait.obstacle)
        if error:
            result = WaitResult("error", wait.ended, message=str(error), transient=error.transient)
        elif wait.left:
            return False
        else:
            result = WaitResult("success", wait.ended)
        return PokeReturnValue(is_done=True, xcom_value=self._finish(result, Deadline("timeout")))

    def _outage(self, context: Context, error: ComplianceError | None) -> ComplianceError | None:
        """Tell whether an outage lasts too long, over all pokes, where Airflow has a place to remember it."""
        store = context.get("task_state_store")
        if store is None or error is None or is_transient(error):
            return None
        now = time.time()
        outage: Any = store.get(OUTAGE_KEY) or {}
        # A poke that went well says nothing to the store: it is noticed by the gap that it leaves.
        if now - outage.get("last", 0.0) > 2 * self.poke_interval + OUTAGE_GAP_SECONDS:
            outage = {"since": now}
        seconds = now - outage["since"]
        if seconds >= polling.OUTAGE_SECONDS:
            store.delete(OUTAGE_KEY)
            return outage_error(error, seconds)
        store.set(OUTAGE_KEY, {**outage, "last": now})
        return None

    def _finish(self, result: WaitResult, limit: Deadline) -> Any:
        """Say how it ended; the one end of all ways of waiting."""
        ids = self.ids
        error = error_for(result, ids, self.kind.noun)
        if error is None:
            self.log.info(
                "All %s %ss are completed; waited %.0f s for them.", len(ids), self.kind.noun, result.seconds
            )
            return self.format_result([result.records[each] for each in ids])
        failure: BaseException = error
        if result.status != "timeout":
            failure = error if result.transient else as_non_retryable(error)
        elif limit.name == "timeout":
            failure = AirflowSensorTimeout(str(error))
        else:
            failure = limit.exceeded(error)
        raise self._skip_or_error(failure)

    def _skip_or_error(self, error: BaseException) -> BaseException:
        """Return what to raise: the error, or a skip where that is asked for."""
        if self.soft_fail or self.never_fail:
            return AirflowSkipException(f"Skipped instead of failed: {error}")
        return error
