"""The sensor and the trigger for assessments: the same meaning here, deferred and rescheduled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
)

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor
from airflow_provider.triggers import base
from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.kinds import NO_LIMITER
from tests.support.attempts import Attempts, fire, until
from tests.support.jobs import ASSESSMENT_PATHS, in_our_hands

CONN = "compliance_default"


@pytest.fixture(params=ASSESSMENT_PATHS)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with Emulator(endpoints=request.param) as emulator:
        yield in_our_hands(emulator, monkeypatch)


def sensor(assessment_id: Any, mode: dict[str, Any], **kwargs: Any) -> ComplianceAssessmentSensor:
    values: dict[str, Any] = {"poll_interval": 0.05, "timeout": 240, **mode, **kwargs}
    return ComplianceAssessmentSensor(task_id="t", assessment_id=assessment_id, **values)


def trigger(*ids: str, seconds: float = 240.0, **kwargs: Any) -> ComplianceAssessmentTrigger:
    values: dict[str, Any] = {"poll_interval": 0.1, **kwargs}
    return ComplianceAssessmentTrigger(CONN, list(ids), deadline=time.time() + seconds, **values)


def done(service: Emulator) -> str:
    return str(service.add_assessment({"text": "audit"})["uuid"])


def running() -> str:
    return ComplianceHook(CONN).submit_assessment({"text": "audit"}).id


def test_one_assessment_is_returned_for_one_and_a_list_for_a_list(
    service: Emulator, attempts: Attempts, mode: dict[str, Any]
) -> None:
    first, second = done(service), done(service)
    assert attempts.run(sensor(first, mode)) == {"id": first, "status": "COMPLETED"}
    records = attempts.run(sensor([second, first, second], mode))
    assert [record["id"] for record in records] == [second, first, second]
    assert attempts.run(sensor(f"['{first}']", mode)) == [{"id": first, "status": "COMPLETED"}]
    assert attempts.run(sensor([], mode)) == []


def test_a_failed_assessment_fails_the_task_without_retries(
    service: Emulator, attempts: Attempts, mode: dict[str, Any]
) -> None:
    bad = str(service.add_assessment({"frameworkId": 77})["uuid"])
    with pytest.raises(exc.ComplianceJobError, match=f"Assessment {bad} failed: Unknown framework") as caught:
        attempts.run(sensor(bad, mode))
    assert isinstance(caught.value, AirflowFailException)
    with pytest.raises(AirflowSkipException):
        attempts.run(sensor(bad, mode, soft_fail=True))
    with pytest.raises(exc.ComplianceJobError, match="1 of 2 assessments: Assessment"):
        attempts.run(sensor([bad, done(service)], mode))
    assert service.count("cancel_assessment") == 0


def test_an_unknown_assessment_names_the_path_as_a_guess(
    service: Emulator, attempts: Attempts, mode: dict[str, Any]
) -> None:
    with pytest.raises(exc.ComplianceJobError, match=r"not known to the service\..*'assessment_status'"):
        attempts.run(sensor("4711", mode))


def test_a_service_that_can_t_be_asked_for_one_of_them_is_outlasted(
    service: Emulator, attempts: Attempts, mode: dict[str, Any]
) -> None:
    service.fail("get_assessment", status=500, times=4)
    assert len(attempts.run(sensor([done(service), done(service)], mode))) == 2


def test_many_triggers_share_a_login_and_ask_a_few_at_a_time(service: Emulator) -> None:
    service.configure(latency=0.02, jobs="polls:2")
    ids = [running() for _ in range(40)]

    async def scenario() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(fire(trigger(each)) for each in ids)))

    endings = asyncio.run(scenario())
    assert [list(each["assessments"]) for each in endings] == [[each] for each in ids]
    assert {each["status"] for each in endings} == {"success"}
    counters = service.counters()
    assert counters["logins"] == 1
    assert 1 < counters["max_in_flight"] <= NO_LIMITER.polls
    assert service.count("get_assessment") == 3 * len(ids)


def test_jobs_and_assessments_are_waited_for_side_by_side(service: Emulator) -> None:
    job, assessment = service.add_job(text="x", status="RUNNING"), running()

    async def scenario() -> list[dict[str, Any]]:
        jobs = ComplianceContentTrigger(CONN, [job], 0.1, time.time() + 30)
        waiting = [asyncio.create_task(fire(jobs)), asyncio.create_task(fire(trigger(assessment)))]
        await until(lambda: service.count("get_statuses") and service.count("get_assessment"))
        service.set_job(job, status="COMPLETED")
        service.finish_jobs()
        return list(await asyncio.gather(*waiting))

    of_job, of_assessment = asyncio.run(scenario())
    assert of_job["jobs"][job]["status"] == "COMPLETED"
    assert of_assessment["assessments"][assessment]["status"] == "COMPLETED"
    assert service.counters()["logins"] == 1


def test_on_kill_cancels_the_assessments_where_asked_to(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def task_state(_: Any) -> str:
        return "failed"

    monkeypatch.setattr(base, "task_state", task_state)
    first, second, third = running(), running(), done(service)
    asyncio.run(trigger(first).on_kill())
    assert service.count("cancel_assessment") == 0
    asyncio.run(trigger(first, "gone", second, third, cancel_on_kill=True).on_kill())
    assert service.count("cancel_assessment", 200) == service.count("cancel_assessment") == 2


def test_a_trigger_is_rebuilt_from_its_row() -> None:
    one = trigger("a", "b", cancel_on_kill=True, hook_class="a.b")
    path, kwargs = one.serialize()
    assert path == "airflow_provider.triggers.assessment.ComplianceAssessmentTrigger"
    assert ComplianceAssessmentTrigger(**kwargs).serialize() == one.serialize()
