"""How a job advances from PENDING to its end."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

Phase = Literal["PENDING", "RUNNING", "DONE"]


@dataclass(frozen=True)
class Progress:
    """When a job is done: at once, after `amount` looks, after `amount` seconds, or when a test says so."""

    kind: str
    amount: float = 0

    @staticmethod
    @functools.cache
    def parse(text: str, name: str = "jobs") -> Progress:
        """Read `instant`, `polls:N`, `seconds:N` or `manual`."""
        kind, colon, amount = text.partition(":")
        try:
            match kind:
                case "instant" | "manual" if not colon:
                    return Progress(kind)
                case "polls" if int(amount) >= 0:
                    return Progress(kind, int(amount))
                case "seconds" if 0 <= float(amount) < float("inf"):
                    return Progress(kind, float(amount))
        except ValueError:
            pass
        raise ValueError(f"{name} must be instant, polls:N, seconds:N or manual, not {text!r}.")

    def phase(self, looks: int, age: float) -> Phase:
        """Tell where a job stands that was looked at `looks` times and was submitted `age` seconds ago."""
        match self.kind:
            case "instant":
                return "DONE"
            case "polls":
                if looks > self.amount or not self.amount:
                    return "DONE"
                return "PENDING" if looks < min(2, self.amount) else "RUNNING"
            case "seconds":
                if age >= self.amount:
                    return "DONE"
                return "PENDING" if age < self.amount / 4 else "RUNNING"
            case _:
                return "PENDING" if looks < 2 else "RUNNING"
