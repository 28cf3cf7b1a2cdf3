"""Fixtures for tests of frameworks."""

from __future__ import annotations

import json

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.frameworks import snapshots as snapshots
from airflow_provider.frameworks import watcher as watcher
from airflow_provider.triggers import framework
from tests.frameworks.triggerers import SHARES, AssetStore
from tests.support.jobs import in_our_hands


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    service = in_our_hands(compliance_service, monkeypatch)
    connection = service.connection()
    # Reading the trusted authorities takes longer than all else of a look.
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
    """Let a watcher wait for nothing longer than a test needs."""
    monkeypatch.setattr(snapshots, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(snapshots, "SECOND_LOOK", 0.02)
    monkeypatch.setattr(watcher, "LEASE_SETTLE_SECONDS", 0.03)
    monkeypatch.setattr(watcher, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(framework, "STORED_AFTER", 0.02)
