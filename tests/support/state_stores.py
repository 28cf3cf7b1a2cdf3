"""Where attempts of a task find what earlier ones have stored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.attempts import Attempts, StateStore

STATE_STORES = ["Airflow's store", "object storage", "object storage, Airflow's store emptied"]


class EmptiedStore(StateStore):
    """Airflow's store, as empty as after a clear."""

    def set(self, key: str, value: Any) -> None:
        raise AssertionError("State was stored where a clear discards it.")


def use_state_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the connection say that state is stored below a path."""
    connection = json.loads(os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"])
    connection["extra"]["state_path"] = f"file://{path}/"
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))


def make_store(memory: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> StateStore | None:
    """Set up a memory; return Airflow's part of it."""
    if memory == "Airflow's store":
        return StateStore()
    use_state_path(path, monkeypatch)
    return EmptiedStore() if memory.endswith("emptied") else None


def make_attempts(memory: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempts:
    """Return the attempts of a task with that memory."""
    return Attempts(store=make_store(memory, path, monkeypatch))
