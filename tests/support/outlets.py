"""Airflow's own accessor of the events of a task's outlets."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def outlet_events() -> Any:
    """Make one, as a task of this Airflow gets it."""
    try:
        module = import_module("airflow.sdk.execution_time.context")
    except ModuleNotFoundError:  # Airflow 2.11
        module = import_module("airflow.utils.context")
    return module.OutletEventAccessors()
