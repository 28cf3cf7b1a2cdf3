"""One poller for all who wait in an event loop: it polls everything of one kind together."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import ComplianceError, ComplianceThrottledError
from airflow_provider.runtime import metrics
from airflow_provider.runtime.event_loop import is_in_task
from airflow_provider.waiting.connection import PollerConnection, read_account
from airflow_provider.waiting.kinds import NO_LIMITER, Limiter
from airflow_provider.waiting.results import FINAL, UNKNOWN, Record
from airflow_provider.waiting.rules import LAST_POLL_SECONDS, Accepts, Pace, PollState, accept_final

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.base import ServiceClock
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.waiting.kinds import JobKind
    from airflow_provider.waiting.results import PollResult

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0  # for a poller to close its connections
PHASE_SECONDS = 86_400.0  # longer than any poll interval

Update = tuple[str, Record | Exception]
"""An id, and the record or the error that ends the wait for it."""


class _Watched(PollState):
    """One job or assessment, with the subscriptions that wait for it."""

    def __init__(self, identifier: str, since: float, poll_interval: float, phase: float) -> None:
        super().__init__(identifier, since, poll_interval, phase)
        self.subscriptions: list[Subscription] = []


class Poller:
    """Polls all work of one kind and connection that is waited for in this event loop.

    :param account: the account of the jobs; empty if unknown
    :param limiter: the limiter of all requests of the task
    """

    def __init__(self, hook: ComplianceHook, kind: JobKind, account: str, limiter: Limiter) -> None:
        self._conn_id = hook.conn_id
        self._kind = kind
        self._limiter = limiter
        self._pace = Pace()
        self._name = f"{kind.noun}s of '{hook.conn_id}'"
        self._phase = _random_phase()  # where the grid begins: other processes poll at other times
        self._failing_since: float | None = None
        self._connection = PollerConnection(hook, account)
        self._watched: dict[str, _Watched] = {}
        self._ended = 0  # how many are not waited for any more
        self._joined = asyncio.Event()
        self._wakes_at = float("inf")
        self._urgent: set[str] = set()
        self._turn = asyncio.Lock()  # one round of polls at a time
        self._is_connection_doubtful = False
        self._last_success_at: float | None = None
        self._round_at = 0.0  # when the last round of polls began: its results count as of one time
        self._is_closed = False
        self._task = asyncio.create_task(self._run(), name=f"compliance-poller-{hook.conn_id}-{kind.noun}")

    @property
    def is_idle(self) -> bool:
        """Nothing is waited for."""
        return not self._watched

    @property
    def is_over(self) -> bool:
        """It is closed or failed, or its connection leads elsewhere now: nothing more is added to it."""
        return self._is_closed or self._connection.has_moved

    @property
    def clock(self) -> ServiceClock | None:
        """The clock of the service, as soon as the connection is open."""
        return self._connection.clock

    @property
    def has_succeeded(self) -> bool:
        """Something could be polled."""
        return self._last_success_at is not None

    def has_pending_updates(self, subscription: Subscription) -> bool:
        """Return whether some were not polled yet, or are unknown or refused for a short time."""
        return any(
            one.last_result is None or one.unknown_since is not None or self._is_refused_alone(one)
            for one in self._watched.values()
            if subscription in one.subscriptions
        )

    def _is_refused_alone(self, one: PollState) -> bool:
        """Return whether others could be polled since, so that no outage is to blame."""
        since, success_at = one.refusals.since, self._last_success_at
        return since is not None and success_at is not None and success_at > since

    def last_result(self, identifier: str) -> PollResult | None:
        """Return the result of the last poll of a job."""
        one = self._watched.get(identifier)
        return one.last_result if one else None

    def is_in_flight(self, identifier: str) -> bool:
        """Return whether the last poll found a job in flight; a job that may be gone is not."""
        found = self.last_result(identifier)
        return isinstance(found, dict) and found["status"] not in FINAL

    def join(self, subscription: Subscription, ids: Collection[str]) -> None:
        """Also poll these for a subscription."""
        now = _now()
        phase = self._phase if self._kind.has_batches else now
        for key in ids:
            one = self._watched.setdefault(key, _Watched(key, now, subscription.poll_interval, phase))
            one.poll_interval = min(one.poll_interval, subscription.poll_interval)
            one.schedule(now, self._kind.min_interval)
            one.subscriptions.append(subscription)
            if one.next_poll_at < self._wakes_at:  # else it would look through all for each that is added
                self._joined.set()

    def leave(self, subscription: Subscription, ids: Iterable[str] | None = None) -> None:
        """Remove some from a subscription, or all; what no other one contains is not polled any more."""
        for key in list(self._watched) if ids is None else ids:
            one = self._watched.get(key)
            # Another subscription may wait for a job whose update this one already has.
            if one and subscription in one.subscriptions:
                one.subscriptions.remove(subscription)
                if not one.subscriptions:
                    self._drop(key)

    async def poll_now(self, ids: Iterable[str]) -> None:
        """Poll these once more without delay; when it returns, their updates are in the queues."""
        self._urgent.update(ids)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_POLL_SECONDS):
                await self._poll([])

    async def close(self) -> None:
        """End the poller, and wait until its connections are closed."""
        self._is_closed = True
        self._task.cancel()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    async def _run(self) -> None:
        try:
            while not self._is_closed:
                await self._poll(await self._due())
        finally:
            self._watched.clear()
            self._send_gauges(0.0)  # else the last values would stay
            await self._connection.close()

    async def _due(self) -> list[str]:
        """Wait until it is time to poll some, and name them, the longest due first."""
        while True:
            now, watched = _now(), self._watched.values()
            paused = self._pace.resumes_at
            by = now if paused <= now else -math.inf
            if due := [one for one in watched if one.next_poll_at <= by or one.poll_by <= now]:
                return [one.id for one in sorted(due, key=lambda one: one.next_poll_at)]
            self._joined.clear()
            due_at = (min(max(one.next_poll_at, paused), one.poll_by) for one in watched)
            self._wakes_at = min(due_at, default=now + 3600)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wakes_at - now):
                    await self._joined.wait()

    async def _poll(self, ids: list[str]) -> None:
        """Poll these and all urgent jobs in one round."""
        async with self._turn:
            urgent, self._urgent = self._urgent & self._watched.keys(), set()
            ids = [*urgent, *(key for key in ids if key in self._watched and key not in urgent)]
            try:
                if ids:
                    await self._poll_round(ids, urgent)
            except Exception as error:
                # All who wait have to know: nothing is polled any more.
                self._is_closed = True
                for key in list(self._watched):
                    self._publish(key, error)

    async def _poll_round(self, ids: list[str], urgent: set[str]) -> None:
        self._round_at = _now()
        first = min(self._watched[key].next_poll_at for key in ids)
        self._is_connection_doubtful = False
        try:
            client = await self._connection.open()
        except ComplianceError as error:
            for key in ids:
                self._on_result(key, error)
        else:
            if self._connection.has_moved:  # there, another job may have the same id
                for key in list(self._watched):
                    self._publish(key, self._connection.moved_error)
            elif self._kind.has_batches:
                await self._poll_batches(client, ids)
            else:
                ids = await self._poll_singly(client, ids, urgent)
        has_changed = self._is_connection_doubtful and await self._connection.reload()
        if has_changed:
            log.info("The connection of %s changed: using the new one.", self._name)
        now = _now()
        for key in ids:
            if one := self._watched.get(key):
                one.schedule(now, self._kind.min_interval)
                if has_changed:
                    one.next_poll_at = one.poll_by = now
        self._log_outage(now)
        self._send_gauges(max(0.0, self._round_at - first))

    async def _poll_batches(self, client: AsyncComplianceClient, ids: list[str]) -> None:
        """Poll all; a job at fault must not make the batch of others fail every time."""
        watched = [one for key in ids if (one := self._watched.get(key))]
        for is_failing in (False, True):
            if part := [one.id for one in watched if (one.failing_since is not None) is is_failing]:
                await self._kind.poll(client, part, self._on_result, self._limiter)

    async def _poll_singly(
        self, client: AsyncComplianceClient, ids: list[str], urgent: set[str]
    ) -> list[str]:
        """Poll as long as it pays, and overdue ids in any case; return the polled ids."""
        polled: list[str] = []
        ended_before, now = self._ended, _now()

        def while_it_pays() -> Iterator[str]:
            ended, vain = self._ended, 0
            for key in ids:
                ended, vain = (ended, vain + 1) if ended == self._ended else (self._ended, 1)
                one = self._watched.get(key)
                if one and (key in urgent or one.poll_by <= now or vain <= self._limiter.polls):
                    polled.append(key)
                    yield key

        await self._kind.poll(client, while_it_pays(), self._on_result, self._limiter)
        self._pace.observe(_now(), len(polled), self._ended - ended_before)
        return polled

    def _log_outage(self, now: float) -> None:
        """Log when polling begins to fail, and when it works again; each wait logs it from time to time."""
        failing = next((one for one in self._watched.values() if one.failing_since is not None), None)
        if failing and self._failing_since is None:
            self._failing_since = failing.failing_since
            log.warning("Polling the %s failed, retrying: %s", self._name, failing.last_result)
        elif not failing and self._failing_since is not None:
            log.info("Polling the %s works again, after %.0f s.", self._name, now - self._failing_since)
            self._failing_since = None

    def _send_gauges(self, lag: float) -> None:
        if not metrics.is_on():
            return
        watched, now = self._watched.values(), _now()
        values: dict[metrics.Metric, float] = {
            metrics.WAITERS: len({subscription for one in watched for subscription in one.subscriptions}),
            metrics.PENDING: len(watched),
            metrics.POLL_LAG: lag,
            metrics.OLDEST_PENDING: now - min((one.since for one in watched), default=now),
        }
        process = "worker" if is_in_task() else "triggerer"
        for metric, value in values.items():
            metrics.gauge(metric, self._conn_id, value, kind=self._kind.noun, process=process)

    def _on_result(self, identifier: str, found: PollResult) -> None:
        one = self._watched.get(identifier)
        if one is None:
            return  # it is not waited for any more
        now = self._round_at
        ended = one.observe(found, now, self._connection.has_worked)
        if isinstance(found, ComplianceError):
            self._is_connection_doubtful |= not isinstance(found, ComplianceThrottledError)
            if isinstance(ended, ComplianceError):
                ended.concerns_one_job = self._is_refused_alone(one)
                self._publish(identifier, ended)
            return
        self._last_success_at = now
        if ended is not None or found["status"] != UNKNOWN:  # unknown only after a while
            # Those whose wait does not end with this record keep waiting for a later one.
            enough = [
                subscription
                for subscription in one.subscriptions
                if subscription.accepts(identifier, found, now)
            ]
            for subscription in enough:
                subscription.queue.put_nowait((identifier, found))
                self.leave(subscription, [identifier])

    def _publish(self, identifier: str, update: Record | Exception) -> None:
        if one := self._drop(identifier):
            for subscription in one.subscriptions:
                subscription.queue.put_nowait((identifier, update))

    def _drop(self, identifier: str) -> _Watched | None:
        self._ended += 1
        return self._watched.pop(identifier, None)


# Per event loop, because a session of aiohttp belongs to one; and no longer than it.
_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[object, ...], Poller]] = WeakKeyDictionary()


@dataclass(eq=False)
class Subscription:
    """Updates on jobs or assessments: for each, the record or the error that ends the wait for it.

    Enter it to begin; ids can be added and removed while it runs.

    :param ids: what to wait for at first
    :param accepts: whether a record ends the wait for it
    :param limiter: the limiter of all requests of the task
    :param account: the account of the jobs, see `ComplianceHook.account_digest`; by default the account of
        the connection, which is read for it. Jobs of another service or account have another poller, even if
        the connection has the same name
    """

    hook: ComplianceHook
    kind: JobKind
    ids: Collection[str]
    poll_interval: float
    accepts: Accepts = accept_final
    limiter: Limiter = NO_LIMITER
    account: str = ""
    queue: asyncio.Queue[Update] = field(default_factory=asyncio.Queue)
    poller: Poller = field(init=False)

    async def __aenter__(self) -> Self:
        self.account = self.account or await read_account(self.hook)
        self.poller = self._find_poller()
        self.add(self.ids)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for nothing any more; the last one closes the poller."""
        self.poller.leave(self)
        if self.poller.is_idle:
            pollers = _pollers[asyncio.get_running_loop()]
            if pollers.get(self._key) is self.poller:
                del pollers[self._key]
            await self.poller.close()

    @property
    def has_pending_updates(self) -> bool:
        """Some were not polled yet, are unknown for a short time only, or have an update not fetched yet."""
        return not self.queue.empty() or self.poller.has_pending_updates(self)

    def add(self, ids: Collection[str]) -> None:
        """Also wait for these."""
        if self.poller.is_over:
            self.poller = self._find_poller()
        self.poller.join(self, ids)

    def remove(self, ids: Iterable[str]) -> None:
        """Wait for these no longer."""
        self.poller.leave(self, ids)

    def _find_poller(self) -> Poller:
        pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
        poller = pollers.get(self._key)
        if poller is None or poller.is_over:
            poller = pollers[self._key] = Poller(self.hook, self.kind, self.account, self.limiter)
        return poller

    @property
    def _key(self) -> tuple[object, ...]:
        return type(self.hook), self.hook.conn_id, self.account, self.kind.noun

    async def get(self) -> Update:
        """Wait for the next update."""
        return await self.queue.get()

    async def poll_now(self, ids: Iterable[str]) -> list[Update]:
        """Poll these once more without delay, and return all available updates."""
        await self.poller.poll_now(ids)
        return [self.queue.get_nowait() for _ in range(self.queue.qsize())]


def _random_phase() -> float:
    return random.uniform(0.0, PHASE_SECONDS)  # noqa: S311 - to spread load, not for secrets


def _now() -> float:
    return asyncio.get_running_loop().time()
