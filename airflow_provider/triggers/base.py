"""Base of the triggers that wait for jobs or assessments."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine
from dataclasses import MISSING, fields
from typing import Any, ClassVar, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider.compat import HAS_TASK_STATE_STORE, TRIGGER_HAS_ON_KILL, task_state
from airflow_provider.exceptions import ComplianceError
from airflow_provider.hooks.compliance import ComplianceHook, import_hook_class
from airflow_provider.waiting.kinds import JobKind
from airflow_provider.waiting.poller import Update, subscribe
from airflow_provider.waiting.results import UNKNOWN, Countdown, Record, WaitResult
from airflow_provider.waiting.rules import LOG_INTERVAL_SECONDS, Accepts

CANCEL_CONCURRENCY = 8
CANCEL_SECONDS = 25.0  # Airflow gives a killed trigger 30
ENDED = frozenset({"failed", "success", "skipped", "removed", "upstream_failed"})  # states of a task


class ComplianceWaitTrigger(BaseTrigger):
    """Base of the triggers that wait; a dataclass whose fields Airflow keeps in its database."""

    kind: ClassVar[JobKind]
    # After a clear, the next attempt of a submit finds the job in Airflow's task state store.
    next_attempt_reattaches: ClassVar[bool] = HAS_TASK_STATE_STORE
    _tolerates_single_errors: ClassVar[bool] = False

    conn_id: str
    poll_interval: float
    deadline: float
    cancel_on_kill: bool
    hook_class: str
    is_durable: bool

    def __post_init__(self) -> None:
        super().__init__()

    @property
    @abstractmethod
    def ids(self) -> list[str]:
        """What to wait for."""

    def make_hook(self) -> ComplianceHook:
        """Create the hook."""
        return import_hook_class(self.hook_class)(self.conn_id)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the fields; without those that only have their default."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        values = {
            each.name: getattr(self, each.name)
            for each in fields(cast(Any, self))
            if not each.kw_only or each.default is MISSING or getattr(self, each.name) != each.default
        }
        return path, values

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then send one event with the records."""
        try:
            result = await self._wait()
        except asyncio.CancelledError:
            # Airflow before 3.3 does not say whether a user or a shutdown is behind this.
            if self.cancel_on_kill and not TRIGGER_HAS_ON_KILL:
                await _shielded(self._kill())
            raise
        yield TriggerEvent(result.event(f"{self.kind.noun}s"))

    async def on_kill(self) -> None:
        """Cancel what no other attempt will use; called when a user marks or clears the task."""
        if self.cancel_on_kill:
            await _shielded(self._kill())

    async def _kill(self) -> None:
        # Airflow also reports a kill if this triggerer hung for so long that another one took over.
        state = await task_state(self)
        is_reattached = self.next_attempt_reattaches and self.is_durable
        if state in ENDED if is_reattached else state not in (None, "deferred"):
            await self._cancel()
        else:
            self.log.info(
                "The task is %s, not ended: its %ss are not cancelled.", state or "unknown", self.kind.noun
            )

    async def _cancel(self) -> None:
        noun = self.kind.noun
        self.log.info("The task was killed: cancelling its %ss in flight.", noun)
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                async with await self.make_hook().get_async_conn(max_retries=2) as client:
                    await self.kind.cancel_in_flight(client, self.ids, CANCEL_CONCURRENCY, self.log)
        except (ComplianceError, TimeoutError) as error:
            self.log.warning("The task was killed, but not all %ss could be cancelled: %s", noun, error)

    def _is_enough(self, ended: int) -> bool:
        """Tell whether to stop before everything is in a final state."""
        return False

    def _accepts(self) -> Accepts | None:
        """Return a check of final records; None accepts all."""
        return None

    async def _wait(self) -> WaitResult:
        since, countdown = time.monotonic(), Countdown(self.deadline)
        ended: dict[str, Record] = {}
        ids = set(self.ids)
        try:
            hook = self.make_hook()
        except ComplianceError as error:
            return WaitResult("error", message=str(error))
        async with subscribe(hook, self.kind, ids, self.poll_interval, self._accepts()) as updates:
            while len(ended) < len(ids) and not self._is_enough(len(ended)):
                found: list[Update]
                is_last = countdown.remaining() <= 0
                try:
                    if is_last:
                        found = await updates.poll_now(ids - ended.keys())
                    else:
                        async with asyncio.timeout(min(LOG_INTERVAL_SECONDS, countdown.remaining())):
                            found = [await updates.get()]
                except TimeoutError:
                    if countdown.remaining() > 0:
                        self.log.info("Still waiting for %s of %s %ss after %.0f s.", len(ids) - len(ended),
                                      len(ids), self.kind.noun, time.monotonic() - since)  # fmt: skip
                    continue
                for identifier, what in found:
                    if self._tolerates_single_errors and getattr(what, "concerns_one_job", False):
                        ended[identifier] = {self.kind.id_name: identifier, "status": UNKNOWN}
                    elif isinstance(what, Exception):
                        transient = getattr(what, "transient", True)
                        return WaitResult("error", ended, time.monotonic() - since, str(what), transient)
                    else:
                        ended[identifier] = what
                if is_last and len(ended) < len(ids) and not self._is_enough(len(ended)):
                    pending = [each for each in self.ids if each not in ended]
                    return WaitResult("timeout", ended, time.monotonic() - since, pending=pending)
        return WaitResult("success", ended, time.monotonic() - since)


_shielded_tasks: set[asyncio.Task[None]] = set()  # an event loop alone does not keep its tasks alive


async def _shielded(work: Coroutine[Any, Any, None]) -> None:
    """Run something to its end even if this is cancelled: Airflow cancels a killed trigger every second."""
    task = asyncio.create_task(work)
    _shielded_tasks.add(task)
    task.add_done_callback(_shielded_tasks.discard)
    await asyncio.shield(task)
