"""Poll the catalog of frameworks, compare it with the stored state, and build events of confirmed changes."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider.compat import get_variable, read_state, set_variable, write_state
from airflow_provider.exceptions import ComplianceAuthError, ComplianceError
from airflow_provider.frameworks.catalog import EMPTY, KINDS, Catalog, Change, Difference, compare
from airflow_provider.hooks.compliance import import_hook_class

if TYPE_CHECKING:
    from airflow_provider.client.models import Framework
    from airflow_provider.client.settings import Settings

log = logging.getLogger(__name__)

MIN_POLL_SECONDS = 1.0
CONFIRM_SECONDS = 30.0  # after which a new catalog is polled for the second time
POLL_TIMEOUT_SECONDS = 300.0
STATE_TIMEOUT_SECONDS = 30.0
AUTH_RETRY_SECONDS = 300.0  # backoff after refused credentials; doubles with each refusal
MAX_AUTH_RETRY_SECONDS = 6 * 3600.0
# An event is small, because Airflow logs it and stores it.
MAX_TEXT_CHARS = 200
MAX_DETAILS_CHARS = 16_000  # of JSON, all details together
MAX_IDS = 500
MAX_IDS_CHARS = 10_000  # of JSON, all ids together

T = TypeVar("T")


@dataclass(eq=False)
class CatalogSnapshot:
    """One poll of the catalog.

    :param times: how many polls in a row returned this catalog
    :param seconds: how long ago the first of them was
    :param on_stored: what to do when Airflow has stored all events of this snapshot
    """

    catalog: Catalog
    times: int
    seconds: float
    on_stored: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def is_confirmed(self, poll_interval: float, may_remove: bool) -> bool:
        """Whether it was seen twice, and for `poll_interval` where something may be gone."""
        return self.times > 1 and (self.seconds >= poll_interval or not may_remove)

    async def commit(self) -> None:
        """Run the callbacks, once."""
        while self.on_stored:
            await self.on_stored.pop()()


class OutageLog:
    """Logs the start and the end of an outage, and a change of its cause."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._cause: type[Exception] | None = None
        self._since = 0.0

    def failed(self, error: Exception) -> None:
        """Log an error, unless it is of the same kind as the last one."""
        if self._cause is None:
            self._since = self._clock()
        if self._cause is not type(error):
            why = str(error) if isinstance(error, ComplianceError) else f"{type(error).__name__}: {error}"
            log.warning("%s failed, retrying: %s", self._what, why)
        self._cause = type(error)

    def recovered(self) -> None:
        """Log that the outage is over, if there was one."""
        if self._cause is not None:
            log.info("%s works again after %.0f s.", self._what, self._clock() - self._since)
        self._cause = None


@dataclass
class _Refusal:
    """Refused credentials, not to be used again before `until`: accounts get locked."""

    settings: Settings
    error: ComplianceAuthError
    count: int
    until: float


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
        self._outage = OutageLog(f"Polling the frameworks of '{conn_id}'", clock)
        self._last: CatalogSnapshot | None = None
        self._first_seen = 0.0
        self._refusal: _Refusal | None = None

    async def stream(self) -> AsyncGenerator[CatalogSnapshot, None]:
        """Yield a snapshot per successful poll."""
        while True:
            pause = self.poll_interval
            try:
                frameworks = await self._fetch()
                # A large catalog takes seconds, which would block the other triggers.
                self._last = snapshot = self._observe(await asyncio.to_thread(Catalog.parse, frameworks))
            except Exception as error:
                # Any error: Airflow restarts a failed watcher at once, without a backoff.
                self._outage.failed(error)
                pause = max(pause, getattr(error, "retry_after", None) or 0.0)
            else:
                self._outage.recovered()
                if snapshot.times == 1:
                    pause = min(pause, CONFIRM_SECONDS)
                yield snapshot
            await self._sleep(pause)

    async def open_stream(self) -> AsyncIterator[tuple[CatalogSnapshot, CatalogSnapshot]]:
        """Yield snapshots as Airflow expects them: each with what to pass to `advance`."""
        async for snapshot in self.stream():
            yield snapshot, snapshot

    async def advance(self, batch: Sequence[Any]) -> None:
        """Commit snapshots whose events Airflow has stored."""
        for item in batch:
            await item.broker_payload.commit()

    def get_advance_lane(self, payload: CatalogSnapshot) -> Hashable:
        """Keep all snapshots in one order."""
        return None

    async def aclose(self) -> None:
        """Do nothing: each poll closes its own session."""

    def _observe(self, catalog: Catalog) -> CatalogSnapshot:
        now = self._clock()
        if self._last is None or self._last.catalog.digest != catalog.digest:
            self._first_seen = now
            return CatalogSnapshot(catalog, 1, 0.0)
        return CatalogSnapshot(catalog, self._last.times + 1, now - self._first_seen)

    async def _fetch(self) -> list[Framework]:
        # A new hook and session per poll, so that an edited connection takes effect.
        hook = import_hook_class(self._hook_class)(self.conn_id)
        async with (
            asyncio.timeout(POLL_TIMEOUT_SECONDS),
            await hook.get_async_conn(max_retries=1, retry_seconds=30.0) as client,
        ):
            refusal = self._refusal
            if refusal and refusal.settings != client.settings:
                refusal = None
            if refusal and self._clock() < refusal.until:
                raise copy.copy(refusal.error)
            try:
                frameworks = await client.list_frameworks()
            except ComplianceAuthError as error:
                count = refusal.count + 1 if refusal else 0
                pause = min(MAX_AUTH_RETRY_SECONDS, AUTH_RETRY_SECONDS * 2**count)
                self._refusal = _Refusal(client.settings, copy.copy(error), count, self._clock() + pause)
                raise
            self._refusal = None
            return frameworks


class StateBackend:
    """Stores the state of a watcher: here in memory, where no asset is watched and nobody receives events."""

    def __init__(self) -> None:
        self._state: dict[str, Any] | None = None

    async def read(self) -> dict[str, Any] | None:
        """Return the state, None if there is none; raise if it can't be read."""
        return self._state

    async def write(self, state: dict[str, Any]) -> None:
        """Store the state; raise if it can't be written."""
        self._state = state


class AssetBackend(StateBackend):
    """Stores the state with each asset that a trigger watches, from Airflow 3.3 on.

    :param stores: the state stores of the assets
    """

    def __init__(self, stores: list[Any], key: str) -> None:
        self._stores = stores
        self._key = key

    async def read(self) -> dict[str, Any] | None:
        """Return the newest state: assets may have been watched separately before."""
        found = [await read_state(store, self._key) for store in self._stores]
        states = [each for each in found if isinstance(each, dict)]
        return max(states, key=lambda each: float(each.get("at", 0)), default=None)

    async def write(self, state: dict[str, Any]) -> None:
        """Store the state with all of them."""
        for store in self._stores:
            await write_state(store, self._key, state)


class VariableBackend(StateBackend):
    """Stores the state in an Airflow variable: before 3.3, a trigger has no other persistent storage."""

    def __init__(self, key: str, description: str) -> None:
        self._key = key
        self._description = description

    async def read(self) -> dict[str, Any] | None:
        """Return the state."""
        found = await get_variable(self._key)
        return found if isinstance(found, dict) else None

    async def write(self, state: dict[str, Any]) -> None:
        """Store the state and read it back: Airflow only logs when a variable can't be written."""
        await set_variable(self._key, state, self._description)
        if await self.read() != state:
            raise RuntimeError(
                f"The Airflow variable '{self._key}' could not be written: see the triggerer's log."
            )


class Watcher:
    """Compares snapshots with the stored state and sends each change at least once.

    The state is written after Airflow has stored the event. If a triggerer dies in between, or two watchers
    share a state, the event is sent again with the same id.
    """

    def __init__(
        self, backend: StateBackend, conn_id: str, poll_interval: float, fire_on_first_snapshot: bool = False
    ) -> None:
        self._backend = backend
        self._conn_id = conn_id
        self._poll_interval = poll_interval
        self._fire_on_first_snapshot = fire_on_first_snapshot
        self._in_flight: Catalog | None = None  # sent, not known to be stored
        self._uncommitted: Catalog | None = None  # event stored, state not written
        self._outage = OutageLog(f"Using the stored state of the watcher of '{conn_id}'")

    async def evaluate(self, snapshot: CatalogSnapshot) -> dict[str, Any] | None:
        """Return the payload of an event to send, then to commit; None if there is none."""
        if self._in_flight:
            return None
        try:
            async with asyncio.timeout(STATE_TIMEOUT_SECONDS):
                await self._flush()
                event = await self._evaluate(snapshot)
        except Exception as error:
            self._outage.failed(error)  # the change is still there when the state is available again
            return None
        self._outage.recovered()
        return event

    async def commit(self) -> None:
        """Store the catalog of the event that was sent, because Airflow has stored the event."""
        self._uncommitted, self._in_flight = self._in_flight, None
        try:
            async with asyncio.timeout(STATE_TIMEOUT_SECONDS):
                await self._flush()
        except Exception as error:
            self._outage.failed(error)  # the next snapshot tries again

    def release(self) -> None:
        """Give up an event that may not be stored; the next watcher sends it again."""
        self._in_flight = None

    async def _evaluate(self, snapshot: CatalogSnapshot) -> dict[str, Any] | None:
        before, now = await self._load(), snapshot.catalog
        if before is None:
            # An empty catalog may be an outage, after which everything would seem to be new.
            if not now.frameworks and not snapshot.is_confirmed(self._poll_interval, may_remove=True):
                return None
            if not self._fire_on_first_snapshot:
                log.info(
                    "Storing the first snapshot of '%s': %s frameworks.", self._conn_id, len(now.frameworks)
                )
                await self._store(now)
                return None
            before = EMPTY
        difference = await asyncio.to_thread(compare, before, now)
        if not difference:
            if before.digest != now.digest:
                await self._store(now)
            return None
        if before is not EMPTY and not snapshot.is_confirmed(self._poll_interval, difference.may_remove):
            return None
        log.info("Sending a change of the frameworks of '%s': %s.", self._conn_id, difference.summary)
        event = await asyncio.to_thread(build_payload, difference, before, now, self._conn_id)
        self._in_flight = now
        return event

    async def _flush(self) -> None:
        if self._uncommitted:
            await self._store(self._uncommitted)
            self._uncommitted = None

    async def _store(self, catalog: Catalog) -> None:
        state = await asyncio.to_thread(catalog.dump)
        await self._backend.write({"at": time.time(), **state})

    async def _load(self) -> Catalog | None:
        state = await self._backend.read()
        try:
            return Catalog.load(state) if state else None
        except ValueError as error:
            log.warning("Ignoring the stored state of the watcher of '%s': %s", self._conn_id, error)
            return None


def event_id(before: Catalog, after: Catalog) -> str:
    """Return the id of a change: the same for every watcher that notices it, and every time."""
    return sha256(f"{before.digest}:{after.digest}".encode()).hexdigest()[:32]


def build_payload(difference: Difference, before: Catalog, after: Catalog, conn_id: str) -> dict[str, Any]:
    """Return the payload of the event: ids, names and excerpts of changed texts."""
    ids = difference.framework_ids
    shown = _take(ids[:MAX_IDS], MAX_IDS_CHARS)
    details = _take((_detail(each) for each in difference.changes), MAX_DETAILS_CHARS)
    event: dict[str, Any] = {
        "id": event_id(before, after),
        "conn_id": conn_id,
        "summary": difference.summary,
        "noticed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "first_snapshot": not before.digest,
        "details_known": not difference.overview,
        "framework_ids": shown,
        "frameworks": {kind: [] for kind in KINDS},
        "criteria": {kind: [] for kind in KINDS},
        "left_out": len(ids) - len(shown) + len(difference.changes) - len(details),
    }
    for change, detail in zip(difference.changes, details, strict=False):
        event["criteria" if change.criterion else "frameworks"][change.kind].append(detail)
    return event


def _take(values: Iterable[T], room: int) -> list[T]:
    """Return the first values that fit into the room as JSON."""
    taken = []
    for value in values:
        room -= len(json.dumps(value))
        if room < 0:
            break
        taken.append(value)
    return taken


def _detail(change: Change) -> dict[str, Any]:
    framework = change.framework
    if change.criterion:
        detail = {"framework_id": _cut(framework.key), "framework": _cut(framework.title)}
    else:
        detail = {"id": _cut(framework.key)}
    entry = change.criterion or framework
    names = {name: _cut(entry.texts.get(name)) for name in ("code_name", "name")}
    if change.texts:
        texts = {name: {"before": _cut(a), "after": _cut(b)} for name, (a, b) in change.texts.items()}
        return {**detail, **names, "fields": texts}
    return {**detail, **names, **({} if change.criterion else {"criteria": framework.criteria_count})}


def _cut(text: str | None) -> str | None:
    return f"{text[:MAX_TEXT_CHARS]}…" if text and len(text) > MAX_TEXT_CHARS else text
