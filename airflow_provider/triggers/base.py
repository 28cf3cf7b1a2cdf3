"""What the triggers have in common that wait for work of the service to come to its end."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine
from dataclasses import fields
from typing import Any, ClassVar, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider.compat import TRIGGERS_ARE_TOLD_OF_KILLS, is_still_deferred
from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.triggers.poller import watching
from airflow_provider.triggers.waiting import SAY_EVERY, Ending, Record
from airflow_provider.triggers.work import Work

KILLS_AT_A_TIME = 8
KILL_SECONDS = 25.0  # Airflow gives a killed trigger 30


class ComplianceWaitTrigger(BaseTrigger):
    """Base of the triggers that wait; a dataclass whose fields are what is kept in the database."""

    work: ClassVar[Work]

    conn_id: str
    poll_interval: float
    deadline: float
    cancel_on_kill: bool

    def __post_init__(self) -> None:
        super().__init__()

    @property
    @abstractmethod
    def ids(self) -> list[str]:
        """What is waited for."""

    def make_hook(self) -> ComplianceHook:
        """Return the hook."""
        return ComplianceHook(self.conn_id)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the fields."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {each.name: getattr(self, each.name) for each in fields(cast(Any, self))}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then send one event with the records."""
        try:
            ending = await self._wait()
        except asyncio.CancelledError:
            # Airflow before 3.3 does not say whether a user or a shutdown is behind this.
            if self.cancel_on_kill and not TRIGGERS_ARE_TOLD_OF_KILLS:
                await _to_the_end(self._kill(told=False))
            raise
        yield TriggerEvent(ending.event())

    async def on_kill(self) -> None:
        """Cancel the work; called when a user marks or clears the task, not at a restart of the triggerer."""
        if self.cancel_on_kill:
            await _to_the_end(self._kill(told=True))

    async def _kill(self, told: bool) -> None:
        # Airflow takes it for a kill too when this triggerer hung so long that another one does its work now.
        # And a task that was cleared and waits again goes on with the same jobs.
        is_all_we_know = told and getattr(self, "task_instance", None) is None
        if is_all_we_know or not await is_still_deferred(self):
            await self._cancel()
        elif told:
            self.log.info(
                "The task still waits, in another trigger: its %ss are not cancelled.", self.work.noun
            )

    async def _cancel(self) -> None:
        noun = self.work.noun
        try:
            async with asyncio.timeout(KILL_SECONDS):
                async with await self.make_hook().get_async_conn(max_retries=2) as client:

                    async def cancel(identifier: str) -> None:
                        try:
                            await self.work.cancel(client, identifier)
                            self.log.info("The task was killed: %s %s is cancelled.", noun, identifier)
                        except ComplianceNotFoundError:
                            self.log.info("The task was killed: %s %s is gone already.", noun, identifier)

                    await for_each(cancel, self.ids, KILLS_AT_A_TIME)
        except (ComplianceError, TimeoutError) as error:
            self.log.warning("The task was killed, but not all %ss could be cancelled: %s", noun, error)

    def _is_enough(self, ended: int) -> bool:
        """Tell whether not all have to be waited for."""
        return False

    async def _wait(self) -> Ending:
        since = time.time()
        ended: dict[str, Record] = {}
        ids = set(self.ids)
        try:
            hook = self.make_hook()
        except ComplianceError as error:
            return Ending("error", error=str(error))
        async with watching(hook, self.work, ids, self.poll_interval) as news:
            while (left := len(ids) - len(ended)) and not self._is_enough(len(ended)):
                pause = min(SAY_EVERY, self.deadline - time.time())
                try:
                    async with asyncio.timeout(max(0.0, pause)):
                        identifier, found = await news.get()
                except TimeoutError:
                    now = time.time()
                    if now >= self.deadline:
                        return Ending("timeout", ended, now - since)
                    self.log.info("Still waiting for %s of %s %ss after %.0f s.",
                                  left, len(ids), self.work.noun, now - since)  # fmt: skip
                    continue
                if isinstance(found, Exception):
                    may_pass = getattr(found, "transient", True)
                    return Ending("error", ended, time.time() - since, str(found), may_pass)
                ended[identifier] = found
        return Ending("done", ended, time.time() - since)


_going_on: set[asyncio.Task[None]] = set()  # an event loop alone does not keep its tasks alive


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do something that goes on when it is cancelled: Airflow cancels a killed trigger every second."""
    task = asyncio.create_task(work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    await asyncio.shield(task)
