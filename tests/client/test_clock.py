"""The clock of the service, by the `Date` of its responses."""

from __future__ import annotations

import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest

from airflow_provider.client import base as module
from airflow_provider.client.base import ServiceClock, get_shared_state
from airflow_provider.client.settings import Settings
from airflow_provider.exceptions import ComplianceRefusedError
from tests.support.callers import AsyncCaller, SyncCaller
from tests.support.service import Reply, Service

NOW = 1_800_000_000.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clocks of this machine."""
    own = SimpleNamespace(wall=NOW, ticks=0.0)
    fake = SimpleNamespace(time=lambda: own.wall, monotonic=lambda: own.ticks)
    monkeypatch.setattr(module, "time", fake)
    return own


@pytest.mark.parametrize(
    ("headers", "seconds", "is_known"),
    [
        ({}, 0.0, False),
        ({"date": formatdate(NOW + 7200, usegmt=True)}, 7200.5, True),
        ({"date": formatdate(NOW - 7200)}, -7199.5, True),
        ({"date": formatdate(NOW + 1, usegmt=True)}, 0.0, True),  # as exact as a `Date` is
        ({"date": formatdate(NOW + 7200), "age": "60"}, 0.0, False),  # of a cache
        ({"date": "yesterday"}, 0.0, False),
        ({"date": "Wed, 99 Nov 99999 25:00:00 GMT"}, 0.0, False),
    ],
)
def test_time_at_the_service_is_that_of_its_responses(
    machine: SimpleNamespace, headers: dict[str, str], seconds: float, is_known: bool
) -> None:
    clock = ServiceClock("https://service.example.com")
    clock.observe(headers)
    assert clock.now() == NOW + seconds
    assert clock.is_known is is_known


def test_wall_clock_that_jumps_does_not_move_the_time_at_the_service(machine: SimpleNamespace) -> None:
    clock = ServiceClock("https://service.example.com")
    clock.observe({"date": formatdate(NOW + 100)})
    machine.wall += 86_400
    machine.ticks += 5
    assert clock.now() == NOW + 105.5


@pytest.mark.parametrize(
    ("seconds", "words"), [(-3600, "3600 s ahead of"), (3600, "3600 s behind"), (50, "")]
)
def test_skew_of_this_machine_is_one_warning(
    machine: SimpleNamespace, caplog: pytest.LogCaptureFixture, seconds: float, words: str
) -> None:
    clock = ServiceClock("https://service.example.com")
    for later in (0, 1):
        clock.observe({"date": formatdate(NOW + seconds + later)})
    assert len(caplog.messages) == bool(words)
    assert words in caplog.text


def test_time_at_the_service_is_not_that_of_the_errors_of_a_gateway(
    service: Service, settings: Settings, run: SyncCaller | AsyncCaller
) -> None:
    ahead = {"Date": formatdate(NOW, usegmt=True)}
    service.on("GET /api/v1/frameworks", Reply(403, headers=ahead), Reply(502, headers=ahead), Reply(json=[]))
    with pytest.raises(ComplianceRefusedError):
        run("list_frameworks")
    assert not get_shared_state(settings).clock.is_known
    run("list_frameworks")
    assert get_shared_state(settings).clock.is_known
    assert get_shared_state(settings).clock.now() == pytest.approx(time.time(), abs=60)
