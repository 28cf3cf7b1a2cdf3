"""A stand-in for a triggerer: it runs triggers, stores their events, and may die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

from airflow_provider.emulator import Emulator
from airflow_provider.triggers.framework import ComplianceFrameworkChangeTrigger
from tests.support.attempts import until

CONN = "compliance_default"
SHARES = hasattr(ComplianceFrameworkChangeTrigger.__base__, "shared_stream_key")


class AssetStore(dict[str, Any]):
    """The state store of an asset, which is in Airflow's database."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.writes = 0

    async def aget(self, key: str) -> Any:
        await asyncio.sleep(0.001)
        if self.error:
            raise self.error
        return self.get(key)

    async def aset(self, key: str, value: Any) -> None:
        await asyncio.sleep(0.001)
        if self.error:
            raise self.error
        self.writes += 1
        self[key] = json.loads(json.dumps(value))

    @property
    def state(self) -> Any:
        """The stored state of a watcher of the default connection."""
        return self.get("compliance_frameworks:compliance_default", {})

    @property
    def ids(self) -> list[str]:
        """The frameworks in it."""
        return sorted(self.state.get("fingerprints", ()))


def rebuilt(
    trigger: ComplianceFrameworkChangeTrigger, *stores: AssetStore
) -> ComplianceFrameworkChangeTrigger:
    """Make the trigger from its row, as a triggerer does, and give it the stores of its assets."""
    _, kwargs = trigger.serialize()
    made = ComplianceFrameworkChangeTrigger(**json.loads(json.dumps(kwargs)))
    by_name = {str(number): store for number, store in enumerate(stores)}
    accessors: Any = SimpleNamespace(_by_name=by_name, _by_uri={}) if stores else None
    made.asset_state_store = accessors
    return made


class Triggerer:
    """Runs triggers; what they fire is in `fired`, what of it is stored in `events`.

    :param shares: whether it is one of Airflow 3.3, which lets triggers share a stream
    """

    def __init__(self, shares: bool) -> None:
        self.events: list[dict[str, Any]] = []
        self.stores_events = True
        self.fired: list[dict[str, Any]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._streams: Any = None
        if shares:
            from airflow.triggers.shared_stream import SharedStreamManager

            self._streams = SharedStreamManager()

    def start(self, trigger: ComplianceFrameworkChangeTrigger) -> None:
        """Run a trigger."""
        self._tasks.append(asyncio.create_task(self._run(len(self._tasks), trigger)))

    async def die(self) -> None:
        """End at once, with events in flight or without."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self._streams:
            await self._streams.stop_all()

    @property
    def is_well(self) -> bool:
        """Whether all triggers still run."""
        return not any(task.done() for task in self._tasks)

    async def _run(self, number: int, trigger: ComplianceFrameworkChangeTrigger) -> None:
        key = trigger.shared_stream_key() if self._streams else None
        if key is None:
            events = trigger.run()
        else:
            stream = self._streams.subscribe(trigger_id=number, trigger=trigger, key=key)
            events = trigger.filter_shared_stream(stream)
        try:
            async for event in events:
                seq = self._streams.bind_pending_event(trigger_id=number, key=key) if key else None
                self.fired.append(json.loads(json.dumps(event.payload)))
                if self.stores_events:
                    self.events.append(self.fired[-1])
                    if key:
                        self._streams.confirm_persisted([seq])
        finally:
            if key:
                await self._streams.unsubscribe(number, key)


@asynccontextmanager
async def running(
    shares: bool, trigger: ComplianceFrameworkChangeTrigger, *stores: AssetStore
) -> AsyncIterator[Triggerer]:
    """Run one trigger in a triggerer of its own."""
    triggerer = Triggerer(shares)
    triggerer.start(rebuilt(trigger, *stores))
    try:
        yield triggerer
        assert triggerer.is_well
    finally:
        await triggerer.die()


def watcher(**kwargs: Any) -> ComplianceFrameworkChangeTrigger:
    """Make a trigger that polls without a pause."""
    return ComplianceFrameworkChangeTrigger(**{"poll_interval": 0.02, **kwargs})


def add(service: Emulator, name: str = "NIS2") -> None:
    """Add a framework."""
    service.set_frameworks([*service.frameworks(), {"id": name, "codeName": name, "name": f"All of {name}"}])


async def polled(service: Emulator, times: int = 5) -> None:
    """Wait for more successful polls."""
    before = service.count("list_frameworks", 200)
    await until(lambda: service.count("list_frameworks", 200) >= before + times)


async def committed(service: Emulator, store: AssetStore) -> None:
    """Wait until the state has the frameworks of the service."""
    await until(lambda: len(store.ids) == len(service.frameworks()))
