"""What the demo shows while it works: a line for each step, with a bar where a person watches."""

from __future__ import annotations

import sys
import time

WIDTH = 20


class Step:
    """One step on its way.

    :param total: how much there is to do, where that is known
    """

    def __init__(self, name: str, total: int = 0) -> None:
        self._name = name
        self._total = total
        self._begin = time.monotonic()
        self._is_watched = sys.stdout.isatty()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._begin

    def draw(self, done: int = 0) -> None:
        """Show how far it is."""
        if self._is_watched:
            filled = WIDTH * min(done, self._total) // max(self._total, 1)
            bar = f"[{'█' * filled}{'·' * (WIDTH - filled)}] {done} of {self._total} " if self._total else ""
            sys.stdout.write(f"\r\033[K{self._name:<38} {bar}{self.seconds:.0f} s")
            sys.stdout.flush()

    def end(self) -> None:
        """Show how long it took."""
        start = "\r\033[K" if self._is_watched else ""
        print(f"{start}{self._name:<38} {self.seconds:5.1f} s", flush=True)
