"""Fixtures for tests of waiting."""

from __future__ import annotations

import pytest

from airflow_provider.emulator import Emulator
from tests.support.jobs import in_our_hands


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    return in_our_hands(compliance_service, monkeypatch)
