"""Watching the frameworks in a real triggerer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.deployment.conftest import Service
from tests.deployment.system import Deployment, Run

pytestmark = pytest.mark.deployment

DAG_ID = "react"


def pause(deployment: Deployment, is_paused: bool) -> None:
    """Pause a DAG or not; its watchers come and go when its file is parsed."""
    deployment.wait_for_dag(DAG_ID)
    dag = deployment.call("PATCH", f"dags/{DAG_ID}", {"is_paused": is_paused})
    deployment.call("PUT", f"parseDagFile/{dag['file_token']}")


@pytest.fixture
def watched(deployment: Deployment, service: Service) -> Iterator[Deployment]:
    """A deployment in which the catalog of the service is watched."""
    pause(deployment, is_paused=False)
    yield deployment
    pause(deployment, is_paused=True)
    service.wait_for_silence("list_frameworks", 4)


def wait_for_looks(deployment: Deployment, service: Service, count: int = 4) -> None:
    before = service.count("list_frameworks", 200)
    deployment.wait_for(lambda: service.count("list_frameworks", 200) >= before + count, f"{count} looks")


def runs(deployment: Deployment) -> list[Run]:
    found = deployment.call("GET", f"dags/{DAG_ID}/dagRuns", order_by="run_after")["dag_runs"]
    return [Run(deployment, DAG_ID, each["dag_run_id"]) for each in found]


def add(service: Service, name: str) -> None:
    service.set_frameworks([*service.frameworks(), {"id": name, "codeName": name}])


def told(run: Run) -> Any:
    assert run.wait_for_end()["state"] == "success"
    (event,) = run.returned("read")
    return event


def test_a_change_of_the_frameworks_runs_the_dag_once(watched: Deployment, service: Service) -> None:
    wait_for_looks(watched, service)
    assert not runs(watched)

    add(service, "NIS2")

    watched.wait_for(lambda: runs(watched), "a run")
    wait_for_looks(watched, service)
    (first,) = runs(watched)
    assert told(first)["frameworks"]["added"] == [
        {"id": "NIS2", "code_name": "NIS2", "name": None, "criteria": 0}
    ]

    # A restart: nothing has changed.
    watched.parts.pop("triggerer").end()
    watched.start("triggerer")
    wait_for_looks(watched, service)
    assert len(runs(watched)) == 1

    # A change while no triggerer is there: noticed by the next one.
    watched.kill("triggerer")
    add(service, "ESG")
    watched.start("triggerer")
    watched.wait_for(lambda: len(runs(watched)) > 1, "a second run")
    wait_for_looks(watched, service)
    _, second = runs(watched)
    assert told(second)["summary"] == "1 framework added (ESG)"

    # All of it with one look a second, and one login for each triggerer.
    assert service.counters()["logins"] == 3
