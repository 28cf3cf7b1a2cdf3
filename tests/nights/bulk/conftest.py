"""Fixtures for tests of what bulk operators share: one task without I/O, in virtual time."""

from __future__ import annotations

import logging

import pytest

from airflow_provider.waiting import rules
from tests.support.bulk import Night

# As in production, except for the last, which is a tenth: the engine looks at its clock every second.
GRACE = {"UNKNOWN_SECONDS": 30.0, "REFRESH_GRACE_SECONDS": 30.0, "OUTAGE_SECONDS": 90.0}


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch, _soon_sure: None) -> None:
    for name, value in GRACE.items():
        monkeypatch.setattr(rules, name, value)


@pytest.fixture
def night(caplog: pytest.LogCaptureFixture) -> Night:
    caplog.set_level(logging.INFO, "bulk")
    return Night()
