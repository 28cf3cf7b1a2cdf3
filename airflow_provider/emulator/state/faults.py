"""Faults that a test plans, and counters of all requests."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from airflow_provider.emulator.settings import NAMES

RESETS = (None, "before", "after", "middle")


@dataclass(eq=False)
class Fault:
    """One planned fault; `remaining` is None if it lasts until it is cleared."""

    operation: str
    status: int | None = None
    retry_after: str | None = None
    reset: str | None = None
    delay: float = 0.0
    stall: float = 0.0
    drip: float = 0.0
    html: bool = False
    body: Any = None
    content_type: str | None = None
    location: str | None = None
    done: bool = False
    remaining: int | None = 1
    skip: int = 0
    hits: int = 0
    id: int = field(default=0)

    @property
    def replaces_response(self) -> bool:
        """Whether the fault's own response is sent instead of the operation's."""
        return self.status is not None or self.html or self.body is not None

    def describe(self) -> dict[str, Any]:
        """Return the fault as JSON."""
        return asdict(self)


class Faults:
    """The active faults, first in, first out."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.active: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Activate a fault, after checking that it can match."""
        if not any(fnmatchcase(name, fault.operation) for name in NAMES):
            raise ValueError(f"Unknown operation {fault.operation!r}. Use one of: {', '.join(NAMES)}.")
        if fault.reset not in RESETS:
            raise ValueError(f"reset must be before, after or middle, not {fault.reset!r}.")
        if fault.status is not None and not 200 <= fault.status <= 599:
            raise ValueError(f"status must be from 200 to 599, not {fault.status}.")
        if fault.remaining is not None and fault.remaining < 1:
            raise ValueError("times must be at least 1, or None for always.")
        if min(fault.skip, fault.delay, fault.stall, fault.drip) < 0:
            raise ValueError("skip, delay, stall and drip must not be negative.")
        changes = (fault.replaces_response, fault.reset, fault.delay, fault.stall, fault.drip, fault.location)
        if not any(changes):
            raise ValueError("Say what goes wrong: status, reset, delay, stall, drip, html, body, location.")
        fault.id = next(self._ids)
        self.active.append(fault)
        return fault

    def take(self, operation: str) -> Fault | None:
        """Return the fault that applies to this call, and count it."""
        for fault in self.active:
            if not fnmatchcase(operation, fault.operation):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.hits += 1
            if fault.remaining is not None:
                fault.remaining -= 1
                if not fault.remaining:
                    self.active.remove(fault)
            return fault
        return None

    def clear(self, fault_id: int | None = None) -> int:
        """Clear one fault or all; return how many."""
        kept = [fault for fault in self.active if fault_id is not None and fault.id != fault_id]
        cleared = len(self.active) - len(kept)
        self.active = kept
        return cleared


class Counters:
    """Calls per operation and status; `reset` stands for a connection reset."""

    def __init__(self) -> None:
        self.answers: dict[str, Counter[str]] = {}
        self.in_flight = 0
        self.max_in_flight = 0
        self.jobs_submitted = 0
        self.requests: deque[dict[str, Any]] = deque(maxlen=500)

    def reset(self) -> None:
        """Reset all counters except the requests in flight."""
        in_flight = self.in_flight
        self.__init__()  # type: ignore[misc]  # every counter goes back to its first value, here and later
        self.in_flight = self.max_in_flight = in_flight

    def begin(self) -> None:
        """Count the start of a request."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def end(self) -> None:
        """Count the end of a request."""
        self.in_flight -= 1

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
