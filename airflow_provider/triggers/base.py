"""What the triggers have in common that wait for work of the service to come to its end."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import fields
from typing import Any, ClassVar, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider.compat import HAS_TASK_STATE_STORE, TRIGGER_HAS_ON_KILL, task_state
from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.waiting.kinds import JobKind
from airflow_provider.waiting.poller import Update, subscribe
from airflow_provider.waiting.results import LOG_INTERVAL_SECONDS, Countdown, Record, WaitResult
from airflow_provider.waiting.rules import Accepts, PollResult, may_cancel

CANCEL_CONCURRENCY = 8
KILL_SECONDS = 25.0  # Airflow gives a killed trigger 30
ENDED = frozenset({"failed", "success", "skipped", "removed", "upstream_failed"})  # states of a task


class ComplianceWaitTrigger(BaseTrigger):
    """Base of the triggers that wait; a dataclass whose fields are what is kept in the database."""

    kind: ClassVar[JobKind]
    # After a clear, the next attempt of a submit finds the job in Airflow's task state store.
    next_attempt_reattaches: ClassVar[bool] = HAS_TASK_STATE_STORE

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
            result = await self._wait()
        except asyncio.CancelledError:
            # Airflow before 3.3 does not say whether a user or a shutdown is behind this.
            if self.cancel_on_kill and not TRIGGER_HAS_ON_KILL:
                await _to_the_end(self._kill())
            raise
        yield TriggerEvent(result.event(f"{self.kind.noun}s"))

    async def on_kill(self) -> None:
        """Cancel the work where nobody goes on with it; called when a user marks or clears the task."""
        if self.cancel_on_kill:
            await _to_the_end(self._kill())

    async def _kill(self) -> None:
        # Airflow takes it for a kill, too, when this triggerer hung so long that another one does its work.
        state = await task_state(self)
        if state in ENDED if self.next_attempt_reattaches else state not in (None, "deferred"):
            await self._cancel()
        else:
            self.log.info(
                "The task is %s, not ended: its %ss are not cancelled.", state or "unknown", self.kind.noun
            )

    async def _cancel(self) -> None:
        noun = self.kind.noun
        try:
            async with asyncio.timeout(KILL_SECONDS):
                async with await self.make_hook().get_async_conn(max_retries=2) as client:
                    seen: dict[str, PollResult] = {}
                    await self.kind.poll(client, self.ids, seen.__setitem__)
                    for each, found in seen.items():
                        if isinstance(found, ComplianceError):
                            self.log.warning("The task was killed, but %s %s could not be cancelled: %s",
                                             noun, each, found)  # fmt: skip
                    in_flight = [each for each in self.ids if may_cancel(seen.get(each))]

                    async def cancel(identifier: str) -> None:
                        with suppress(ComplianceNotFoundError):  # gone since the look
                            await self.kind.cancel(client, identifier)

                    await for_each(cancel, in_flight, CANCEL_CONCURRENCY)
                    self.log.info("The task was killed: %s of %s %ss were in flight, and are cancelled.",
                                  len(in_flight), len(self.ids), noun)  # fmt: skip
        except (ComplianceError, TimeoutError) as error:
            self.log.warning("The task was killed, but not all %ss could be cancelled: %s", noun, error)

    def _is_enough(self, ended: int) -> bool:
        """Tell whether not all have to be waited for."""
        return False

    def _accepts(self) -> Accepts | None:
        """Return what tells whether a final record is the end of this wait; None: it always is."""
        return None

    async def _wait(self) -> WaitResult:
        since, deadline = time.monotonic(), Countdown(self.deadline)
        ended: dict[str, Record] = {}
        ids = set(self.ids)
        try:
            hook = self.make_hook()
        except ComplianceError as error:
            return WaitResult("error", message=str(error))
        async with subscribe(hook, self.kind, ids, self.poll_interval, self._accepts()) as news:
            while len(ended) < len(ids) and not self._is_enough(len(ended)):
                found: list[Update]
                is_last = deadline.remaining() <= 0
                try:
                    if is_last:
                        found = await news.poll_now(ids - ended.keys())
                    else:
                        async with asyncio.timeout(min(LOG_INTERVAL_SECONDS, deadline.remaining())):
                            found = [await news.get()]
                except TimeoutError:
                    if deadline.remaining() > 0:
                        self.log.info("Still waiting for %s of %s %ss after %.0f s.", len(ids) - len(ended),
                                      len(ids), self.kind.noun, time.monotonic() - since)  # fmt: skip
                    continue
                for identifier, what in found:
                    if isinstance(what, Exception):
                        is_transient = getattr(what, "transient", True)
                        return WaitResult("error", ended, time.monotonic() - since, str(what), is_transient)
                    ended[identifier] = what
                if is_last and len(ended) < len(ids) and not self._is_enough(len(ended)):
                    return WaitResult("timeout", ended, time.monotonic() - since)
        return WaitResult("success", ended, time.monotonic() - since)


_going_on: set[asyncio.Task[None]] = set()  # an event loop alone does not keep its tasks alive


async def _to_the_end(kind: Coroutine[Any, Any, None]) -> None:
    """Do something that goes on when it is cancelled: Airflow cancels a killed trigger every second."""
    task = asyncio.create_task(kind)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    await asyncio.shield(task)
