"""The trigger that watches the catalogue of compliance frameworks, for an `AssetWatcher`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import aclosing
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_provider.compat import HAS_ASSET_WATCHERS, BaseEventTrigger, asset_stores_of
from airflow_provider.frameworks.snapshots import FrameworkPoller
from airflow_provider.frameworks.state import AssetBackend, ProcessBackend, StateBackend, VariableBackend
from airflow_provider.frameworks.watcher import Watcher
from airflow_provider.hooks.compliance import ComplianceHook

STORED_AFTER = 5.0  # seconds in which a triggerer has stored an event, where it does not say so


@dataclass(eq=False, repr=False)
class ComplianceFrameworkChangeTrigger(BaseEventTrigger):
    """Fires when a framework or a criterion was added, removed or changed; the event says which.

    It remembers what it has told of, so that a change during a restart of the triggerer is noticed
    afterwards, and none is told of twice. Nothing that the service does ends it.

    :param conn_id: the Airflow connection
    :param poll_interval: seconds between two looks
    :param fire_at_first_sight: fire also when there is nothing yet to compare with; everything is new then
    """

    conn_id: str = ComplianceHook.default_conn_name
    poll_interval: float = 300.0
    fire_at_first_sight: bool = False

    def __post_init__(self) -> None:
        if not HAS_ASSET_WATCHERS:
            raise RuntimeError(
                f"{type(self).__name__} needs the asset watchers of Airflow 3.0 or newer. On Airflow 2, "
                "compare what ComplianceListFrameworksOperator returns in a DAG with a schedule."
            )
        if not self.poll_interval > 0:
            raise ValueError(f"poll_interval must be more than 0 seconds, not {self.poll_interval!r}.")
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the fields."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {each.name: getattr(self, each.name) for each in fields(self)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look by itself, before Airflow 3.3."""
        watcher = self._watcher()
        async with aclosing(FrameworkPoller(self.conn_id, self.poll_interval).stream()) as snapshots:
            async for snapshot in snapshots:
                if event := await watcher.evaluate(snapshot):
                    yield TriggerEvent(event)
                    # What is written now would arrive before the event, which waits for the next heartbeat.
                    await asyncio.sleep(STORED_AFTER)
                    await watcher.commit()

    def shared_stream_key(self) -> Hashable | None:
        """Look together with all that look through the same connection as often (Airflow 3.3)."""
        return self.serialize()[0], self.conn_id, self.poll_interval

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        """Return what looks, and is told when events are stored."""
        return FrameworkPoller(kwargs["conn_id"], kwargs["poll_interval"])

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Make events of the common looks."""
        watcher = self._watcher()
        try:
            async for snapshot in shared_stream:
                if event := await watcher.evaluate(snapshot):
                    snapshot.on_stored.append(watcher.commit)
                    yield TriggerEvent(event)
        except Exception:
            watcher.release()
            raise

    def _watcher(self) -> Watcher:
        return Watcher(self._backend(), self.conn_id, self.poll_interval, self.fire_at_first_sight)

    def _backend(self) -> StateBackend:
        stores = asset_stores_of(self)
        if stores is None:
            # The name says nothing of the connection: Airflow masks what sounds like a secret.
            known_as = sha256(repr(sorted(self.serialize()[1].items())).encode()).hexdigest()[:12]
            description = f"What {type(self).__name__} has seen through '{self.conn_id}'"
            return VariableBackend(f"compliance_frameworks_{known_as}", description)
        return AssetBackend(stores, f"compliance_frameworks:{self.conn_id}") if stores else ProcessBackend()
