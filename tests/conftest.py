"""Fixtures for all tests."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import certifi
import pytest

# Before anything imports airflow: its files go to a folder of the tests.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-home-"))
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="runtime-")  # where processes leave refused logins

from airflow.providers.common.compat import sdk
from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

from airflow_provider.client.base import SharedState, reset_shared_state
from airflow_provider.client.http.network import tls_context
from airflow_provider.client.settings import Settings
from airflow_provider.waiting import refusals, rules
from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS
from tests.support.attempts import Attempts, TaskInstance
from tests.support.callers import CALLERS, AsyncCaller, SyncCaller
from tests.support.service import Service
from tests.support.values import settings_for
from tests.support.virtual_time import VirtualTimeLoop

FIRST_INTERVAL_SECONDS = 0.02  # between polls in real time; longer as a wait gets older
USUAL_INTERVAL_SECONDS = max(1.0, JOBS.min_interval, ASSESSMENTS.min_interval)  # what a failing wait has, too


def pytest_collection_finish() -> None:
    """Take the modules of Airflow, which stay, out of every garbage collection: it takes most of a second."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no test see another's secrets, nor this machine's proxies and authorities."""
    reset_shared_state()
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    yield
    _forget_secrets()
    for folder in Path(os.environ["XDG_RUNTIME_DIR"]).iterdir():
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _usual_tls_context() -> ssl.SSLContext:
    return tls_context(certifi.where())


@pytest.fixture(autouse=True)
def _certificates_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share the TLS context of the usual CA certificates: to load them takes longer than most tests."""

    def shared(path: str) -> ssl.SSLContext:
        return _usual_tls_context() if path == certifi.where() else tls_context(path)

    monkeypatch.setattr("airflow_provider.client.aio.tls_context", shared)


@pytest.fixture(autouse=True)
def _soon_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the grace periods: a job is gone if two polls in a row do not find it."""
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 0.0)
    monkeypatch.setattr(rules, "REFRESH_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 0.05)


def _is_real_time() -> bool:
    try:
        return not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    except RuntimeError:  # a rule is tested alone, with times that the test says
        return False


@pytest.fixture(autouse=True)
def _polls_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the first poll intervals where a wait takes real time, not in virtual time."""
    original = rules.next_poll_time

    def next_poll_time(
        now: float, since: float, poll_interval: float, min_interval: float = 1.0, **kwargs: float
    ) -> float:
        if min_interval <= USUAL_INTERVAL_SECONDS and _is_real_time():  # longer ones are what a test is about
            min_interval = min(min_interval, FIRST_INTERVAL_SECONDS)
        return original(now, since, poll_interval, min_interval, **kwargs)

    monkeypatch.setattr(rules, "next_poll_time", next_poll_time)


@pytest.fixture(autouse=True)
def _polls_at_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every poller begin its grid of poll times at the same instant."""
    monkeypatch.setattr("airflow_provider.waiting.poller._random_phase", lambda: 0.0)


# Where the versions of Airflow keep their masker: 2.11, 3.0, and from 3.1 on one for tasks, one for servers.
MASKERS = (
    "airflow.utils.log.secrets_masker",
    "airflow.sdk.execution_time.secrets_masker",
    "airflow.sdk._shared.secrets_masker.secrets_masker",
    "airflow._shared.secrets_masker.secrets_masker",
)


def _forget_secrets() -> None:
    """Airflow compiles all secrets that it ever saw into one expression, again with each of them."""
    for name in MASKERS:
        get = vars(sys.modules.get(name, object)).get("_secrets_masker")
        if get is not None:
            masker = get()
            masker.patterns, masker.replacer = set(), None


@pytest.fixture
def service() -> Iterator[Service]:
    with Service().running() as running:
        yield running


@pytest.fixture
def settings(service: Service) -> Settings:
    return settings_for(service.url)


@pytest.fixture(params=CALLERS)
def client_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(client_kind: str) -> Iterator[Callable[..., SyncCaller | AsyncCaller]]:
    """Make a client, of either kind, that is closed after the test."""
    opened: list[SyncCaller | AsyncCaller] = []

    def make(settings: Settings, shared: SharedState | None = None) -> SyncCaller | AsyncCaller:
        opened.append(CALLERS[client_kind](settings, shared))
        return opened[-1]

    yield make
    for caller in opened:
        caller.close()


@pytest.fixture
def run(connect: Callable[..., SyncCaller | AsyncCaller], settings: Settings) -> SyncCaller | AsyncCaller:
    """One client, of either kind: `run("get_status", uuid)`."""
    return connect(settings)


@pytest.fixture
def attempts() -> Attempts:
    return Attempts()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The collector of hook lineage that Airflow has where something reads lineage."""
    made = sdk.HookLineageCollector()
    monkeypatch.setattr(sdk, "get_hook_lineage_collector", lambda: made, raising=False)
    return get_hook_lineage_collector()


@pytest.fixture(params=[False, True], ids=["here", "deferred"])
def deferrable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


MODES: dict[str, dict[str, Any]] = {
    "here": {},
    "deferred": {"deferrable": True},
    "rescheduled": {"mode": "reschedule"},
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The ways in which a sensor waits, as its parameters."""
    # Airflow asks its database when a rescheduled sensor began; here it just begins.
    monkeypatch.setattr(TaskInstance, "get_first_reschedule_date", lambda *_: None, raising=False)
    with suppress(ImportError):  # Airflow 2.11
        monkeypatch.setattr(
            import_module("airflow.sensors.base"), "_orig_start_date", lambda **_: None, raising=False
        )
    return dict(MODES[request.param])
