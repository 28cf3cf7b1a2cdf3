"""Looking at the catalogue of frameworks from time to time, with patience for whatever goes wrong."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import ComplianceAuthError, ComplianceError
from airflow_provider.frameworks.catalogue import Catalogue
from airflow_provider.hooks.compliance import ComplianceHook

if TYPE_CHECKING:
    from airflow_provider.client.models import Framework
    from airflow_provider.client.settings import Settings

log = logging.getLogger(__name__)

SHORTEST_PAUSE = 1.0  # seconds between two looks, whatever is asked for
SECOND_LOOK = 30.0  # seconds after which something new is looked at once more
LOOK_SECONDS = 300.0  # the longest that a look may take
REFUSED_PAUSE = 300.0  # seconds in which refused credentials are not used again; doubles with each refusal
LONGEST_REFUSED_PAUSE = 6 * 3600.0

Settle = Callable[[], Coroutine[Any, Any, None]]


@dataclass(eq=False)
class Snapshot:
    """What was seen.

    :param times: in how many looks in a row this very catalogue was seen
    :param seconds: how long ago it was seen for the first time
    :param settlements: what to do when all events that were made of this look are in Airflow's database
    """

    catalogue: Catalogue
    times: int
    seconds: float
    on_stored: list[Settle] = field(default_factory=list)

    def is_sure(self, poll_interval: float, takes_away: bool) -> bool:
        """Tell whether this is no passing fault: seen twice, and for a while where something is gone."""
        return self.times > 1 and (self.seconds >= poll_interval or not takes_away)

    async def commit(self) -> None:
        """Do what was to be done afterwards, once."""
        while self.on_stored:
            await self.on_stored.pop()()


class OutageLog:
    """Something that keeps going wrong: said once, and once more when it is over or of another kind."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._kind: type[Exception] | None = None
        self._since = 0.0

    def failed(self, error: Exception) -> None:
        """Say what goes wrong, unless that is known."""
        if self._kind is None:
            self._since = time.monotonic()
        if self._kind is not type(error):
            why = str(error) if isinstance(error, ComplianceError) else f"{type(error).__name__}: {error}"
            log.warning("%s is not possible, trying on: %s", self._what, why)
        self._kind = type(error)

    def recovered(self) -> None:
        """Say that it is over, if there was any."""
        if self._kind is not None:
            log.info("%s is possible again, after %.0f s.", self._what, time.monotonic() - self._since)
        self._kind = None


@dataclass
class _Refusal:
    """Credentials that were refused; they are not tried again soon, because accounts get locked."""

    settings: Settings
    error: ComplianceAuthError
    count: int = 0
    until: float = 0.0

    def repeated(self) -> _Refusal:
        pause = min(LONGEST_REFUSED_PAUSE, REFUSED_PAUSE * 2**self.count)
        return _Refusal(self.settings, self.error, self.count + 1, time.monotonic() + pause)


class FrameworkPoller:
    """The looks through one connection, one after the other; they never end and never fail.

    It is what Airflow 3.3 calls the producer of a shared stream: all triggers of a triggerer that look
    through the same connection as often as each other share one, and it is told when their events are stored.
    """

    def __init__(self, conn_id: str, poll_interval: float) -> None:
        self.conn_id = conn_id
        self.poll_interval = max(SHORTEST_PAUSE, poll_interval)
        self._trouble = OutageLog(f"Looking at the frameworks of '{conn_id}'")
        self._last: Snapshot | None = None
        self._first_seen = 0.0
        self._refusal: _Refusal | None = None

    async def stream(self) -> AsyncGenerator[Snapshot, None]:
        """Look, again and again."""
        while True:
            pause = self.poll_interval
            try:
                frameworks = await self._frameworks()
                # A large catalogue takes seconds, in which the triggerer has others to serve.
                snapshot = self._last = self._seen(await asyncio.to_thread(Catalogue.of, frameworks))
            except Exception as error:
                # Whatever it is: a watcher that ends is started again by Airflow at once, without any pause.
                self._trouble.failed(error)
                pause = max(pause, getattr(error, "retry_after", None) or 0.0)
            else:
                self._trouble.recovered()
                if snapshot.times == 1:
                    pause = min(pause, SECOND_LOOK)
                yield snapshot
            await asyncio.sleep(pause)

    async def open_stream(self) -> AsyncIterator[tuple[Snapshot, Snapshot]]:
        """Give the looks as Airflow wants them of a producer: each with what to be told of afterwards."""
        async for snapshot in self.stream():
            yield snapshot, snapshot

    async def advance(self, batch: Sequence[Any]) -> None:
        """Learn from Airflow that all events that were made of some looks are in its database."""
        for item in batch:
            await item.broker_payload.commit()

    def get_advance_lane(self, payload: Snapshot) -> Hashable:
        """Tell Airflow that the looks come in one order."""
        return None

    async def aclose(self) -> None:
        """Have nothing to close: each look has its own session."""

    def _seen(self, catalogue: Catalogue) -> Snapshot:
        now = time.monotonic()
        if self._last is None or self._last.catalogue.digest != catalogue.digest:
            self._first_seen = now
            return Snapshot(catalogue, 1, 0.0)
        return Snapshot(catalogue, self._last.times + 1, now - self._first_seen)

    async def _frameworks(self) -> list[Framework]:
        # A session and a connection for each look: so a connection that was mended is noticed.
        hook = ComplianceHook(self.conn_id)
        async with (
            asyncio.timeout(LOOK_SECONDS),
            await hook.get_async_conn(max_retries=1, retry_seconds=30.0) as client,
        ):
            refusal = self._refusal
            if refusal and refusal.settings == client.settings and time.monotonic() < refusal.until:
                raise copy.copy(refusal.error)
            try:
                frameworks = await client.list_frameworks()
            except ComplianceAuthError as error:
                known = refusal if refusal and refusal.settings == client.settings else None
                self._refusal = (known or _Refusal(client.settings, copy.copy(error))).repeated()
                raise
            self._refusal = None
            return frameworks
