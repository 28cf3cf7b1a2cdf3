"""Waiting in a real triggerer."""

from __future__ import annotations

import pytest

from tests.deployment.airflow import Deployment
from tests.deployment.conftest import Service

pytestmark = pytest.mark.deployment

MANY = 8


def test_a_deferred_submit_waits_for_its_job(deployment: Deployment, service: Service) -> None:
    run = deployment.trigger("submit_one", url=f"{service.url}/?page")
    run.wait_for("deferred")
    (job,) = service.jobs()

    service.finish_jobs()

    run.wait_for("success")
    assert run.returned() == job["uuid"]
    # The worker that submits and the triggerer are processes of their own.
    assert service.counters()["logins"] <= 2


def test_sensors_share_one_login_and_their_requests(deployment: Deployment, service: Service) -> None:
    uuids = [service.add_job(text=str(number)) for number in range(MANY)]
    run = deployment.trigger("sense_many", uuids=uuids)
    run.wait_for("deferred", "together")
    run.wait_for("deferred", "each", MANY)

    # From now on all wait: every further request has to name all of the jobs.
    before = service.count("get_statuses")
    deployment.wait_for(lambda: service.count("get_statuses") >= before + 5, "five more looks")
    latest = [each for each in service.requests() if each["operation"] == "get_statuses"][-1]
    service.finish_jobs()

    run.wait_for("success", "together")
    run.wait_for("success", "each", MANY)
    assert [record["uuid"] for record in run.returned("together")] == uuids
    assert service.counters()["logins"] == 1
    assert service.count("get_status") == 0, latest


def test_the_log_of_a_failed_task_has_the_service_s_reason(deployment: Deployment, service: Service) -> None:
    reason = "Page 7 of the document is upside down."
    service.fail_jobs(reason)
    run = deployment.trigger("submit_one", url=f"{service.url}/?upside-down")
    run.wait_for("deferred")

    service.finish_jobs()

    run.wait_for("failed")
    log = run.log()
    assert reason in log
    assert "TaskDeferralError" not in log
