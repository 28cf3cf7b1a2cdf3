"""Provenance of a row: which attempt of which task instance finished it, and with which code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider import __version__
from airflow_provider.exceptions import ComplianceSupersededError

TASK_COLUMNS = ("dag_id", "run_id", "task_id", "map_index")
ATTEMPT_COLUMNS = ("try_number", "bundle_version", "provider_version")
PROVENANCE_COLUMNS = (*TASK_COLUMNS, *ATTEMPT_COLUMNS)


def instance_of(ti: Any) -> int | str:
    """Return what distinguishes a task instance from the others of its task in the same run.

    That is the map index; in a loop also the iteration, such as `loop2` or, if mapped, `5.loop2`. Every key
    of something kept per task instance contains it. Airflow has loops since 3.4.
    """
    region = getattr(ti, "region_id", None)
    if region is None or not region.int:
        return int(ti.map_index)  # neither mapped nor in a loop, or Airflow before 3.4
    # The region itself is not the key: every mapped task has one, and clearing a loop starts a new one.
    loop = ti.get_template_context().get("loop")
    if loop is None:
        return int(ti.map_index)
    return f"{ti.map_index}.loop{loop.index}" if ti.map_index >= 0 else f"loop{loop.index}"


def read_provenance(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that say which attempt of which task instance wrote a row.

    :param context: the context of the task; only `ti` and `dag_run` are read
    """
    ti = context["ti"]
    # Airflow 3 has the version of the bundle that the task runs from; Airflow 2 has no bundles.
    bundle = getattr(ti, "bundle_instance", None)
    version = getattr(bundle, "version", None) or getattr(context.get("dag_run"), "bundle_version", None)
    return {
        **{name: getattr(ti, name) for name in TASK_COLUMNS},
        "try_number": getattr(ti, "try_number", None),
        "bundle_version": None if version is None else str(version),
        "provider_version": __version__,
    }


def describe_attempt(ti: Any) -> dict[str, Any]:
    """Return the identity of an attempt of a task instance; it stays the same after a deferral."""
    started = getattr(ti, "start_date", None)
    return {
        "try_number": getattr(ti, "try_number", 0),
        "started_at": started.timestamp() if started else 0.0,
    }


def is_newer(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether an attempt is a later one than another of the same task instance, so it took over.

    The higher number decides, unless both start times are known and contradict it: the number starts again
    at 1 if a run is deleted and created again. This is the only rule for it; see its table in the tests.

    :param one: `try_number` and `started_at` as of `describe_attempt`; an unknown value is 0 or missing
    """
    try:
        number, other_number = (int(attempt.get("try_number") or 0) for attempt in (one, other))
        started_at, other_started_at = (float(attempt.get("started_at") or 0) for attempt in (one, other))
    except (TypeError, ValueError):
        return False
    return number > other_number and not 0.0 < started_at < other_started_at


def check_newest(attempt: Mapping[str, Any], held: Mapping[str, Any]) -> None:
    """Stop an attempt if a newer one took over shared state, such as a lease."""
    if is_newer(held, attempt):
        raise ComplianceSupersededError.by(held)
