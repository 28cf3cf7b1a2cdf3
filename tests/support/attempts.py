"""Tasks run as Airflow runs them: executed, deferred, their trigger rebuilt from its row, resumed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from airflow.providers.common.compat.sdk import TaskDeferred

FIRST_NIGHT = datetime(2026, 3, 1, tzinfo=UTC)


class StateStore(dict[str, Any]):
    """Airflow's task state store: survives the attempts of a task, and takes nothing but JSON."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))
        assert self[key] == value, "Airflow's store refuses tuples, and keys that are not texts."


class Interrupted(StateStore):
    """A store that lets something else happen before one of its operations."""

    def __init__(self, operation: int, event: Callable[[], None]) -> None:
        super().__init__()
        self.left, self.event = operation, event

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.event()

    def get(self, key: str, default: Any = None) -> Any:
        self._count()
        return super().get(key, default)

    def set(self, key: str, value: Any) -> None:
        self._count()
        super().set(key, value)


@dataclass
class TaskInstance:
    """What the operators use of a task instance."""

    start_date: datetime = field(default_factory=lambda: datetime.now(UTC))
    xcoms: dict[str, Any] = field(default_factory=dict)
    dag_id: str = "d"
    task_id: str = "t"
    run_id: str = "r"
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 0

    def xcom_pull(self, task_ids: str, key: str, map_indexes: Any = None) -> Any:
        return self.xcoms.get(f"{task_ids}.{key}")

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value


@dataclass
class Attempts:
    """The attempts of one task instance."""

    store: StateStore | None = field(default_factory=StateStore)
    deferrals: list[dict[str, Any]] = field(default_factory=list)
    while_deferred: Callable[[int], None] = lambda number: None
    ti: TaskInstance = field(default_factory=TaskInstance)
    identity: dict[str, Any] = field(default_factory=dict)  # such as another `run_id`
    context: dict[str, Any] = field(default_factory=dict)  # of every attempt
    retries: int = 1
    try_number: int = 0
    max_tries: int = 1

    def clear(self) -> None:
        """Let the next attempt be one after a clear, not a retry: with as many retries again."""
        self.max_tries = self.try_number + self.retries

    def run(self, task: Any, **more: Any) -> Any:
        """Make one attempt, through as many deferrals as it takes, with more in the context."""
        self.try_number += 1
        tries = {"try_number": self.try_number, "max_tries": self.max_tries}
        self.ti = TaskInstance(**{**tries, **self.identity})
        context: Any = {"ti": self.ti, **self.context, **more}
        if self.store is not None:
            context["task_state_store"] = self.store
        step: Callable[[], Any] = partial(task.execute, context)
        while True:
            try:
                return step()
            except TaskDeferred as deferred:
                path, kwargs = deferred.trigger.serialize()
                kwargs = json.loads(json.dumps(kwargs))  # as the row in the database has it
                self.deferrals.append({"path": path, "airflow_timeout": deferred.timeout, **kwargs})
                module, _, name = path.rpartition(".")
                self.while_deferred(len(self.deferrals))
                with asyncio.Runner() as triggerer:  # whose loop a test may choose
                    event = triggerer.run(fire(getattr(import_module(module), name)(**kwargs)))
                resumed = {**(deferred.kwargs or {}), "event": json.loads(json.dumps(event))}
                step = partial(task.resume_execution, deferred.method_name, resumed, context)


def night_attempts(night: int, **identity: Any) -> Attempts:
    """Return the attempts of a task in the night of that number; the first one is 1."""
    dag_run = SimpleNamespace(logical_date=FIRST_NIGHT + timedelta(days=night - 1))
    return Attempts(identity={"run_id": f"run-{night}", **identity}, context={"dag_run": dag_run})


def heard(task: Any) -> Any:
    """Let a task write its log where pytest's `caplog` sees it; Airflow keeps it apart."""
    task._log = task._cached_logger = logging.getLogger("task")  # Airflow 2, Airflow 3
    return task


async def fire(trigger: Any) -> dict[str, Any]:
    """Run a trigger until its one event, and return what that says."""
    async for event in trigger.run():
        return dict(event.payload)
    raise AssertionError("The trigger ended without an event.")


async def until(condition: Any) -> None:
    """Wait for something that happens in the emulator."""
    async with asyncio.timeout(240):
        while not condition():  # noqa: ASYNC110 - the emulator has no events to wait for
            await asyncio.sleep(0.01)


def allow_tasks_in_thread() -> None:
    """Let this thread of a test execute tasks: Airflow 2.11 prepares the main thread alone."""
    with suppress(ImportError, AttributeError):
        import_module("airflow.models.baseoperator").ExecutorSafeguard._sentinel.callers = {}
