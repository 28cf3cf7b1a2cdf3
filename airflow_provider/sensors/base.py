"""Base of the sensors."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import timedelta
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
)

from airflow_provider.exceptions import ComplianceError, ComplianceStateError
from airflow_provider.hooks.non_retryable import as_non_retryable
from airflow_provider.operators.base import WaitingOperator, entry_point
from airflow_provider.params import as_seconds, unique
from airflow_provider.storage.task_state import open_state_store
from airflow_provider.waiting import rules
from airflow_provider.waiting.deadlines import Deadline
from airflow_provider.waiting.results import Record, WaitResult, error_for
from airflow_provider.waiting.waits import wait_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

OUTAGE_KEY = "compliance_outage"
OUTAGE_GAP_SECONDS = 300.0  # for a late scheduler and a slow request


class ComplianceBaseSensor(WaitingOperator, BaseSensorOperator):
    """Base of the sensors: wait until all jobs or assessments are in a final state.

    One that failed, was cancelled or is unknown fails the task without retries, or skips it with `soft_fail`
    or `never_fail`; the same when deferred. A sensor never cancels anything.

    :param poll_interval: seconds or timedelta between two polls at most, by default 60 s; new jobs are polled
        more often, except with `mode="reschedule"`; the same as `poke_interval`
    :param timeout: seconds or timedelta to wait; by default `[sensors] default_timeout` of Airflow's
        configuration, seven days
    """

    ui_color = "#e2efe4"

    def __init__(self, *, poll_interval: float | timedelta | None = None, **kwargs: Any) -> None:
        if poll_interval is not None:
            kwargs["poke_interval"] = as_seconds(poll_interval, "poll_interval")
        super().__init__(**kwargs)
        self.poll_interval = self.poke_interval

    @property
    @abstractmethod
    def ids(self) -> list[str]:
        """What to wait for, as given: the result has a record for each."""

    @property
    def topic(self) -> object:
        """What the task is about."""
        ids = unique(self.ids)
        return ids[0] if len(ids) == 1 else self.kind.describe(ids)

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
                # Not by way of super(): Airflow 2.11 takes that for an operator inside another one.
                return unwrap(BaseSensorOperator.execute)(self, context)
            return self._wait_and_finish(context, unique(ids))
        except (AirflowTaskTimeout, AirflowSensorTimeout) as error:
            raise self._skip_or_error(error) from None

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume; if the trigger itself has failed, fail or skip like for any other reason.

        Not needed when 3.1 is the oldest supported version of Airflow.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except AirflowSkipException:
            raise
        except AirflowException as error:
            raise self._skip_or_error(error) from None

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Poll once; for `mode="reschedule"`."""
        result = self._poll(0.0)
        if result.pending and not result.message:
            # An unknown job is soon known, or gone for good; the next poke remembers nothing.
            result = self._poll(rules.UNKNOWN_SECONDS + rules.LAST_POLL_SECONDS)
        if result.status == "timeout":
            if not (message := self._outage(context, result)):
                return False
            result = WaitResult("error", message=message, transient=True)
        elif not result.is_final:
            return False
        return PokeReturnValue(is_done=True, xcom_value=self._finish(context, result, Deadline("timeout")))

    def _poll(self, seconds: float) -> WaitResult:
        """Return the state of each that can be polled in this time, final or not."""
        deadline = time.time() + seconds
        return wait_in_worker(
            self.kind, self.hook, unique(self.ids), self.poll_interval, deadline, self.log, rules.accept_any
        )

    def _outage(self, context: Context, result: WaitResult) -> str:
        """Return why a long outage, over all pokes, ends the wait, if there is a store to remember it."""
        if not result.message or result.transient:
            return ""
        try:
            store = open_state_store(context, self.hook)
            return "" if store is None else self._track_outage(store, result.message)
        except ComplianceError as error:  # of the store: without it, a sensor waits until its timeout
            self.log.warning("Could not store when the outage began: %s", error)
            return ""

    def _track_outage(self, store: Any, message: str) -> str:
        now = time.time()
        since = last = 0.0
        try:
            if outage := store.get(OUTAGE_KEY):
                since, last = float(outage["since"]), float(outage["last"])
        except (ComplianceStateError, TypeError, KeyError, ValueError) as error:
            self.log.warning("The record of the outage is damaged, so it counts from now on: %s", error)
        # A successful poke writes nothing: it is noticed by the gap that it leaves.
        if now - last > 2 * self.poke_interval + OUTAGE_GAP_SECONDS:
            since = now
        seconds = now - since
        if seconds >= rules.OUTAGE_SECONDS:
            store.set(OUTAGE_KEY, {})
            return rules.outage_message(seconds, message)
        store.set(OUTAGE_KEY, {"since": since, "last": now})
        return ""

    def _finish(self, context: Context, result: WaitResult, deadline: Deadline, **_: Any) -> Any:
        ids = unique(self.ids)
        error = error_for(result, ids, self.kind.noun)
        if error is None:
            self.log.info("All %s %ss are completed after %.0f s.", len(ids), self.kind.noun, result.seconds)
            return self.format_result([result.records[identifier] for identifier in self.ids])
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
