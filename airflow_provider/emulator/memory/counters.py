"""Counts of everything that was asked and answered, and the latest requests."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from airflow_provider.emulator.operations import NAMES


class Counters:
    """Calls per operation and answer; `reset` stands for a connection that was reset instead of an answer."""

    def __init__(self) -> None:
        self.answers: dict[str, Counter[str]] = {}
        self.in_flight = 0
        self.max_in_flight = 0
        self.jobs_submitted = 0
        self.requests: deque[dict[str, Any]] = deque(maxlen=500)

    def restart(self) -> None:
        """Count from zero; what is in flight stays so."""
        in_flight = self.in_flight
        self.__init__()  # type: ignore[misc]  # every counter goes back to its first value, here and later
        self.in_flight = self.max_in_flight = in_flight

    def begin(self) -> None:
        """Note that a request has come."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def end(self) -> None:
        """Note that a request is over."""
        self.in_flight -= 1

    def answered(self, operation: str, answer: str, request: dict[str, Any]) -> None:
        """Count an answer just before it goes out."""
        self.answers.setdefault(operation, Counter())[answer] += 1
        self.requests.append({**request, "operation": operation, "answer": answer})

    def count(self, operation: str | None = None, answer: int | str | None = None) -> int:
        """Return how many calls there were, of all operations or one, with any answer or one."""
        if operation is not None and operation not in NAMES:
            raise ValueError(f"No operation is called {operation!r}. There are: {', '.join(NAMES)}.")
        kinds = self.answers.values() if operation is None else [self.answers.get(operation, Counter())]
        return sum(kind.total() if answer is None else kind[str(answer)] for kind in kinds)

    def describe(self) -> dict[str, Any]:
        """Return all counts as JSON can hold them."""
        return {
            "total": self.count(),
            "operations": {name: dict(sorted(kinds.items())) for name, kinds in sorted(self.answers.items())},
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "logins": self.count("login", 200),
            "refreshes": self.count("refresh_token", 200),
            "jobs_submitted": self.jobs_submitted,
        }
