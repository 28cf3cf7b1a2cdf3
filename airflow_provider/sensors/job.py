"""Base of the sensors."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider.hooks.interop import as_non_retryable
from airflow_provider.operators.base import ComplianceBaseOperator, WaitMixin, entry_point
from airflow_provider.params import as_seconds
from airflow_provider.waiting import rules
from airflow_provider.waiting.results import Deadline, Record, WaitResult, error_for
from airflow_provider.waiting.worker import WorkerWait

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.exceptions import ComplianceError

OUTAGE_KEY = "compliance_outage"
OUTAGE_GAP_SECONDS = 300.0  # for a late scheduler and a slow request


class ComplianceJobSensor(WaitMixin, ComplianceBaseOperator, BaseSensorOperator):
    """Base of the sensors: wait until all jobs or assessments are in a final state.

    One that failed, was cancelled or is unknown fails the task without retries, or skips it with `soft_fail`
    or `never_fail`; the same when deferred. A sensor never cancels anything.

    :param conn_id: the Airflow connection
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: seconds or timedelta between two polls at most; the same as `poke_interval`
    """

    ui_color = "#e2efe4"

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        if poll_interval is not None:
            kwargs["poke_interval"] = as_seconds(poll_interval, "poll_interval")
        super().__init__(**kwargs)
        self.deferrable = deferrable

    @property
    def longest_poll_interval(self) -> float:
        """Seconds between two polls at most."""
        return self.poke_interval

    @property
    @abstractmethod
    def ids(self) -> list[str]:
        """What to wait for, de-duplicated."""

    @property
    def topic(self) -> object:
        """What the task is about."""
        ids = self.ids
        return ids[0] if len(ids) == 1 else f"{len(ids)} {self.kind.noun}s"

    def format_result(self, records: list[Record]) -> Any:
        """Return what the task returns; the records are in the order of the ids."""
        return records

    @entry_point
    def execute(self, context: Context) -> Any:
        """Wait: in the triggerer, in this worker, or from poke to poke."""
        ids = self.ids
        if not ids:
            self.log.info("There are no %ss to wait for.", self.kind.noun)
            return self.format_result([])
        try:
            if self.reschedule and not self.deferrable:
                return super().execute(context)
            return self._wait_and_finish(context, ids)
        except (AirflowTaskTimeout, AirflowSensorTimeout) as error:
            raise self._skip_or_error(error) from None

    @entry_point
    def execute_complete(self, context: Context, event: Any = None, limit: str = "timeout") -> Any:
        """Resume after the trigger's event."""
        return self._resume(context, event, limit)

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Poll once; for `mode="reschedule"`."""
        wait = WorkerWait(self.kind, self.hook, self.ids, self.poke_interval, self.log)
        pause = wait.poll()
        while wait.has_unknown and not wait.last_error:
            # An unknown job is soon known, or gone for good; the next poke remembers nothing.
            time.sleep(pause)
            pause = wait.poll()
        error = wait.fatal_error or self._outage(context, wait.last_error)
        if error:
            result = WaitResult("error", wait.ended, message=str(error), transient=error.transient)
        elif wait.pending:
            return False
        else:
            result = WaitResult("success", wait.ended)
        return PokeReturnValue(is_done=True, xcom_value=self._finish(context, result, Deadline("timeout")))

    def _outage(self, context: Context, error: ComplianceError | None) -> ComplianceError | None:
        """Return the error that ends a long outage, over all pokes, if Airflow has a store to remember it."""
        store = context.get("task_state_store")
        if store is None or error is None or error.transient:
            return None
        now = time.time()
        outage: Any = store.get(OUTAGE_KEY) or {}
        # A successful poke writes nothing: it is noticed by the gap that it leaves.
        if now - outage.get("last", 0.0) > 2 * self.poke_interval + OUTAGE_GAP_SECONDS:
            outage = {"since": now}
        seconds = now - outage["since"]
        if seconds >= rules.OUTAGE_SECONDS:
            store.delete(OUTAGE_KEY)
            return rules.outage_error(error, seconds)
        store.set(OUTAGE_KEY, {**outage, "last": now})
        return None

    def _finish(self, context: Context, result: WaitResult, deadline: Deadline, **_: Any) -> Any:
        ids = self.ids
        error = error_for(result, ids, self.kind.noun)
        if error is None:
            self.log.info("All %s %ss are completed after %.0f s.", len(ids), self.kind.noun, result.seconds)
            return self.format_result([result.records[each] for each in ids])
        failure: BaseException = error
        if result.status != "timeout":
            failure = error if result.transient else as_non_retryable(error)
        elif deadline.name == "timeout":
            failure = AirflowSensorTimeout(str(error))
        else:
            failure = deadline.timeout_error(error)
        raise self._skip_or_error(failure)

    def _skip_or_error(self, error: BaseException) -> BaseException:
        """Return what to raise: the error, or a skip if that is asked for."""
        if self.soft_fail or self.never_fail:
            return AirflowSkipException(f"Skipped instead of failed: {error}")
        return error
