"""Progress of a bulk task: a line in the log every few seconds, or a bar in a terminal."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from typing import Any

from airflow_provider.bulk.items import COMPLETED, FAILED, SKIPPED, ItemState

LOG_INTERVAL_SECONDS = 10.0
DRAW_INTERVAL_SECONDS = 0.2
BAR_WIDTH = 30


class Counts(Counter[ItemState]):
    """How many items are in which state."""

    @property
    def done(self) -> int:
        """How many are in a final state."""
        return self[COMPLETED] + self[FAILED] + self[SKIPPED]


class Progress:
    """Reports progress until it is cancelled.

    :param noun: what the items are, in the plural
    """

    def __init__(self, counts: Counts, total: int, noun: str, log: Any) -> None:
        self._counts = counts
        self._total = total
        self._noun = noun
        self._log = log
        self._since = time.monotonic()
        self._done_before = counts.done

    async def run(self) -> None:
        """Report forever."""
        is_terminal = sys.stderr.isatty()
        try:
            while True:
                await asyncio.sleep(DRAW_INTERVAL_SECONDS if is_terminal else LOG_INTERVAL_SECONDS)
                if is_terminal:
                    self._draw()
                else:
                    self._log.info("%s", self.line())
        finally:
            if is_terminal:
                self._draw()
                sys.stderr.write("\n")

    def line(self) -> str:
        """Return the progress as one line."""
        counts, done = self._counts, self._counts.done
        rate = (done - self._done_before) / max(time.monotonic() - self._since, 0.001)
        left = f", about {_duration((self._total - done) / rate)} left" if rate and done < self._total else ""
        return (
            f"{done:,} of {self._total:,} {self._noun}: {counts[COMPLETED]:,} completed, "
            f"{counts[FAILED]:,} failed, {counts[SKIPPED]:,} skipped; {rate:.1f}/s{left}"
        )

    def _draw(self) -> None:
        filled = BAR_WIDTH * self._counts.done // max(self._total, 1)
        sys.stderr.write(f"\r\033[K[{'█' * filled}{'·' * (BAR_WIDTH - filled)}] {self.line()}")
        sys.stderr.flush()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
