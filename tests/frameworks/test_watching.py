"""The watcher: every change is told of, once, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

pytest.importorskip("airflow.sdk", reason="there are no watchers before Airflow 3.0")

from airflow_provider.compat import BaseEventTrigger
from airflow_provider.emulator import Emulator
from airflow_provider.triggers import framework as trigger_module
from airflow_provider.triggers import looks as looks_module
from airflow_provider.triggers import memory as memory_module
from airflow_provider.triggers import watch as watch_module
from airflow_provider.triggers.framework import ComplianceFrameworkChangeTrigger
from airflow_provider.triggers.memory import Note, VariableMemory
from tests.frameworks.triggerers import AssetStore, Triggerer, rebuilt, running
from tests.support.attempts import until

CONN = "compliance_default"
SHARES = hasattr(BaseEventTrigger, "shared_stream_key")


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
def shares(request: pytest.FixtureRequest) -> bool:
    if request.param and not SHARES:
        pytest.skip("triggers share streams from Airflow 3.3 on")
    return bool(request.param)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks_module, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(looks_module, "SECOND_LOOK", 0.02)
    monkeypatch.setattr(watch_module, "CLAIM_SECONDS", 0.03)
    monkeypatch.setattr(watch_module, "CLAIM_LIFE", 0.5)
    monkeypatch.setattr(trigger_module, "STORED_AFTER", 0.02)


@pytest.fixture
def store() -> AssetStore:
    return AssetStore()


def watcher(**kwargs: Any) -> ComplianceFrameworkChangeTrigger:
    return ComplianceFrameworkChangeTrigger(**{"poll_interval": 0.02, **kwargs})


def add(service: Emulator, name: str = "NIS2") -> None:
    service.set_frameworks([*service.frameworks(), {"id": name, "codeName": name, "name": f"All of {name}"}])


async def looked(service: Emulator, times: int = 5) -> None:
    """Wait for some more looks that went well."""
    before = service.count("list_frameworks", 200)
    await until(lambda: service.count("list_frameworks", 200) >= before + times)


async def settled(store: AssetStore) -> None:
    await until(lambda: store.note and "claim" not in store.note)


def test_the_first_look_is_remembered_and_not_told(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> None:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service)
            assert not triggerer.fired
        assert (store.note["frameworks"], store.note["criteria"]) == (2, 12)
        assert store.writes == 1

    asyncio.run(scenario())


def test_the_first_look_is_told_where_asked_to(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(fire_at_first_sight=True), store) as triggerer:
            await until(lambda: triggerer.events)
            await settled(store)
            await looked(service)
            return triggerer.fired

    (event,) = asyncio.run(scenario())
    assert event["first_sight"]
    assert [each["code_name"] for each in event["frameworks"]["added"]] == ["DORA", "GDPR"]


def test_a_change_is_told_once(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service)
            add(service)
            await until(lambda: triggerer.events)
            await looked(service, 10)
            return triggerer.fired

    (event,) = asyncio.run(scenario())
    assert event["summary"] == "1 framework added (NIS2)"
    assert (event["conn_id"], event["framework_ids"]) == (CONN, ["NIS2"])
    assert [event[name] for name in ("first_sight", "possible_repeat", "left_out")] == [False, False, 0]
    assert store.note["frameworks"] == 3


def test_one_change_after_the_other_is_told(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service)
            add(service)
            await until(lambda: len(triggerer.events) == 1)
            frameworks = service.frameworks()
            frameworks[0]["criteria"][0]["description"] = "Something else."
            service.set_frameworks(frameworks)
            await until(lambda: len(triggerer.events) == 2)
            service.set_frameworks(service.frameworks()[::-1][1:])
            await until(lambda: len(triggerer.events) == 3)
            await looked(service, 10)
            return triggerer.fired

    assert [event["summary"] for event in asyncio.run(scenario())] == [
        "1 framework added (NIS2)",
        "1 criterion changed (DORA-30-2-a of DORA: description)",
        "1 framework removed (NIS2)",
    ]


def test_another_order_is_no_change(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> None:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service)
            frameworks = service.frameworks()[::-1]
            for framework in frameworks:
                framework["criteria"].reverse()
            service.set_frameworks(frameworks)
            await looked(service)
            assert not triggerer.fired

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "times"), [([], 2), ([{"id": 1, "criteria": None}], 1), ([{"id": 1}, 7, None], 1)]
)
def test_a_catalogue_that_is_gone_for_a_moment_is_no_change(
    service: Emulator, store: AssetStore, shares: bool, answer: list[Any], times: int
) -> None:
    async def scenario() -> None:
        async with running(shares, watcher(poll_interval=1 if times > 1 else 0.02), store) as triggerer:
            await until(lambda: store.note)
            service.fail("list_frameworks", body=answer, times=times)
            await looked(service, 4)
            assert not triggerer.fired

    asyncio.run(scenario())
    assert store.note["frameworks"] == 2


@pytest.mark.parametrize("fire_at_first_sight", [False, True])
def test_an_empty_first_answer_is_not_taken_for_the_catalogue(
    service: Emulator, store: AssetStore, shares: bool, fire_at_first_sight: bool
) -> None:
    trigger = watcher(poll_interval=1, fire_at_first_sight=fire_at_first_sight)

    async def scenario() -> list[dict[str, Any]]:
        service.fail("list_frameworks", body=[], times=2)
        async with running(shares, trigger, store) as triggerer:
            await looked(service, 4)
            return triggerer.fired

    assert [event["first_sight"] for event in asyncio.run(scenario())] == [True] * fire_at_first_sight
    assert store.note["frameworks"] == 2


def test_a_catalogue_that_is_gone_for_good_is_told(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service)
            service.set_frameworks([])
            await until(lambda: triggerer.events)
            add(service)
            await until(lambda: len(triggerer.events) == 2)
            return triggerer.fired

    gone, new = asyncio.run(scenario())
    assert gone["summary"] == "2 frameworks removed (DORA, GDPR)"
    assert new["summary"] == "1 framework added (NIS2)"


def test_a_restart_tells_nothing_again_and_what_came_meanwhile_once(
    service: Emulator, store: AssetStore, shares: bool
) -> None:
    async def scenario() -> list[list[dict[str, Any]]]:
        lives = []
        for change in ("A", "B", ""):
            async with running(shares, watcher(), store) as triggerer:
                await looked(service)
                await settled(store)
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


@pytest.mark.skipif(not SHARES, reason="triggers share streams from Airflow 3.3 on")
def test_watchers_of_a_connection_share_their_requests(service: Emulator) -> None:
    async def scenario() -> int:
        triggerer = Triggerer(shares=True)
        for _ in range(20):
            triggerer.start(rebuilt(watcher(poll_interval=0.2), AssetStore()))
        await looked(service, 3)
        await asyncio.sleep(0.5)
        await triggerer.die()
        return service.count("list_frameworks")

    assert asyncio.run(scenario()) <= 8
    assert service.counters()["logins"] == 1


FAULTS: dict[str, dict[str, Any]] = {
    "server": {"status": 500},
    "throttled": {"status": 429, "retry_after": 0.05},
    "forbidden": {"status": 403},
    "missing": {"status": 404},
    "redirected": {"status": 302},
    "page": {"html": True},
    "no list": {"body": {"frameworks": []}},
    "no json": {"body": "[{"},
    "reset": {"reset": "middle"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_that_the_service_does_ends_the_watcher(
    service: Emulator,
    store: AssetStore,
    shares: bool,
    fault: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(looks_module, "SHORTEST_PAUSE", 0.1)

    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service, 2)
            service.fail("list_frameworks", times=None, **FAULTS[fault])
            add(service)
            before = service.count("list_frameworks")
            await asyncio.sleep(1)
            # Each look is repeated once by the client, and some faults are not counted as a call.
            assert service.count("list_frameworks") - before <= 24
            assert not triggerer.fired
            service.clear_faults()
            await until(lambda: triggerer.events)
            return triggerer.fired

    caplog.set_level(logging.INFO, looks_module.__name__)
    assert len(asyncio.run(scenario())) == 1
    said = [each.message for each in caplog.records if each.name == looks_module.__name__]
    assert len(said) == 2
    assert "Looking at the frameworks of 'compliance_default' is not possible, trying on" in said[0]
    assert "possible again" in said[1]


def test_an_outage_is_outlasted(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> list[dict[str, Any]]:
        async with running(shares, watcher(), store) as triggerer:
            await looked(service, 2)
            await asyncio.to_thread(service.stop)
            await asyncio.sleep(0.3)
            add(service)
            await asyncio.to_thread(service.start)
            await until(lambda: triggerer.events)
            return triggerer.fired

    assert len(asyncio.run(scenario())) == 1


def test_a_refused_password_is_not_tried_again_until_the_connection_is_mended(
    service: Emulator,
    store: AssetStore,
    shares: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = service.connection()
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps({**good, "password": "wrong"}))

    async def scenario() -> None:
        async with running(shares, watcher(), store):
            await until(lambda: service.count("login") >= 1)
            await asyncio.sleep(0.5)
            assert service.count("login") == 1
            monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(good))
            await looked(service)
        assert store.note["frameworks"] == 2

    asyncio.run(scenario())
    said = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == 1
    assert "check login and password" in said[0]
    assert "wrong" not in said[0]


def test_refused_credentials_are_tried_less_and_less_often(
    service: Emulator, store: AssetStore, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.fail("list_frameworks", status=401, times=None)  # also with a token that is new
    monkeypatch.setattr(looks_module, "REFUSED_PAUSE", 0.15)

    async def scenario() -> None:
        async with running(shares, watcher(), store):
            await asyncio.sleep(1.2)  # after 0, 0.15, 0.45 and 1.05 s
            assert 4 <= service.count("list_frameworks", 401) <= 8
            service.clear_faults()
            monkeypatch.setattr(looks_module, "LONGEST_REFUSED_PAUSE", 0.0)
            await until(lambda: store.note)

    asyncio.run(scenario())


def test_a_connection_that_is_not_there_is_waited_for(
    service: Emulator, store: AssetStore, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = service.connection_json
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", '{"conn_type": "compliance"}')

    async def scenario() -> None:
        async with running(shares, watcher(), store):
            await asyncio.sleep(0.1)
            monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", connection)
            await until(lambda: store.note)

    asyncio.run(scenario())


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
        note = Note.of_plain(store.note).claimed("x", "somebody else")
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
        asyncio.run(VariableMemory("v", "").write({"at": 1}))


def test_nothing_is_left_when_a_watcher_ends(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> None:
        async with running(shares, watcher(), store):
            await looked(service)
        await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(scenario())


def test_a_trigger_is_rebuilt_from_its_row_which_has_no_secrets() -> None:
    one = ComplianceFrameworkChangeTrigger(conn_id="other", poll_interval=7, fire_at_first_sight=True)
    path, kwargs = one.serialize()
    assert path == "airflow_provider.triggers.framework.ComplianceFrameworkChangeTrigger"
    assert kwargs == {"conn_id": "other", "poll_interval": 7, "fire_at_first_sight": True}
    assert ComplianceFrameworkChangeTrigger(**json.loads(json.dumps(kwargs))).serialize() == one.serialize()


@pytest.mark.parametrize("interval", [0, -1, float("nan")])
def test_a_poll_interval_that_makes_no_sense_is_refused(interval: float) -> None:
    with pytest.raises(ValueError, match="poll_interval must be more than 0"):
        ComplianceFrameworkChangeTrigger(poll_interval=interval)


def test_it_can_watch_an_asset() -> None:
    from airflow.sdk import Asset, AssetWatcher

    trigger = ComplianceFrameworkChangeTrigger()
    asset = Asset("frameworks", watchers=[AssetWatcher(name="watcher", trigger=trigger)])
    assert asset.watchers[0].trigger is trigger
