"""Differences between the supported versions of Airflow; each entry says from when on it is not needed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from inspect import signature
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from airflow import __version__ as airflow_version

from airflow_provider.exceptions import ComplianceConfigError

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

_VERSION = tuple(int(part) for part in airflow_version.split(".")[:2])

# Airflow 3.4 discards the state of a cleared task. Not needed when 3.4 is the oldest supported version.
CLEAR_KEEPS_STATE = _VERSION < (3, 4)

ENDED_TASK = frozenset({"failed", "success", "skipped", "removed", "upstream_failed"})

# Airflow 3.1 brings forms. Not needed when 3.1 is the oldest supported version.
HAS_FORMS = _VERSION >= (3, 1)

# Airflow 2 ends a task after its `on_kill`. Not needed when 3.0 is the oldest supported version.
ON_KILL_ENDS_TASK = _VERSION < (3, 0)


TITLE_TEMPLATE = "{{ task.title }}"


def apply_map_index_template(task: Any, context: Any) -> None:
    """Name a mapped task by its title, unless its author gave another name.

    Airflow 3.0 renders the name before the task's own templates, which fails if a parameter is the output of
    another task. That part is not needed when 3.1 is the oldest supported version.
    """
    context["task"] = task
    if context.get("map_index_template") is None and getattr(context.get("ti"), "map_index", -1) >= 0:
        context["map_index_template"] = TITLE_TEMPLATE


def send_map_index(task: Any, context: Any) -> None:
    """Show the name of a mapped task that is about to wait: Airflow sends it only when a task ends.

    Airflow before 3.2 has no message for it.
    """
    if context.get("map_index_template") != TITLE_TEMPLATE:
        return
    try:
        from airflow.sdk.execution_time.comms import SetRenderedMapIndex
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        SUPERVISOR_COMMS.send(msg=SetRenderedMapIndex(rendered_map_index=task.title))
    except Exception as error:  # a missing name must not fail a task
        task.log.debug("The name of the mapped task is not shown: %r", error)


class _Questions:
    """Asks for the state of tasks, once per event loop: tasks that come during a request share the next one.

    The first answer of a triggerer that has just started takes seconds, and questions wait for each other.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting: list[tuple[Any, asyncio.Future[str | None]]] = []


_questions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Questions] = WeakKeyDictionary()


async def task_state(trigger: BaseTrigger) -> str | None:
    """Return the state of a trigger's task as Airflow has it now; None where that can't be found out."""
    from asgiref.sync import sync_to_async

    task_instance = getattr(trigger, "task_instance", None)
    if task_instance is None:
        return None
    loop = asyncio.get_running_loop()
    questions = _questions.setdefault(loop, _Questions())
    answer: asyncio.Future[str | None] = loop.create_future()
    questions.waiting.append((task_instance, answer))
    async with questions.turn:
        if not answer.done():
            asked = [*questions.waiting]
            try:
                states = await sync_to_async(read_task_states)([instance for instance, _ in asked])
            except Exception:
                trigger.log.exception("Could not get the states of %s tasks.", len(asked))
                states = [None] * len(asked)
            del questions.waiting[: len(asked)]
            for (_, future), state in zip(asked, states, strict=True):
                if not future.done():
                    future.set_result(state)
    return answer.result()


def read_task_states(instances: Sequence[Any]) -> list[str | None]:
    """Return the state of each task instance as Airflow has it now; None of one that does not exist."""
    try:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
    except ImportError:  # Airflow 2.11
        return [str(instance.current_state()) for instance in instances]
    groups: defaultdict[tuple[str, str | None], list[Any]] = defaultdict(list)
    for one in instances:
        # Each mapped task alone: the first instance of `load` is named like the task `load_0`.
        groups[one.dag_id, one.task_id if one.map_index >= 0 else None].append(one)
    found: dict[tuple[str, str | None], dict[str, dict[str, Any]]] = {
        key: RuntimeTaskInstance.get_task_states(
            dag_id=key[0],
            task_ids=sorted({one.task_id for one in group}),
            run_ids=sorted({one.run_id for one in group}),
        )
        for key, group in groups.items()
    }
    states: list[str | None] = []
    for one in instances:
        is_mapped = one.map_index >= 0
        run = found[one.dag_id, one.task_id if is_mapped else None].get(one.run_id, {})
        name = f"{one.task_id}_{one.map_index}" if is_mapped else one.task_id
        states.append(str(run[name]) if name in run else None)
    return states


def human_in_the_loop() -> Any:
    """Return Airflow's operator for human in the loop, or one that fails because this Airflow has none.

    The latter is not needed when 3.1 is the oldest supported version.
    """
    from airflow.providers.common.compat.sdk import AirflowException, BaseOperator

    try:
        from airflow.providers.standard.operators.hitl import HITLOperator
    except (ImportError, AirflowException):  # Airflow 2; Airflow 3.0 with a newer standard provider

        class WithoutHumanInTheLoop(BaseOperator):
            def __init__(self, **kwargs: Any) -> None:
                self.partial()

            @classmethod
            def partial(cls, **kwargs: Any) -> Any:  # a mapped task is not constructed when its DAG is parsed
                raise ComplianceConfigError(
                    f"{cls.__name__} needs Airflow 3.1 or newer, with human in the loop in "
                    "apache-airflow-providers-standard. Upgrade, or gather the feedback elsewhere and send "
                    "it with ComplianceSubmitFeedbackOperator."
                )

        return WithoutHumanInTheLoop
    return HITLOperator


def response_timeout_for(operator: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Say `execution_timeout` where the standard provider does not know `response_timeout` yet.

    Its versions of Airflow 3.1 do not: not needed when 3.2 is the oldest supported version.
    """
    if "response_timeout" in signature(operator.__init__).parameters:
        return kwargs
    timeout = kwargs.pop("response_timeout", None)
    return {**kwargs, **({"execution_timeout": timeout} if timeout else {})}


def waiting_for_input() -> tuple[type[BaseException], ...]:
    """Return what human in the loop raises to wait.

    From Airflow 3.3 on no trigger waits: then `TaskDeferred` is not needed when 3.3 is the oldest version.
    """
    from airflow.providers.common.compat.sdk import TaskDeferred

    awaiting = awaiting_input()
    return (TaskDeferred,) if awaiting is None else (TaskDeferred, awaiting)


def awaiting_input() -> Any:
    """Return what parks a task until it is answered; None before Airflow 3.3, where a trigger waits."""
    try:
        from airflow.sdk.exceptions import TaskAwaitingInput
    except ImportError:
        return None
    return TaskAwaitingInput


def wait_for_form(operator: Any, context: Any, kwargs: dict[str, Any]) -> None:
    """Wait for the answer to a form that is shown already: to show it again would discard an unread answer.

    The trigger is not needed when 3.3 is the oldest supported version.

    :param operator: the human-in-the-loop operator
    :param kwargs: for its `execute_complete`
    """
    # `execution_timeout` where the standard provider does not know `response_timeout` yet.
    timeout = getattr(operator, "response_timeout", None) or operator.execution_timeout
    if awaiting := awaiting_input():
        raise awaiting(method_name="execute_complete", kwargs=kwargs, timeout=operator.response_timeout)
    from airflow.providers.standard.triggers.hitl import HITLTrigger

    trigger = HITLTrigger(
        ti_id=context["ti"].id,
        options=operator.options,
        defaults=operator.defaults,
        params=operator.serialized_params,
        multiple=operator.multiple,
        timeout_datetime=datetime.now(UTC) + timeout if timeout else None,
    )
    operator.defer(trigger=trigger, method_name="execute_complete", kwargs=kwargs)


def asset_stores_of(trigger: BaseTrigger) -> list[Any]:
    """Return the state stores of all assets that a trigger watches; none before Airflow 3.3.2."""
    stores = getattr(trigger, "asset_state_store", None)
    # Airflow has no public way to list them; its accessor for a single asset fails with two.
    found = [] if stores is None else [*stores._by_name.values(), *stores._by_uri.values()]  # noqa: SLF001
    return [store for store in found if hasattr(store, "aget")]


async def get_variable(key: str) -> Any:
    """Read an Airflow variable of JSON from a trigger; None is absent."""
    from airflow.sdk import Variable
    from asgiref.sync import sync_to_async

    return await sync_to_async(Variable.get)(key, default=None, deserialize_json=True)


async def set_variable(key: str, value: Any, description: str) -> None:
    """Write an Airflow variable of JSON from a trigger."""
    from airflow.sdk import Variable
    from asgiref.sync import sync_to_async

    await sync_to_async(Variable.set)(key, value, description, serialize_json=True)


def task_states(context: Any, task_ids: Iterable[str]) -> dict[tuple[str, int], str]:
    """Return the state of each instance of these tasks in the DAG run, by task id and map index.

    Airflow 2 has them in the DAG run. Not needed when 3.0 is the oldest supported version.
    """
    ti, wanted = context["ti"], sorted(task_ids)
    if not hasattr(ti, "get_task_states"):
        found = context["dag_run"].get_task_instances() if wanted else ()
        return {(one.task_id, one.map_index): str(one.state) for one in found if one.task_id in wanted}
    states = {}
    for task_id in wanted:
        # One by one: the first instance of `load` is named like the task `load_0`, and would hide it.
        named = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task_id], run_ids=[ti.run_id])
        for name, state in named.get(ti.run_id, {}).items():
            index = -1 if name == task_id else int(name.removeprefix(f"{task_id}_"))
            states[task_id, index] = str(state)
    return states


def scheduled_dates(dag: Any, after: datetime, before: datetime, most: int) -> list[str]:
    """Return the latest dates of a cron schedule between two runs; none of other schedules.

    A run that is not on the schedule, such as a manual one, stands in for the others of its day.
    The classes of timetables differ. Not needed when the timetables of all supported versions are the same.
    """
    timetable = getattr(dag, "timetable", None)
    expression = getattr(timetable, "expression", None) or getattr(timetable, "_expression", None)
    zone = getattr(timetable, "timezone", None) or getattr(timetable, "_timezone", None) or UTC
    if not isinstance(expression, str):
        return []
    croniter: Any = import_module("croniter").croniter  # comes with Airflow
    zone = ZoneInfo(zone) if isinstance(zone, str) else zone
    runs = after.astimezone(zone), before.astimezone(zone)
    manual = {run.date() for run in runs if not croniter.match(expression, run)}
    dates = croniter(expression, runs[1])
    found = takewhile(lambda date: date > after, iter(lambda: dates.get_prev(datetime), None))
    missed = (date for date in found if date.date() not in manual)
    return sorted(date.astimezone(UTC).isoformat() for date in islice(missed, most))
