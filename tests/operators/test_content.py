"""Submit, refresh and cancel: each outcome, waiting here and deferred."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.operators.content import (
    ComplianceCancelContentOperator,
    ComplianceSubmitFileOperator,
    ComplianceSubmitUrlOperator,
)
from airflow_provider.storage.task_state import StoredJob
from tests.support.attempts import Attempts, StateStore, heard
from tests.support.jobs import completed
from tests.support.values import PDF

PAGE = "http://127.0.0.1:9/page"


def submit(
    deferrable: bool = False,
    kind: type[ComplianceSubmitUrlOperator] = ComplianceSubmitUrlOperator,
    **kwargs: Any,
) -> ComplianceSubmitUrlOperator:
    values: dict[str, Any] = {"wait_for_completion": True, "poll_interval": 0.05, "timeout": 240, "url": PAGE}
    return kind(task_id="t", deferrable=deferrable, **{**values, **kwargs})


def test_a_submit_returns_the_uuid_as_soon_as_the_service_has_it(
    service: Emulator, attempts: Attempts
) -> None:
    uuid = attempts.run(submit(wait_for_completion=False))
    assert service.job(uuid)["name"] == PAGE
    assert not attempts.deferrals
    assert service.count("get_statuses") == service.count("get_status") == 0


def test_a_file_is_submitted_under_its_name(service: Emulator, attempts: Attempts, tmp_path: Path) -> None:
    path = tmp_path / "contract.pdf"
    path.write_bytes(PDF)
    uuid = attempts.run(ComplianceSubmitFileOperator(task_id="t", file=str(path), file_name="renamed.pdf"))
    assert service.job(uuid)["name"] == "renamed.pdf"


def test_a_file_name_never_forges_a_log_line(
    service: Emulator, attempts: Attempts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a\nERROR forged.pdf"
    path.write_bytes(PDF)
    task = ComplianceSubmitFileOperator(task_id="t", file=str(path), file_name="a.pdf")
    attempts.run(heard(task))
    assert "forged" in caplog.text
    assert all(message.isprintable() for message in caplog.messages)


def test_a_completed_job_is_a_success(service: Emulator, attempts: Attempts, deferrable: bool) -> None:
    service.configure(jobs="polls:1")
    uuid = attempts.run(submit(deferrable, url=f"{service.url}/"))
    assert service.job(uuid)["status"] == "COMPLETED"
    assert len(attempts.deferrals) == deferrable
    assert service.count("submit_url", 202) == 1


def test_a_failed_job_fails_the_task_with_the_service_s_reason(
    service: Emulator, attempts: Attempts, deferrable: bool
) -> None:
    service.configure(jobs="instant")
    service.fail_jobs("The page is in Latin.")
    with pytest.raises(exc.ComplianceJobError, match=r"failed: The page is in Latin\.") as caught:
        attempts.run(submit(deferrable))
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_timeout_fails_the_task_and_cancels_the_job_unless_asked_not_to(
    service: Emulator, attempts: Attempts, deferrable: bool, is_cancelled: bool
) -> None:
    with pytest.raises(exc.ComplianceJobTimeoutError, match=r"Timed out after \d+ s.*still in progress"):
        attempts.run(submit(deferrable, timeout=0.3, cancel_on_kill=is_cancelled))
    assert service.count("cancel") == service.count("cancel", 200) == is_cancelled


@pytest.mark.parametrize(("retries", "is_kept"), [(1, True), (0, False)])
def test_end_of_the_execution_timeout_keeps_the_job_for_the_next_attempt(
    service: Emulator, attempts: Attempts, deferrable: bool, retries: int, is_kept: bool
) -> None:
    attempts.retries = attempts.max_tries = retries
    attempts.store = StateStore()
    service.configure(jobs="manual")
    task = submit(deferrable=deferrable, execution_timeout=timedelta(seconds=0.5))
    with pytest.raises(AirflowTaskTimeout, match="That is the execution_timeout of the task"):
        attempts.run(task)
    task.on_kill()  # as Airflow does after this error
    assert service.count("cancel") == (not is_kept)
    if is_kept:
        (job,) = service.jobs()
        service.set_job(job["uuid"], status="COMPLETED")
        assert attempts.run(submit(deferrable=deferrable)) == job["uuid"]


@pytest.mark.parametrize("event", [None, {}, {"status": "?"}, "success", {"kind": "done"}])
def test_an_event_that_is_not_understood_fails_the_task(service: Emulator, event: Any) -> None:
    with pytest.raises(exc.ComplianceError, match="unknown event"):
        submit().execute_complete({}, event=event, job={"uuid": "u", "account": ""})


def test_the_event_alone_is_enough_to_go_on(service: Emulator) -> None:
    """It is all that `dag.test()` hands on."""
    event = {
        "status": "success",
        "jobs": {"u": {"uuid": "u", "status": "COMPLETED"}},
    }
    context: Any = {}
    assert submit().execute_complete(context, event=event) == "u"


def test_a_killed_task_leaves_its_job_where_asked_to(service: Emulator, attempts: Attempts) -> None:
    task = submit(wait_for_completion=False, cancel_on_kill=False)
    task._job = StoredJob(uuid=attempts.run(task))
    task.on_kill()
    assert service.count("cancel") == 0


def test_a_cancel_deletes_the_job(service: Emulator, attempts: Attempts) -> None:
    uuid = completed(service)
    attempts.run(ComplianceCancelContentOperator(task_id="t", uuid=uuid))
    attempts.run(ComplianceCancelContentOperator(task_id="t", uuid=uuid))
    assert (service.count("cancel", 200), service.count("cancel", 404)) == (1, 1)


def test_the_link_to_the_job_is_known_before_the_wait(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = service.connection()
    connection["extra"]["console_url"] = "https://console.example.com/jobs/{uuid}?tab=1"
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    uuid = attempts.run(submit(wait_for_completion=False))
    assert attempts.ti.xcoms["compliance_job_url"] == f"https://console.example.com/jobs/{uuid}?tab=1"


def test_a_deferred_task_holds_ids_and_numbers_only(service: Emulator, attempts: Attempts) -> None:
    with pytest.raises(exc.ComplianceJobTimeoutError):
        attempts.run(submit(deferrable=True, timeout=0.1))
    (row,) = attempts.deferrals
    assert row["path"] == "airflow_provider.triggers.content.ComplianceContentTrigger"
    assert row["airflow_timeout"] > timedelta(seconds=60)
    fields = {"conn_id", "uuids", "poll_interval", "deadline", "cancel_on_kill", "account", "is_durable"}
    given = {name for name, value in row.items() if value not in (None, "")}
    assert given | {"is_durable"} == {"path", "airflow_timeout", "timeout", "began_at", *fields}
