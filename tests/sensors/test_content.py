"""The sensor: the same meaning here, deferred and rescheduled."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.sensors.content import ComplianceContentSensor
from airflow_provider.triggers import base as triggers
from airflow_provider.triggers.content import ComplianceContentTrigger
from tests.support.attempts import Attempts, TaskInstance
from tests.support.jobs import completed, running


def sensor(uuid: Any, mode: dict[str, Any], **kwargs: Any) -> ComplianceContentSensor:
    values: dict[str, Any] = {"poll_interval": 0.05, "timeout": 240, **mode, **kwargs}
    return ComplianceContentSensor(task_id="t", uuid=uuid, **values)


def test_completed_jobs_are_returned_as_records_in_order(
    service: Emulator, attempts: Attempts, mode: dict[str, Any]
) -> None:
    uuids = [completed(service, file_name=f"{number}.pdf") for number in range(3)]
    given = [uuids[0], *uuids]
    records = attempts.run(sensor(given, mode))
    assert [record["uuid"] for record in records] == given
    assert {record["status"] for record in records} == {"COMPLETED"}
    assert records[0]["file_name"] == "0.pdf"


@pytest.mark.parametrize("uuids", [[], "[]", ()])
def test_no_job_to_wait_for_is_a_success(
    service: Emulator, attempts: Attempts, mode: dict[str, Any], uuids: Any
) -> None:
    assert attempts.run(sensor(uuids, mode)) == []


OUTCOMES = {
    "failed": ({"status": "FAILED", "error": "too blurred"}, "failed: too blurred"),
    "cancelled": ({"status": "CANCELLED"}, "was cancelled"),
    "unknown": (None, "not known to the service"),
}


SKIPS = [{}, {"soft_fail": True}, {"never_fail": True}]


@pytest.mark.parametrize("skips", SKIPS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_job_that_did_not_complete_fails_or_skips_the_task_without_retries(
    service: Emulator, attempts: Attempts, mode: dict[str, Any], outcome: str, skips: dict[str, bool]
) -> None:
    change, message = OUTCOMES[outcome]
    good, bad = completed(service), completed(service)
    if change:
        service.set_job(bad, **change)
    else:
        service.remove_job(bad)
    kind = AirflowSkipException if skips else AirflowFailException
    with pytest.raises(kind, match=None if skips else f"1 of 2 jobs: Job {bad} .*{message}") as caught:
        attempts.run(sensor([good, bad], mode, **skips))
    assert skips or isinstance(caught.value, exc.ComplianceJobError)
    assert service.count("cancel") == 0


@pytest.mark.parametrize("skips", SKIPS)
def test_after_the_timeout_the_sensor_times_out_or_skips_and_cancels_nothing(
    service: Emulator, attempts: Attempts, deferrable: bool, skips: dict[str, bool]
) -> None:
    kind = AirflowSkipException if skips else AirflowSensorTimeout
    with pytest.raises(kind, match=None if skips else "still in progress"):
        attempts.run(sensor(running(service), {}, deferrable=deferrable, timeout=0.2, **skips))
    assert service.count("cancel") == 0


def test_marking_a_deferred_sensor_failed_cancels_nothing(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def task_state(_: Any) -> str:
        return "failed"

    monkeypatch.setattr(triggers, "task_state", task_state)
    uuid = running(service)

    def kill(_: int) -> None:
        row = {
            name: value for name, value in attempts.deferrals[-1].items() if name not in ("path", "timeout")
        }
        asyncio.run(ComplianceContentTrigger(**row).on_kill())
        service.set_job(uuid, status="COMPLETED")

    attempts.while_deferred = kill
    attempts.run(sensor(uuid, {}, deferrable=True))
    assert attempts.deferrals
    assert service.count("cancel") == 0


@pytest.mark.parametrize("how", [{}, {"soft_fail": True}])
def test_the_execution_timeout_counts_while_deferred(
    service: Emulator, attempts: Attempts, how: dict[str, bool]
) -> None:
    task = sensor(running(service), {"deferrable": True}, execution_timeout=timedelta(seconds=0.2), **how)
    with pytest.raises(AirflowSkipException if how else AirflowTaskTimeout):
        attempts.run(task)


def test_a_wrong_password_ends_the_wait_for_good(
    service: Emulator, attempts: Attempts, mode: dict[str, Any]
) -> None:
    service.fail("login", status=401, body={"error": "invalid_grant"}, times=None)
    with pytest.raises(exc.ComplianceError, match="refused user 'partner'") as caught:
        attempts.run(sensor("u", mode))
    assert isinstance(caught.value, AirflowFailException)
    assert service.count("login") == 1


def test_a_rescheduled_sensor_outlasts_a_passing_fault(service: Emulator) -> None:
    uuid = completed(service)
    task = sensor(uuid, {"mode": "reschedule"})
    for operation in ("get_statuses", "get_status"):
        service.fail(operation, status=500, times=7)  # more than one request and its retries
    assert task.poke({})


@pytest.mark.parametrize("reason", ["Trigger timeout", "Trigger failure"])
def test_a_trigger_that_fails_itself_fails_the_sensor_or_skips_it(reason: str) -> None:
    """As where no triggerer runs, or where it can't import the trigger."""
    context: Any = {}
    with pytest.raises(AirflowException, match=reason) as caught:
        sensor("u", {}).resume_execution("__fail__", {"error": reason}, context)
    assert not isinstance(caught.value, AirflowSkipException)
    for how in ("soft_fail", "never_fail"):
        with pytest.raises(AirflowSkipException):
            sensor("u", {}, **{how: True}).resume_execution("__fail__", {"error": reason}, context)


def test_a_rescheduled_sensor_is_not_taken_for_an_operator_inside_another_one(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow 2.11 tells its own calls of `execute` from others by an argument."""
    module: Any = import_module("airflow.models.baseoperator")
    if not hasattr(module, "_sentinel"):
        pytest.skip("Airflow 3 lets `execute` call that of its base class")
    monkeypatch.setattr(import_module("airflow.sensors.base"), "_orig_start_date", lambda **_: None)
    task: Any = sensor(completed(service), {"mode": "reschedule"}, allow_nested_operators=False)
    (record,) = task.execute({"ti": TaskInstance()}, ComplianceContentSensor__sentinel=module._sentinel)
    assert record["status"] == "COMPLETED"


def test_poke_interval_and_poll_interval_are_the_same() -> None:
    assert ComplianceContentSensor(task_id="t", uuid="u", poll_interval=7).poke_interval == 7
    assert ComplianceContentSensor(task_id="t", uuid="u", poke_interval=8).poke_interval == 8
