"""Progress of the demo: a line for each step, with a bar in a terminal."""

from __future__ import annotations

import sys
import time

WIDTH = 20


class Step:
    """The progress of one step.

    :param total: how much there is to do, if known
    """

    def __init__(self, name: str, total: int = 0) -> None:
        self._name = name
        self._total = total
        self._started = time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started

    def draw(self, done: int = 0) -> None:
        """Show the progress."""
        if self._is_terminal:
            filled = WIDTH * min(done, self._total) // max(self._total, 1)
            bar = f"[{'█' * filled}{'·' * (WIDTH - filled)}] {done} of {self._total} " if self._total else ""
            sys.stdout.write(f"\r\033[K{self._name:<38} {bar}{self.seconds:.0f} s")
            sys.stdout.flush()

    def end(self) -> None:
        """Show how long it took."""
        start = "\r\033[K" if self._is_terminal else ""
        print(f"{start}{self._name:<38} {self.seconds:5.1f} s", flush=True)
