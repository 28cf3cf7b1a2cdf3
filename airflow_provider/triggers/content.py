"""The trigger that waits for content processing jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, fields
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider.compat import TRIGGERS_ARE_TOLD_OF_KILLS, is_still_deferred
from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.triggers.poller import watching
from airflow_provider.triggers.waiting import SAY_EVERY, Ending

KILLS_AT_A_TIME = 8
KILL_SECONDS = 25.0  # Airflow gives a killed trigger 30


@dataclass(eq=False, repr=False)
class ComplianceContentTrigger(BaseTrigger):
    """Waits until all jobs have come to their end; all triggers of a connection share one poller.

    :param conn_id: the Airflow connection
    :param uuids: the jobs
    :param poll_interval: longest time in seconds between two looks at a job; young ones are looked at sooner
    :param deadline: when to give up, in seconds since the epoch
    :param cancel_on_kill: cancel the jobs when the task is marked or cleared by a user
    """

    conn_id: str
    uuids: list[str]
    poll_interval: float
    deadline: float
    cancel_on_kill: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the fields."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {each.name: getattr(self, each.name) for each in fields(self)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then send one event with the records of the jobs."""
        try:
            ending = await self._wait()
        except asyncio.CancelledError:
            # Airflow before 3.3 does not say whether a user or a shutdown is behind this.
            if self.cancel_on_kill and not TRIGGERS_ARE_TOLD_OF_KILLS:
                await _to_the_end(self._kill(told=False))
            raise
        yield TriggerEvent(ending.event())

    async def on_kill(self) -> None:
        """Cancel the jobs; called when a user marks or clears the task, not at a restart of the triggerer."""
        if self.cancel_on_kill:
            await _to_the_end(self._kill(told=True))

    async def _kill(self, told: bool) -> None:
        # Airflow takes it for a kill too when this triggerer hung so long that another one does its work now.
        # And a task that was cleared and waits again goes on with the same jobs.
        is_all_we_know = told and getattr(self, "task_instance", None) is None
        if is_all_we_know or not await is_still_deferred(self):
            await self._cancel_jobs()
        elif told:
            self.log.info("The task still waits, in another trigger: its jobs are not cancelled.")

    async def _cancel_jobs(self) -> None:
        try:
            async with asyncio.timeout(KILL_SECONDS):
                async with await ComplianceHook(self.conn_id).get_async_conn(max_retries=2) as client:

                    async def cancel(uuid: str) -> None:
                        try:
                            await client.cancel(uuid)
                            self.log.info("The task was killed: job %s is cancelled.", uuid)
                        except ComplianceNotFoundError:
                            self.log.info("The task was killed: job %s is gone already.", uuid)

                    await for_each(cancel, self.uuids, KILLS_AT_A_TIME)
        except (ComplianceError, TimeoutError) as error:
            self.log.warning("The task was killed, but not all of its jobs could be cancelled: %s", error)

    def _is_enough(self, ended: int) -> bool:
        """Tell whether not all jobs have to be waited for."""
        return False

    async def _wait(self) -> Ending:
        since = time.time()
        ended: dict[str, dict[str, Any]] = {}
        async with watching(self.conn_id, set(self.uuids), self.poll_interval) as sightings:
            while (left := len(set(self.uuids)) - len(ended)) and not self._is_enough(len(ended)):
                pause = min(SAY_EVERY, self.deadline - time.time())
                try:
                    async with asyncio.timeout(max(0.0, pause)):
                        sighting = await sightings.get()
                except TimeoutError:
                    now = time.time()
                    if now >= self.deadline:
                        return Ending("timeout", ended, now - since)
                    self.log.info(
                        "Still waiting for %s of %s jobs after %.0f s.", left, len(self.uuids), now - since
                    )
                    continue
                if isinstance(sighting, Exception):
                    may_pass = getattr(sighting, "transient", True)
                    return Ending("error", ended, time.time() - since, str(sighting), may_pass)
                ended[sighting["uuid"]] = sighting
        return Ending("done", ended, time.time() - since)


_going_on: set[asyncio.Task[None]] = set()  # an event loop alone does not keep its tasks alive


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do something that goes on when it is cancelled: Airflow cancels a killed trigger every second."""
    task = asyncio.create_task(work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    await asyncio.shield(task)
