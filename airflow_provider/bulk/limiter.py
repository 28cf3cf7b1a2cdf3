"""How many requests may be in flight: fewer after the service has throttled, then more again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class AdaptiveLimiter:
    """Limits requests in flight (AIMD): half as many after a 429, one more after each round without one.

    :param max_limit: never more than that
    :param throttlings: returns how often the service has throttled
    """

    def __init__(self, max_limit: int, throttlings: Callable[[], int]) -> None:
        self.limit = self._max_limit = float(max_limit)
        self.in_flight = 0
        self._throttlings = throttlings
        self._seen = throttlings()
        self._ignored = 0
        self._turn = asyncio.Lock()
        self._released = asyncio.Event()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot, and hold it for one request."""
        async with self._turn:  # first come, first served: else a busy worker would starve the poller
            while self.in_flight + 1 > self.limit:
                self._released.clear()
                await self._released.wait()
            self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self._adapt()
            self._released.set()

    def lift(self) -> None:
        """Let everybody pass from now on."""
        self.limit = self._max_limit = math.inf
        self._released.set()

    def _adapt(self) -> None:
        count = self._throttlings()
        if self._ignored:
            # Requests that were in flight together are throttled together: that counts once.
            self._ignored -= 1
        elif count != self._seen:
            self.limit = max(1.0, self.limit / 2)
            self._ignored = self.in_flight
        else:
            self.limit = min(self._max_limit, self.limit + 1 / self.limit)
        self._seen = count
