"""Which attempt a job belongs to: who goes on with it, who may cancel it, and what is never cancelled."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.operators import base_job as job_module
from airflow_provider.operators.content import (
    ComplianceSubmitFileOperator,
    ComplianceSubmitUrlOperator,
)
from airflow_provider.storage import task_state
from airflow_provider.storage.task_state import StoredJob
from airflow_provider.waiting import rules as polling
from tests.support.attempts import Attempts, StateStore, heard
from tests.support.signals import signalled_when, until
from tests.support.state_stores import use_state_path
from tests.support.values import PDF

PAGE = "http://127.0.0.1:9/page"


def submit(**kwargs: Any) -> Any:
    values: dict[str, Any] = {"wait_for_completion": False, "poll_interval": 0.1, "timeout": 240, "url": PAGE}
    return ComplianceSubmitUrlOperator(task_id="t", **{**values, **kwargs})


def run_and_wait(attempts: Attempts, task: Any) -> str:
    """Make an attempt, and leave its task as it is while it waits for its job."""
    uuid = str(attempts.run(task))
    task._job = StoredJob(uuid=uuid)
    return uuid


def uuids(service: Emulator) -> set[str]:
    return {job["uuid"] for job in service.jobs()}


class Superseded(StateStore):
    """What Airflow answers to an attempt whose task instance has another id by now: there is nothing."""

    def get(self, key: str, default: Any = None) -> Any:
        return default


class Unreachable(StateStore):
    """A state store whose API server is away."""

    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError("no API server")


AIRFLOW, OBJECTS, EMPTIED = "Airflow's store", "object storage", "Airflow's store, emptied by a clear"
FOREIGN: dict[str, type[StateStore]] = {"superseded": Superseded, "unreachable": Unreachable}


@pytest.mark.parametrize(
    ("memory", "state", "is_cancelled"),
    [
        ("nothing", "restarting", True),
        (AIRFLOW, "running", True),
        (AIRFLOW, "failed", True),
        (AIRFLOW, "restarting", False),
        (AIRFLOW, "up_for_retry", False),
        (AIRFLOW, "unknown", False),
        *((memory, "running", False) for memory in FOREIGN),  # the owner of the job is not known
        (EMPTIED, "restarting", True),
        (EMPTIED, "running", False),
        (OBJECTS, "running", True),
        (OBJECTS, "success", True),
        (OBJECTS, "restarting", False),
        (OBJECTS, "up_for_retry", False),
        (OBJECTS, "unknown", False),
    ],
)
def test_a_kill_cancels_the_job_unless_a_later_attempt_may_use_it(
    service: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    memory: str,
    state: str,
    is_cancelled: bool,
) -> None:
    """A task that is cleared while it runs is killed; one that is marked, too."""

    def read_state(_: Any) -> list[str]:
        if state == "unknown":
            raise RuntimeError("no API server")
        return [state]

    monkeypatch.setattr(job_module, "read_task_states", read_state)
    monkeypatch.setattr(task_state, "CLEAR_KEEPS_STATE", memory != EMPTIED)
    if memory == OBJECTS:
        use_state_path(tmp_path, monkeypatch)
    attempts = Attempts(store=None if memory in ("nothing", OBJECTS) else StateStore())
    task = submit()
    run_and_wait(attempts, task)
    if memory == EMPTIED:
        assert attempts.store
        attempts.store.clear()
    if kind := FOREIGN.get(memory):
        task._state.store = kind()
    task.on_kill()
    assert service.count("cancel", 200) == service.count("cancel") == is_cancelled


def test_a_kill_or_a_timeout_leaves_the_job_of_the_next_attempt_alone(
    service: Emulator, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """The first attempt was taken for dead, and ends while the second one waits for the same job."""
    first = heard(submit(wait_for_completion=False))
    uuid = run_and_wait(attempts, first)
    context: Any = {"ti": attempts.ti, "task_state_store": attempts.store}
    assert attempts.run(submit()) == uuid
    first.on_kill()
    event = {"status": "timeout", "pending": [uuid], "message": "x"}
    for status in ("timeout", "error"):
        resumed = {
            "event": {**event, "status": status},
            "job": first._job.dump() or {"uuid": uuid, "account": ""},
        }
        with pytest.raises(exc.ComplianceError):
            first.resume_execution("execute_complete", resumed, context)
    assert service.count("cancel") == 0
    assert caplog.text.count("belongs to another attempt now") == 3


def test_a_kill_after_the_end_of_a_task_leaves_its_job_to_what_comes_next(
    service: Emulator, attempts: Attempts
) -> None:
    task = submit()
    uuid = attempts.run(task)
    task.on_kill()
    assert service.count("cancel") == 0
    assert uuids(service) == {uuid}


def test_a_kill_that_meets_a_lock_of_the_interrupted_code_does_not_hang(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may come while the task talks to Airflow, with one lock for all who do."""
    monkeypatch.setattr(job_module, "CANCEL_GRACE_SECONDS", 0.2)
    channel = threading.Lock()

    class Store(StateStore):
        def get(self, key: str, default: Any = None) -> Any:
            with channel:
                return super().get(key, default)

    attempts.store = Store()
    task = submit()
    run_and_wait(attempts, task)
    handled = threading.Event()

    def on_kill() -> None:
        task.on_kill()
        handled.set()

    with signalled_when(channel.locked, on_kill), channel:
        handled.wait(240)
        assert service.count("cancel") == 0
    until(lambda: service.count("cancel", 200))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "contract.pdf"
    path.write_bytes(PDF)
    return path


def correct(path: Path) -> None:
    path.write_bytes(PDF + b"\n% corrected\n")


def upload(path: Path, **kwargs: Any) -> ComplianceSubmitFileOperator:
    return ComplianceSubmitFileOperator(task_id="t", file=str(path), **kwargs)


@pytest.mark.parametrize(
    "change", [lambda _: {"file_name": "other.pdf"}, lambda path: os.utime(path, (1, 1))]
)
def test_a_file_with_another_name_or_time_is_another_input(
    service: Emulator, attempts: Attempts, document: Path, change: Any
) -> None:
    first = attempts.run(upload(document))
    assert attempts.run(upload(document, **(change(document) or {}))) != first


@pytest.mark.parametrize("is_cleared", [False, True], ids=["retry", "clear"])
@pytest.mark.parametrize("status", ["RUNNING", "COMPLETED"])
def test_a_corrected_document_is_submitted(
    service: Emulator, attempts: Attempts, document: Path, is_cleared: bool, status: str
) -> None:
    first = attempts.run(upload(document))
    service.set_job(first, status=status)
    correct(document)
    if is_cleared:
        attempts.clear()
    second = attempts.run(upload(document))
    assert second != first
    assert service.count("submit_file", 202) == 2
    # What was superseded in flight is cancelled, by the attempt that supersedes it.
    assert service.count("cancel", 200) == (status == "RUNNING")
    assert uuids(service) == ({second} if status == "RUNNING" else {first, second})


def test_a_superseded_job_is_left_running_where_asked_to(
    service: Emulator, attempts: Attempts, document: Path
) -> None:
    attempts.run(upload(document))
    correct(document)
    attempts.run(upload(document, cancel_on_kill=False))
    assert service.count("cancel") == 0


def test_a_retry_continues_though_the_file_is_gone_meanwhile(
    service: Emulator, attempts: Attempts, document: Path
) -> None:
    first = attempts.run(upload(document))
    document.unlink()
    assert attempts.run(upload(document)) == first


def test_a_retry_that_finds_no_answer_is_retried(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts.run(submit())
    monkeypatch.setattr(polling, "OUTAGE_SECONDS", 0.2, raising=False)
    service.fail("get_status*", status=500, times=None)
    with pytest.raises(exc.ComplianceError, match="No request has succeeded") as caught:
        attempts.run(submit())
    assert caught.value.transient
    assert service.count("submit_url") == 1
