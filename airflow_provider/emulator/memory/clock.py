"""The emulator's own time, which a test can move forward."""

from __future__ import annotations

import time


class Clock:
    """Wall-clock time plus whatever a test has added to it."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time() + self.offset

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        if seconds < 0:
            raise ValueError("Time moves only forward.")
        self.offset += seconds
