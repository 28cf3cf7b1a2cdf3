"""Users and machines that end things at the wrong time."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.deployment.conftest import Service
from tests.deployment.processes import is_alive
from tests.deployment.system import Deployment, Run

pytestmark = pytest.mark.deployment

MANY = 24
TRIES = 3  # where Airflow kills a task on a busy machine before it has reacted to the end
STARTED = ") starting"  # in the log of a task, by Airflow, when its trigger runs
KILLED = "invoking on_kill"  # in the log of a task, by Airflow


def submitted(deployment: Deployment, service: Service) -> Run:
    """Start a run whose task is deferred, and whose trigger runs."""
    run = deployment.trigger("submit_one", url=f"{service.url}/?page")
    run.wait_for("deferred")
    # Not by the service's counters alone: a worker of the test before may still be looking.
    deployment.wait_for(lambda: STARTED in run.log(), "the start of the trigger")
    deployment.wait_for(lambda: service.count("get_statuses") >= 1, "a first look")
    return run


def waiting_in_worker(deployment: Deployment, service: Service) -> tuple[Run, dict[str, Any]]:
    """Start a run whose task waits for its job in a worker."""
    run = deployment.trigger("submit_in_worker", url=f"{service.url}/?page")
    task = run.wait_for("running")
    deployment.wait_for(lambda: service.jobs() and service.count("get_statuses") >= 1, "a first poll")
    return run, task


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


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

        deployment.wait_for(lambda: KILLED in run.log(), "the end of the trigger in the first triggerer")
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


def test_marking_a_waiting_worker_failed_cancels_its_job(deployment: Deployment, service: Service) -> None:
    for _ in range(TRIES):
        service.reset()
        run, task = waiting_in_worker(deployment, service)
        run.mark("failed")
        if deployment.ends_in_time(task["pid"]) or not service.jobs():
            break
    assert not service.jobs()
    assert service.count("submit_url") == 1


def test_a_slow_cancellation_comes_to_its_end(deployment: Deployment, service: Service) -> None:
    """Airflow gives a trigger's on_kill no more than a second or two, whatever its setting says."""
    run = submitted(deployment, service)
    service.fail("cancel", status=503, retry_after=3)

    run.mark("failed")

    deployment.wait_for(lambda: not service.jobs(), "the end of the job")
    assert service.count("cancel", 503) == 1


def test_marking_a_sensor_failed_cancels_nothing(deployment: Deployment, service: Service) -> None:
    uuid = service.add_job(text="of somebody else")
    run = deployment.trigger("sense_one", uuid=uuid)
    run.wait_for("deferred", "sense")
    deployment.wait_for(lambda: service.count("get_statuses") >= 1, "a first look")

    run.mark("failed", "sense")

    # The poller ends with its last waiter, so the trigger is over when nobody looks any more.
    service.wait_for_silence("get_statuses", 6)
    assert service.count("cancel") == 0
    assert len(service.jobs()) == 1


def test_clearing_a_deferred_submit_continues_with_its_job(deployment: Deployment, service: Service) -> None:
    """Airflow may notice nothing of it: SQLite gives the next trigger the number of the deleted one."""
    run = submitted(deployment, service)
    (job,) = service.jobs()

    run.clear()

    run.wait_for("deferred", tries=2)
    # A triggerer hears of a deleted trigger every second; after some polls it has.
    polls = service.count("get_statuses")
    deployment.wait_for(lambda: service.count("get_statuses") >= polls + 4, "polls in the triggerer")
    assert f"Re-attached: job {job['uuid']}" in run.log(attempt=2)
    service.finish_jobs()
    run.wait_for("success")
    assert run.returned() == job["uuid"]
    assert service.count("submit_url") == 1
    assert service.count("cancel") == 0


def test_clearing_a_submit_that_is_done_submits_again(deployment: Deployment, service: Service) -> None:
    run = submitted(deployment, service)
    service.finish_jobs()
    run.wait_for("success")
    run.wait_for_end()  # or the scheduler ends the run after the clear

    run.clear()

    run.wait_for("deferred", tries=2)
    service.finish_jobs()
    run.wait_for("success", tries=2)
    assert service.count("submit_url") == 2
    assert service.count("cancel") == 0


def test_clearing_a_submit_that_no_triggerer_has_yet_continues_with_its_job(
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


@pytest.mark.parametrize("is_done", [False, True], ids=["while it waits", "when it has succeeded"])
def test_a_late_kill_spares_the_job_of_the_next_attempt(
    deployment: Deployment, service: Service, is_done: bool
) -> None:
    """A worker that hung while its task was ended and begun again learns of that when it is back."""
    run, task = waiting_in_worker(deployment, service)
    supervisor = parent_of(task["pid"])
    os.kill(supervisor, signal.SIGSTOP)
    try:
        run.mark("failed")
        run.wait_for_end()  # or the scheduler ends the run after the clear
        run.clear()
        run.wait_for("running", tries=2)
        (job,) = service.jobs()
        deployment.wait_for(
            lambda: f"Re-attached: job {job['uuid']}" in run.log(attempt=2), "the second attempt"
        )
        if is_done:
            os.kill(task["pid"], signal.SIGSTOP)  # or it would see that, too
            service.finish_jobs()
            run.wait_for("success")
    finally:
        os.kill(supervisor, signal.SIGCONT)
        with suppress(ProcessLookupError):  # the supervisor may have ended it
            os.kill(task["pid"], signal.SIGCONT)

    deployment.wait_for(lambda: not is_alive(task["pid"]), "the end of the first attempt")
    assert service.count("cancel") == 0
    service.finish_jobs()
    run.wait_for("success")
    assert run.returned() == job["uuid"]
    assert [each["uuid"] for each in service.jobs()] == [job["uuid"]]
    assert service.count("submit_url") == 1


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
    run, task = waiting_in_worker(deployment, service)

    os.kill(task["pid"], signal.SIGKILL)

    run.wait_for("running", tries=2)
    (job,) = service.jobs()
    service.finish_jobs()
    run.wait_for("success")
    assert run.returned() == job["uuid"]
    assert service.count("submit_url") == 1
    assert service.count("cancel") == 0
