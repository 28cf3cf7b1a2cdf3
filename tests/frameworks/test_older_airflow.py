"""What the watcher does where Airflow has no watchers, or they can do less."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.runtime import compat
from airflow_provider.triggers import framework


def test_without_watchers_the_trigger_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "HAS_ASSET_WATCHERS", False)
    with pytest.raises(RuntimeError, match="needs the asset watchers of Airflow 3"):
        framework.ComplianceFrameworkChangeTrigger()


@pytest.mark.skipif(framework.HAS_ASSET_WATCHERS, reason="this Airflow has watchers")
def test_airflow_2_has_none() -> None:
    with pytest.raises(RuntimeError, match="ComplianceListFrameworksOperator"):
        framework.ComplianceFrameworkChangeTrigger()


def test_a_state_store_that_can_only_block_is_not_used() -> None:
    """That of Airflow 3.3.0: the state is a variable there."""
    trigger: Any = SimpleNamespace(asset_state_store=SimpleNamespace(_by_name={"a": {}}, _by_uri={}))
    assert compat.asset_stores_of(trigger) == []
