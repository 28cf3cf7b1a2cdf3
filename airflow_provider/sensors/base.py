"""Base of the sensors."""

from __future__ import annotations

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

from airflow_provider.operators.base import WaitingOperator, entry_point
from airflow_provider.runtime.params import as_seconds, unique
from airflow_provider.waiting.results import Record, WaitResult, error_for
from airflow_provider.waiting.waits import Deadline, poll_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class ComplianceBaseSensor(WaitingOperator, BaseSensorOperator):
    """Base of the sensors: wait until all jobs or assessments are in a final state.

    A failed, cancelled or unknown one fails the task without retries, or skips it with `soft_fail` or
    `never_fail`, deferred or not. A sensor never cancels anything.

    :param poll_interval: longest time between two polls, in seconds or as a timedelta, by default 60 s; new
        jobs are polled more often, except with `mode="reschedule"`; the same as `poke_interval`
    :param timeout: how long to wait, in seconds or as a timedelta; by default `[sensors] default_timeout` of
        Airflow's configuration, seven days
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
        """The ids to wait for, as given: the result has a record for each."""

    @property
    def topic(self) -> object:
        """The subject of the task."""
        ids = unique(self.ids)
        return ids[0] if len(ids) == 1 else self.kind.describe(ids)

    def format_result(self, records: list[Record]) -> Any:
        """Return the result of the task; the records are in the order of the ids."""
        return records

    @entry_point
    def execute(self, context: Context) -> Any:
        """Wait: in the triggerer, in this worker, or from poke to poke."""
        ids = self.ids
        if not ids:
            self.log.info("No %ss to wait for.", self.kind.noun)
            return self.format_result([])
        self._check_submitted(context, ids)
        try:
            if self.reschedule and not self.deferrable:
                # Not by way of super(): Airflow 2.11 takes that for an operator inside another one.
                return unwrap(BaseSensorOperator.execute)(self, context)
            return self._wait_and_finish(context, unique(ids))
        except (AirflowTaskTimeout, AirflowSensorTimeout) as error:
            raise self._skip_or_error(error) from None

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume; if the trigger itself failed, fail or skip like for any other reason.

        Not needed when 3.1 is the oldest supported version of Airflow.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except AirflowSkipException:
            raise
        except AirflowException as error:
            raise self._skip_or_error(error) from None

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Poll; for `mode="reschedule"`. Like a poll in a worker, it outlasts an outage, for example."""
        result = poll_in_worker(self.kind, self.hook, unique(self.ids), self.log)
        if result.status == "success" and not result.is_final:
            return False
        return PokeReturnValue(is_done=True, xcom_value=self._finish(context, result, Deadline("timeout")))

    def _finish(self, context: Context, result: WaitResult, deadline: Deadline, **_: Any) -> Any:
        ids = unique(self.ids)
        error = error_for(result, ids, self.kind.noun)
        if error is None:
            self.log.info("All %s %ss are completed after %.0f s.", len(ids), self.kind.noun, result.seconds)
            return self.format_result([result.records[identifier] for identifier in self.ids])
        if result.status != "timeout":
            error.transient = result.transient
            raise self._skip_or_error(error)
        is_own = deadline.name == "timeout"
        raise self._skip_or_error(
            AirflowSensorTimeout(str(error)) if is_own else deadline.timeout_error(error)
        )

    def _skip_or_error(self, error: BaseException) -> BaseException:
        """Return what to raise: the error, or a skip if that is asked for."""
        if self.soft_fail or self.never_fail:
            return AirflowSkipException(f"Skipped instead of failed: {error}")
        return error
