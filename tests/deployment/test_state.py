"""State of a task in object storage, in a complete Airflow."""

from __future__ import annotations

import pytest

from tests.deployment.conftest import Service
from tests.deployment.system import Deployment
from tests.stores.stores import S3Store

pytestmark = pytest.mark.deployment


def test_a_task_that_is_cleared_while_it_runs_continues_with_its_job(
    deployment: Deployment, service: Service, bucket: S3Store
) -> None:
    """Airflow kills the process, which finds its own attempt in the state, and must not cancel."""
    run = deployment.trigger("submit_with_state", url=f"{service.url}/?page")
    run.wait_for("running")
    deployment.wait_for(lambda: service.jobs() and service.count("get_statuses") >= 1, "a first poll")
    (job,) = service.jobs()
    (key,) = bucket.keys()
    assert key.startswith("state/submit_with_state/")

    run.clear()

    run.wait_for("running", tries=2)
    deployment.wait_for(lambda: f"Re-attached: job {job['uuid']}" in run.log(attempt=2), "the second attempt")
    service.finish_jobs()
    run.wait_for("success")
    run.wait_for_end()
    assert run.returned() == job["uuid"]
    assert (service.count("submit_url"), service.count("cancel")) == (1, 0)

    run.clear()

    run.wait_for("running", tries=3)
    deployment.wait_for(lambda: service.count("submit_url") == 2, "another submit")
    service.finish_jobs()
    run.wait_for("success", tries=3)
    assert service.count("cancel") == 0
