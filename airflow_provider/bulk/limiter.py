"""How many requests may be under way: fewer after the service has asked to slow down, then more again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class AdaptiveLimiter:
    """Lets so many through at a time: half as many after a 429, and one more after each round without one.

    :param most: never more than that
    :param throttlings: tells how often the service has asked to send less
    """

    def __init__(self, most: int, throttlings: Callable[[], int]) -> None:
        self.most = most
        self.limit = float(most)
        self.inside = 0
        self._throttlings = throttlings
        self._seen = throttlings()
        self._still_out = 0
        self._left = asyncio.Event()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Go through with one request."""
        while self.inside >= int(self.limit):
            self._left.clear()
            await self._left.wait()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self._adapt()
            self._left.set()

    def _adapt(self) -> None:
        count = self._throttlings()
        if self._still_out:
            # Those who were under way together are refused together: that counts once.
            self._still_out -= 1
        elif count != self._seen:
            self.limit = max(1.0, self.limit / 2)
            self._still_out = self.inside
        else:
            self.limit = min(float(self.most), self.limit + 1 / self.limit)
        self._seen = count
