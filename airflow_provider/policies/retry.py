"""A policy for retries of Airflow tasks that knows the errors of this provider; Airflow 3.3 and newer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import (
    ComplianceConfigError,
    ComplianceConnectionError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceServerError,
    ComplianceThrottledError,
)

if TYPE_CHECKING:
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
else:
    try:
        from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
    except ImportError:  # before Airflow 3.3
        RetryDecision, RetryPolicy = None, object

JITTER_FRACTION = 0.1  # for the delay, added at random, so that many tasks do not all come back at once


class ComplianceRetryPolicy(RetryPolicy):
    """Choose the delay before the next attempt by the error of the previous one.

    A throttled task waits as long as the service asks (Retry-After). While the service fails or can't be
    reached, the delay doubles with each attempt. Errors that a retry can't fix fail the task at once. All
    other errors are left to the task's `retries` and `retry_delay`.

    :param outage_delay: the first delay in an outage
    :param max_delay: the longest delay, even if the service asks for a longer one
    """

    def __init__(
        self,
        outage_delay: timedelta = timedelta(minutes=1),
        max_delay: timedelta = timedelta(hours=1),
    ) -> None:
        if RetryDecision is None:
            raise ComplianceConfigError(
                "ComplianceRetryPolicy needs Airflow 3.3 or newer. Use `retry_delay` and "
                "`retry_exponential_backoff` of the task instead."
            )
        for name, delay in (("outage_delay", outage_delay), ("max_delay", max_delay)):
            if not isinstance(delay, timedelta) or delay <= timedelta(0):
                raise ValueError(f"{name} must be a timedelta of more than 0, not {delay!r}.")
        self.outage_delay = outage_delay
        self.max_delay = max_delay

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Any = None
    ) -> RetryDecision:
        """Decide by the error or its cause."""
        error = next((cause for cause in _causes(exception) if isinstance(cause, ComplianceError)), None)
        if error is None:
            return RetryDecision.default()
        if not error.transient:
            return RetryDecision.fail(f"A retry would fail the same way: {type(error).__name__}")
        if isinstance(error, ComplianceHttpError) and error.retry_after is not None:
            seconds, reason = error.retry_after, f"The service asks to wait {error.retry_after:.0f} s"
        elif isinstance(error, ComplianceConnectionError | ComplianceServerError | ComplianceThrottledError):
            seconds = self.outage_delay.total_seconds() * 2 ** min(max(try_number, 1) - 1, 20)
            reason = f"The service is down: {type(error).__name__}"
        else:
            return RetryDecision.default()
        jitter = 1 + JITTER_FRACTION * random.random()  # noqa: S311 - to spread load, not for secrets
        delay = jitter * timedelta(seconds=min(seconds, self.max_delay.total_seconds()))
        return RetryDecision.retry(delay, reason)

    def serialize(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "outage_delay": self.outage_delay.total_seconds(),
            "max_delay": self.max_delay.total_seconds(),
        }

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> ComplianceRetryPolicy:
        """Return it from JSON."""
        return cls(**{name: timedelta(seconds=seconds) for name, seconds in data.items()})


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
