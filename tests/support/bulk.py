"""A bulk operator without I/O, for tests of its engine in virtual time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from airflow_provider.nights.bulk.engine import BulkEngine, BulkRun
from airflow_provider.nights.bulk.items import Item, Steps
from airflow_provider.waiting.waits import Deadline
from tests.support import virtual_time
from tests.support.polled import RUNNING, PolledService
from tests.support.virtual_time import START, seconds


def _finish(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)


class Journal:
    """A checkpoint in memory."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.write_seconds = 0.0
        self.flushes: list[float] = []
        self.owner_error: Exception | None = None
        self.flush_error: Exception | None = None
        self.checks = 0

    def append(self, item: Item) -> asyncio.Future[None]:
        self.records.append(item.record())
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        loop.call_later(self.write_seconds, _finish, written)
        return written

    async def run_writer(self) -> None:
        await asyncio.sleep(1e6)

    async def flush(self) -> None:
        self.flushes.append(round(seconds(), 3))
        if self.flush_error:
            raise self.flush_error

    async def check_owner(self) -> None:
        self.checks += 1
        if self.owner_error:
            raise self.owner_error


class ScriptedSteps(Steps[Item]):
    """Steps that do as told; by default, all is well.

    :ivar outcomes: of a step and an item, in turn: an error, seconds that it takes, or the record
    :ivar calls: when which step was done for which item
    """

    noun = "items"

    def __init__(self, service: PolledService) -> None:
        self.service = service
        self.outcomes: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.calls: list[tuple[float, str, str]] = []

    async def _do(self, step: str, item: Item) -> Any:
        self.calls.append((round(seconds(), 3), step, item.key))
        outcomes = self.outcomes[step, item.key]
        while outcomes:
            outcome = outcomes.pop(0)
            if isinstance(outcome, BaseException):
                raise outcome
            if isinstance(outcome, float):
                await asyncio.sleep(outcome)
            else:
                return outcome
        return None

    async def submit(self, item: Item) -> Any:
        return await self._do("submit", item) or self._record(item)

    async def retry(self, item: Item) -> Any:
        return await self._do("retry", item) or self._record(item)

    async def fetch(self, item: Item) -> None:
        await self._do("fetch", item)

    def _record(self, item: Item) -> Any:
        self.service.scripts.setdefault(item.key, {0.0: {"status": "RUNNING"}})
        return {"uuid": item.key, "status": "RUNNING"}

    def of(self, *steps: str) -> list[tuple[float, str]]:
        """Return when these steps were done, and for which items."""
        return [(at, key) for at, step, key in self.calls if step in steps]

    def __str__(self) -> str:
        """Return what was done for one item, such as `submit@0 fetch@3`."""
        return " ".join(f"{step}@{at:g}" for at, step, _ in self.calls)


def iso(timestamp: float) -> str:
    """Return a time as items have it."""
    return datetime.fromtimestamp(timestamp, UTC).isoformat()


class Night:
    """One bulk task, with its service, its journal and its steps."""

    def __init__(self) -> None:
        began = time.time()
        self._clock = SimpleNamespace(now=lambda: began + seconds())
        self.service = PolledService()
        self.service.has_worked = True
        self.journal: Any = Journal()
        kind = self.service.kind()
        self.steps: ScriptedSteps = type("S", (ScriptedSteps,), {"kind": kind})(self.service)

    def script(
        self, jobs: Mapping[str, Mapping[float, Any]], steps: Mapping[str, Sequence[Any]] = {}
    ) -> None:
        """Say what each job is from which second on, and how steps such as `submit a` go, in turn."""
        for key, results in jobs.items():
            self.service.scripts[key] = {0.0: RUNNING, **results}
        for name, outcomes in steps.items():
            self.outcome(*name.split(), *outcomes)

    def outcome(self, step: str, key: str, *outcomes: Any) -> None:
        """Say how a step goes for an item, in turn."""
        self.steps.outcomes[step, key] += outcomes

    def engine(self, *items: Item, outdated: tuple[str, ...] = (), **changes: Any) -> BulkEngine[Item]:
        """Return the engine of an attempt."""
        unused: Any = None
        limits: dict[str, Any] = {"deadline": 3600.0, "limit": "timeout", "max_in_flight": None} | changes
        given = {name: changes[name] for name in changes.keys() - {"deadline", "limit", "max_in_flight"}}
        run = BulkRun(
            hook=self.service.hook(),
            log=logging.getLogger("bulk"),
            context=unused,
            destination=unused,
            root=unused,
            night=unused,
            deadline=Deadline(limits["limit"]),
            ends_at=limits["deadline"] + START,
            started_at="",
            is_new_attempt=True,
            clock=asyncio.get_running_loop().time,
            **{"concurrency": 4, "poll_interval": 5.0, **given},
        )
        run.checkpoint = self.journal
        settings = SimpleNamespace(max_in_flight=limits["max_in_flight"])
        client: Any = SimpleNamespace(throttlings=0, clock=self._clock, settings=settings)
        return BulkEngine(run, client, items, self.steps, outdated)

    def run(self, *items: Item, kill_after: float | None = None, **changes: Any) -> list[str]:
        """Run until it ends; return the jobs in flight."""

        async def story() -> list[str]:
            task = asyncio.create_task(self.engine(*items, **changes).run())
            if kill_after is not None:
                await asyncio.sleep(kill_after)
                task.cancel()
            return await task

        return virtual_time.run(story())
