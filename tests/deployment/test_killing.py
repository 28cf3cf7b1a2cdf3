"""Users and machines that end things at the wrong time."""

from __future__ import annotations

import os
import signal

import pytest

from tests.deployment.airflow import Deployment, Run
from tests.deployment.conftest import Service

pytestmark = pytest.mark.deployment

MANY = 24


def submitted(deployment: Deployment, service: Service) -> Run:
    """Start a run whose task is deferred, and whose trigger runs."""
    run = deployment.trigger("submit_one", url=f"{service.url}/?page")
    run.wait_for("deferred")
    deployment.wait_for(lambda: service.count("get_statuses") >= 1, "a first look")
    return run


def test_a_killed_triggerer_costs_nothing(deployment: Deployment, service: Service) -> None:
    urls = [f"{service.url}/?page={number}" for number in range(MANY)]
    run = deployment.trigger("submit_many", urls=urls)
    run.wait_for("deferred", count=MANY)

    deployment.kill("triggerer")
    service.finish_jobs(*[job["uuid"] for job in service.jobs()[: MANY // 2]])
    deployment.start("triggerer")
    looks = service.count("get_statuses")
    deployment.wait_for(lambda: service.count("get_statuses") > looks, "the new triggerer")
    service.finish_jobs()

    run.wait_for("success", count=MANY)
    assert service.count("submit_url") == MANY
    assert service.count("cancel") == 0


def test_a_triggerer_that_lost_its_triggers_to_another_cancels_nothing(
    deployment: Deployment, service: Service
) -> None:
    """One that hangs for a while is taken for dead, and finds when it is back that others do its work."""
    run = submitted(deployment, service)
    hung = deployment.parts.pop("triggerer")
    try:
        hung.signal(signal.SIGSTOP)
        deployment.start("triggerer")
        looks = service.count("get_statuses")
        deployment.wait_for(lambda: service.count("get_statuses") > looks, "the other triggerer")

        hung.signal(signal.SIGCONT)

        log = "Trigger cancelled"
        deployment.wait_for(lambda: log in run.log(), "the end of the trigger in the first triggerer")
        looks = service.count("get_statuses")
        deployment.wait_for(lambda: service.count("get_statuses") >= looks + 2, "two more looks")
        assert service.count("cancel") == 0
    finally:
        hung.kill()
    service.finish_jobs()
    run.wait_for("success")


def test_marking_a_deferred_submit_failed_cancels_its_job(deployment: Deployment, service: Service) -> None:
    run = submitted(deployment, service)

    run.mark("failed")

    deployment.wait_for(lambda: not service.jobs(), "the end of the job")
    assert service.count("submit_url") == 1
    assert run.tasks()[0]["state"] == "failed"


def test_marking_a_sensor_failed_cancels_nothing(deployment: Deployment, service: Service) -> None:
    uuid = service.add_job(text="of somebody else")
    run = deployment.trigger("sense_one", uuid=uuid)
    run.wait_for("deferred", "sense")
    deployment.wait_for(lambda: service.count("get_statuses") >= 1, "a first look")

    run.mark("failed", "sense")

    # The poller ends with its last waiter, so the trigger is over when nobody looks any more.
    def is_quiet() -> bool:
        looks = service.count("get_statuses")
        try:
            deployment.wait_for(lambda: service.count("get_statuses") > looks, "a look", patience=6)
        except AssertionError:
            return True
        return False

    deployment.wait_for(is_quiet, "the end of the trigger")
    assert service.count("cancel") == 0
    assert len(service.jobs()) == 1


def test_clearing_a_deferred_submit_leaves_one_job(deployment: Deployment, service: Service) -> None:
    run = submitted(deployment, service)

    run.clear()

    deployment.wait_for(lambda: service.count("cancel") == 1, "the cancellation of the first job")
    deployment.wait_for(lambda: service.count("submit_url") == 2, "a second job")
    run.wait_for("deferred", tries=2)
    (job,) = service.jobs()
    service.finish_jobs()
    run.wait_for("success")
    assert run.returned() == job["uuid"]


def test_clearing_a_submit_that_no_triggerer_has_yet_goes_on_with_its_job(
    deployment: Deployment, service: Service
) -> None:
    """Airflow tells nobody of a clear that comes so early, so nobody cancels."""
    deployment.kill("triggerer")
    run = deployment.trigger("submit_one", url=f"{service.url}/?page")
    run.wait_for("deferred")

    run.clear()

    run.wait_for("deferred", tries=2)
    deployment.start("triggerer")
    (job,) = service.jobs()
    service.finish_jobs()
    run.wait_for("success")
    assert run.returned() == job["uuid"]
    assert service.count("submit_url") == 1


def test_clearing_survives_a_cancellation_that_comes_late(deployment: Deployment, service: Service) -> None:
    """The next attempt finds the job of the first, goes on with it, and only then it is cancelled."""
    service.fail("cancel", delay=15.0)
    run = submitted(deployment, service)
    (first,) = service.jobs()

    run.clear()

    run.wait_for("deferred", tries=2)
    assert [job["uuid"] for job in service.jobs()] == [first["uuid"]]
    deployment.wait_for(lambda: service.count("cancel") == 1, "the cancellation of the first job")
    deployment.wait_for(lambda: service.count("submit_url") == 2, "a second job")
    (second,) = service.jobs()
    service.finish_jobs()
    run.wait_for("success")
    assert run.returned() == second["uuid"]


def test_an_attempt_that_died_before_it_deferred_is_gone_on_with(
    deployment: Deployment, service: Service
) -> None:
    run = deployment.trigger("submit_and_die", url=f"{service.url}/?page")
    run.wait_for("deferred", tries=2)
    (job,) = service.jobs()

    service.finish_jobs()

    run.wait_for("success")
    assert run.returned() == job["uuid"]
    assert service.count("submit_url") == 1
    assert service.count("cancel") == 0


def test_a_worker_killed_while_it_waits_is_gone_on_with(deployment: Deployment, service: Service) -> None:
    run = deployment.trigger("submit_in_worker", url=f"{service.url}/?page")
    task = run.wait_for("running")
    deployment.wait_for(lambda: service.count("get_statuses") >= 1, "a first look")

    os.kill(task["pid"], signal.SIGKILL)

    run.wait_for("running", tries=2)
    (job,) = service.jobs()
    service.finish_jobs()
    run.wait_for("success")
    assert run.returned() == job["uuid"]
    assert service.count("submit_url") == 1
    assert service.count("cancel") == 0
