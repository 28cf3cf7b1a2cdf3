"""One distributed deployment for all tests of this folder, with a store and a stand-in service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.deployment.processes import processes_in
from tests.deployment.servers import is_open, missing
from tests.deployment.settings import PARSED_ONCE, SLOTS
from tests.deployment.system import Deployment, deployed
from tests.e2e.stage import DAGS, EXAMPLES, Stage, staged

CANARY = "canary-5Rb1nMq4"  # a search for secrets must find this, which is none
SETTINGS = {
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",  # workers come before what they report to
    **PARSED_ONCE,
}


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if reason := missing():
        pytest.skip(reason)
    with staged(tmp_path_factory.mktemp("stage")) as it:
        yield it


@pytest.fixture(scope="session")
def deployment(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two Celery workers, PostgreSQL and Redis; none of them is left afterwards."""
    home = tmp_path_factory.mktemp("distributed")
    with deployed(home, {**stage.settings(), **SETTINGS}, workers=2) as running:
        assert len(processes_in(home)) > 2 * SLOTS
        stage.connect(running)
        unpause(running)
        yield running
    assert not processes_in(home)
    urls = (running.url, running.database_url, running.environment["AIRFLOW__CELERY__BROKER_URL"])
    assert not [url for url in urls if is_open(urlsplit(url).port)]


def unpause(deployment: Deployment) -> None:
    """Let the DAGs run, now that all parts are there."""
    for path in (*EXAMPLES.glob("*.py"), *DAGS.glob("*.py")):
        source = path.read_text()
        for dag_id in re.findall(r"(?:with DAG\(\s*\"|^made = )(\w+)", source, re.MULTILINE):
            deployment.wait_for_dag(dag_id)
            dag = deployment.call("PATCH", f"dags/{dag_id}", {"is_paused": False})
        if "AssetWatcher" in source:  # watchers come when the file is parsed again
            deployment.call("PUT", f"parseDagFile/{dag['file_token']}")
