"""When a change of the catalogue is an event: once, whoever else looks and whatever ends in between."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from uuid import uuid4

from airflow_provider.frameworks.catalogue import NOTHING, Catalogue
from airflow_provider.frameworks.comparison import compare
from airflow_provider.frameworks.events import change_id, payload
from airflow_provider.frameworks.snapshots import OutageLog, Snapshot
from airflow_provider.frameworks.state import StateBackend, WatcherState

log = logging.getLogger(__name__)

LEASE_SETTLE_SECONDS = 1.0  # how long to wait whether somebody else claims the same change
LEASE_SECONDS = 60.0  # seconds after which whoever claimed a change is taken for dead
MEMORY_SECONDS = 30.0  # the longest that reading or writing may take


class Watcher:
    """Compares what is seen with what is remembered.

    An event goes in three steps. First a *claim* is written: I am about to send this change. Then the event
    is sent. When Airflow has stored it, the claim is *settled*: the new catalogue is remembered. Who finds a
    claim of somebody who died in between can't know whether the event was stored, so sends it again, with
    the same id and marked as a possible repeat: a change is never lost.
    """

    def __init__(
        self, backend: StateBackend, conn_id: str, poll_interval: float, fire_at_first_sight: bool = False
    ) -> None:
        self._backend = backend
        self._conn_id = conn_id
        self._poll_interval = poll_interval
        self._fire_at_first_sight = fire_at_first_sight
        self._me = uuid4().hex
        self._sent: Catalogue | None = None  # what an event was sent for that is not settled yet
        self._is_stored = False
        self._trouble = OutageLog(f"Using the memory of the watcher of '{conn_id}'")

    async def evaluate(self, snapshot: Snapshot) -> dict[str, Any] | None:
        """Return the payload of an event if there is something to tell; it must be sent, then settled."""
        try:
            async with asyncio.timeout(MEMORY_SECONDS):
                event = await self._evaluate(snapshot)
        except Exception as error:
            # Without its memory a watcher says nothing: the change is still there when it is back.
            self._trouble.failed(error)
            return None
        self._trouble.recovered()
        return event

    async def commit(self) -> None:
        """Learn that the event is stored, and remember it for good."""
        self._is_stored = True
        try:
            async with asyncio.timeout(MEMORY_SECONDS):
                await self._commit()
        except Exception as error:
            self._trouble.failed(error)  # the next look tries again

    def release(self) -> None:
        """Learn that nobody knows whether the event is stored; the claim stays, for the next watcher."""
        self._sent, self._is_stored = None, False

    async def _evaluate(self, snapshot: Snapshot) -> dict[str, Any] | None:
        if self._sent:
            if not self._is_stored:
                return None
            await self._commit()
        note = await self._note()
        if note is None:
            # An empty catalogue may be a service in trouble: all that comes later would seem to be new.
            if not (snapshot.catalogue.frameworks or snapshot.is_sure(self._poll_interval, takes_away=True)):
                return None
            if not self._fire_at_first_sight:
                count = len(snapshot.catalogue.frameworks)
                log.info("First look at the frameworks of '%s': there are %s.", self._conn_id, count)
                await self._remember(snapshot.catalogue)
                return None
        return await self._notice(snapshot, note or WatcherState(NOTHING))

    async def _notice(self, snapshot: Snapshot, note: WatcherState) -> dict[str, Any] | None:
        claim = note.claim
        if claim and claim.by != self._me and time.time() - claim.at < LEASE_SECONDS:
            return None  # somebody else is about to tell, or has just died
        before, now = note.catalogue, snapshot.catalogue
        difference = await asyncio.to_thread(compare, before, now)
        if not difference:
            if claim or before.digest != now.digest:
                await self._remember(now)
            return None
        if before.digest and not snapshot.is_sure(self._poll_interval, difference.takes_away):
            return None
        change = change_id(before, now)
        await self._write(note.claimed(change, self._me))
        await asyncio.sleep(LEASE_SETTLE_SECONDS)
        note_now = await self._note()
        if not note_now or not note_now.claim or note_now.claim.by != self._me:
            return None
        self._sent, self._is_stored = now, False
        may_be_known = claim is not None and claim.change == change
        log.info("The frameworks of '%s' have changed: %s.", self._conn_id, difference.summary)
        return await asyncio.to_thread(payload, difference, before, now, self._conn_id, may_be_known)

    async def _commit(self) -> None:
        if self._sent:
            await self._remember(self._sent)
            self._sent, self._is_stored = None, False

    async def _remember(self, catalogue: Catalogue) -> None:
        await self._write(WatcherState(catalogue))

    async def _write(self, note: WatcherState) -> None:
        # A large catalogue takes seconds, in which the triggerer has others to serve.
        await self._backend.write(await asyncio.to_thread(note.plain))

    async def _note(self) -> WatcherState | None:
        plain = await self._backend.read()
        try:
            return WatcherState.of_plain(plain) if plain else None
        except ValueError as error:
            log.warning("Beginning anew, because what was remembered is not usable: %s", error)
            return None
