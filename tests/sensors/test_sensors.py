"""The sensors: the same meaning here, deferred and rescheduled, for jobs and for assessments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
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
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor
from airflow_provider.sensors.content import ComplianceContentSensor
from airflow_provider.triggers import base as triggers
from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.kinds import NO_LIMITER
from tests.support.attempts import Attempts, TaskInstance, fire
from tests.support.jobs import OTHER_PATHS, completed, in_our_hands, running

CONN = "compliance_default"


def sensor(uuid: Any, mode: dict[str, Any], **kwargs: Any) -> ComplianceContentSensor:
    values: dict[str, Any] = {"poll_interval": 0.05, "timeout": 240, **mode, **kwargs}
    return ComplianceContentSensor(task_id="t", uuid=uuid, **values)


class Jobs:
    """What a sensor waits for."""

    noun = "job"
    paths: dict[str, str] = {}  # noqa: RUF012 - of assessments

    def __init__(self, service: Emulator) -> None:
        self.service = service

    def sensor(self, identifier: Any, mode: dict[str, Any], **kwargs: Any) -> Any:
        return sensor(identifier, mode, **kwargs)

    def add(self) -> str:
        """Add one that is completed."""
        return completed(self.service)

    def change(self, identifier: str, **change: Any) -> None:
        self.service.set_job(identifier, **change)

    def remove(self, identifier: str) -> None:
        self.service.remove_job(identifier)


class Assessments(Jobs):
    noun = "assessment"

    def sensor(self, identifier: Any, mode: dict[str, Any], **kwargs: Any) -> Any:
        values: dict[str, Any] = {"poll_interval": 0.05, "timeout": 240, **mode, **kwargs}
        return ComplianceAssessmentSensor(task_id="t", assessment_id=identifier, **values)

    def add(self) -> str:
        return str(self.service.add_assessment({"text": "audit"})["uuid"])

    def change(self, identifier: str, **change: Any) -> None:
        self.service.set_assessment(identifier, **change)

    def remove(self, identifier: str) -> None:
        self.service.remove_assessment(identifier)


class AssessmentsElsewhere(Assessments):
    paths = OTHER_PATHS


@pytest.fixture(params=[Jobs, Assessments, pytest.param(AssessmentsElsewhere, marks=pytest.mark.once)])
def work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    with Emulator(endpoints=request.param.paths) as emulator:
        yield request.param(in_our_hands(emulator, monkeypatch))


def test_completed_work_is_returned_as_records_in_order(
    work: Jobs, attempts: Attempts, mode: dict[str, Any]
) -> None:
    ids = [work.add() for _ in range(3)]
    given = [ids[0], *ids]
    records = attempts.run(work.sensor(given, mode))
    assert [record.get("uuid") or record["id"] for record in records] == given
    assert {record["status"] for record in records} == {"COMPLETED"}
    assert attempts.run(work.sensor(f"['{ids[0]}']", mode)) == [records[0]]


def test_one_assessment_is_returned_for_one_and_one_job_in_a_list(
    work: Jobs, attempts: Attempts, mode: dict[str, Any]
) -> None:
    identifier = work.add()
    found = attempts.run(work.sensor(identifier, mode))
    if work.noun == "assessment":
        assert found == {"id": identifier, "status": "COMPLETED"}
    else:
        assert [(record["uuid"], record["file_name"]) for record in found] == [(identifier, "document.pdf")]


@pytest.mark.parametrize("nothing", [[], "[]", ()])
def test_nothing_to_wait_for_is_a_success(
    work: Jobs, attempts: Attempts, mode: dict[str, Any], nothing: Any
) -> None:
    assert attempts.run(work.sensor(nothing, mode)) == []


OUTCOMES = {
    "failed": ({"status": "FAILED", "error": "too blurred"}, "failed: too blurred"),
    "cancelled": ({"status": "CANCELLED"}, "was cancelled"),
    "unknown": (None, "not known to the service"),
}
SKIPS = [{}, {"soft_fail": True}, {"never_fail": True}]


@pytest.mark.parametrize("skips", SKIPS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_work_that_did_not_complete_fails_or_skips_the_task_without_retries(
    work: Jobs, attempts: Attempts, mode: dict[str, Any], outcome: str, skips: dict[str, bool]
) -> None:
    change, message = OUTCOMES[outcome]
    good, bad = work.add(), work.add()
    if change:
        work.change(bad, **change)
    else:
        work.remove(bad)
    kind = AirflowSkipException if skips else AirflowFailException
    message = f"1 of 2 {work.noun}s: {work.noun.capitalize()} {bad} .*{message}"
    if outcome == "unknown" and work.noun == "assessment":
        message += ".*'assessment_status'"  # as a guess
    with pytest.raises(kind, match=None if skips else message) as caught:
        attempts.run(work.sensor([good, bad], mode, **skips))
    assert skips or isinstance(caught.value, exc.ComplianceJobError)
    assert work.service.count("cancel") == work.service.count("cancel_assessment") == 0


@pytest.mark.parametrize("skips", SKIPS)
def test_after_the_timeout_the_sensor_times_out_or_skips_and_cancels_nothing(
    work: Jobs, attempts: Attempts, deferrable: bool, skips: dict[str, bool]
) -> None:
    identifier = work.add()
    work.change(identifier, status="RUNNING")
    kind = AirflowSkipException if skips else AirflowSensorTimeout
    with pytest.raises(kind, match=None if skips else "still in progress"):
        attempts.run(work.sensor(identifier, {}, deferrable=deferrable, timeout=0.2, **skips))
    assert work.service.count("cancel") == work.service.count("cancel_assessment") == 0


def test_a_service_that_can_t_be_asked_for_one_of_them_is_outlasted(
    work: Jobs, attempts: Attempts, mode: dict[str, Any]
) -> None:
    for operation in ("get_statuses", "get_status", "get_assessment"):
        work.service.fail(operation, status=500, times=4)
    assert len(attempts.run(work.sensor([work.add(), work.add()], mode))) == 2


def test_marking_a_deferred_sensor_failed_cancels_nothing(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def task_state(_: Any) -> str:
        return "failed"

    monkeypatch.setattr(triggers, "task_state", task_state)
    uuid = running(service)

    def kill(_: int) -> None:
        row = {
            name: value
            for name, value in attempts.deferrals[-1].items()
            if name not in ("path", "airflow_timeout")
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


# -- triggers of assessments, which have no batch request


def test_many_triggers_share_a_login_and_ask_a_few_at_a_time(service: Emulator) -> None:
    service.configure(latency=0.02, jobs="polls:2")
    ids = [ComplianceHook(CONN).submit_assessment({"text": "audit"}).id for _ in range(40)]

    async def scenario() -> list[dict[str, Any]]:
        until = time.time() + 240
        waiting = (fire(ComplianceAssessmentTrigger(CONN, [one], 0.1, until)) for one in ids)
        return list(await asyncio.gather(*waiting))

    endings = asyncio.run(scenario())
    assert [list(ending["assessments"]) for ending in endings] == [[one] for one in ids]
    assert {ending["status"] for ending in endings} == {"success"}
    counters = service.counters()
    assert counters["logins"] == 1
    assert 1 < counters["max_in_flight"] <= NO_LIMITER.polls
    assert service.count("get_assessment") == 3 * len(ids)
