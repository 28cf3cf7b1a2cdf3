"""How to wait: how often to poll, which errors to outlast, and what the end of a wait says."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from typing import Any, Literal

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceJobError,
    ComplianceJobTimeoutError,
    ComplianceProtocolError,
)

LOG_INTERVAL_SECONDS = 300.0  # seconds between two lines that a wait goes on
UNKNOWN = "UNKNOWN"  # our own word for what the service does not know
FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", UNKNOWN})
MAX_ERRORS_SHOWN = 5
EVENT_GRACE_SECONDS = 120.0  # seconds after our own deadline in which the trigger's event can still come
LAST_POLL_SECONDS = 60.0  # the longest that the last poll after the deadline may take; less than GRACE
MIN_POLL_SECONDS = 0.1  # between two polls, also where `poll_interval` is 0

Record = dict[str, Any]


@dataclass
class WaitResult:
    """How a wait ended.

    :param status: everything is in a final state, or the deadline has passed, or polling has failed for good
    :param records: the records of what is in a final state, by id
    :param seconds: how long the wait took
    :param message: why polling has failed, or why the last poll before the deadline has
    :param transient: whether a retry may succeed
    """

    status: Literal["success", "timeout", "error"]
    records: dict[str, Record] = field(default_factory=dict)
    seconds: float = 0.0
    message: str = ""
    transient: bool = False

    def event(self, records_key: str) -> dict[str, Any]:
        """Return the payload of the trigger's event: ids, states and reasons only, because Airflow stores it.

        :param records_key: what the records are called in it: `jobs` or `assessments`
        """
        values = asdict(self)
        return values | {records_key: values.pop("records")}

    @classmethod
    def from_event(cls, event: Any) -> WaitResult:
        """Read the payload of an event; an unknown one is an error that says so."""
        if isinstance(event, dict) and event.get("status") in ("success", "timeout", "error"):
            values = {each.name: event[each.name] for each in fields(cls) if each.name in event}
            return cls(**values, records=event.get("jobs") or event.get("assessments") or {})
        return cls("error", message=f"The trigger sent an unknown event: {str(event)[:200]}")


@dataclass(frozen=True)
class Deadline:
    """Until when a task may wait, and what that limit is called."""

    name: str
    deadline: float = 0.0

    @classmethod
    def of(cls, context: Any, timeout: float, execution_timeout: timedelta | None) -> Deadline:
        """Take the nearer of our own timeout and Airflow's, which does not count while a task is deferred."""
        own = cls("timeout", time.time() + timeout)
        if execution_timeout is None:
            return own
        started = context["ti"].start_date
        begin = started.timestamp() if started else time.time()
        return min(own, cls("execution_timeout", begin + execution_timeout.total_seconds()), key=_deadline)

    @property
    def for_airflow(self) -> timedelta:
        """After what time Airflow should give the trigger up by itself, as where no triggerer runs."""
        return timedelta(seconds=max(0.0, self.deadline - time.time()) + EVENT_GRACE_SECONDS)

    def exceeded(self, error: ComplianceError) -> BaseException:
        """Return what to raise when the time is up: for Airflow's own limit the same as when not deferred."""
        return AirflowTaskTimeout(str(error)) if self.name == "execution_timeout" else error


def _deadline(limit: Deadline) -> float:
    return limit.deadline


class Countdown:
    """A deadline of the wall clock, by which a process waits on its monotonic clock.

    The wall clock is asked once: it may jump, and a wait must not end, nor a job be cancelled, for that.
    """

    def __init__(self, deadline: float) -> None:
        self._at = time.monotonic() + deadline - time.time()

    def remaining(self) -> float:
        """Return the seconds that are left, negative where the time is over."""
        return self._at - time.monotonic()


def as_error(result: WaitResult) -> ComplianceError:
    """Return why nothing can be learnt any more."""
    return (ComplianceJobError if result.transient else ComplianceError)(result.message)


def error_for(result: WaitResult, ids: Collection[str], noun: str = "job") -> ComplianceError | None:
    """Say what is wrong with the end of a wait for these, in the service's own words."""
    if result.status == "error":
        return as_error(result)
    records = {each: result.records.get(each, {}) for each in ids}
    bad = [
        f"{noun.capitalize()} {each} {_complaint(record)}"
        for each, record in records.items()
        if record.get("status") != "COMPLETED"
    ]
    if not bad:
        return None
    more = f"; and {len(bad) - MAX_ERRORS_SHOWN} more" if len(bad) > MAX_ERRORS_SHOWN else ""
    which = (
        bad[0]
        if len(records) == 1
        else f"{len(bad)} of {len(records)} {noun}s: {'; '.join(bad[:MAX_ERRORS_SHOWN])}{more}"
    ).removesuffix(".")
    if result.status == "timeout":
        last = f" The last poll failed: {result.message}" if result.message else ""
        return ComplianceJobTimeoutError(f"The time is up after {result.seconds:.0f} s. {which}.{last}")
    return ComplianceJobError(f"{which}.")


def _complaint(record: Record) -> str:
    reason = record.get("error")
    match record.get("status"):
        case "FAILED":
            return f"failed: {reason or 'the service gave no reason'}"
        case "CANCELLED":
            return "was cancelled"
        case "UNKNOWN":
            why = f". {reason}" if reason else ": cancelled, expired, or of another partner"
            return f"is not known to the service{why}"
    return "is still under way"


def next_poll_time(now: float, since: float, poll_interval: float, pace: float = 1.0) -> float:
    """Return when to look again at something that is waited for since then.

    At first every `pace` seconds, later less often, up to `poll_interval`. The moments lie on a common grid,
    so that what differs in age is looked at in the same request.
    """
    step = pace
    while step * 2 <= (now - since) / 4:
        step *= 2
    step = min(step, max(poll_interval, MIN_POLL_SECONDS))
    moment = (now // step + 1) * step
    # On the grid itself, rounding may find the present moment again.
    return moment if moment - now > step / 1000 else moment + step


def is_transient(error: ComplianceError) -> bool:
    """Tell whether a wait should outlast this error: also an odd answer, such as the page of a proxy."""
    return error.transient or isinstance(error, ComplianceProtocolError)
