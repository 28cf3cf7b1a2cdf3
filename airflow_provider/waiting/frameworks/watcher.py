"""Poll the catalog of frameworks, compare it with the stored state, and build events of confirmed changes."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import ComplianceAuthError, ComplianceError
from airflow_provider.hooks.compliance import import_hook_class
from airflow_provider.runtime.compat import get_variable, set_variable
from airflow_provider.waiting.frameworks.catalog import (
    CHANGE_KINDS,
    EMPTY,
    Catalog,
    Change,
    compare,
    summarize_changes,
)

if TYPE_CHECKING:
    from airflow_provider.client.models import Framework
    from airflow_provider.client.settings import Settings

log = logging.getLogger(__name__)

MIN_POLL_SECONDS = 1.0
POLL_TIMEOUT_SECONDS = 300.0
STATE_TIMEOUT_SECONDS = 30.0
AUTH_RETRY_SECONDS = 300.0  # backoff after refused credentials; doubles with each refusal
MAX_AUTH_RETRY_SECONDS = 6 * 3600.0
MAX_IDS_CHARS = 10_000  # for JSON, in an event: Airflow logs it and stores it


@dataclass(eq=False)
class CatalogSnapshot:
    """One poll of the catalog.

    :param on_stored: is called when Airflow has stored all events of this snapshot
    """

    catalog: Catalog
    on_stored: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    async def commit(self) -> None:
        """Run the callbacks, once."""
        while self.on_stored:
            await self.on_stored.pop()()


class OutageLog:
    """Logs the start and the end of an outage, and a change of its cause."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._cause: type[Exception] | None = None

    def failed(self, error: Exception) -> None:
        """Log an error, unless it is of the same kind as the previous one."""
        if self._cause is not type(error):
            why = str(error) if isinstance(error, ComplianceError) else f"{type(error).__name__}: {error}"
            log.warning("%s failed, retrying: %s", self._what, why)
        self._cause = type(error)

    def recovered(self) -> None:
        """Log the end of an outage, if any."""
        if self._cause is not None:
            log.info("%s works again.", self._what)
        self._cause = None


class FrameworkPoller:
    """Polls the catalog of one connection; never ends and never fails.

    From Airflow 3.3 on it is the producer of a shared stream: all triggers of a triggerer with the same
    connection and interval share one, and Airflow calls `advance` when their events are stored.
    """

    def __init__(
        self,
        conn_id: str,
        poll_interval: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        hook_class: str = "",
    ) -> None:
        self.conn_id = conn_id
        self.poll_interval = max(MIN_POLL_SECONDS, poll_interval)
        self._hook_class = hook_class
        self._clock = clock
        self._sleep = sleep
        self._outage = OutageLog(f"Polling the frameworks of '{conn_id}'")
        # Refused credentials are not used again for a while, because accounts get locked.
        self._refused: tuple[Settings, ComplianceAuthError] | None = None
        self._refusals = 0
        self._refused_until = 0.0

    async def stream(self) -> AsyncGenerator[CatalogSnapshot, None]:
        """Yield a snapshot per successful poll."""
        while True:
            pause = self.poll_interval
            try:
                frameworks = await self._fetch()
                # A large catalog takes seconds, which would block the other triggers.
                snapshot = CatalogSnapshot(await asyncio.to_thread(Catalog.parse, frameworks))
            except Exception as error:
                # Any error: Airflow restarts a failed watcher at once, without a backoff.
                self._outage.failed(error)
                pause = max(pause, getattr(error, "retry_after", None) or 0.0)
            else:
                self._outage.recovered()
                yield snapshot
            await self._sleep(pause)

    async def open_stream(self) -> AsyncIterator[tuple[CatalogSnapshot, CatalogSnapshot]]:
        """Yield snapshots as Airflow expects them: each with what to pass to `advance`."""
        async for snapshot in self.stream():
            yield snapshot, snapshot

    async def advance(self, batch: Sequence[Any]) -> None:
        """Commit snapshots whose events Airflow stored."""
        for item in batch:
            await item.broker_payload.commit()

    def get_advance_lane(self, payload: CatalogSnapshot) -> Hashable:
        """Keep all snapshots in one order."""
        return None

    async def aclose(self) -> None:
        """Do nothing: each poll closes its own session."""

    async def _fetch(self) -> list[Framework]:
        # A new hook and session per poll, so that an edited connection takes effect.
        hook = import_hook_class(self._hook_class)(self.conn_id)
        async with (
            asyncio.timeout(POLL_TIMEOUT_SECONDS),
            await hook.get_async_conn(max_retries=1, retry_seconds=30.0) as client,
        ):
            if self._refused and self._refused[0] != client.settings:
                self._refused, self._refusals = None, 0
            if self._refused and self._clock() < self._refused_until:
                raise copy.copy(self._refused[1])
            try:
                frameworks = await client.list_frameworks()
            except ComplianceAuthError as error:
                pause = min(MAX_AUTH_RETRY_SECONDS, AUTH_RETRY_SECONDS * 2**self._refusals)
                self._refused, self._refused_until = (
                    (client.settings, copy.copy(error)),
                    self._clock() + pause,
                )
                self._refusals += 1
                raise
            self._refused, self._refusals = None, 0
            return frameworks


@dataclass
class AssetState:
    """Stores the state of a watcher with each asset that a trigger watches, from Airflow 3.3 on.

    :param stores: the state stores of the assets
    """

    stores: list[Any]
    key: str

    async def read(self) -> Any:
        """Return the newest state, if any: earlier, assets may have been watched separately."""
        found = [await store.aget(self.key) for store in self.stores]
        states = [state for state in found if isinstance(state, dict)]
        return max(states, key=lambda state: float(state.get("at", 0)), default=None)

    async def write(self, state: dict[str, Any]) -> None:
        """Store the state with all of them."""
        for store in self.stores:
            await store.aset(self.key, state)


@dataclass
class VariableState:
    """Does the same in an Airflow variable: before 3.3, a trigger has no other persistent storage."""

    key: str
    description: str

    async def read(self) -> Any:
        """Return the state."""
        return await get_variable(self.key)

    async def write(self, state: dict[str, Any]) -> None:
        """Store the state and read it back: Airflow only logs when a variable can't be written."""
        await set_variable(self.key, state, self.description)
        if await self.read() != state:
            raise RuntimeError(
                f"The Airflow variable '{self.key}' could not be written: see the triggerer's log."
            )


class Watcher:
    """Compares snapshots with the stored state and sends each change at least once.

    A change counts when two polls in a row return it: a service that starts may list too little. The
    state is written after Airflow stored the event. If a triggerer dies in between, or two watchers share
    a state, the event is sent again with the same id.
    """

    def __init__(
        self, state: AssetState | VariableState, conn_id: str, fire_on_first_snapshot: bool = False
    ) -> None:
        self._state = state
        self._conn_id = conn_id
        self._fire_on_first_snapshot = fire_on_first_snapshot
        self._previous = ""  # digest of the previous poll
        self._in_flight: Catalog | None = None  # sent, not known to be stored
        self._unwritten: Catalog | None = None  # its event is stored, the state is not written
        self._outage = OutageLog(f"Using the stored state of the watcher of '{conn_id}'")

    async def evaluate(self, snapshot: CatalogSnapshot) -> dict[str, Any] | None:
        """Return the payload of an event to send and then to commit, if any."""
        catalog = snapshot.catalog
        is_confirmed, self._previous = catalog.digest == self._previous, catalog.digest
        if self._in_flight or not is_confirmed:
            return None
        try:
            async with asyncio.timeout(STATE_TIMEOUT_SECONDS):
                if self._unwritten:
                    await self._write(self._unwritten)
                event = await self._compare(catalog)
        except Exception as error:
            self._outage.failed(error)  # the change is still there when the state is available again
            return None
        self._outage.recovered()
        return event

    async def commit(self) -> None:
        """Store the catalog of the event that was sent, because Airflow stored the event."""
        self._unwritten, self._in_flight = self._in_flight, None
        try:
            async with asyncio.timeout(STATE_TIMEOUT_SECONDS):
                if self._unwritten:
                    await self._write(self._unwritten)
        except Exception as error:
            self._outage.failed(error)  # the next snapshot tries again

    def release(self) -> None:
        """Give up an event that may not be stored; the next watcher sends it again."""
        self._in_flight = None

    async def _compare(self, now: Catalog) -> dict[str, Any] | None:
        before = await self._read()
        if before is None and not (self._fire_on_first_snapshot and now.fingerprints):
            count = len(now.fingerprints or ())
            log.info("Storing the first snapshot of '%s': %s frameworks.", self._conn_id, count)
            await self._write(now)
            return None
        changes = compare(before or EMPTY, now)
        if not changes:
            return None
        log.info("Sending a change of the frameworks of '%s': %s.", self._conn_id, summarize_changes(changes))
        self._in_flight = now
        return build_payload(changes, before or EMPTY, now, self._conn_id)

    async def _write(self, catalog: Catalog) -> None:
        await self._state.write({"at": time.time(), **catalog.dump()})
        self._unwritten = None

    async def _read(self) -> Catalog | None:
        state = await self._state.read()
        try:
            return Catalog.load(state) if state else None
        except ValueError as error:
            log.warning("Ignoring the stored state of the watcher of '%s': %s", self._conn_id, error)
            return None


def event_id(before: Catalog, after: Catalog) -> str:
    """Return the id of a change: the same for every watcher that notices it, and every time."""
    return sha256(f"{before.digest}:{after.digest}".encode()).hexdigest()[:32]


def build_payload(changes: list[Change], before: Catalog, after: Catalog, conn_id: str) -> dict[str, Any]:
    """Return the payload of the event: the ids of as many changed frameworks as fit."""
    shown, room = [], MAX_IDS_CHARS
    for change in changes:
        if (room := room - len(json.dumps(change.key))) < 0:
            break
        shown.append(change)
    return {
        "id": event_id(before, after),
        "conn_id": conn_id,
        "summary": summarize_changes(changes),
        "noticed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "first_snapshot": not before.digest,
        "framework_ids": [change.key for change in shown if change.kind != "removed"],
        "frameworks": {
            kind: [change.key for change in shown if change.kind == kind] for kind in CHANGE_KINDS
        },
        "left_out": len(changes) - len(shown),
    }
