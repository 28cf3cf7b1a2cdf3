"""Planned faults, and counters of calls."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

from airflow_provider.emulator.settings import NAMES

RESETS = (None, "before", "after", "middle")


@dataclass(eq=False, kw_only=True)
class Planned:
    """What is planned for the next calls or jobs; `remaining` is None if it lasts until it is cleared."""

    remaining: int | None = 1
    skip: int = 0
    hits: int = 0
    id: int = 0

    def __post_init__(self) -> None:
        if self.remaining is not None and self.remaining < 1:
            raise ValueError("times must be at least 1, or None for always.")
        if self.skip < 0:
            raise ValueError("skip must not be negative.")


@dataclass(eq=False)
class Fault(Planned):
    """A fault of the next calls of an operation."""

    operation: str
    status: int | None = None
    retry_after: str | None = None
    reset: str | None = None
    delay: float = 0.0
    stall: float = 0.0
    html: bool = False
    body: Any = None
    content_type: str | None = None
    location: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(fnmatchcase(name, self.operation) for name in NAMES):
            raise ValueError(f"Unknown operation {self.operation!r}. Use one of: {', '.join(NAMES)}.")
        if self.reset not in RESETS:
            raise ValueError(f"reset must be before, after or middle, not {self.reset!r}.")
        if self.status is not None and not 200 <= self.status <= 599:
            raise ValueError(f"status must be from 200 to 599, not {self.status}.")
        if not any((self.replaces_response, self.reset, self.delay, self.stall, self.location)):
            raise ValueError("Specify at least one fault: status, reset, delay, stall, html, body, location.")

    @property
    def replaces_response(self) -> bool:
        """Whether the fault's own response is sent instead of the operation's."""
        return self.status is not None or self.html or self.body is not None


P = TypeVar("P", bound=Planned)


class Plan(Generic[P]):
    """Planned faults or failures, first in, first out.

    :param get_pattern: returns the pattern of the names that an item applies to
    """

    def __init__(self, get_pattern: Callable[[P], str]) -> None:
        self._get_pattern = get_pattern
        self._ids = itertools.count(1)
        self.items: list[P] = []

    def add(self, item: P) -> int:
        """Add an item; return its id."""
        item.id = next(self._ids)
        self.items.append(item)
        return item.id

    def take(self, name: str) -> P | None:
        """Return the item that applies to this call or job, and count it."""
        for item in self.items:
            if not fnmatchcase(name, self._get_pattern(item)):
                continue
            if item.skip:
                item.skip -= 1
                continue
            item.hits += 1
            if item.remaining is not None:
                item.remaining -= 1
                if not item.remaining:
                    self.items.remove(item)
            return item
        return None

    def clear(self, item_id: int | None = None) -> int:
        """Clear one item or all; return how many."""
        kept = [item for item in self.items if item_id is not None and item.id != item_id]
        cleared = len(self.items) - len(kept)
        self.items = kept
        return cleared

    def describe(self) -> list[dict[str, Any]]:
        """Return the items as JSON."""
        return [asdict(item) for item in self.items]


class Counters:
    """Calls per operation and status; `reset` stands for a connection reset."""

    def __init__(self, in_flight: int = 0) -> None:
        self.answers: dict[str, Counter[str]] = {}
        self.in_flight = self.max_in_flight = in_flight
        self.jobs_submitted = 0
        self.requests: deque[dict[str, Any]] = deque(maxlen=500)

    def begin(self) -> None:
        """Count the start of a request."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def record(self, operation: str, answer: str, request: dict[str, Any]) -> None:
        """Count a response just before it is sent."""
        self.answers.setdefault(operation, Counter())[answer] += 1
        self.requests.append({**request, "operation": operation, "answer": answer})

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
