"""The stored state of the watcher: every change is sent at least once, with the same id."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airflow_provider.compat import HAS_ASSET_WATCHERS
from airflow_provider.emulator import Emulator
from airflow_provider.frameworks import watcher as watcher_module
from airflow_provider.frameworks.watcher import VariableState
from airflow_provider.triggers import framework as trigger_module
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


def test_a_change_that_is_reverted_before_it_was_stored_is_not_sent_again(
    service: Emulator, store: AssetStore
) -> None:
    if not SHARES:
        pytest.skip("before Airflow 3.3 a trigger does not learn whether an event is stored")

    async def scenario() -> list[dict[str, Any]]:
        original = service.frameworks()
        async with running(True, watcher(), store) as first:
            await polled(service)
            first.stores_events = False
            add(service)
            await until(lambda: first.fired)
        service.set_frameworks(original)
        async with running(True, watcher(), store) as second:
            await polled(service)
            return second.fired

    assert not asyncio.run(scenario())


def test_two_watchers_of_one_state_may_repeat_an_event_with_the_same_id(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        triggerers = [Triggerer(shares), Triggerer(shares)]
        for number, triggerer in enumerate([*triggerers, *triggerers]):
            triggerer.start(rebuilt(watcher(poll_interval=0.02 + number / 1000), store))
        await polled(service, 12)
        for change in "ABC":
            add(service, change)
            await committed(service, store)
            await polled(service, 24)
        for triggerer in triggerers:
            assert triggerer.is_well
            await triggerer.die()
        return [event for each in triggerers for event in each.fired]

    sent = asyncio.run(scenario())
    assert sorted({event["framework_ids"][0] for event in sent}) == ["A", "B", "C"]
    assert len({event["id"] for event in sent}) == 3
    assert len(sent) <= 3 * 4


def test_an_event_whose_state_could_not_be_written_is_not_sent_again(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await polled(service)
            add(service)
            while not triggerer.fired:  # noqa: ASYNC110 - the store must fail at once after that
                await asyncio.sleep(0)
            store.error = RuntimeError("The database is away.")
            await polled(service)
            assert store.ids == ["1", "2"]
            store.error = None
            await committed(service, store)
            await polled(service)
            return triggerer.fired

    assert len(asyncio.run(scenario())) == 1


def test_each_asset_gets_an_event(service: Emulator, shares: bool) -> None:
    stores = [AssetStore() for _ in range(5)]

    async def scenario() -> list[dict[str, Any]]:
        triggerer = Triggerer(shares)
        for each in stores:
            triggerer.start(rebuilt(watcher(), each))
        await until(lambda: all(each.state for each in stores))
        add(service)
        await until(lambda: len(triggerer.events) == 5)
        await until(lambda: all(len(each.ids) == 3 for each in stores))
        await polled(service, 20)
        await triggerer.die()
        return triggerer.fired

    assert len(asyncio.run(scenario())) == 5


def test_assets_of_one_trigger_store_the_same_state(service: Emulator, shares: bool) -> None:
    early, late = AssetStore(), AssetStore()

    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), early):
            await polled(service)
        add(service)
        async with running(shares, watcher(), early, late) as triggerer:
            await until(lambda: triggerer.events)
            await committed(service, late)
            await polled(service)
            return triggerer.fired

    assert len(asyncio.run(scenario())) == 1
    assert early.state == late.state


def test_the_newest_state_of_several_assets_counts(service: Emulator, shares: bool) -> None:
    early, late = AssetStore(), AssetStore()

    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), early):
            await polled(service)
        add(service)
        async with running(shares, watcher(), late):
            await polled(service)
        async with running(shares, watcher(), early, late) as triggerer:
            await polled(service)
            return triggerer.fired

    assert not asyncio.run(scenario())


def test_without_its_state_a_watcher_sends_nothing(
    service: Emulator, store: AssetStore, shares: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await polled(service)
            store.error = RuntimeError("The database is away.")
            add(service)
            await polled(service)
            assert not triggerer.fired
            store.error = None
            await until(lambda: triggerer.events)
            return triggerer.fired

    assert len(asyncio.run(scenario())) == 1
    assert caplog.text.count("The database is away.") == 1


def test_an_invalid_state_is_replaced(service: Emulator, store: AssetStore, shares: bool) -> None:
    store["compliance_frameworks:compliance_default"] = {"at": 1, "digest": "x", "fingerprints": 7}

    async def scenario() -> None:
        async with running(shares, watcher(), store) as triggerer:
            await until(lambda: store.state["at"] != 1)
            assert not triggerer.fired

    asyncio.run(scenario())
    assert store.ids == ["1", "2"]


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


def test_a_variable_that_is_not_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None:
        """Do what Airflow does then: log."""

    monkeypatch.setattr(watcher_module, "get_variable", nothing)
    monkeypatch.setattr(watcher_module, "set_variable", nothing)
    with pytest.raises(RuntimeError, match="'v' could not be written"):
        asyncio.run(VariableState("v", "").write({"at": 1}))
