"""Fixtures for tests of frameworks."""

from __future__ import annotations

import json

import pytest

from airflow_provider.emulator import Emulator
from tests.support.jobs import in_our_hands


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    service = in_our_hands(compliance_service, monkeypatch)
    connection = service.connection()
    # Reading the trusted authorities takes longer than all else of a look.
    connection["extra"] |= {"max_retries": 0, "verify": False}
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    return service
