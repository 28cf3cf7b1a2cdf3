"""The watcher: what counts as a change, and what its event contains."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.compat import HAS_ASSET_WATCHERS
from airflow_provider.emulator import Emulator
from airflow_provider.triggers.framework import ComplianceFrameworkChangeTrigger
from tests.frameworks.triggerers import CONN, AssetStore, add, committed, polled, running, watcher
from tests.support.attempts import until

pytestmark = pytest.mark.skipif(not HAS_ASSET_WATCHERS, reason="there are no watchers before Airflow 3.0")


def test_the_first_snapshot_is_stored_without_an_event(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> None:
        async with running(shares, watcher(), store) as triggerer:
            await polled(service)
            assert not triggerer.fired
        assert store.ids == ["1", "2"]
        assert store.writes == 1

    asyncio.run(scenario())


def test_the_first_snapshot_is_an_event_on_request(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(fire_on_first_snapshot=True), store) as triggerer:
            await until(lambda: triggerer.events)
            await committed(service, store)
            await polled(service)
            return triggerer.fired

    (event,) = asyncio.run(scenario())
    assert event["first_snapshot"]
    assert event["frameworks"] == {"added": ["1", "2"], "removed": [], "changed": []}


def test_a_change_is_sent_once(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await polled(service)
            add(service)
            await until(lambda: triggerer.events)
            await polled(service, 10)
            return triggerer.fired

    (event,) = asyncio.run(scenario())
    assert event["summary"] == "1 framework added (NIS2)"
    assert (event["conn_id"], event["framework_ids"]) == (CONN, ["NIS2"])
    assert [event[name] for name in ("first_snapshot", "left_out")] == [False, 0]
    assert store.ids == ["1", "2", "NIS2"]


def test_consecutive_changes_are_sent_one_by_one(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await polled(service)
            add(service)
            await until(lambda: len(triggerer.events) == 1)
            frameworks = service.frameworks()
            frameworks[0]["criteria"][0]["description"] = "Something else."
            service.set_frameworks(frameworks)
            await until(lambda: len(triggerer.events) == 2)
            service.set_frameworks(service.frameworks()[::-1][1:])
            await until(lambda: len(triggerer.events) == 3)
            await polled(service, 10)
            return triggerer.fired

    assert [event["summary"] for event in asyncio.run(scenario())] == [
        "1 framework added (NIS2)",
        "1 framework changed (DORA)",
        "1 framework removed (NIS2)",
    ]


def test_an_empty_first_catalog_is_stored_without_an_event(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    service.set_frameworks([])

    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(fire_on_first_snapshot=True), store) as triggerer:
            await until(lambda: store.state)
            assert not triggerer.fired
            add(service)
            await until(lambda: triggerer.events)
            return triggerer.fired

    (event,) = asyncio.run(scenario())
    assert not event["first_snapshot"]
    assert event["summary"] == "1 framework added (NIS2)"


def test_a_trigger_is_rebuilt_from_its_row_which_has_no_secrets() -> None:
    one = ComplianceFrameworkChangeTrigger(conn_id="other", poll_interval=7, fire_on_first_snapshot=True)
    path, kwargs = one.serialize()
    assert path == "airflow_provider.triggers.framework.ComplianceFrameworkChangeTrigger"
    assert kwargs == {
        "conn_id": "other",
        "poll_interval": 7,
        "fire_on_first_snapshot": True,
        "hook_class": "",
    }
    assert ComplianceFrameworkChangeTrigger(**json.loads(json.dumps(kwargs))).serialize() == one.serialize()


@pytest.mark.parametrize("interval", [0, -1, float("nan")])
def test_a_poll_interval_that_makes_no_sense_is_refused(interval: float) -> None:
    with pytest.raises(ValueError, match="poll_interval must be more than 0"):
        ComplianceFrameworkChangeTrigger(poll_interval=interval)


def test_the_watcher_of_the_example_watches() -> None:
    example = Path(__file__).parents[2] / "example_dags" / "reassess_on_framework_change.py"
    (watcher,) = runpy.run_path(str(example))["FRAMEWORKS"].watchers
    assert isinstance(watcher.trigger, ComplianceFrameworkChangeTrigger)
