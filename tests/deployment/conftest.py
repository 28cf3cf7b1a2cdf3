"""One deployment for all tests of this folder, and one stand-in service that they talk to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from tests.deployment.servers import missing
from tests.deployment.settings import PARSED_ONCE
from tests.deployment.system import Deployment, deployed, let_tasks_end
from tests.stores.s3_servers import Moto
from tests.stores.stores import S3Store

DAGS = Path(__file__).parent / "dags"


class RecordingEmulator(Emulator):
    """An emulator that records the tokens that it issues, to look for them where they must not be."""

    def __init__(self, jobs: str = "manual") -> None:
        super().__init__(jobs=jobs, password="pass-7Hq2vXw9", client_secret="secret-3Zk8rTy5")
        self.secrets = {"pass-7Hq2vXw9", "secret-3Zk8rTy5"}
        self._keep_tokens()

    def reset(self) -> None:
        """Restore the initial state, and keep the tokens that are issued from now on, too."""
        super().reset()
        self._keep_tokens()

    def _keep_tokens(self) -> None:
        identity: Any = self._state.identity
        issue = identity._issue

        def keep(*args: Any) -> dict[str, Any]:
            answer: dict[str, Any] = issue(*args)
            # The signature is the part that no other token has.
            self.secrets |= {answer[name].rpartition(".")[2] for name in ("access_token", "refresh_token")}
            return answer

        identity._issue = keep


@pytest.fixture(scope="package")
def stand_in() -> Iterator[RecordingEmulator]:
    with RecordingEmulator() as running:
        yield running


@pytest.fixture(scope="package")
def moto() -> Iterator[S3Store]:
    server = Moto()
    server.start()
    yield S3Store.make(server)
    server.close()


@pytest.fixture(scope="package")
def deployment(
    stand_in: RecordingEmulator, moto: S3Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """A deployment on PostgreSQL: with SQLite, marking a task may lock the API server out of its database."""
    if reason := missing():
        pytest.skip(reason)
    stores = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(it) for name, it in moto.connections.items()}
    connection = stand_in.connection()
    connection["extra"]["state_path"] = f"{moto.base}state/"
    stores["AIRFLOW_CONN_COMPLIANCE_STATE"] = json.dumps(connection)
    stores["AIRFLOW__COMPLIANCE__REPORT_URLS"] = json.dumps(
        {"file:///": "https://reports.example.com/nightly/"}
    )
    home = tmp_path_factory.mktemp("airflow")
    let_tasks_end(home)
    with deployed(home, {**_settings(stand_in), **stores}, on_postgresql=True) as running:
        yield running


@pytest.fixture
def service(stand_in: RecordingEmulator, deployment: Deployment) -> RecordingEmulator:
    """The stand-in as if it were new; what an earlier test has left waiting there ends by itself."""
    stand_in.reset()
    return stand_in


def _settings(stand_in: RecordingEmulator) -> dict[str, str]:
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__PARALLELISM": "8",
        **PARSED_ONCE,
        "AIRFLOW_CONN_COMPLIANCE_DEFAULT": stand_in.connection_json,
    }
