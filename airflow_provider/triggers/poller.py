"""One poller for all who wait in an event loop: it looks at everything of one kind together."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import ComplianceError
from airflow_provider.triggers.waiting import FINAL, SAY_EVERY, Record, may_pass, next_look

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.triggers.work import Sighting, Work

log = logging.getLogger(__name__)

News = tuple[str, Record | Exception]
"""What a waiter gets: the id, and the record of what came to its end or the error that ends the wait."""


@dataclass(eq=False)
class _Watched:
    """One job or assessment that somebody waits for."""

    id: str
    since: float
    poll_interval: float
    look_at: float
    waiters: list[asyncio.Queue[News]] = field(default_factory=list)


class Poller:
    """Looks at all work of one kind and connection that somebody in this event loop waits for."""

    def __init__(self, hook: ComplianceHook, work: Work) -> None:
        self._hook = hook
        self._work = work
        self._name = f"{work.noun}s of '{hook.conn_id}'"
        self._watched: dict[str, _Watched] = {}
        self._joined = asyncio.Event()
        self._states: Counter[str] = Counter()
        self._said = _now()
        self._failing: set[str] = set()
        self._failing_since = 0.0
        self._task = asyncio.create_task(self._run(), name=f"compliance-poller-{hook.conn_id}-{work.noun}")

    @property
    def is_idle(self) -> bool:
        """Nobody waits."""
        return not self._watched

    @property
    def is_over(self) -> bool:
        """It has ended, for instance because the connection can't be used."""
        return self._task.done()

    def join(self, waiter: asyncio.Queue[News], ids: Collection[str], poll_interval: float) -> None:
        """Let somebody wait for some."""
        now = _now()
        pace = self._work.pace(len(self._watched) + len(ids))
        for each in ids:
            one = self._watched.setdefault(each, _Watched(each, now, poll_interval, 0.0))
            one.poll_interval = min(one.poll_interval, poll_interval)
            one.look_at = next_look(now, one.since, one.poll_interval, pace)
            one.waiters.append(waiter)
        self._joined.set()

    def leave(self, waiter: asyncio.Queue[News], ids: Iterable[str]) -> None:
        """Let somebody go; what nobody else waits for is not looked at any more."""
        for each in ids:
            one = self._watched.get(each)
            # Somebody else may have begun to wait for what this one has got already.
            if one and waiter in one.waiters:
                one.waiters.remove(waiter)
                if not one.waiters:
                    self._forget(each)

    def stop(self) -> None:
        """End the poller; it closes its connections by itself."""
        self._task.cancel()

    async def _run(self) -> None:
        try:
            # The poller is patient itself, so each call may give up soon.
            async with await self._hook.get_async_conn(max_retries=1, retry_seconds=30.0) as client:
                while True:
                    await self._look(client, await self._due())
        except Exception as error:
            # Whoever waits has to learn of it, whatever it is: nobody looks any more.
            for each in list(self._watched):
                self._tell(each, error)

    async def _due(self) -> list[str]:
        """Wait until it is time to look at some, and name them."""
        while True:
            now = _now()
            if due := [one.id for one in self._watched.values() if one.look_at <= now]:
                return due
            self._joined.clear()
            first = min((one.look_at for one in self._watched.values()), default=now + 3600)
            try:
                async with asyncio.timeout(first - now):
                    await self._joined.wait()
            except TimeoutError:
                continue

    async def _look(self, client: AsyncComplianceClient, ids: list[str]) -> None:
        await self._work.look(client, ids, self._see)
        now = _now()
        pace = self._work.pace(len(self._watched))
        for each in ids:
            if one := self._watched.get(each):
                one.look_at = next_look(now, one.since, one.poll_interval, pace)
        if self._watched and now - self._said >= SAY_EVERY:
            self._say(now)

    def _see(self, identifier: str, sighting: Sighting) -> None:
        if isinstance(sighting, ComplianceError):
            if may_pass(sighting):
                self._fail(identifier, sighting)
            else:
                self._tell(identifier, sighting)
            return
        self._recover(identifier)
        self._states[sighting["status"]] += 1
        if sighting["status"] in FINAL:
            self._tell(identifier, sighting)

    def _fail(self, identifier: str, error: ComplianceError) -> None:
        if identifier not in self._watched:
            return  # whoever waited has gone meanwhile
        if not self._failing:
            self._failing_since = _now()
            log.warning("%s can't be looked at, going on: %s", self._name.capitalize(), error)
        self._failing.add(identifier)

    def _recover(self, identifier: str) -> None:
        if self._failing:
            self._failing.discard(identifier)
            if not self._failing:
                seconds = _now() - self._failing_since
                log.info("%s can be looked at again, after %.0f s.", self._name.capitalize(), seconds)

    def _say(self, now: float) -> None:
        self._said = now
        oldest = now - min(one.since for one in self._watched.values())
        seen = ", ".join(f"{count} {state}" for state, count in self._states.most_common())
        log.info("Waiting for %s %s, the oldest for %.0f s; seen since the last line: %s.",
                 len(self._watched), self._name, oldest, seen)  # fmt: skip
        self._states.clear()

    def _tell(self, identifier: str, news: Record | Exception) -> None:
        if one := self._forget(identifier):
            for waiter in one.waiters:
                waiter.put_nowait((identifier, news))

    def _forget(self, identifier: str) -> _Watched | None:
        self._failing.discard(identifier)
        return self._watched.pop(identifier, None)


# Per event loop, because a session of aiohttp belongs to one; and no longer than it.
_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[object, ...], Poller]] = WeakKeyDictionary()


@asynccontextmanager
async def watching(
    hook: ComplianceHook, work: Work, ids: Collection[str], poll_interval: float
) -> AsyncIterator[asyncio.Queue[News]]:
    """Get news of each into a queue: its record as it comes to its end, or an error that ends the wait."""
    pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
    key = (type(hook), hook.conn_id, work.noun)
    poller = pollers.get(key)
    if poller is None or poller.is_over:
        poller = pollers[key] = Poller(hook, work)
    waiter: asyncio.Queue[News] = asyncio.Queue()
    poller.join(waiter, ids, poll_interval)
    try:
        yield waiter
    finally:
        poller.leave(waiter, ids)
        if poller.is_idle:
            poller.stop()
            if pollers.get(key) is poller:
                del pollers[key]


def _now() -> float:
    return asyncio.get_running_loop().time()
