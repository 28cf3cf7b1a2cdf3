"""Until when to wait."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, NamedTuple

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider.exceptions import ComplianceError

EVENT_GRACE_SECONDS = 120.0  # after our own deadline, for the trigger's event to arrive


class Deadline(NamedTuple):
    """Until when a task may wait.

    :param name: the parameter that sets it: `timeout` or `execution_timeout`
    :param at: seconds since the epoch; 0 where the wait is over
    """

    name: str
    at: float = 0.0

    @classmethod
    def for_task(cls, context: Any, timeout: float, execution_timeout: timedelta | None) -> Deadline:
        """Take the earlier of our timeout and Airflow's, which does not count while a task is deferred."""
        own = cls("timeout", time.time() + timeout)
        if execution_timeout is None:
            return own
        started = context["ti"].start_date
        begin = started.timestamp() if started else time.time()
        airflows = cls("execution_timeout", begin + execution_timeout.total_seconds())
        return min(own, airflows, key=lambda deadline: deadline.at)

    @property
    def trigger_timeout(self) -> timedelta:
        """After what time Airflow gives up the trigger by itself, for instance where no triggerer runs."""
        return timedelta(seconds=max(0.0, self.at - time.time()) + EVENT_GRACE_SECONDS)

    def timeout_error(self, error: ComplianceError) -> BaseException:
        """Return what to raise after the deadline: for Airflow's timeout the same as when not deferred."""
        return AirflowTaskTimeout(str(error)) if self.name == "execution_timeout" else error
