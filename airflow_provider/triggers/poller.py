"""One poller for all who wait in an event loop: it asks the batch endpoint for all their jobs together."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import ComplianceError, ComplianceHttpError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.triggers.waiting import SAY_EVERY, Record, may_pass, next_look, record_of

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import ContentJob

log = logging.getLogger(__name__)

Sighting = Record | Exception
"""What a waiter gets: the record of a job that came to its end, or the error that ends its wait."""


@dataclass(eq=False)
class _Watched:
    """One job that somebody waits for."""

    uuid: str
    since: float
    poll_interval: float
    look_at: float
    waiters: list[asyncio.Queue[Sighting]] = field(default_factory=list)


class Poller:
    """Looks at all jobs of one connection that somebody in this event loop waits for."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._jobs: dict[str, _Watched] = {}
        self._joined = asyncio.Event()
        self._states: Counter[str] = Counter()
        self._said = _now()
        self._failing_since: float | None = None
        self._task = asyncio.create_task(self._run(), name=f"compliance-poller-{conn_id}")

    @property
    def is_idle(self) -> bool:
        """Nobody waits."""
        return not self._jobs

    @property
    def is_over(self) -> bool:
        """It has ended, for instance because the connection can't be used."""
        return self._task.done()

    def join(self, waiter: asyncio.Queue[Sighting], uuids: Iterable[str], poll_interval: float) -> None:
        """Let somebody wait for some jobs."""
        now = _now()
        for uuid in uuids:
            job = self._jobs.setdefault(uuid, _Watched(uuid, now, poll_interval, 0.0))
            job.poll_interval = min(job.poll_interval, poll_interval)
            job.look_at = next_look(now, job.since, job.poll_interval)
            job.waiters.append(waiter)
        self._joined.set()

    def leave(self, waiter: asyncio.Queue[Sighting], uuids: Iterable[str]) -> None:
        """Let somebody go; a job that nobody else waits for is not looked at any more."""
        for uuid in uuids:
            job = self._jobs.get(uuid)
            # Somebody else may have begun to wait for a job that this one has got already.
            if job and waiter in job.waiters:
                job.waiters.remove(waiter)
                if not job.waiters:
                    del self._jobs[uuid]

    def stop(self) -> None:
        """End the poller; it closes its connections by itself."""
        self._task.cancel()

    async def _run(self) -> None:
        try:
            # The poller is patient itself, so each call may give up soon.
            hook = ComplianceHook(self.conn_id)
            async with await hook.get_async_conn(max_retries=1, retry_seconds=30.0) as client:
                while True:
                    await self._look(client, await self._due())
        except Exception as error:
            # Whoever waits has to learn of it, whatever it is: nobody looks any more.
            self._tell(list(self._jobs), error)

    async def _due(self) -> list[str]:
        """Wait until it is time to look at some jobs, and name them."""
        while True:
            now = _now()
            if due := [job.uuid for job in self._jobs.values() if job.look_at <= now]:
                return due
            self._joined.clear()
            first = min((job.look_at for job in self._jobs.values()), default=now + 3600)
            try:
                async with asyncio.timeout(first - now):
                    await self._joined.wait()
            except TimeoutError:
                continue

    async def _look(self, client: AsyncComplianceClient, uuids: list[str]) -> None:
        try:
            jobs = await client.get_statuses(uuids)
        except ComplianceError as error:
            if may_pass(error):
                self._fail(error)
            elif isinstance(error, ComplianceHttpError) and len(uuids) > 1:
                # One of them is the culprit; the others must not suffer.
                for uuid in uuids:
                    await self._look(client, [uuid])
                return
            else:
                self._tell(uuids, error)
        else:
            self._recover()
            self._see(uuids, jobs)
        now = _now()
        for uuid in uuids:
            if job := self._jobs.get(uuid):
                job.look_at = next_look(now, job.since, job.poll_interval)

    def _fail(self, error: ComplianceError) -> None:
        if self._failing_since is None:
            self._failing_since = _now()
            log.warning(
                "%s jobs of '%s' can't be looked at, going on: %s", len(self._jobs), self.conn_id, error
            )

    def _recover(self) -> None:
        if self._failing_since is not None:
            log.info(
                "Jobs of '%s' can be looked at again, after %.0f s.",
                self.conn_id,
                _now() - self._failing_since,
            )
            self._failing_since = None

    def _see(self, uuids: list[str], jobs: dict[str, ContentJob]) -> None:
        self._states.update(job.status.value for job in jobs.values())
        for uuid in uuids:
            job = jobs.get(uuid)
            if job is None or job.status.is_final:
                self._tell([uuid], record_of(uuid, job))
        now = _now()
        if self._jobs and now - self._said >= SAY_EVERY:
            self._said = now
            oldest = now - min(job.since for job in self._jobs.values())
            seen = ", ".join(f"{count} {state}" for state, count in self._states.most_common())
            log.info("Waiting for %s jobs of '%s', the oldest for %.0f s; seen since the last line: %s.",
                     len(self._jobs), self.conn_id, oldest, seen)  # fmt: skip
            self._states.clear()

    def _tell(self, uuids: list[str], sighting: Sighting) -> None:
        for uuid in uuids:
            if job := self._jobs.pop(uuid, None):
                for waiter in job.waiters:
                    waiter.put_nowait(sighting)


# Per event loop, because a session of aiohttp belongs to one; and no longer than it.
_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Poller]] = WeakKeyDictionary()


@asynccontextmanager
async def watching(
    conn_id: str, uuids: Collection[str], poll_interval: float
) -> AsyncIterator[asyncio.Queue[Sighting]]:
    """Get the record of each job into a queue as it comes to its end, or an error that ends the wait."""
    pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
    poller = pollers.get(conn_id)
    if poller is None or poller.is_over:
        poller = pollers[conn_id] = Poller(conn_id)
    waiter: asyncio.Queue[Sighting] = asyncio.Queue()
    poller.join(waiter, uuids, poll_interval)
    try:
        yield waiter
    finally:
        poller.leave(waiter, uuids)
        if poller.is_idle:
            poller.stop()
            if pollers.get(conn_id) is poller:
                del pollers[conn_id]


def _now() -> float:
    return asyncio.get_running_loop().time()
