"""Fixtures for tests of frameworks."""

from __future__ import annotations

import json

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.triggers import framework
from airflow_provider.waiting.frameworks import watcher
from tests.frameworks.triggerers import SHARES, AssetStore
from tests.support.jobs import in_our_hands


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    service = in_our_hands(compliance_service, monkeypatch)
    connection = service.connection()
    # Reading the trusted authorities takes longer than the rest of a poll.
    connection["extra"] |= {"max_retries": 0, "verify": False}
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    return service


@pytest.fixture
def store() -> AssetStore:
    return AssetStore()


@pytest.fixture(params=["alone", "shared"] if SHARES else ["alone"])
def shares(request: pytest.FixtureRequest) -> bool:
    """Whether triggers share a stream, as from Airflow 3.3 on."""
    return bool(request.param == "shared")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten every wait of a watcher."""
    monkeypatch.setattr(watcher, "MIN_POLL_SECONDS", 0.01)
    monkeypatch.setattr(framework, "EVENT_STORE_SECONDS", 0.02)
