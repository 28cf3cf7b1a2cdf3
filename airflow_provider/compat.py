"""What differs between the supported versions of Airflow; each entry says from when on it is not needed."""

from __future__ import annotations

from typing import Any

from airflow.triggers.base import BaseTrigger

from airflow_provider.exceptions import ComplianceConfigError

# Airflow 3.3 calls `on_kill` of a trigger. Not needed when 3.3 is the oldest supported version.
TRIGGERS_ARE_TOLD_OF_KILLS = hasattr(BaseTrigger, "on_kill")


def name_mapped_task(task: Any, context: Any) -> None:
    """Let a mapped task bear the name that its class gives: Airflow looks only at what `partial` got."""
    if context.get("map_index_template") is None:
        context["map_index_template"] = task.map_index_template


async def is_still_deferred(trigger: BaseTrigger) -> bool:
    """Tell whether the task of a cancelled trigger still waits, as after a restart of the triggerer.

    What can't be found out counts as yes. Needed on all versions: also 3.3 takes it for a kill when another
    triggerer has taken a trigger over.
    """
    from asgiref.sync import sync_to_async

    task_instance = getattr(trigger, "task_instance", None)
    if task_instance is None:
        return True
    try:
        return await sync_to_async(_state_of)(task_instance) == "deferred"
    except Exception:
        trigger.log.exception("The state of the task can't be found out, so its jobs are not cancelled.")
        return True


def _state_of(task_instance: Any) -> str:
    try:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
    except ImportError:  # Airflow 2.11
        task_instance.refresh_from_db()
        return str(task_instance.state)
    states: dict[str, dict[str, Any]] = RuntimeTaskInstance.get_task_states(
        dag_id=task_instance.dag_id,
        task_ids=[task_instance.task_id],
        run_ids=[task_instance.run_id],
        map_index=task_instance.map_index,
    )
    (state,) = states[task_instance.run_id].values()
    return str(state)


def human_in_the_loop() -> Any:
    """Return Airflow's operator for human in the loop, or one that says that there is none.

    The latter is not needed when 3.1 is the oldest supported version.
    """
    from airflow.providers.common.compat.sdk import AirflowException, BaseOperator

    try:
        from airflow.providers.standard.operators.hitl import HITLOperator
    except (ImportError, AirflowException):  # Airflow 2; Airflow 3.0 with a newer standard provider

        class WithoutHumanInTheLoop(BaseOperator):
            def __init__(self, **kwargs: Any) -> None:
                raise ComplianceConfigError(
                    f"{type(self).__name__} needs Airflow 3.1 or newer, with human in the loop in "
                    "apache-airflow-providers-standard. Upgrade, or gather the feedback elsewhere and send "
                    "it with ComplianceSubmitFeedbackOperator."
                )

        return WithoutHumanInTheLoop
    return HITLOperator


def response_timeout_for(operator: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Say `execution_timeout` where the standard provider does not know `response_timeout` yet.

    Its versions of Airflow 3.1 do not: not needed when 3.2 is the oldest supported version.
    """
    from inspect import signature

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
