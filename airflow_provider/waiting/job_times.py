"""How long jobs usually take, learned from those that have ended: when to poll a new one first."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider.waiting.rules import MIN_POLL_SECONDS

if TYPE_CHECKING:
    from airflow_provider.waiting.results import Record

MAX_SAMPLES = 100  # jobs that count
MIN_SAMPLES = 3  # jobs to learn from; fewer may be exceptions
MAX_AGE_SECONDS = 900.0  # after which a job does not count any more
MAX_FIRST_POLL_SECONDS = 8.0  # a job that is refused or unknown should be noticed, however long jobs take


class JobTimes:
    """The usual time of the jobs of one kind and connection, from the begin of a wait to the end of the job.

    :param quantile: the share of jobs that should have ended when they are first polled
    :param initial: seconds before the first poll as long as nothing is known; 0 is the next regular poll
    """

    def __init__(self, quantile: float, initial: float) -> None:
        self._quantile = quantile
        self._initial = initial
        self._latest: deque[tuple[float, float]] = deque(maxlen=MAX_SAMPLES)
        self._still_running_after = 0.0
        self._first_poll: float | None = None

    def on_running(self, age: float) -> None:
        """Learn from a job that has not ended yet, so many seconds after the wait for it began."""
        if age > self._still_running_after:
            self._still_running_after = age
            self._first_poll = None

    def on_ended(self, record: Record, now: float, age: float, running_at: float) -> None:
        """Learn from a job that has ended.

        :param age: when it was seen to have ended, in seconds after the wait for it began
        :param running_at: likewise, when it was last seen running
        """
        seconds = _processing_seconds(record)
        # The job may have begun before the wait, and times may be rounded or of two clocks.
        if seconds is None or not running_at <= seconds <= age:
            seconds = (running_at + age) / 2
        self._latest.append((now, seconds))
        self._first_poll = None

    def first_poll(self, now: float) -> float:
        """Return how many seconds after the begin of a wait to poll first; 0 is the next regular poll."""
        while self._latest and now - self._latest[0][0] > MAX_AGE_SECONDS:
            self._latest.popleft()
            self._first_poll = None
        if self._first_poll is None:
            self._first_poll = self._estimate()
        return self._first_poll

    def _estimate(self) -> float:
        if len(self._latest) < MIN_SAMPLES:
            first = max(self._initial, 2 * self._still_running_after)
            return first if self._initial and first < 1.0 else 0.0
        times = sorted(seconds for _, seconds in self._latest)
        usual = times[int(self._quantile * (len(times) - 1))]
        return min(max(usual, MIN_POLL_SECONDS), MAX_FIRST_POLL_SECONDS)


def _processing_seconds(record: Record) -> float | None:
    """Return how long the service says that a job took; None if it does not."""
    try:
        created, ended = (datetime.fromisoformat(record[name]) for name in ("created_at", "completed_at"))
    except (KeyError, TypeError, ValueError):
        return None
    return (ended - created).total_seconds()
