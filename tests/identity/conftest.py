"""An identity provider that others wrote, a service that trusts it, and both clients."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pydantic import SecretStr

from airflow_provider.client.base import SharedState, TokenProvider
from airflow_provider.client.tokens import TokenCache
from tests.identity.servers import TIMEOUT_SECONDS, TrustingService
from tests.support.callers import CALLERS, AsyncCaller, SyncCaller
from tests.support.clock import ManualClock
from tests.support.values import settings_for

HERE = Path(__file__).parent
INTERPRETER = HERE.parents[1] / ".venv-idp" / "bin" / "python"
SHORT_LIFE = 3  # seconds


@dataclass(frozen=True)
class Provider:
    """Where the identity provider listens, and whom it knows."""

    token_url: str
    username: str
    password: str
    client_id: str
    client_secret: str
    machine_secret: str


Connect: TypeAlias = Callable[..., SyncCaller | AsyncCaller]


@contextmanager
def canaille(log: Path, *, life: int) -> Iterator[Provider]:
    """Run Canaille until the block ends; closing its standard input ends it, should this process die."""
    if not INTERPRETER.exists():
        pytest.fail(
            f"{INTERPRETER} is missing, and with it the identity provider: 'make test' builds it, "
            "-m 'not identity_provider' leaves these tests out.",
            pytrace=False,
        )
    command = [str(INTERPRETER), str(HERE / "canaille_server.py"), "--life", str(life)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdin
        assert process.stdout
        too_late = threading.Timer(TIMEOUT_SECONDS, process.kill)
        too_late.start()
        try:
            ready = process.stdout.readline()
            too_late.cancel()
            assert ready, f"Canaille did not start:\n{log.read_text()}"
            yield Provider(**json.loads(ready))
        finally:
            too_late.cancel()
            process.stdin.close()
            try:
                process.wait(TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="session")
def lasting_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """An identity provider whose tokens outlive the tests."""
    with canaille(tmp_path_factory.mktemp("canaille") / "log.txt", life=3600) as provider:
        yield provider


@pytest.fixture(scope="session")
def hasty_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """An identity provider whose tokens end after a few seconds, refresh tokens as well."""
    with canaille(tmp_path_factory.mktemp("canaille") / "log.txt", life=SHORT_LIFE) as provider:
        yield provider


@pytest.fixture
def provider(lasting_provider: Provider) -> Provider:
    return lasting_provider


@pytest.fixture
def service(provider: Provider) -> Iterator[TrustingService]:
    """The service; it stands before the token endpoint and writes down what passes."""
    with TrustingService(provider.token_url).running() as service:
        assert isinstance(service, TrustingService)
        yield service


@pytest.fixture(params=CALLERS)
def connect(
    request: pytest.FixtureRequest, provider: Provider, service: TrustingService
) -> Iterator[Connect]:
    """Make a client, of either kind, with a login of its own; settings can be replaced."""
    with ExitStack() as opened:

        def make(clock: ManualClock | None = None, **changed: Any) -> SyncCaller | AsyncCaller:
            known: dict[str, Any] = {
                "username": provider.username,
                "password": SecretStr(provider.password),
                "client_id": provider.client_id,
                "client_secret": SecretStr(provider.client_secret),
                "name": "the connection 'compliance_lab'",
            }
            settings = settings_for(service.url, **known | changed)
            shared = SharedState(settings)
            if clock:
                shared.tokens = TokenProvider(TokenCache(settings, clock))
            caller = CALLERS[request.param](settings, shared)
            opened.callback(caller.close)
            return caller

        yield make
