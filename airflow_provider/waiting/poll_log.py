"""What a poller logs and measures: outages, progress, gauges."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from airflow_provider import metrics
from airflow_provider.event_loop import is_in_task
from airflow_provider.exceptions import ComplianceError
from airflow_provider.waiting.rules import LOG_INTERVAL_SECONDS

if TYPE_CHECKING:
    from airflow_provider.waiting.rules import PollState

log = logging.getLogger(__name__)


class PollLog:
    """One line when polling begins to fail, one when it works again, and one every five minutes between.

    :param noun: of what is polled
    :param now: of the event loop's clock, as everywhere here
    """

    def __init__(self, conn_id: str, noun: str, now: float) -> None:
        self._conn_id = conn_id
        self._noun = noun
        self._name = f"{noun}s of '{conn_id}'"
        self._process = "worker" if is_in_task() else "triggerer"
        self._states: Counter[str] = Counter()
        self._logged_at = now
        self._failing: set[str] = set()
        self._failing_since = 0.0

    def on_new_connection(self) -> None:
        """Log that the connection was edited."""
        log.info("The connection of %s has changed: using the new one.", self._name)

    def on_error(self, identifier: str, error: ComplianceError, now: float) -> None:
        """Log the first error of an outage."""
        if not self._failing:
            self._failing_since = now
            log.warning("Polling the %s failed, retrying: %s", self._name, error)
        self._failing.add(identifier)

    def on_success(self, identifier: str, status: str, now: float) -> None:
        """Log the end of an outage."""
        self._states[status] += 1
        if self._failing:
            self._failing.discard(identifier)
            if not self._failing:
                log.info("Polling the %s works again, after %.0f s.", self._name, now - self._failing_since)

    def forget(self, identifier: str) -> None:
        """Forget one that is not waited for any more."""
        self._failing.discard(identifier)

    def on_round(
        self, watched: Mapping[str, PollState], now: float, lag: float, count_waiters: Callable[[], int]
    ) -> None:
        """Log the progress from time to time, and send the gauges."""
        oldest = now - min((one.since for one in watched.values()), default=now)
        if watched and now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            self._log_progress(watched, now, oldest)
        if metrics.is_on():
            self._send_gauges(count_waiters(), len(watched), lag, oldest)

    def close(self) -> None:
        """Set the gauges to zero, else the last values would stay."""
        self._send_gauges(0, 0, 0.0, 0.0)

    def _log_progress(self, watched: Mapping[str, PollState], now: float, oldest: float) -> None:
        seen = ", ".join(f"{count} {state}" for state, count in self._states.most_common())
        if seen:
            log.info("Waiting for the %s: %s in flight, the oldest for %.0f s; seen since the last line: %s.",
                     self._name, len(watched), oldest, seen)  # fmt: skip
        found = (one.last_result for each, one in watched.items() if each in self._failing)
        if error := next((each for each in found if isinstance(each, ComplianceError)), None):
            log.warning("Polling the %s has failed for %.0f s, still retrying; %s in flight: %s",
                        self._name, now - self._failing_since, len(watched), error)  # fmt: skip
        self._states.clear()

    def _send_gauges(self, waiters: int, pending: int, lag: float, oldest: float) -> None:
        values: dict[metrics.Metric, float] = {
            metrics.WAITERS: waiters,
            metrics.PENDING: pending,
            metrics.POLL_LAG: lag,
            metrics.OLDEST_PENDING: oldest,
        }
        for metric, value in values.items():
            metrics.gauge(metric, self._conn_id, value, kind=self._noun, process=self._process)
