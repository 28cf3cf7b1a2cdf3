"""The watcher survives errors of the service and of the connection."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.triggers.framework import HAS_ASSET_WATCHERS
from airflow_provider.waiting.frameworks import watcher as watcher_module
from tests.frameworks.triggerers import (
    CONN,
    AssetStore,
    polled,
    running,
    watcher,
)
from tests.support.attempts import until

pytestmark = pytest.mark.skipif(not HAS_ASSET_WATCHERS, reason="there are no watchers before Airflow 3.0")


VARIABLE = "AIRFLOW_CONN_COMPLIANCE_DEFAULT"
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
    "connection": {},  # it is incomplete at first
}


@pytest.mark.parametrize("fault", FAULTS)
def test_error_does_not_end_the_poller(
    service: Emulator, fault: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    repair: Callable[[], object] = service.clear_faults
    if fault == "connection":
        repair = partial(monkeypatch.setenv, VARIABLE, os.environ[VARIABLE])
        monkeypatch.setenv(VARIABLE, '{"conn_type": "compliance"}')
    else:
        service.fail("list_frameworks", times=None, **FAULTS[fault])
    caplog.set_level(logging.INFO, watcher_module.__name__)
    clock = Clock(end=700, events={500: repair})
    snapshots = poll(clock, poll_interval=100)

    assert len(snapshots) == 2
    assert clock.pauses == [100.0] * 7
    failed, recovered = (record.message for record in caplog.records if record.message.startswith("Polling"))
    assert "Polling the frameworks of 'compliance_default' failed, retrying" in failed
    assert recovered.endswith("works again.")


class Clock:
    """A clock that only advances while it is slept on; stops the stream at `end`."""

    def __init__(self, end: float, events: Mapping[float, Callable[[], object]] | None = None) -> None:
        self.now = 0.0
        self.end = end
        self.pauses: list[float] = []
        self._events = events or {}

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)
        if event := self._events.get(self.now):
            event()
        if self.now >= self.end:
            raise InterruptedError


def poll(clock: Clock, poll_interval: float) -> list[watcher_module.CatalogSnapshot]:
    """Poll until the end of the clock, and return what came."""
    snapshots = []

    async def scenario() -> None:
        async for each in watcher_module.FrameworkPoller(CONN, poll_interval, clock, clock.sleep).stream():
            snapshots.append(each)

    with pytest.raises(InterruptedError):
        asyncio.run(scenario())
    return snapshots


def test_refused_password_is_not_tried_again_until_the_connection_is_edited(
    service: Emulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good = service.connection()
    monkeypatch.setenv(VARIABLE, json.dumps({**good, "password": "wrong"}))

    def edit() -> None:
        assert service.count("login") == 1
        monkeypatch.setenv(VARIABLE, json.dumps(good))

    [snapshot] = poll(Clock(end=200.01, events={200: edit}), poll_interval=50)
    assert len(snapshot.catalog.fingerprints or ()) == 2
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "check login and password" in said[0]
    assert "wrong" not in said[0]


@pytest.mark.parametrize(
    ("end", "refused"), [(200, 1), (700, 2), (1_000, 3), (2_000, 3), (2_200, 4), (86_400, 10)]
)
def test_refused_credentials_back_off(service: Emulator, end: float, refused: int) -> None:
    service.fail("list_frameworks", status=401, times=None)  # even with a new token
    poll(Clock(end), 100)
    assert service.count("list_frameworks", 401) == 2 * refused  # the client renews the token once


def test_the_next_poll_is_when_the_service_says(service: Emulator) -> None:
    service.fail("list_frameworks", status=503, retry_after=3600)
    clock = Clock(end=1)
    poll(clock, poll_interval=0.02)
    assert clock.now == 3600.0


def test_nothing_is_left_when_a_watcher_ends(service: Emulator, store: AssetStore, shares: bool) -> None:
    async def scenario() -> None:
        async with running(shares, watcher(), store):
            await polled(service)
            assert len(asyncio.all_tasks()) > 1
        await until(lambda: len(asyncio.all_tasks()) == 1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())
