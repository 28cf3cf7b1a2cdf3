"""Users and machines that end tasks: one row for each way, in a complete Airflow.

What the next attempt does with a job, and who may cancel it, is tested row by row in `tests/operators`
(`test_state.py`, `test_ownership.py`) and `tests/triggers`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deployment.conftest import RecordingEmulator
from tests.deployment.system import Deployment, Run
from tests.stores.stores import S3Store

pytestmark = pytest.mark.deployment

PAGES = "https://documents.example.com/"
REASON = "Page 7 of the document is upside down."
STARTED = ") starting"  # Airflow writes this into the log of a task when its trigger starts
DAGS = {
    "mark-deferred": "submit_one",
    "clear-deferred": "submit_one",
    "fail-deferred": "submit_one",
    "mark-running": "submit_in_worker",
    "kill-running": "submit_with_state",
}


class Case:
    """A run with one task, which waits for its job."""

    def __init__(self, service: RecordingEmulator, run: Run, url: str) -> None:
        self.service = service
        self.deployment = run.deployment
        self.run = run
        self.url = url

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """The jobs of this run; the service deletes cancelled ones."""
        return [job for job in self.service.jobs() if job["name"] == self.url]

    def wait_for_polls(self, count: int = 1) -> str:
        """Wait for more polls of the only job; return its uuid."""
        before = self.jobs[0]["polls"] if self.jobs else 0
        self.deployment.wait_for(
            lambda: bool(self.jobs) and self.jobs[0]["polls"] >= before + count, f"{count} polls"
        )
        (job,) = self.jobs
        return str(job["uuid"])

    def wait_for_trigger(self) -> str:
        """Wait until the task is deferred and its trigger polls; return the job's uuid."""
        self.run.wait_for("deferred")
        self.deployment.wait_for(lambda: STARTED in self.run.log(), "the start of the trigger")
        return self.wait_for_polls()

    def wait_for_worker(self) -> tuple[str, int]:
        """Wait until the task polls in a worker; return the job's uuid and the worker's process id."""
        pid: int = self.run.wait_for("running")["pid"]
        return self.wait_for_polls(), pid

    def succeed_with(self, uuid: str) -> None:
        """Complete the job; the run must succeed with it, and without another one."""
        self.service.finish_jobs(uuid)
        assert self.run.wait_for_end()["state"] == "success"
        assert self.run.returned() == uuid
        assert [job["uuid"] for job in self.jobs] == [uuid]


@pytest.fixture(scope="module")
def cases(deployment: Deployment, stand_in: RecordingEmulator, moto: S3Store) -> Iterator[dict[str, Case]]:
    """One run for each way to end a task; all of them start now, and wait for their tests."""
    stand_in.reset()
    moto.empty()
    started = {}
    for name, dag_id in DAGS.items():
        url = f"{stand_in.url}/?page={name}"
        started[name] = Case(stand_in, deployment.trigger(dag_id, url=url), url)
    yield started
    stand_in.finish_jobs()
    for case in started.values():
        case.run.wait_for_end()


def test_marking_a_deferred_submit_failed_cancels_its_job(cases: dict[str, Case]) -> None:
    case = cases["mark-deferred"]
    case.wait_for_trigger()

    case.run.mark("failed")

    case.deployment.wait_for(lambda: not case.jobs, "the cancellation of the job")
    assert case.run.wait_for_end()["state"] == "failed"


def test_marking_a_submit_in_a_worker_failed_cancels_its_job(cases: dict[str, Case]) -> None:
    case = cases["mark-running"]
    case.wait_for_worker()

    case.run.mark("failed")

    case.deployment.wait_for(lambda: not case.jobs, "the cancellation of the job")
    assert case.run.wait_for_end()["state"] == "failed"


def test_retry_after_a_killed_worker_reattaches_and_a_clear_submits_again(
    cases: dict[str, Case], moto: S3Store
) -> None:
    """The state of this task is in object storage."""
    case = cases["kill-running"]
    uuid, pid = case.wait_for_worker()
    (key,) = moto.keys()
    assert key.startswith("state/submit_with_state/")

    os.kill(pid, signal.SIGKILL)

    case.run.wait_for("running", tries=2)
    case.succeed_with(uuid)

    case.run.clear()

    case.deployment.wait_for(lambda: len(case.jobs) == 2, "another submit")
    case.service.finish_jobs(*[job["uuid"] for job in case.jobs])
    assert case.run.wait_for_end()["state"] == "success"
    assert case.run.returned() != uuid
    assert len(case.jobs) == 2


def test_clearing_a_deferred_submit_reattaches_to_its_job(cases: dict[str, Case]) -> None:
    case = cases["clear-deferred"]
    uuid = case.wait_for_trigger()

    case.run.clear()

    case.run.wait_for("deferred", tries=2)
    case.wait_for_polls(4)  # meanwhile the triggerer learns of the deleted trigger, within a second
    assert f"Re-attached: job {uuid}" in case.run.log(attempt=2)
    case.succeed_with(uuid)


def test_reason_of_a_failed_job_is_in_the_log(cases: dict[str, Case]) -> None:
    case = cases["fail-deferred"]
    uuid = case.wait_for_trigger()

    case.service.set_job(uuid, status="FAILED", error=REASON)

    assert case.run.wait_for_end()["state"] == "failed"
    log = case.run.log()
    assert REASON in log
    assert "TaskDeferralError" not in log


def test_first_kill_after_a_start_of_the_triggerer_cancels_all_jobs(
    deployment: Deployment, stand_in: RecordingEmulator
) -> None:
    """The first answer of Airflow inside a triggerer takes seconds, and more questions queue behind it."""

    def jobs() -> list[dict[str, Any]]:
        return [job for job in stand_in.jobs() if str(job["name"]).startswith(PAGES)]

    run = deployment.trigger("submit_many")
    run.wait_for("deferred", count=6)
    deployment.kill("triggerer")
    deployment.start("triggerer")
    before = sum(job["polls"] for job in jobs())
    assert len(jobs()) == 6
    deployment.wait_for(lambda: sum(job["polls"] for job in jobs()) > before, "the first poll")

    deployment.call("PATCH", run.path, {"state": "failed"})

    deployment.wait_for(lambda: not jobs(), "the cancellation of all jobs")
