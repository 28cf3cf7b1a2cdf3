"""Nights of one DAG: the attempts of a task in each of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from tests.support.attempts import Attempts

FIRST_NIGHT = datetime(2026, 3, 1, tzinfo=UTC)


def night_attempts(night: int, **identity: Any) -> Attempts:
    """Return the attempts of a task in the night of that number; the first one is 1."""
    dag_run = SimpleNamespace(logical_date=FIRST_NIGHT + timedelta(days=night - 1))
    return Attempts(identity={"run_id": f"run-{night}", **identity}, context={"dag_run": dag_run})
