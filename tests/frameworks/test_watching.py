"""The trigger that watches frameworks, in a triggerer: events, restarts, assets, and what it stores."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.triggers import framework as trigger_module
from airflow_provider.triggers.framework import HAS_ASSET_WATCHERS, ComplianceFrameworkChangeTrigger
from airflow_provider.waiting.frameworks import watcher as watcher_module
from tests.frameworks.triggerers import (
    CONN,
    SHARES,
    AssetStore,
    Triggerer,
    add,
    committed,
    polled,
    rebuilt,
    running,
    watcher,
)
from tests.support.attempts import until

pytestmark = pytest.mark.skipif(not HAS_ASSET_WATCHERS, reason="there are no watchers before Airflow 3.0")


def test_a_restart_repeats_nothing_and_notices_changes_in_between(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[list[dict[str, Any]]]:
        lives: list[list[dict[str, Any]]] = []
        for change in ("A", "B", ""):
            async with running(shares, watcher(), store) as triggerer:
                await until(lambda: not lives or triggerer.events)
                await committed(service, store)
                await polled(service)
                lives.append(triggerer.fired)
            if change:
                add(service, change)
        return lives

    lives = asyncio.run(scenario())
    assert [[event["framework_ids"] for event in life] for life in lives] == [[], [["A"]], [["B"]]]


def test_an_event_that_was_not_stored_is_sent_again_with_the_same_id(
    service: Emulator, store: AssetStore
) -> None:
    if not SHARES:
        pytest.skip("before Airflow 3.3 a trigger does not learn whether an event is stored")

    async def scenario() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        async with running(True, watcher(), store) as first:
            await polled(service)
            first.stores_events = False
            add(service)
            await until(lambda: first.fired)
            await polled(service)
            assert len(first.fired) == 1  # in flight
        async with running(True, watcher(), store) as second:
            await until(lambda: second.events)
            await committed(service, store)
            await polled(service)
            return first.fired, second.fired

    (lost,), (again,) = asyncio.run(scenario())
    assert again["id"] == lost["id"]


def test_without_a_confirmation_an_event_counts_as_stored_after_a_while(
    service: Emulator, store: AssetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(False, watcher(), store) as first:
            await polled(service)
            monkeypatch.setattr(trigger_module, "EVENT_STORE_SECONDS", 3600.0)
            add(service)
            await until(lambda: first.fired)
            await asyncio.sleep(0.1)  # far less than it waits, far more than a write takes
            assert store.ids == ["1", "2"]
        async with running(False, watcher(), store) as second:
            await until(lambda: second.fired)
            return first.fired + second.fired

    first, second = asyncio.run(scenario())
    assert first["id"] == second["id"]


def test_an_event_that_may_not_be_stored_is_left_to_the_next_watcher(
    service: Emulator, store: AssetStore
) -> None:
    async def scenario() -> None:
        async with running(False, watcher(), store):
            await until(lambda: store.state)
        add(service)
        snapshots: list[Any] = []

        async def stream() -> Any:
            async for snapshot in watcher_module.FrameworkPoller(CONN, 0.02).stream():
                if snapshots and snapshots[-1].on_stored:
                    raise TimeoutError  # as Airflow does without a confirmation
                snapshots.append(snapshot)
                yield snapshot

        events = rebuilt(watcher(), store).filter_shared_stream(stream())
        with pytest.raises(TimeoutError):
            _ = [event async for event in events]
        await snapshots[-1].commit()
        assert store.ids == ["1", "2"]

    asyncio.run(scenario())


def test_each_asset_gets_an_event_and_watchers_share_their_requests(service: Emulator, shares: bool) -> None:
    stores = [AssetStore() for _ in range(20 if shares else 2)]

    async def scenario() -> list[dict[str, Any]]:
        triggerer = Triggerer(shares)
        for store in stores:
            triggerer.start(rebuilt(watcher(poll_interval=0.2 if shares else 0.02), store))
        await until(lambda: all(store.state for store in stores))
        if shares:
            assert service.count("list_frameworks") <= 3
            assert service.counters()["logins"] == 1
        add(service)
        await until(lambda: all(len(store.ids) == 3 for store in stores))
        await triggerer.die()
        return triggerer.fired

    fired = asyncio.run(scenario())
    assert [event["summary"] for event in fired] == ["1 framework added (NIS2)"] * len(stores)


def test_without_a_store_of_an_asset_the_state_is_a_variable(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables: dict[str, Any] = {}

    async def get_variable(key: str) -> Any:
        return variables.get(key)

    async def set_variable(key: str, value: Any, description: str) -> None:
        assert CONN in description
        variables[key] = json.loads(json.dumps(value))

    monkeypatch.setattr(watcher_module, "get_variable", get_variable)
    monkeypatch.setattr(watcher_module, "set_variable", set_variable)

    async def scenario() -> list[list[dict[str, Any]]]:
        lives = []
        for _ in range(3):
            async with running(False, watcher()) as triggerer:
                await polled(service, 8)
                lives.append(triggerer.fired)
            if len(lives) == 1:
                add(service)
        return lives

    lives = asyncio.run(scenario())
    assert [len(life) for life in lives] == [0, 1, 0]
    assert [key.startswith("compliance_frameworks_") for key in variables] == [True]


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
