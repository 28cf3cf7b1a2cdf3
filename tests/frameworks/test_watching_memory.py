"""What the watcher remembers: every change is told of, once, whatever ends in between."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airflow_provider.compat import HAS_ASSET_WATCHERS
from airflow_provider.emulator import Emulator
from airflow_provider.frameworks import catalogue as catalogue_module
from airflow_provider.frameworks import snapshots as looks_module
from airflow_provider.frameworks import state as memory_module
from airflow_provider.frameworks.state import VariableBackend, WatcherState
from airflow_provider.triggers import framework as trigger_module
from tests.frameworks.triggerers import (
    CONN,
    SHARES,
    AssetStore,
    Triggerer,
    add,
    looked,
    rebuilt,
    running,
    settled,
    watcher,
)
from tests.support.attempts import until

pytestmark = pytest.mark.skipif(not HAS_ASSET_WATCHERS, reason="there are no watchers before Airflow 3.0")


def test_a_restart_tells_nothing_again_and_what_came_meanwhile_once(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[list[dict[str, Any]]]:
        lives: list[list[dict[str, Any]]] = []
        for change in ("A", "B", ""):
            async with running(shares, watcher(), store) as triggerer:
                await until(lambda: not lives or triggerer.events)
                await settled(store)
                await looked(service)
                lives.append(triggerer.fired)
            if change:
                add(service, change)
        return lives

    lives = asyncio.run(scenario())
    assert [[event["framework_ids"] for event in life] for life in lives] == [[], [["A"]], [["B"]]]


def test_an_event_that_is_not_stored_when_the_triggerer_dies_is_told_again(
    service: Emulator, store: AssetStore
) -> None:
    if not SHARES:
        pytest.skip("before Airflow 3.3 a trigger does not learn whether an event is stored")

    async def scenario() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        async with running(True, watcher(), store) as first:
            await looked(service)
            first.stores_events = False
            add(service)
            await until(lambda: first.fired)
            await looked(service)
            assert len(first.fired) == 1
        async with running(True, watcher(), store) as second:
            await until(lambda: second.events)
            await settled(store)
            await looked(service)
            return first.fired, second.fired

    (lost,), (again,) = asyncio.run(scenario())
    assert again["possible_repeat"]
    assert not lost["possible_repeat"]
    assert again["id"] == lost["id"]


def test_without_a_confirmation_an_event_counts_as_stored_only_after_a_while(
    service: Emulator, store: AssetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(False, watcher(), store) as first:
            await looked(service)
            monkeypatch.setattr(trigger_module, "STORED_AFTER", 3600.0)
            add(service)
            await until(lambda: first.fired)
            await asyncio.sleep(0.1)  # far less than it waits, far more than writing takes
            assert "claim" in store.note
        async with running(False, watcher(), store) as second:
            await until(lambda: second.fired)
            return first.fired + second.fired

    first, second = asyncio.run(scenario())
    assert first["id"] == second["id"]
    assert second["possible_repeat"]


def test_an_event_of_which_nobody_knows_whether_it_is_stored_is_left_to_the_next_watcher(
    service: Emulator, store: AssetStore
) -> None:
    async def scenario() -> None:
        async with running(False, watcher(), store):
            await until(lambda: store.note)
        add(service)
        snapshots: list[Any] = []

        async def stream() -> Any:
            async for snapshot in looks_module.FrameworkPoller(CONN, 0.02).stream():
                if snapshots and snapshots[-1].on_stored:
                    raise TimeoutError  # as Airflow does where no confirmation comes
                snapshots.append(snapshot)
                yield snapshot

        events = rebuilt(watcher(), store).filter_shared_stream(stream())
        with pytest.raises(TimeoutError):
            _ = [event async for event in events]
        await snapshots[-1].commit()
        assert "claim" in store.note

    asyncio.run(scenario())


def test_a_change_that_is_taken_back_before_it_was_surely_told_is_forgotten(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        before = service.frameworks()
        async with running(shares, watcher(), store):
            await looked(service)
        store["compliance_frameworks:compliance_default"]["claim"] = {"change": "x", "by": "y", "at": 0}
        service.set_frameworks(before)
        async with running(shares, watcher(), store) as triggerer:
            await settled(store)
            await looked(service)
            return triggerer.fired

    assert not asyncio.run(scenario())


def test_two_triggers_of_one_asset_tell_a_change_once(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        triggerers = [Triggerer(shares), Triggerer(shares)]
        for number, triggerer in enumerate([*triggerers, *triggerers]):
            triggerer.start(rebuilt(watcher(poll_interval=0.02 + number / 1000), store))
        await looked(service, 12)
        for change in "ABC":
            add(service, change)
            await until(lambda: sum(len(each.events) for each in triggerers) >= "_ABC".index(change))  # noqa: B023
            await settled(store)
            await looked(service, 24)
        for triggerer in triggerers:
            assert triggerer.is_well
            await triggerer.die()
        return [event for each in triggerers for event in each.fired]

    told = [event["framework_ids"][0] for event in asyncio.run(scenario())]
    assert sorted(told) == ["A", "B", "C"]


def test_who_claims_a_change_last_tells_it(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> None:
        async with running(shares, watcher(), store) as triggerer:
            await until(lambda: store.note)
            add(service)
            await until(lambda: "claim" in store.note)
            other = WatcherState.of_plain(store.note).claimed("the same", "somebody else")
            store["compliance_frameworks:compliance_default"] = other.plain()
            await looked(service, 3)
            assert not triggerer.fired

    asyncio.run(scenario())


def test_each_asset_learns_of_a_change(service: Emulator, shares: bool) -> None:
    stores = [AssetStore() for _ in range(5)]

    async def scenario() -> list[dict[str, Any]]:
        triggerer = Triggerer(shares)
        for each in stores:
            triggerer.start(rebuilt(watcher(), each))
        await until(lambda: all(each.note for each in stores))
        add(service)
        await until(lambda: len(triggerer.events) == 5)
        await looked(service, 20)
        await triggerer.die()
        return triggerer.fired

    assert len(asyncio.run(scenario())) == 5
    assert {each.note["frameworks"] for each in stores} == {3}


def test_assets_of_one_trigger_remember_the_same(service: Emulator, shares: bool) -> None:
    early, late = AssetStore(), AssetStore()

    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), early):
            await looked(service)
        add(service)
        async with running(shares, watcher(), early, late) as triggerer:
            await until(lambda: triggerer.events)
            await settled(late)
            await looked(service)
            return triggerer.fired

    assert len(asyncio.run(scenario())) == 1
    assert early.note == late.note


def test_what_one_asset_was_told_of_last_counts_for_all_of_a_trigger(service: Emulator, shares: bool) -> None:
    early, late = AssetStore(), AssetStore()

    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), early):
            await looked(service)
        add(service)
        async with running(shares, watcher(), late):
            await looked(service)
        async with running(shares, watcher(), early, late) as triggerer:
            await looked(service)
            return triggerer.fired

    assert not asyncio.run(scenario())


def test_without_its_memory_a_watcher_says_nothing(
    service: Emulator, store: AssetStore, shares: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service)
            store.error = RuntimeError("The database is away.")
            add(service)
            await looked(service)
            assert not triggerer.fired
            store.error = None
            await until(lambda: triggerer.events)
            return triggerer.fired

    assert len(asyncio.run(scenario())) == 1
    assert caplog.text.count("The database is away.") == 1


def test_an_event_that_could_not_be_remembered_is_not_told_again(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service)
            add(service)
            while not triggerer.fired:  # noqa: ASYNC110 - the store must fail at once after that
                await asyncio.sleep(0)
            store.error = RuntimeError("The database is away.")
            await looked(service)
            assert "claim" in store.note
            store.error = None
            await settled(store)
            await looked(service)
            return triggerer.fired

    assert len(asyncio.run(scenario())) == 1
    assert store.note["frameworks"] == 3


def test_of_a_catalogue_too_large_to_remember_every_change_is_told_once(
    service: Emulator, store: AssetStore, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_module, "PACKED_LIMIT", 10)

    async def scenario() -> list[dict[str, Any]]:
        fired: list[dict[str, Any]] = []
        for change in ("A", "B", ""):
            async with running(shares, watcher(), store) as triggerer:
                await until(lambda: len(fired) == "AB".find(change) or triggerer.events or not change)  # noqa: B023
                await settled(store)
                await looked(service)
                fired += triggerer.fired
            if change:
                add(service, change)
        return fired

    first, second = asyncio.run(scenario())
    assert "packed" not in store.note
    assert store.note["frameworks"] == 4
    assert first["summary"].startswith("2 frameworks before, 3 now")
    assert second["framework_ids"] == ["1", "2", "A", "B"]
    assert not second["details_known"]


@pytest.mark.parametrize("odd", [{"at": 1}, {"at": 1, "packed": "?", "digest": "x"}, {"claim": 7}])
def test_a_memory_that_is_not_readable_is_begun_anew(
    service: Emulator, store: AssetStore, shares: bool, odd: dict[str, Any]
) -> None:
    store["compliance_frameworks:compliance_default"] = odd

    async def scenario() -> None:
        async with running(shares, watcher(), store) as triggerer:
            await until(lambda: store.note.get("frameworks") == 2)
            assert not triggerer.fired

    asyncio.run(scenario())


def test_a_claim_of_another_is_respected_for_a_while(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store):
            await looked(service)
        note = WatcherState.of_plain(store.note).claimed("x", "somebody else")
        store["compliance_frameworks:compliance_default"] = note.plain()
        add(service)
        async with running(shares, watcher(), store) as triggerer:
            await looked(service, 3)
            assert not triggerer.fired
            await until(lambda: triggerer.events)
            return triggerer.fired

    (event,) = asyncio.run(scenario())
    assert not event["possible_repeat"]  # what the other wanted to tell was something else


def test_where_no_asset_is_watched_it_remembers_as_long_as_it_lives(service: Emulator, shares: bool) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher()) as triggerer:
            await looked(service)
            add(service)
            await until(lambda: triggerer.events)
            await looked(service)
            return triggerer.fired

    assert len(asyncio.run(scenario())) == 1


def test_before_airflow_3_3_it_remembers_in_a_variable(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables: dict[str, Any] = {}

    async def get_variable(key: str) -> Any:
        return variables.get(key)

    async def set_variable(key: str, value: Any, description: str) -> None:
        assert CONN in description
        variables[key] = json.loads(json.dumps(value))

    monkeypatch.setattr(memory_module, "get_variable", get_variable)
    monkeypatch.setattr(memory_module, "set_variable", set_variable)
    monkeypatch.setattr(trigger_module, "asset_stores_of", lambda _: None)

    async def scenario() -> list[list[dict[str, Any]]]:
        lives = []
        for _ in range(3):
            async with running(False, watcher()) as triggerer:
                await looked(service, 8)
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

    monkeypatch.setattr(memory_module, "get_variable", nothing)
    monkeypatch.setattr(memory_module, "set_variable", nothing)
    with pytest.raises(RuntimeError, match="'v' could not be written"):
        asyncio.run(VariableBackend("v", "").write({"at": 1}))
