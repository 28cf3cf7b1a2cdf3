"""How long to wait."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, NamedTuple

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider.exceptions import ComplianceError

STOP_SECONDS = 10.0  # before Airflow stops a task by its `execution_timeout`, to end it in order
EVENT_GRACE_SECONDS = 120.0  # after our own deadline, for the trigger's event to arrive


class Deadline(NamedTuple):
    """How long a task may wait: a duration, because the clocks of workers and triggerers may differ.

    :param name: the parameter that sets it: `timeout` or `execution_timeout`
    :param seconds: from now on; 0 where the wait is over
    """

    name: str
    seconds: float = 0.0

    @classmethod
    def for_task(cls, context: Any, timeout: float, execution_timeout: timedelta | None) -> Deadline:
        """Take the earlier of our timeout and Airflow's, which does not count while a task is deferred."""
        own = cls("timeout", timeout)
        if execution_timeout is None:
            return own
        started, seconds = context["ti"].start_date, execution_timeout.total_seconds()
        passed = max(0.0, time.time() - started.timestamp()) if started else 0.0
        airflows = cls("execution_timeout", max(0.0, seconds - passed - min(STOP_SECONDS, seconds / 10)))
        return min(own, airflows, key=lambda deadline: deadline.seconds)

    @property
    def at(self) -> float:
        """When it is, by the clock of this machine, in seconds since the epoch."""
        return time.time() + self.seconds

    @property
    def trigger_timeout(self) -> timedelta:
        """After what time Airflow gives up the trigger by itself, for instance where no triggerer runs."""
        return timedelta(seconds=max(0.0, self.seconds) + EVENT_GRACE_SECONDS)

    def timeout_error(self, error: ComplianceError) -> BaseException:
        """Return what to raise after the deadline: for Airflow's timeout the same as when not deferred."""
        if self.name != "execution_timeout":
            return error
        advice = (
            "That is the execution_timeout of the task: if it is too short for the work, set a longer one."
        )
        return AirflowTaskTimeout(f"{error} {advice}")
