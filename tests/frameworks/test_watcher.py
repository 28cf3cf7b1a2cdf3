"""What a watcher makes of polls, and of what is stored: every change is sent at least once, with one id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_provider.client.models import Framework
from airflow_provider.waiting.frameworks import watcher as watcher_module
from airflow_provider.waiting.frameworks.catalog import Catalog
from airflow_provider.waiting.frameworks.watcher import AssetState, CatalogSnapshot, VariableState, Watcher
from tests.frameworks.triggerers import AssetStore

KEY = "k"
AWAY = RuntimeError("The database is away.")


class Lives:
    """Watchers of one state, one after the other; a framework is a letter, in lower case if it is changed."""

    def __init__(self, *stores: AssetStore, fire_on_first_snapshot: bool = False) -> None:
        self.stores = stores or (AssetStore(),)
        self.fires_first = fire_on_first_snapshot
        self.sent: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        """Let the next triggerer take over."""
        self.watcher = Watcher(AssetState([*self.stores], KEY), "c", self.fires_first)

    @property
    def stored(self) -> str:
        """The frameworks in the state."""
        return "".join(sorted(self.stores[0].get(KEY, {}).get("fingerprints", ())))

    async def take(self, step: str) -> None:
        """Poll, or do what a step says."""
        if step == "stored":
            await self.watcher.commit()
        elif step == "not stored":
            self.watcher.release()
        elif step == "restart":
            self.restart()
        elif step in ("away", "back"):
            for store in self.stores:
                store.error = AWAY if step == "away" else None
        else:
            listed = [Framework.model_validate({"id": name.upper(), "name": name}) for name in step.strip()]
            event = await self.watcher.evaluate(CatalogSnapshot(Catalog.parse(listed)))
            self.sent += [event] if event else []

    def run(self, *steps: str) -> list[str]:
        """Take steps; return the events that were sent."""

        async def take_all() -> None:
            for step in steps:
                await self.take(step)

        asyncio.run(take_all())
        return [event["summary"] for event in self.sent]


FIRST = ("AB", "AB")  # what two polls in a row return counts
ADDED, CHANGED, REMOVED = (f"1 framework {kind}" for kind in ("added (N)", "changed (b)", "removed (N)"))


@pytest.mark.parametrize(
    ("steps", "events", "stored"),
    [
        (["AB"], [], ""),
        (FIRST, [], "AB"),
        (["A", *FIRST], [], "AB"),  # a service that starts lists a part at first
        ([*FIRST, " ", "AB", "A", "AB"], [], "AB"),  # a change that one poll returns is not one
        ([*FIRST, "ABN", "ABN"], [ADDED], "AB"),
        ([*FIRST, "ABN", "ABN", "stored", "ABN", "ABN", "restart", "ABN", "ABN"], [ADDED], "ABN"),
        ([*FIRST, "ABN", "ABN", "Ab", "Ab"], [ADDED], "AB"),  # the first one is still in flight
        (
            [*FIRST, *["ABN"] * 2, "stored", *["AbN"] * 2, "stored", *["Ab"] * 2, "stored"],
            [ADDED, CHANGED, REMOVED],
            "AB",
        ),
        ([*FIRST, "ABN", "ABN", "not stored", "ABN"], [ADDED, ADDED], "AB"),
        ([*FIRST, "ABN", "ABN", "not stored", "stored"], [ADDED], "AB"),
        ([*FIRST, "ABN", "ABN", "restart", "ABN", "ABN"], [ADDED, ADDED], "AB"),
        ([*FIRST, "ABN", "ABN", "restart", *FIRST], [ADDED], "AB"),  # reverted before it was stored
        ([*FIRST, "away", "ABN", "ABN", "ABN", "back"], [], "AB"),
        ([*FIRST, "away", "ABN", "ABN", "ABN", "back", "ABN"], [ADDED], "AB"),
        ([*FIRST, "ABN", "ABN", "away", "stored", "ABN", "back"], [ADDED], "AB"),
        ([*FIRST, "ABN", "ABN", "away", "stored", "ABN", "back", "ABN", "ABN"], [ADDED], "ABN"),
        ([" ", " "], [], ""),
    ],
)
def test_a_change_is_sent_until_airflow_has_stored_it(
    steps: list[str], events: list[str], stored: str
) -> None:
    lives = Lives()
    assert (lives.run(*steps), lives.stored) == (events, stored)
    assert len({event["id"] for event in lives.sent}) == len(set(events))


def test_the_first_snapshot_is_an_event_on_request() -> None:
    lives = Lives(fire_on_first_snapshot=True)
    assert lives.run("A", *FIRST, "stored", *FIRST) == ["2 frameworks added (A, B)"]
    (event,) = lives.sent
    assert (event["first_snapshot"], event["conn_id"], event["left_out"]) == (True, "c", 0)
    assert event["frameworks"] == {"added": ["A", "B"], "removed": [], "changed": []}


def test_an_empty_first_catalog_is_stored_without_an_event() -> None:
    lives = Lives(fire_on_first_snapshot=True)
    assert lives.run(" ", " ", "N", "N") == [ADDED]
    assert not lives.sent[0]["first_snapshot"]


def test_an_outage_of_the_store_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", watcher_module.__name__)
    Lives().run(*FIRST, "away", "AB", "AB", "back", "AB")
    said = [record.message for record in caplog.records if "stored state" in record.message]
    assert [text.rpartition("'c' ")[2] for text in said] == [
        "failed, retrying: RuntimeError: The database is away.",
        "works again.",
    ]


def test_two_watchers_of_one_state_send_a_change_with_one_id() -> None:
    store = AssetStore()
    one, other = Lives(store), Lives(store)
    for lives in (one, other):
        lives.run(*FIRST, "ABN", "ABN")
    assert one.sent[0]["id"] == other.sent[0]["id"]


def test_the_newest_state_of_several_assets_counts_and_all_get_it() -> None:
    early, late, new = (AssetStore() for _ in range(3))
    Lives(early).run(*FIRST)
    Lives(late).run("ABN", "ABN")
    lives = Lives(early, late, new)
    assert lives.run("ABN", "ABN") == []
    assert lives.run(*FIRST, "stored") == [REMOVED]
    assert early == late == new


@pytest.mark.parametrize("state", [{"at": 1, "digest": "x", "fingerprints": 7}, {"at": 1}])
def test_an_invalid_state_is_replaced(state: Any) -> None:
    store = AssetStore()
    store[KEY] = state
    lives = Lives(store)
    assert (lives.run(*FIRST), lives.stored) == ([], "AB")


def test_a_variable_that_is_not_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None:
        """Do what Airflow does then: log."""

    monkeypatch.setattr(watcher_module, "get_variable", nothing)
    monkeypatch.setattr(watcher_module, "set_variable", nothing)
    with pytest.raises(RuntimeError, match="'v' could not be written"):
        asyncio.run(VariableState("v", "").write({"at": 1}))
