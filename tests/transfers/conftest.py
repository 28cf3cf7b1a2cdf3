"""Fixtures for tests of transfers."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat import sdk
from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

from airflow_provider.emulator import Emulator
from tests.support.jobs import in_our_hands


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    return in_our_hands(compliance_service, monkeypatch)


@pytest.fixture
def hook_lineage_collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The collector that Airflow uses where lineage is read."""
    collector = sdk.HookLineageCollector()
    monkeypatch.setattr(sdk, "get_hook_lineage_collector", lambda: collector, raising=False)
    return get_hook_lineage_collector()
