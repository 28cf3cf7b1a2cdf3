"""The rules of polling: when to poll, which errors to outlast, when to believe the service."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceTlsError,
)
from airflow_provider.waiting.results import FINAL, UNKNOWN, PollResult, Record

OUTAGE_SECONDS = 900.0  # how long refusals, such as a 403, are outlasted
REFUSAL_SECONDS = 30.0  # likewise, if nothing has ever worked: then a URL or a role is probably wrong
MAX_OUTAGE_PAUSE_SECONDS = 60.0  # seconds between two failing polls, unless `poll_interval` is longer
UNKNOWN_SECONDS = 30.0  # how long a job must stay unknown before it counts as gone
REFRESH_GRACE_SECONDS = 30.0  # after which a result without times counts as the result of a refresh
MIN_POLL_SECONDS = 0.1  # between two polls, even if `poll_interval` is 0
MIN_VAIN_POLL_SECONDS, MAX_VAIN_POLL_SECONDS = 1 / 64, 1 / 8  # for each poll that finds no end
LOG_INTERVAL_SECONDS = 300.0  # between two log lines of a wait
LAST_POLL_SECONDS = 60.0  # for the last poll after the deadline; less than EVENT_GRACE_SECONDS

CREDENTIALS = (ComplianceAuthError, ComplianceConfigError)
SETUP_ERRORS = (*CREDENTIALS, ComplianceTlsError)  # every call would meet them
# Responses about the request itself; other refusals may come from a gateway.
REQUEST_STATUSES = frozenset({400, 413, 415, 422})

Accepts = Callable[[str, Record, float], bool]
"""Whether a record ends the wait for it: id, record, monotonic time."""


def accept_final(identifier: str, record: Record, now: float) -> bool:
    """Wait for a final state."""
    return record["status"] in FINAL


def accept_any(identifier: str, record: Record, now: float) -> bool:
    """Wait for any state."""
    return True


def next_poll_time(
    now: float, since: float, poll_interval: float, min_interval: float = 1.0, phase: float = 0.0
) -> float:
    """Return when to poll a job next, by the time when the wait for it began.

    At intervals that grow with the age, from `min_interval` up to `poll_interval`. The times lie on a common
    grid, so that jobs of different age are polled in the same request.

    :param phase: where the grid begins: other processes poll at other times
    """
    age, longest = now - since, max(poll_interval, MIN_POLL_SECONDS)
    # Up to a second old, at most twice as old at the next poll; later a quarter older.
    aim, step = max(age / 4, min(age, 1.0)), min_interval
    while step * 2 <= aim:
        step *= 2
    step = min(step, longest)
    at = ((now - phase) // step + 1) * step + phase
    # On the grid itself, rounding may yield the present time again.
    return at if at - now > step / 1000 else at + step


class Pace:
    """Paces polling where every job costs a request.

    Keeps polling, longest overdue first, while polls find finished work, because work that was submitted
    first ends first, more or less. Backs off as fewer polls find any.

    :ivar resumes_at: until then, only jobs that were not polled for a whole `poll_interval` are polled
    """

    def __init__(self) -> None:
        self.resumes_at = 0.0
        self._seconds = MIN_VAIN_POLL_SECONDS

    def observe(self, now: float, polled: int, ended: int) -> None:
        """Record how many of some polls found work that ended."""
        if ended:
            self._seconds = max(MIN_VAIN_POLL_SECONDS, self._seconds / 2)
        else:
            self._seconds = min(MAX_VAIN_POLL_SECONDS, self._seconds * 2)
        self.resumes_at = max(now, self.resumes_at) + (polled - ended) * self._seconds


class Refusals:
    """When a refusal counts: the one rule for polls, deletes, cancels, lists, results and feedback.

    A gateway may answer 401, 403 or 404 for a while, with a page of its own, and never ask the service. So a
    refusal counts only if it is repeated for some time.

    :ivar since: when the first of the refusals came, without a success in between
    """

    def __init__(self) -> None:
        self.since: float | None = None

    def observe(
        self, error: ComplianceError, now: float, has_worked: bool, seconds: float | None = None
    ) -> ComplianceError | None:
        """Record a refusal; return the error if it counts now, None to try again.

        A login that never worked counts at once, because accounts get locked. All others count after
        a while; the error is transient then, because a retry may succeed.

        :param has_worked: the credentials worked before in this process
        :param seconds: after which it counts; by default `OUTAGE_SECONDS`, or `REFUSAL_SECONDS` if nothing
            worked
        """
        if is_refused_login(error) and not has_worked:
            return error
        if self.since is None:
            self.since = now
        if seconds is None:
            seconds = OUTAGE_SECONDS if has_worked else REFUSAL_SECONDS
        if now - self.since < seconds:
            return None
        counted = copy.copy(error)
        counted.args = (outage_message(now - self.since, error),)
        counted.transient = True
        return counted


class PollState:
    """One job or assessment that is waited for: when to poll it, and what each poll means.

    The one place that decides which errors a wait outlasts, in triggers and in workers.

    :param since: when the wait began, on a monotonic clock
    :param phase: where the grid of its poll times begins
    :ivar poll_by: when it has not been polled for a whole `poll_interval`
    """

    def __init__(self, identifier: str, since: float, poll_interval: float, phase: float = 0.0) -> None:
        self.id, self.since, self.poll_interval, self.phase = identifier, since, poll_interval, phase
        self.next_poll_at = self.poll_by = 0.0
        self.failing_since: float | None = None
        self.unknown_since: float | None = None
        self.refusals = Refusals()
        self.last_result: PollResult | None = None

    def observe(self, found: PollResult, now: float, has_worked: bool) -> Record | ComplianceError | None:
        """Record the result of a poll; return what ends the wait: a final record, or an error.

        :param has_worked: the credentials worked before in this process
        """
        self.last_result = found
        if isinstance(found, ComplianceError):
            return self._observe_error(found, now, has_worked)
        self.failing_since = self.refusals.since = None
        if found["status"] == UNKNOWN:
            # A service may not know a job at once after it accepted it, and a gateway may be wrong.
            if self.unknown_since is None:
                self.unknown_since = now
                return None
            return found if now - self.unknown_since >= UNKNOWN_SECONDS else None
        self.unknown_since = None
        return found if found["status"] in FINAL else None

    def _observe_error(self, error: ComplianceError, now: float, has_worked: bool) -> ComplianceError | None:
        if self.failing_since is None:
            self.failing_since = now
        if error.transient and not isinstance(error, CREDENTIALS):
            return None
        return self.refusals.observe(error, now, has_worked, OUTAGE_SECONDS)

    def schedule(self, now: float, min_interval: float) -> None:
        """Set the time of the next poll; what fails is polled every second, then less and less often."""
        since, interval = self.since, self.poll_interval
        if self.failing_since is not None:
            since, interval = self.failing_since, max(interval, MAX_OUTAGE_PAUSE_SECONDS)
        elif self.unknown_since is not None:
            since = self.unknown_since
        if self.failing_since is not None or self.unknown_since is not None:
            min_interval = max(min_interval, 1.0)
        self.next_poll_at = next_poll_time(now, since, interval, min_interval, phase=self.phase)
        self.poll_by = max(self.next_poll_at, now + interval)


def outage_message(seconds: float, cause: object) -> str:
    """Return why an outage ends something."""
    return f"No request has succeeded for {seconds:.0f} s: {cause}"


def is_refused_login(error: ComplianceError) -> bool:
    """Return whether the login itself is wrong; a 401 with a fresh token is a refusal like a 403."""
    is_login = isinstance(error, CREDENTIALS) and not getattr(error, "has_fresh_token", False)
    return is_login and not error.transient


def is_refusal(error: ComplianceError) -> bool:
    """Return whether an error may be permanent, but may as well come from a gateway for a while."""
    if isinstance(error, ComplianceHttpError):
        return not error.transient and error.status not in REQUEST_STATUSES
    return isinstance(error, SETUP_ERRORS)


class RefreshCheck:
    """Distinguishes the results of refreshes from the earlier results, which a service may show for a while.

    :param before: the records before the refreshes, by id
    :param unchanged_seconds: after that time an unchanged result counts as the new one; None: never
    """

    def __init__(self, before: Mapping[str, Record], unchanged_seconds: float | None = None) -> None:
        self._unchanged_seconds = unchanged_seconds
        self._before = dict(before)  # records of jobs without a newer one yet
        self._stale_since: dict[str, float] = {}

    @property
    def has_pending_refreshes(self) -> bool:
        """Whether some have not shown anything newer than their refresh yet."""
        return bool(self._before)

    def restart(self, identifier: str, before: Record) -> None:
        """Expect a new result of one that has just been refreshed."""
        self.forget(identifier)
        self._before[identifier] = before

    def forget(self, identifier: str) -> None:
        """Accept any result of one."""
        self._before.pop(identifier, None)
        self._stale_since.pop(identifier, None)

    def accepts(self, identifier: str, record: Record, now: float) -> bool:
        """Return whether a record is the result of the refresh; call it for every poll."""
        is_final = record["status"] in FINAL
        if is_final and identifier in self._before:
            stale_seconds = now - self._stale_since.setdefault(identifier, now)
            is_new = is_new_result(self._before[identifier], record)
            enough_seconds = REFRESH_GRACE_SECONDS if is_new is None else self._unchanged_seconds
            if not is_new and (enough_seconds is None or stale_seconds < enough_seconds):
                return False
        self.forget(identifier)  # it was seen in flight, or has a new result
        return is_final


def is_new_result(before: Record, after: Record) -> bool | None:
    """Return whether a final record is of another run of the job than the record before a refresh.

    :return: None where the records do not tell, because the service gives no times
    """
    if after.get("status") != before.get("status"):
        return True
    times = [(before.get(name), after.get(name)) for name in ("completed_at", "fetched_at")]
    if any(new and old != new for old, new in times):
        return True
    return False if any(new and old == new for old, new in times) else None
