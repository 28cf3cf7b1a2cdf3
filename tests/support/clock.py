"""Clocks that do as a test says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.speed import fast_clock

DAY = 24 * 3600.0


@dataclass
class ManualClock:
    """Time that passes only when a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class Clock:
    """The clock of an attempt, on which every deadline passes as soon as a condition holds."""

    def __init__(self, is_over: Callable[[], Any] = lambda: False) -> None:
        self.is_over = is_over
        self._has_been_over = False

    def __call__(self) -> float:
        self._has_been_over = self._has_been_over or bool(self.is_over())
        return fast_clock() + (DAY if self._has_been_over else 0.0)
