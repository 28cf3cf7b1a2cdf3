"""Shared tokens in real processes: logins are counted at the emulator, and processes are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider.client.base import SharedState
from airflow_provider.client.settings import Settings
from airflow_provider.client.sync import ComplianceClient
from airflow_provider.exceptions import ComplianceAuthError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.token_file import TokenFile
from benchmarks.harness import Service as Emulator
from tests.support.forking import Child, may_fork
from tests.support.service import Received, Reply, Service
from tests.support.values import settings_for

pytestmark = may_fork
PROCESSES, KILLS, SEED = 30, 20, 18


@pytest.fixture(scope="module")
def running() -> Iterator[Emulator]:
    """The emulator in its own process: OpenSSL has locks that a fork would leave locked for ever."""
    with Emulator() as emulator:
        yield emulator


@pytest.fixture
def emulator(running: Emulator) -> Emulator:
    running.reset()
    return running


@pytest.fixture
def settings(emulator: Emulator) -> Settings:
    connection: dict[str, Any] = json.loads(emulator.connection_json)
    extra = connection["extra"]
    return Settings(
        base_url=connection["host"],
        token_url=extra["token_url"],
        username=connection["login"],
        password=SecretStr(connection["password"]),
        client_id=extra["client_id"],
        client_secret=SecretStr(extra["client_secret"]),
        backoff=0.01,
        share_tokens=True,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.mkdir(mode=0o700)
    return path


def call(settings: Settings, directory: Path | None) -> str:
    """Make one call as a task process does; return how it ended."""
    store = TokenFile(directory, settings) if directory else None
    with ComplianceClient(settings, shared=SharedState(settings, store)) as client:
        try:
            client.list_frameworks()
        except ComplianceAuthError as error:
            return type(error).__name__
    return "good"


def in_processes(count: int, function: Callable[[], str]) -> set[str]:
    return {child.result() for child in [Child(function) for _ in range(count)]}


@pytest.mark.once
def test_thirty_processes_log_in_once(emulator: Emulator, settings: Settings, directory: Path) -> None:
    assert in_processes(PROCESSES, lambda: call(settings, directory)) == {"good"}
    assert (emulator.counters()["logins"], emulator.counters()["refreshes"]) == (1, 0)
    emulator.reset()
    assert in_processes(5, lambda: call(settings, None)) == {"good"}
    assert emulator.counters()["logins"] == 5


@pytest.mark.once
@pytest.mark.parametrize("share_tokens", [True, False])
def test_thirty_processes_try_a_wrong_password_once(
    emulator: Emulator, settings: Settings, directory: Path, share_tokens: bool
) -> None:
    settings = replace(settings, share_tokens=share_tokens)
    wrong = replace(settings, password=SecretStr("wrong"))
    assert in_processes(PROCESSES, lambda: call(wrong, directory)) == {"ComplianceAuthError"}
    assert sum(emulator.counters()["operations"]["login"].values()) == 1
    assert call(settings, directory) == "good"


class RotatingProvider:
    """An identity provider that takes each refresh token once, and whose tokens expire at once."""

    def __init__(self, service: Service) -> None:
        self._service, self._last = service, ""
        service.token_life = 0
        service.on("POST /token", self.answer)
        service.on("GET /api/v1/frameworks", Reply(json=[]))

    def answer(self, request: Received) -> Reply:
        if not request.body:  # killed before it sent the rest
            return Reply(400)
        if request.form["grant_type"] == "refresh_token" and request.form["refresh_token"] != self._last:
            return Reply(400, json={"error": "invalid_grant"})
        reply = self._service._issue_token(request)
        self._last = reply.json["refresh_token"]
        return reply


@pytest.mark.once
def test_kills_at_random_moments_leave_no_deadlock_and_cost_one_login_each(
    service: Service, directory: Path
) -> None:
    settings = settings_for(service.url, share_tokens=True)
    chance = random.Random(SEED)
    RotatingProvider(service)

    def renew_for_ever() -> None:
        while True:
            call(settings, directory)

    for _ in range(KILLS):
        before = len(service.received)
        victims = [Child(renew_for_ever) for _ in range(2)]
        while len(service.received) == before:
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.05))
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
            os.waitpid(victim.pid, 0)
            os.close(victim._reading)
    started = time.monotonic()
    assert call(settings, directory) == "good"
    assert time.monotonic() - started < 55  # no process waits for a dead one
    grants = Counter(r.form["grant_type"] for r in service.requests_to("POST /token") if r.body)
    assert sum(grants.values()) >= KILLS // 2  # some are killed before they send it all
    # Of two processes, only the one with the lock can lose a token.
    assert grants["password"] <= 1 + KILLS
    stored = b"".join(path.read_bytes() for path in directory.iterdir())
    assert b"access-" not in stored
    assert b"refresh-" not in stored


def test_a_child_that_was_forked_with_the_lock_does_not_keep_it(settings: Settings, directory: Path) -> None:
    file = TokenFile(directory, settings)
    reading, writing = os.pipe()

    def hold_and_fork() -> None:
        lock = file.try_lock()
        assert lock
        child = os.fork()
        if child:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(writing, str(os.getpid()).encode())
        time.sleep(30)
        os._exit(0)

    holder = Child(hold_and_fork)
    grandchild = int(os.read(reading, 20))
    try:
        os.waitpid(holder.pid, 0)
        lock = file.try_lock()
        assert lock
        lock.release()
    finally:
        os.kill(grandchild, signal.SIGKILL)
        for descriptor in (reading, writing, holder._reading):
            os.close(descriptor)


# -- the hook


@pytest.fixture
def connection(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The connection with shared tokens, in a runtime directory of this test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    connection: dict[str, Any] = json.loads(emulator.connection_json)
    connection["extra"]["share_tokens"] = True
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    return connection


def use(hook: ComplianceHook) -> str:
    hook.list_frameworks()
    return "good"


def test_hooks_share_a_login_also_after_a_fork(
    connection: dict[str, Any], emulator: Emulator, tmp_path: Path
) -> None:
    hook = ComplianceHook()
    use(hook)
    assert in_processes(2, lambda: use(hook)) == {"good"}
    assert in_processes(2, lambda: use(ComplianceHook())) == {"good"}
    use(hook)
    assert emulator.counters()["logins"] == 1
    (folder,) = tmp_path.iterdir()
    assert folder.name == f"airflow-provider-compliance-{os.geteuid()}"


def test_a_connection_test_logs_in_itself_and_leaves_nothing(
    connection: dict[str, Any], emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert ComplianceHook().test_connection()[0]
    assert emulator.counters()["logins"] == 2
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Exception, match="refused user"):
        _wrong_password(connection, monkeypatch).list_frameworks()
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    assert ComplianceHook().test_connection()[0]  # independent of other processes


def _wrong_password(connection: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> ComplianceHook:
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps({**connection, "password": "wrong"}))
    return ComplianceHook()


def test_hooks_that_share_no_tokens_try_a_wrong_password_once(
    connection: dict[str, Any], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection["extra"]["share_tokens"] = False
    _wrong_password(connection, monkeypatch)

    def attempt() -> str:
        with pytest.raises(ComplianceAuthError):
            ComplianceHook().list_frameworks()
        return "refused"

    assert in_processes(4, attempt) == {"refused"}
    assert sum(emulator.counters()["operations"]["login"].values()) == 1


def test_without_a_private_directory_each_process_logs_in_and_says_so_once(
    connection: dict[str, Any], emulator: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path(tmp_path, f"airflow-provider-compliance-{os.geteuid()}").mkdir(mode=0o755)
    hook = ComplianceHook()
    use(hook)
    assert Child(lambda: use(hook)).result() == "good"
    use(ComplianceHook())
    assert emulator.counters()["logins"] == 2
    assert len([m for m in caplog.messages if "Tokens are not shared" in m]) == 1
