"""How far an ingest is: a line in the log every few seconds, or a bar where a person watches."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any

LOG_INTERVAL_SECONDS = 10.0  # seconds between two lines
DRAW_INTERVAL_SECONDS = 0.2
WIDTH = 30


@dataclass
class Counts:
    """How many documents have come to which end."""

    completed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def done(self) -> int:
        """How many have come to an end."""
        return self.completed + self.failed + self.skipped

    def add(self, status: str) -> None:
        """Count one."""
        match status:
            case "COMPLETED":
                self.completed += 1
            case "SKIPPED":
                self.skipped += 1
            case _:
                self.failed += 1


class Progress:
    """Says how far an ingest is, until it is cancelled."""

    def __init__(self, counts: Counts, total: int, log: Any) -> None:
        self._counts = counts
        self._total = total
        self._log = log
        self._since = time.monotonic()
        self._done_before = counts.done

    async def run(self) -> None:
        """Go on saying it."""
        watched = sys.stderr.isatty()
        try:
            while True:
                await asyncio.sleep(DRAW_INTERVAL_SECONDS if watched else LOG_INTERVAL_SECONDS)
                if watched:
                    self._draw()
                else:
                    self._log.info("%s", self.line())
        finally:
            if watched:
                self._draw()
                sys.stderr.write("\n")

    def line(self) -> str:
        """Say it in one line."""
        counts, seconds = self._counts, max(time.monotonic() - self._since, 0.001)
        rate = (counts.done - self._done_before) / seconds
        left = (
            f", about {_span((self._total - counts.done) / rate)} left"
            if rate and counts.done < self._total
            else ""
        )
        return (
            f"{counts.done:,} of {self._total:,} documents: {counts.completed:,} completed, "
            f"{counts.failed:,} failed, {counts.skipped:,} skipped; {rate:.1f}/s{left}"
        )

    def _draw(self) -> None:
        filled = WIDTH * self._counts.done // max(self._total, 1)
        sys.stderr.write(f"\r\033[K[{'█' * filled}{'·' * (WIDTH - filled)}] {self.line()}")
        sys.stderr.flush()


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
