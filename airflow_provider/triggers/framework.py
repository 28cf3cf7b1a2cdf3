"""The trigger that watches the catalog of compliance frameworks, for an `AssetWatcher`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import aclosing
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow.triggers import base
from airflow.triggers.base import TriggerEvent

from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.runtime.compat import asset_stores_of
from airflow_provider.waiting.frameworks.watcher import (
    AssetState,
    FrameworkPoller,
    VariableState,
    Watcher,
)

# Airflow 3.0 brings watchers of assets. Not needed when 3.0 is the oldest supported version.
HAS_ASSET_WATCHERS = hasattr(base, "BaseEventTrigger")
if TYPE_CHECKING or HAS_ASSET_WATCHERS:
    from airflow.triggers.base import BaseEventTrigger
else:
    BaseEventTrigger = base.BaseTrigger

EVENT_STORE_SECONDS = 5.0  # after which an event counts as stored, where Airflow does not confirm it


@dataclass(eq=False, repr=False)
class ComplianceFrameworkChangeTrigger(BaseEventTrigger):
    """Fires when a framework was added, removed or changed, including its criteria; the event has its id.

    Sends each change at least once; repeats have the same id. Changes during a restart of the triggerer are
    noticed afterwards. Errors of the service are retried and never end the trigger.

    :param conn_id: the Airflow connection
    :param poll_interval: seconds between two polls
    :param hook_class: module and name of the hook class; the default if empty
    :param fire_on_first_snapshot: also send an event for the first snapshot, in which everything is new
    """

    conn_id: str = ComplianceHook.default_conn_name
    poll_interval: float = 300.0
    fire_on_first_snapshot: bool = False
    hook_class: str = ""

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
        return path, {field.name: getattr(self, field.name) for field in fields(self)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll alone, before Airflow 3.3."""
        watcher = self._watcher()
        poller = FrameworkPoller(self.conn_id, self.poll_interval, hook_class=self.hook_class)
        async with aclosing(poller.stream()) as snapshots:
            async for snapshot in snapshots:
                if event := await watcher.evaluate(snapshot):
                    yield TriggerEvent(event)
                    # The event is stored at the triggerer's next heartbeat, the state only after it.
                    await asyncio.sleep(EVENT_STORE_SECONDS)
                    await watcher.commit()

    def shared_stream_key(self) -> Hashable | None:
        """Share one poller per connection and interval (Airflow 3.3)."""
        return self.serialize()[0], self.conn_id, self.poll_interval, self.hook_class

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        """Return the poller, which Airflow notifies when events are stored."""
        return FrameworkPoller(
            kwargs["conn_id"], kwargs["poll_interval"], hook_class=kwargs.get("hook_class", "")
        )

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Turn shared snapshots into events."""
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
        return Watcher(self._state(), self.conn_id, self.fire_on_first_snapshot)

    def _state(self) -> AssetState | VariableState:
        if stores := asset_stores_of(self):
            return AssetState(stores, f"compliance_frameworks:{self.conn_id}")
        # A hash, because Airflow masks variables whose name sounds like a secret.
        digest = sha256(repr(sorted(self.serialize()[1].items())).encode()).hexdigest()[:12]
        description = f"State of {type(self).__name__} for '{self.conn_id}'"
        return VariableState(f"compliance_frameworks_{digest}", description)
