"""How to wait: how often to poll, which errors to outlast, and what the end of a wait says."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Literal

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceJobError,
    ComplianceJobTimeoutError,
    ComplianceProtocolError,
)

SAY_EVERY = 300.0  # seconds between two lines that a wait goes on
UNKNOWN = "UNKNOWN"  # our own word for what the service does not know
FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", UNKNOWN})
COMPLAINTS_SHOWN = 5
GRACE = 120.0  # seconds after our own deadline in which the trigger's event can still come
LAST_POLL_SECONDS = 60.0  # the longest that the last poll after the deadline may take; less than GRACE
MIN_POLL_SECONDS = 0.1  # between two polls, also where `poll_interval` is 0

Record = dict[str, Any]


@dataclass
class Ending:
    """How a wait ended; the trigger's event to the task, so it has ids, states and reasons only.

    :param kind: all jobs came to their end, or the time is up, or nothing can be learnt any more
    :param jobs: the records of the jobs that came to their end, by uuid
    :param seconds: how long the wait was
    :param error: why nothing can be learnt any more, or why the last poll before the time was up has failed
    :param transient: whether that may pass by itself
    """

    kind: Literal["done", "timeout", "error"]
    jobs: dict[str, Record] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    transient: bool = False

    def event(self) -> dict[str, Any]:
        """Return the payload of the trigger's event."""
        return asdict(self)

    @classmethod
    def of(cls, event: Any) -> Ending:
        """Read the payload of an event; one that makes no sense is an error that says so."""
        if isinstance(event, dict) and event.get("kind") in ("done", "timeout", "error"):
            known = {name: event[name] for name in cls.__dataclass_fields__ if name in event}
            return cls(**known)
        return cls("error", error=f"The trigger sent an event that is not understood: {str(event)[:200]}")


@dataclass(frozen=True)
class Limit:
    """Until when a task may wait, and what that limit is called."""

    name: str
    deadline: float = 0.0

    @classmethod
    def of(cls, context: Any, timeout: float, execution_timeout: timedelta | None) -> Limit:
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
        return timedelta(seconds=max(0.0, self.deadline - time.time()) + GRACE)

    def exceeded(self, error: ComplianceError) -> BaseException:
        """Return what to raise when the time is up: for Airflow's own limit the same as when not deferred."""
        return AirflowTaskTimeout(str(error)) if self.name == "execution_timeout" else error


def _deadline(limit: Limit) -> float:
    return limit.deadline


class Deadline:
    """A deadline of the wall clock, by which a process waits on its monotonic clock.

    The wall clock is asked once: it may jump, and a wait must not end, nor a job be cancelled, for that.
    """

    def __init__(self, deadline: float) -> None:
        self._at = time.monotonic() + deadline - time.time()

    def remaining(self) -> float:
        """Return the seconds that are left, negative where the time is over."""
        return self._at - time.monotonic()


def error_of(ending: Ending) -> ComplianceError:
    """Return why nothing can be learnt any more."""
    return (ComplianceJobError if ending.transient else ComplianceError)(ending.error)


def problem(ending: Ending, ids: Collection[str], noun: str = "job") -> ComplianceError | None:
    """Say what is wrong with the end of a wait for these, in the service's own words."""
    if ending.kind == "error":
        return error_of(ending)
    records = {each: ending.jobs.get(each, {}) for each in ids}
    bad = [
        f"{noun.capitalize()} {each} {_complaint(record)}"
        for each, record in records.items()
        if record.get("status") != "COMPLETED"
    ]
    if not bad:
        return None
    more = f"; and {len(bad) - COMPLAINTS_SHOWN} more" if len(bad) > COMPLAINTS_SHOWN else ""
    which = (
        bad[0]
        if len(records) == 1
        else f"{len(bad)} of {len(records)} {noun}s: {'; '.join(bad[:COMPLAINTS_SHOWN])}{more}"
    ).removesuffix(".")
    if ending.kind == "timeout":
        last = f" The last poll failed: {ending.error}" if ending.error else ""
        return ComplianceJobTimeoutError(f"The time is up after {ending.seconds:.0f} s. {which}.{last}")
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


def next_look(now: float, since: float, poll_interval: float, pace: float = 1.0) -> float:
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


def may_pass(error: ComplianceError) -> bool:
    """Tell whether a wait should outlast this error: also an odd answer, such as the page of a proxy."""
    return error.transient or isinstance(error, ComplianceProtocolError)
