"""Fixtures for tests of operators."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from tests.operators.hitl import RESULTS, hitl
from tests.support.jobs import in_our_hands

__all__ = ["hitl"]


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The emulator, which knows the responses of `RESULTS`."""
    state: Any = compliance_service._state
    subject = state.identity.accounts[state.settings.username].subject
    state.response_owners.update(dict.fromkeys([result["id"] for result in RESULTS], subject))
    return in_our_hands(compliance_service, monkeypatch)


@pytest.fixture(autouse=True)
def _patient_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `on_kill` wait until the job is cancelled, however busy the machine is."""
    monkeypatch.setattr("airflow_provider.operators.base_job.CANCEL_GRACE_SECONDS", 240.0)


@pytest.fixture(autouse=True)
def _running_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a killed task find itself running, as after a signal: the tests have no Airflow to ask."""
    monkeypatch.setattr("airflow_provider.operators.base_job.read_task_states", lambda _: ["running"])
