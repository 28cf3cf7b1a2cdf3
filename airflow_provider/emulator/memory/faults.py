"""Faults that a test asks for: what goes wrong, in which operation, how often."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from airflow_provider.emulator.operations import NAMES

RESETS = (None, "before", "after", "middle")


@dataclass(eq=False)
class Fault:
    """One fault; `remaining` is None where it lasts until it is cleared."""

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
    def replaces_answer(self) -> bool:
        """Whether the client gets this fault's answer instead of the operation's."""
        return self.status is not None or self.html or self.body is not None

    def describe(self) -> dict[str, Any]:
        """Return the fault as JSON can hold it."""
        return asdict(self)


class Faults:
    """The faults in force, first in, first out."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.active: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force, after checking that it can ever happen."""
        if not any(fnmatchcase(name, fault.operation) for name in NAMES):
            raise ValueError(f"No operation is called {fault.operation!r}. There are: {', '.join(NAMES)}.")
        if fault.reset not in RESETS:
            raise ValueError(f"reset must be before, after or middle, not {fault.reset!r}.")
        if fault.status is not None and not 200 <= fault.status <= 599:
            raise ValueError(f"status must be from 200 to 599, not {fault.status}.")
        if fault.remaining is not None and fault.remaining < 1:
            raise ValueError("times must be at least 1, or None for always.")
        if min(fault.skip, fault.delay, fault.stall, fault.drip) < 0:
            raise ValueError("skip, delay, stall and drip must not be negative.")
        changes = (fault.replaces_answer, fault.reset, fault.delay, fault.stall, fault.drip, fault.location)
        if not any(changes):
            raise ValueError("Say what goes wrong: status, reset, delay, stall, drip, html, body, location.")
        fault.id = next(self._ids)
        self.active.append(fault)
        return fault

    def take(self, operation: str) -> Fault | None:
        """Return the fault that hits this call, and count it."""
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
        """Lift one fault, or all; return how many that were."""
        kept = [fault for fault in self.active if fault_id is not None and fault.id != fault_id]
        lifted = len(self.active) - len(kept)
        self.active = kept
        return lifted
