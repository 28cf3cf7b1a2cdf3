"""What differs between the supported versions of Airflow; each entry says from when on it is not needed."""

from __future__ import annotations

from typing import Any

from airflow.triggers.base import BaseTrigger

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
