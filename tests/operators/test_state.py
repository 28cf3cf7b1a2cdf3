"""What a retry and a clear do with the job of the attempt before, wherever that is stored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators import base, base_job
from airflow_provider.operators.assessment import ComplianceSubmitAssessmentOperator
from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.storage import atomic, task_state
from airflow_provider.storage.task_state import StoredJob
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.results import WaitResult
from tests.support.attempts import Attempts, heard
from tests.support.state_stores import STATE_STORES, make_attempts

PAGE = "http://127.0.0.1:9/page"


@pytest.fixture(params=STATE_STORES)
def attempts(
    request: pytest.FixtureRequest, service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Attempts:
    return make_attempts(request.param, tmp_path, monkeypatch)


@pytest.fixture
def in_objects(service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempts:
    return make_attempts("object storage", tmp_path, monkeypatch)


def submit(**kwargs: Any) -> Any:
    values: dict[str, Any] = {"poll_interval": 0.05, "timeout": 240, "url": PAGE}
    return ComplianceSubmitUrlOperator(task_id="t", **{**values, **kwargs})


def uuids(service: Emulator) -> set[str]:
    return {job["uuid"] for job in service.jobs()}


def complete_all(service: Emulator) -> None:
    for uuid in uuids(service):
        service.set_job(uuid, status="COMPLETED")


def state_file(path: Path) -> Path:
    (found,) = path.rglob("compliance_job.json")
    return found


class DiedError(BaseException):
    """A process that is killed."""


# -- the table

CHANGES: dict[str, Any] = {
    "in flight": lambda service, uuid: None,
    "completed": lambda service, uuid: service.set_job(uuid, status="COMPLETED"),
    "failed": lambda service, uuid: service.set_job(uuid, status="FAILED"),
    "cancelled": lambda service, uuid: service.set_job(uuid, status="CANCELLED"),
    "gone": lambda service, uuid: service.remove_job(uuid),
    "other input": lambda service, uuid: None,
}


@pytest.mark.parametrize("job", CHANGES)
@pytest.mark.parametrize("is_cleared", [False, True], ids=["retry", "clear"])
def test_retry_and_clear_reuse_or_submit_by_the_state_of_the_job(
    service: Emulator, attempts: Attempts, deferrable: bool, is_cleared: bool, job: str
) -> None:
    def die(_: int) -> None:
        raise DiedError

    attempts.while_deferred = die
    try:
        attempts.run(submit(deferrable=deferrable, wait_for_completion=deferrable))
    except DiedError:
        assert deferrable
    (first,) = uuids(service)
    CHANGES[job](service, first)
    if is_cleared:
        attempts.clear()

    attempts.while_deferred = lambda _: complete_all(service)
    url = PAGE + "/other" if job == "other input" else PAGE
    second = attempts.run(submit(deferrable=deferrable, wait_for_completion=deferrable, url=url))

    is_used = job == "in flight" or (job == "completed" and not is_cleared)
    assert (second == first) is is_used
    assert service.count("submit_url", 202) == (1 if is_used else 2)
    assert service.count("cancel") == (job == "other input")


def test_a_renamed_connection_to_the_same_account_finds_the_job(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = attempts.run(submit())
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"])
    monkeypatch.delenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT")
    assert attempts.run(submit(conn_id="other")) == first
    assert attempts.run(submit(conn_id="other", url=PAGE + "/other")) != first
    assert service.count("cancel", 200) == 1


@pytest.mark.parametrize("old", ["there", "gone", "unreadable"])
@pytest.mark.parametrize("is_cleared", [False, True], ids=["retry", "clear"])
def test_a_task_with_another_connection_does_not_need_the_old_one(
    service: Emulator,
    attempts: Attempts,
    monkeypatch: pytest.MonkeyPatch,
    is_cleared: bool,
    old: str,
) -> None:
    """The job is cancelled at the service that has it, if that can still be reached."""
    connection = json.loads(os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"])
    first = attempts.run(submit())
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({**connection, "login": "bob", "password": "bob"}))
    service.add_user("bob", "bob")
    if old == "gone":
        monkeypatch.delenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT")
    elif old == "unreadable":
        get_connection = ComplianceHook.get_connection

        def read(conn_id: str) -> Any:
            if conn_id != "other":
                raise RuntimeError("the secrets backend is sealed")
            return get_connection(conn_id)

        monkeypatch.setattr(ComplianceHook, "get_connection", staticmethod(read))
    if is_cleared:
        attempts.clear()
    assert attempts.run(submit(conn_id="other")) != first
    assert service.count("cancel", 200) == (old == "there")


@pytest.mark.parametrize("change", [{"login": "bob"}, {"host": "http://127.0.0.2:9"}])
def test_a_connection_to_another_service_or_account_has_other_jobs(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    """A job there may have the same id: it is neither used nor cancelled."""
    first = attempts.run(submit())
    connection = json.loads(os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"])
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps({**connection, **change}))
    submitted: list[str] = []

    def send(self: ComplianceHook, url: str) -> Any:
        submitted.append(url)
        raise exc.ComplianceRefusedError("The service is another one.", status=400)

    monkeypatch.setattr(ComplianceHook, "submit_url", send)
    with pytest.raises(exc.ComplianceRefusedError):
        attempts.run(submit())
    assert submitted == [PAGE]
    assert service.count("cancel") == 0
    assert first in uuids(service)


def test_pages_that_differ_in_what_may_be_a_signature_are_different_inputs(
    service: Emulator, in_objects: Attempts
) -> None:
    first, second = (
        in_objects.run(submit(url=f"{PAGE}?policy={number}&expires=1&signature=x")) for number in (1001, 2002)
    )
    assert first != second


def test_tasks_do_not_share_their_state(service: Emulator, tmp_path: Path, in_objects: Attempts) -> None:
    """With any names, also those that would be other paths."""
    identities: list[dict[str, Any]] = [
        {},
        {"map_index": 0},
        {"map_index": 1},
        {"run_id": "manual__2026-01-01T00:00:00+00:00"},
        {"run_id": "manual__2026-01-01T00_00_00+00_00"},
        {"task_id": "../../../t"},
        {"dag_id": "d/..", "run_id": "é" * 200},
    ]
    made = set()
    for identity in identities:
        made.add(Attempts(store=None, identity=identity).run(submit()))
        assert Attempts(store=None, identity=identity, try_number=1).run(submit()) in made
    assert len(made) == len(identities) == service.count("submit_url")
    assert {path.parts[: len(tmp_path.parts)] for path in tmp_path.rglob("*.json")} == {tmp_path.parts}


# -- the intent


def send_and_die(self: ComplianceHook, url: str) -> Any:
    """Die after the service has accepted a submit, and before its uuid is known."""
    self.get_conn().submit_url(url)
    raise DiedError


@pytest.mark.parametrize(
    ("fault", "error", "may_be_second"),
    [
        ({}, DiedError, True),
        ({"reset": "after"}, exc.ComplianceUncertainError, True),
        ({"status": 422}, exc.ComplianceRefusedError, False),
    ],
    ids=["died", "no clear answer", "surely failed"],
)
def test_retry_submits_again_and_warns_if_the_service_may_have_accepted_the_submit_before(
    service: Emulator,
    attempts: Attempts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: dict[str, Any],
    error: type[BaseException],
    may_be_second: bool,
) -> None:
    with monkeypatch.context() as patch:
        if fault:
            service.fail("submit_url", **fault)
        else:
            patch.setattr(ComplianceHook, "submit_url", send_and_die)
        with pytest.raises(error) as caught:
            attempts.run(submit())
    assert isinstance(caught.value, AirflowFailException) is (error is exc.ComplianceRefusedError)
    second = attempts.run(heard(submit()))
    assert ("though the service may have accepted it" in caplog.text) is may_be_second
    assert len(uuids(service)) == 1 + may_be_second
    assert attempts.run(submit()) == second


# -- two attempts at once


def test_an_attempt_that_was_overtaken_while_it_submitted_leaves_the_state_to_the_newer_one(
    service: Emulator, in_objects: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, newer = ComplianceHook.submit_url, list[str]()

    def send_slowly(self: ComplianceHook, url: str) -> Any:
        sent = send(self, url)
        if not newer:
            newer.append("")
            newer.append(in_objects.run(submit()))
        return sent

    monkeypatch.setattr(ComplianceHook, "submit_url", send_slowly)
    with pytest.raises(exc.ComplianceSupersededError, match="Attempt 2 of this task has taken over"):
        in_objects.run(submit())
    # The job that no other attempt knows is cancelled by the attempt that owns it.
    assert uuids(service) == {newer[1]}
    assert in_objects.run(submit()) == newer[1]


@pytest.mark.parametrize("keeps_state", [False, True])
@pytest.mark.parametrize("memory", STATE_STORES)
def test_a_trigger_leaves_the_job_of_a_cleared_task_running_only_if_its_state_survives(
    service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str, keeps_state: bool
) -> None:
    monkeypatch.setattr(task_state, "CLEAR_KEEPS_STATE", keeps_state)
    attempts = make_attempts(memory, tmp_path, monkeypatch)
    attempts.while_deferred = lambda _: complete_all(service)
    attempts.run(submit(deferrable=True, wait_for_completion=True))
    row = {
        name: value
        for name, value in attempts.deferrals[0].items()
        if name not in ("path", "airflow_timeout")
    }
    expected = keeps_state or memory != "Airflow's store"
    assert ComplianceContentTrigger(**row).is_durable is expected


# -- a store that fails


@pytest.mark.parametrize("content", [b"\xff", b'{"uuid": 5}'])
def test_damaged_state_is_uncertain(
    service: Emulator,
    in_objects: Attempts,
    tmp_path: Path,
    content: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_objects.run(submit())
    state_file(tmp_path).write_bytes(content)
    second = in_objects.run(heard(submit()))
    assert "perhaps for the second time" in caplog.text
    assert in_objects.run(submit()) == second


@pytest.mark.parametrize("operation", ["read", "written"])
def test_a_state_path_without_permission_fails_before_anything_is_submitted(
    service: Emulator, in_objects: Attempts, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    def deny(*_: Any, **__: Any) -> None:
        raise PermissionError("denied")

    if operation == "read":
        monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.cat_file", deny)
    else:
        monkeypatch.setattr(atomic, "_make_directory", deny)
    what = f"can't be {operation}: denied. Check that the worker may (read|write) there"
    with pytest.raises(exc.ComplianceStorageDeniedError, match=what) as caught:
        in_objects.run(submit())
    assert isinstance(caught.value, AirflowFailException)
    assert service.count("submit_url") == 0


def test_a_job_is_not_lost_where_it_can_t_be_stored(
    service: Emulator,
    in_objects: Attempts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put, calls = atomic.put_sync, list[Any]()

    def put_first_only(*args: Any) -> None:
        calls.append(args)
        if len(calls) > 1:
            raise exc.ComplianceStorageError("The store is down.")
        put(*args)

    task = heard(submit())
    with monkeypatch.context() as patch:
        patch.setattr(task_state, "put_sync", put_first_only)
        uuid = in_objects.run(task)
    assert uuid in uuids(service)
    assert "The state can't be stored" in caplog.text
    # This attempt owns the job though the store knows the intent only.
    task._job = StoredJob(uuid=uuid)
    task.on_kill()
    task._killing.join(240)
    assert service.count("cancel", 200) == 1


def test_the_end_of_a_wait_does_not_need_the_store(
    service: Emulator, in_objects: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = in_objects.run(submit())
    event = {"status": "success", "jobs": {uuid: {"uuid": uuid, "status": "COMPLETED"}}}

    def refuse(*_: Any) -> None:
        raise exc.ComplianceInputError("'x://' can't be used.")

    monkeypatch.setattr(base_job, "open_state_store", refuse)
    task, context, job = (
        submit(wait_for_completion=True),
        {"ti": in_objects.ti},
        {"uuid": uuid, "account": ""},
    )
    assert task.resume_execution("execute_complete", {"event": event, "job": job}, context) == uuid
    event = {"status": "timeout", "pending": [uuid]}
    with pytest.raises(exc.ComplianceError):
        task.resume_execution("execute_complete", {"event": event, "job": job}, context)
    assert service.count("cancel") == 0  # its owner is not known


# -- a task that fails for good


@pytest.mark.parametrize("is_final", [False, True], ids=["transient", "non-retryable"])
@pytest.mark.parametrize("is_last", [False, True], ids=["first attempt", "last attempt"])
def test_a_task_that_fails_for_good_cancels_its_job(
    service: Emulator,
    attempts: Attempts,
    deferrable: bool,
    is_last: bool,
    is_final: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts.max_tries = 0 if is_last else 1
    result = WaitResult("error", message="No answer.", transient=not is_final)
    monkeypatch.setattr(base, "wait_in_worker", lambda *_: result)
    monkeypatch.setattr("tests.support.attempts.fire", lambda _: _answer(result.event("jobs")))
    with pytest.raises(exc.ComplianceError, match="No answer"):
        attempts.run(submit(deferrable=deferrable, wait_for_completion=True))
    assert service.count("cancel", 200) == (is_last or is_final)


async def _answer(event: dict[str, Any]) -> dict[str, Any]:
    return event


@pytest.mark.parametrize("kwargs", [{"cancel_on_kill": False}, {"status": "COMPLETED"}, {"status": "FAILED"}])
def test_it_cancels_nothing_else(
    service: Emulator, in_objects: Attempts, monkeypatch: pytest.MonkeyPatch, kwargs: dict[str, Any]
) -> None:
    status = kwargs.pop("status", None)

    def fail(*_: Any) -> WaitResult:
        (uuid,) = uuids(service)
        if status:
            service.set_job(uuid, status=status)
        return WaitResult("error", message="No answer.")

    monkeypatch.setattr(base, "wait_in_worker", fail)
    with pytest.raises(exc.ComplianceError, match="No answer"):
        in_objects.run(submit(wait_for_completion=True, **kwargs))
    assert service.count("cancel") == 0
    assert len(uuids(service)) == 1


@pytest.mark.parametrize("is_last", [False, True], ids=["first attempt", "last attempt"])
def test_a_trigger_that_failed_for_good_leaves_no_job_behind(
    service: Emulator, attempts: Attempts, is_last: bool
) -> None:
    attempts.max_tries = 0 if is_last else 1
    attempts.run(submit())
    context = {"ti": attempts.ti, "task_state_store": attempts.store}
    task = submit(deferrable=True, wait_for_completion=True)
    with pytest.raises(AirflowException, match="boom"):
        task.resume_execution("__fail__", {"error": "boom"}, context)
    assert service.count("cancel", 200) == is_last


def test_assessments_are_stored_and_cancelled_alike(
    service: Emulator, in_objects: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def assess(**kwargs: Any) -> Any:
        return ComplianceSubmitAssessmentOperator(task_id="t", payload={"a": "secret text"}, **kwargs)

    first = in_objects.run(assess())
    assert in_objects.run(assess()) == first
    assert "secret text" not in state_file(tmp_path).read_text()
    monkeypatch.setattr(base, "wait_in_worker", lambda *_: WaitResult("error", message="No answer."))
    with pytest.raises(exc.ComplianceError):
        in_objects.run(assess(wait_for_completion=True))
    assert service.count("cancel_assessment", 200) == 1
