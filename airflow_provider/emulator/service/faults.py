"""Planned faults, and counters of calls."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from airflow_provider.emulator.settings import NAMES

RESETS = (None, "before", "after", "middle")
_ids = itertools.count(1)


@dataclass(eq=False, kw_only=True)
class Planned:
    """What is planned for the next calls or jobs whose name matches.

    :param times: how many are left; None lasts until it is cleared
    :param skip: number of calls or jobs to let pass first
    """

    match: str
    times: int | None = 1
    skip: int = 0
    hits: int = 0
    id: int = field(default_factory=lambda: next(_ids))

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError("times must be at least 1, or None for always.")
        if self.skip < 0:
            raise ValueError("skip must not be negative.")


@dataclass(eq=False, kw_only=True)
class PlannedFailure(Planned):
    """A failure of the next jobs whose file name or URL matches."""

    error: str


@dataclass(eq=False, kw_only=True)
class Fault(Planned):
    """A fault of the next calls of an operation; only calls with a valid token count.

    :param status: respond with this status instead of running the operation
    :param retry_after: seconds or an HTTP date
    :param reset: reset the connection `before` the operation, `after` it without a response, or in the
        `middle` of the response body
    :param delay: seconds to wait before anything else
    :param stall: seconds to pause in the middle of the response body
    :param html: respond with an HTML page, as proxies do
    :param body: respond with this text or JSON value
    """

    status: int | None = None
    retry_after: float | str | None = None
    reset: str | None = None
    delay: float = 0.0
    stall: float = 0.0
    html: bool = False
    body: Any = None
    content_type: str = "application/json"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(fnmatchcase(name, self.match) for name in NAMES):
            raise ValueError(f"Unknown operation {self.match!r}. Use one of: {', '.join(NAMES)}.")
        if self.reset not in RESETS:
            raise ValueError(f"reset must be before, after or middle, not {self.reset!r}.")
        if self.status is not None and not 200 <= self.status <= 599:
            raise ValueError(f"status must be from 200 to 599, not {self.status}.")
        if not any((self.replaces_response, self.reset, self.delay, self.stall)):
            raise ValueError("Specify at least one fault: status, reset, delay, stall, html, body.")

    @property
    def replaces_response(self) -> bool:
        """Whether the fault's own response is sent instead of the operation's."""
        return self.status is not None or self.html or self.body is not None


P = TypeVar("P", bound=Planned)


def take(plan: list[P], name: str) -> P | None:
    """Return the first item of a plan that applies to this call or job, and count it."""
    for item in plan:
        if not fnmatchcase(name, item.match):
            continue
        if item.skip:
            item.skip -= 1
            continue
        item.hits += 1
        if item.times is not None:
            item.times -= 1
            if not item.times:
                plan.remove(item)
        return item
    return None


class Counters:
    """Calls per operation and status; `reset` stands for a connection reset."""

    def __init__(self, in_flight: int = 0) -> None:
        self.answers: dict[str, Counter[str]] = {}
        self.in_flight = self.max_in_flight = in_flight
        self.jobs_submitted = 0

    def begin(self) -> None:
        """Count the start of a request."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def record(self, operation: str, answer: str) -> None:
        """Count a response just before it is sent."""
        self.answers.setdefault(operation, Counter())[answer] += 1

    def count(self, operation: str | None = None, answer: int | str | None = None) -> int:
        """Return the number of calls, of one operation or all, with one status or any."""
        if operation is not None and operation not in NAMES:
            raise ValueError(f"Unknown operation {operation!r}. Use one of: {', '.join(NAMES)}.")
        kinds = self.answers.values() if operation is None else [self.answers.get(operation, Counter())]
        return sum(kind.total() if answer is None else kind[str(answer)] for kind in kinds)

    def describe(self) -> dict[str, Any]:
        """Return all counters as JSON."""
        return {
            "total": self.count(),
            "operations": {name: dict(sorted(kinds.items())) for name, kinds in sorted(self.answers.items())},
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "logins": self.count("login", 200),
            "refreshes": self.count("refresh_token", 200),
            "jobs_submitted": self.jobs_submitted,
        }
