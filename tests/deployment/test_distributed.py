"""Machines that go down in a distributed deployment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deployment.conftest import Service
from tests.deployment.processes import members
from tests.deployment.settings import SLOTS
from tests.deployment.system import Deployment

pytestmark = pytest.mark.distributed

MANY = 16  # as many as two workers run at a time


def test_a_killed_worker_costs_a_retry_and_no_document(distributed: Deployment, stand_in: Service) -> None:
    stand_in.reset()
    urls = [f"{stand_in.url}/?page={number}" for number in range(MANY)]
    run = distributed.trigger("submit_many", urls=urls)

    def under_way() -> list[dict[str, Any]]:
        """Find what the first worker runs."""
        pids = {pid for pid, _ in members(distributed.parts["worker-1"].pid)}
        return [task for task in run.tasks() if task["state"] == "running" and task["pid"] in pids]

    distributed.wait_for(under_way, "a task on the first worker")
    distributed.kill("worker-1")
    distributed.start("worker-1")

    run.wait_for("deferred", count=MANY)
    stand_in.finish_jobs()
    assert run.wait_for_end()["state"] == "success"
    tasks = run.tasks()
    assert [task["state"] for task in tasks] == ["success"] * MANY
    assert max(task["try_number"] for task in tasks) > 1
    # A job whose worker died before it could write the uuid down is submitted again: nobody knows of it.
    assert {job["name"] for job in stand_in.jobs()} == set(urls)
    assert stand_in.count("submit_url") <= MANY + SLOTS
