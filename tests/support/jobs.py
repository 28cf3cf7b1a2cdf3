"""Jobs of the emulator, in the state that a test needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from tests.support.speed import TIMEOUT_SECONDS

OTHER_PATHS = {
    "assessment_submit": "/v2/checks",
    "assessment_status": "/v2/checks/{assessment_id}",
    "assessment_results": "/v2/checks/{assessment_id}/findings",
    "assessment_cancel": "/v2/checks/{assessment_id}",
}
ASSESSMENT_PATHS = [
    pytest.param({}, id="default-paths"),
    pytest.param(OTHER_PATHS, id="other-paths", marks=pytest.mark.once),
]
"""Paths of assessments, which the contract leaves open: for the `endpoints` of an emulator."""


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The emulator, with jobs that end when a test says so."""
    return in_our_hands(compliance_service, monkeypatch)


@pytest.fixture
def instant_service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The emulator; jobs are done at once, and calls that fail are not repeated by the client."""
    connection = compliance_service.connection()
    connection["extra"] |= {"max_retries": 0, "timeout": TIMEOUT_SECONDS}
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    return compliance_service


def in_our_hands(service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Let jobs end when a test says so, and let a call that fails be repeated soon or not at all."""
    monkeypatch.setattr("airflow_provider.client.exchange.MAX_BACKOFF_SECONDS", 0.01)
    service.configure(jobs="manual")
    connection = service.connection()
    connection["extra"]["max_retries"] = 0
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    return service


def completed(service: Emulator, **job: Any) -> str:
    """Add a job that is completed."""
    return service.add_job(**{"text": "x", "status": "COMPLETED", **job})


def running(service: Emulator) -> str:
    """Add a job that is under way until the test says otherwise."""
    return service.add_job(text="x", status="RUNNING")
