"""Base of the triggers that wait for jobs or assessments."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider.exceptions import ComplianceError
from airflow_provider.hooks.compliance import ComplianceHook, import_hook_class
from airflow_provider.runtime.compat import ENDED_TASK, task_state
from airflow_provider.runtime.event_loop import run_to_end
from airflow_provider.waiting.kinds import JobKind
from airflow_provider.waiting.results import WaitResult
from airflow_provider.waiting.rules import Accepts, accept_final
from airflow_provider.waiting.waits import cancel, wait

# Airflow 3.3 calls `on_kill` of a trigger. Not needed when 3.3 is the oldest supported version.
TRIGGER_HAS_ON_KILL = hasattr(BaseTrigger, "on_kill")
# For Airflow to say whether the task ended: a triggerer that just started may need over half a minute for its
# first answer. Longer than the 30 s after which Airflow stops waiting for a killed trigger, which continues.
ANSWER_SECONDS = 300.0


@dataclass(eq=False, repr=False, kw_only=True)
class _Options:
    hook_class: str = ""
    is_durable: bool = False
    account: str = ""
    enough: int | None = None
    timeout: float | None = None
    began_at: float = 0.0


class ComplianceWaitTrigger(_Options, BaseTrigger):
    """Base of the triggers that wait; a dataclass whose fields Airflow keeps in its database.

    :param hook_class: module and name of the hook class; the default if empty
    :param is_durable: the next attempt re-attaches to the jobs, even after a clear
    :param account: `account_digest` of the hook at their submit; by default the connection's
    :param enough: after how many the task can go on; by default after all. With it, the event has no records:
        a bulk operator finds thousands of jobs in its journal, and polls them anyway
    :param timeout: seconds until the deadline when the task deferred, which count however clocks differ
    :param began_at: when it deferred by the clock of the service, so that a restart of the triggerer does not
        start the timeout again; 0 if that is not known
    """

    kind: ClassVar[JobKind]

    conn_id: str
    poll_interval: float
    deadline: float
    cancel_on_kill: bool

    def __post_init__(self) -> None:
        BaseTrigger.__init__(self)  # not through super(), which would reset the options

    @property
    @abstractmethod
    def ids(self) -> list[str]:
        """The ids to wait for."""

    def make_hook(self) -> ComplianceHook:
        """Create the hook."""
        return import_hook_class(self.hook_class)(self.conn_id)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the fields."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then send one event with the records."""
        try:
            result = await self._wait()
        except asyncio.CancelledError:
            # Airflow before 3.3 does not say whether a user or a shutdown is behind this.
            if self.cancel_on_kill and not TRIGGER_HAS_ON_KILL:
                await run_to_end(self._kill())  # Airflow may cancel it again and again
            raise
        yield TriggerEvent(result.event(f"{self.kind.noun}s"))

    async def on_kill(self) -> None:
        """Cancel what no other attempt will use; called when a user marks or clears the task."""
        if self.cancel_on_kill:
            await run_to_end(self._kill())

    async def _kill(self) -> None:
        # Airflow also reports a kill if this triggerer hung for so long that another one took over.
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                state = await task_state(self)
        except TimeoutError:
            state = None
        if state is None:
            self.kind.warn_left(self.ids, ["Airflow did not say whether their task ended."], self.log)
        elif state in ENDED_TASK if self.is_durable else state != "deferred":
            self.log.info("The task was killed: cancelling its %ss in flight.", self.kind.noun)
            await cancel(self.kind, self.make_hook(), self.ids, self.log, self.account)
        else:
            self.log.info("The task is %s, not ended: its %ss are not cancelled.", state, self.kind.noun)

    async def _wait(self, accepts: Accepts = accept_final) -> WaitResult:
        """Wait for the jobs."""
        try:
            hook = self.make_hook()
        except ComplianceError as error:
            return WaitResult("error", message=str(error))
        result = await wait(
            self.kind,
            hook,
            self.ids,
            self.poll_interval,
            self.deadline - time.time() if self.timeout is None else self.timeout,
            self.log,
            accepts=accepts,
            enough=self.enough,
            account=self.account,
            began_at=self.began_at,
        )
        if self.enough is not None:
            result.records, result.pending = {}, []
        return result
