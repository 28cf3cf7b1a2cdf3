"""Fixtures for tests of bulk assessment: the emulator with texts, and nights that assess them."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.waiting import refusals
from tests.operators.hitl import hitl
from tests.support.jobs import instant_service as service
from tests.support.nights import Nights
from tests.support.speed import speed_up

__all__ = ["hitl", "service"]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    speed_up(monkeypatch)
    monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(refusals, "MAX_PAUSE_SECONDS", 0.05)


@pytest.fixture
def nights(service: Emulator, tmp_path: Path) -> Nights:
    return Nights(f"file://{tmp_path}/out/", tmp_path, service)
