"""One poller for all who wait in an event loop: it polls everything of one kind together."""

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
from airflow_provider.waiting.results import FINAL, UNKNOWN, Record
from airflow_provider.waiting.rules import (
    LAST_POLL_SECONDS,
    LOG_INTERVAL_SECONDS,
    Accepts,
    PollState,
    have_credentials_worked,
    is_refusal,
)

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.waiting.kinds import JobKind
    from airflow_provider.waiting.rules import PollResult

log = logging.getLogger(__name__)

Update = tuple[str, Record | Exception]
"""What a waiter gets: the id, and the record of what came to its end or the error that ends the wait."""


@dataclass(eq=False)
class Waiter:
    """One who waits, and gets news into a queue.

    :param accepts: tells whether a final record is the end for this waiter; by default it always is
    """

    accepts: Accepts | None = None
    queue: asyncio.Queue[Update] = field(default_factory=asyncio.Queue)


@dataclass(eq=False)
class _Watched(PollState):
    """One job or assessment that somebody waits for.

    :param polled: who wants to know when it has been polled once more
    """

    waiters: list[Waiter] = field(default_factory=list)
    polled: list[asyncio.Future[None]] = field(default_factory=list)


class Poller:
    """Polls all work of one kind and connection that somebody in this event loop waits for."""

    def __init__(self, hook: ComplianceHook, kind: JobKind) -> None:
        self._hook = hook
        self._kind = kind
        self._name = f"{kind.noun}s of '{hook.conn_id}'"
        self._client: AsyncComplianceClient | None = None
        self._watched: dict[str, _Watched] = {}
        self._joined = asyncio.Event()
        self._states: Counter[str] = Counter()
        self._said = _now()
        self._failing: set[str] = set()
        self._failing_since = 0.0
        self._is_connection_doubtful = False
        self._has_worked = False
        self._has_failed = False
        self._task = asyncio.create_task(self._run(), name=f"compliance-poller-{hook.conn_id}-{kind.noun}")

    @property
    def is_idle(self) -> bool:
        """Nobody waits."""
        return not self._watched

    @property
    def is_over(self) -> bool:
        """It has ended: nobody polls any more."""
        return self._has_failed or self._task.done()

    def join(self, waiter: Waiter, ids: Collection[str], poll_interval: float) -> None:
        """Let somebody wait for some."""
        now = _now()
        pace = self._kind.pace(len(self._watched) + len(ids))
        for each in ids:
            one = self._watched.setdefault(each, _Watched(each, now, poll_interval))
            one.poll_interval = min(one.poll_interval, poll_interval)
            one.schedule(now, pace)
            one.waiters.append(waiter)
        self._joined.set()

    def leave(self, waiter: Waiter, ids: Iterable[str]) -> None:
        """Let somebody go; what nobody else waits for is not polled any more."""
        for each in ids:
            one = self._watched.get(each)
            # Somebody else may have begun to wait for what this one has got already.
            if one and waiter in one.waiters:
                one.waiters.remove(waiter)
                if not one.waiters:
                    self._drop(each)

    async def poll_now(self, ids: Iterable[str]) -> None:
        """Poll these once more without delay, and return when that is done; their news are in the queues."""
        polled: list[asyncio.Future[None]] = []
        for each in ids:
            if one := self._watched.get(each):
                polled.append(asyncio.get_running_loop().create_future())
                one.polled.append(polled[-1])
                one.next_poll_at = 0.0
        self._joined.set()
        if polled:
            await asyncio.wait(polled, timeout=LAST_POLL_SECONDS)

    def stop(self) -> None:
        """End the poller; it closes its connections by itself."""
        self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                await self._poll(await self._due())
        except Exception as error:
            # Whoever waits has to learn of it, whatever it is: nobody polls any more.
            self._has_failed = True
            for each in list(self._watched):
                self._publish(each, error)
        finally:
            await self._close()

    async def _due(self) -> list[str]:
        """Wait until it is time to poll some, and name them."""
        while True:
            now = _now()
            if due := [one.id for one in self._watched.values() if one.next_poll_at <= now]:
                return due
            self._joined.clear()
            first = min((one.next_poll_at for one in self._watched.values()), default=now + 3600)
            try:
                async with asyncio.timeout(first - now):
                    await self._joined.wait()
            except TimeoutError:
                continue

    async def _poll(self, ids: list[str]) -> None:
        polled = {each: one.polled for each in ids if (one := self._watched.get(each))}
        for each in polled:
            self._watched[each].polled = []
        try:
            self._is_connection_doubtful = False
            try:
                client = await self._open()
            except ComplianceError as error:
                for each in ids:
                    self._on_result(each, error)
            else:
                await self._kind.poll(client, ids, self._on_result)
            is_new = self._is_connection_doubtful and await self._reconnect()
        finally:
            for futures in polled.values():
                _release(futures)
        now = _now()
        pace = self._kind.pace(len(self._watched))
        for each in ids:
            if one := self._watched.get(each):
                one.schedule(now, pace)
                if one.polled or is_new:
                    one.next_poll_at = now
        if self._watched and now - self._said >= LOG_INTERVAL_SECONDS:
            self._say(now)

    async def _open(self) -> AsyncComplianceClient:
        if self._client is None:
            client = await self._read_connection(self._hook)
            self._client = await client.__aenter__()
        return self._client

    async def _read_connection(self, hook: ComplianceHook) -> AsyncComplianceClient:
        try:
            # The poller is patient itself, so each call may give up soon.
            return await hook.get_async_conn(max_retries=1, retry_seconds=30.0)
        except ComplianceError:
            raise
        except Exception as error:  # of Airflow, or of a secrets backend
            why = f"{type(error).__name__}: {error}"
            raise ComplianceError(f"The Airflow connection '{hook.conn_id}' can't be read: {why}") from error

    async def _reconnect(self) -> bool:
        """Read the connection again; tell whether it has changed, and use it from now on if so."""
        hook = type(self._hook)(self._hook.conn_id)
        try:
            client = await self._read_connection(hook)
        except ComplianceError:
            return False
        if self._client is not None and client.settings == self._client.settings:
            return False
        log.info("The connection of %s has changed: using the new one.", self._name)
        await self._close()
        self._hook = hook
        self._client = await client.__aenter__()
        return True

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)

    def _on_result(self, identifier: str, found: PollResult) -> None:
        one = self._watched.get(identifier)
        if one is None:
            return  # whoever waited has gone meanwhile
        now = _now()
        if self._client is not None and have_credentials_worked(self._client):
            self._has_worked = True
        ended = one.observe(found, now, self._has_worked)
        if isinstance(found, ComplianceError):
            self._is_connection_doubtful |= is_refusal(found)
            self._fail(identifier, found)
            if ended is not None:
                self._publish(identifier, ended)
            return
        self._recover(identifier)
        self._states[found["status"]] += 1
        if ended is not None or found["status"] != UNKNOWN:
            self._offer(one, found, now)

    def _offer(self, one: _Watched, record: Record, now: float) -> None:
        """Tell those whose wait ends with this record; those who wait for a later one go on."""
        staying = []
        for waiter in one.waiters:
            is_accepted = waiter.accepts is None or waiter.accepts(one.id, record, now)
            if is_accepted and record["status"] in FINAL:
                waiter.queue.put_nowait((one.id, record))
            else:
                staying.append(waiter)
        one.waiters = staying
        if not staying:
            self._drop(one.id)

    def _fail(self, identifier: str, error: ComplianceError) -> None:
        if not self._failing:
            self._failing_since = _now()
            log.warning("%s can't be polled, going on: %s", self._name.capitalize(), error)
        self._failing.add(identifier)

    def _recover(self, identifier: str) -> None:
        if self._failing:
            self._failing.discard(identifier)
            if not self._failing:
                seconds = _now() - self._failing_since
                log.info("%s can be polled again, after %.0f s.", self._name.capitalize(), seconds)

    def _say(self, now: float) -> None:
        self._said = now
        oldest = now - min(one.since for one in self._watched.values())
        seen = ", ".join(f"{count} {state}" for state, count in self._states.most_common())
        log.info("Waiting for %s %s, the oldest for %.0f s; seen since the last line: %s.",
                 len(self._watched), self._name, oldest, seen)  # fmt: skip
        self._states.clear()

    def _publish(self, identifier: str, news: Record | Exception) -> None:
        if one := self._drop(identifier):
            for waiter in one.waiters:
                waiter.queue.put_nowait((identifier, news))

    def _drop(self, identifier: str) -> _Watched | None:
        self._failing.discard(identifier)
        one = self._watched.pop(identifier, None)
        if one:
            _release(one.polled)
        return one


# Per event loop, because a session of aiohttp belongs to one; and no longer than it.
_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[object, ...], Poller]] = WeakKeyDictionary()


@dataclass(eq=False)
class Subscription:
    """News of what is waited for."""

    poller: Poller
    waiter: Waiter

    async def get(self) -> Update:
        """Wait for the next news."""
        return await self.waiter.queue.get()

    async def poll_now(self, ids: Iterable[str]) -> list[Update]:
        """Poll these once more without delay, and return all news that there are."""
        await self.poller.poll_now(ids)
        queue = self.waiter.queue
        return [queue.get_nowait() for _ in range(queue.qsize())]


@asynccontextmanager
async def subscribe(
    hook: ComplianceHook,
    kind: JobKind,
    ids: Collection[str],
    poll_interval: float,
    accepts: Accepts | None = None,
) -> AsyncIterator[Subscription]:
    """Get news of each: its record as it comes to its end, or an error that ends the wait."""
    pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
    key = (type(hook), hook.conn_id, kind.noun)
    poller = pollers.get(key)
    if poller is None or poller.is_over:
        poller = pollers[key] = Poller(hook, kind)
    waiter = Waiter(accepts)
    poller.join(waiter, ids, poll_interval)
    try:
        yield Subscription(poller, waiter)
    finally:
        poller.leave(waiter, ids)
        if poller.is_idle:
            poller.stop()
            if pollers.get(key) is poller:
                del pollers[key]


def _release(futures: Iterable[asyncio.Future[None]]) -> None:
    for each in futures:
        if not each.done():
            each.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
