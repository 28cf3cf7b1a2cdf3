"""A service that speaks of assessments in other words is a subclass of the hook, not a fork."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.hooks.compliance import ComplianceHook, check_hook_class
from airflow_provider.operators.assessment import ComplianceSubmitAssessmentOperator
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor
from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger
from tests.support.attempts import Attempts, fire
from tests.support.service import Reply, Service
from tests.support.values import PASSWORD


class OurHook(ComplianceHook):
    """For a service that numbers its tickets and has words of its own for states."""

    def translate_assessment(self, record: dict[str, Any]) -> dict[str, Any]:
        states = {"working": "RUNNING", "ok": "COMPLETED", "bad": "FAILED"}
        return {"id": record["ticket"]["no"], "status": states[record["state"]], "error": record.get("why")}


class OurSubmit(ComplianceSubmitAssessmentOperator):
    hook_class = OurHook


class OurSensor(ComplianceAssessmentSensor):
    hook_class = OurHook


def said(state: str, **more: Any) -> Reply:
    return Reply(json={"ticket": {"no": 42}, "state": state, **more})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with Service().running() as running:
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection(running)))
        yield running


def connection(service: Service) -> dict[str, Any]:
    extra = {"token_url": f"{service.url}/token", "client_id": "c", "client_secret": "s", "max_retries": 0}
    return {
        "conn_type": "compliance",
        "host": service.url,
        "login": "u",
        "password": PASSWORD,
        "extra": extra,
    }


# A submit may be accepted with a Location alone, and a gateway may answer a poll with nothing.
@pytest.mark.parametrize("nothing", [False, True], ids=["records", "empty records"])
def test_id_and_states_in_other_words(
    service: Service, attempts: Attempts, deferrable: bool, nothing: bool
) -> None:
    location = {"Location": f"{service.url}/api/v1/assessments/42"}
    accepted, polled = (Reply(202, headers=location), Reply(json={})) if nothing else [said("working")] * 2
    service.on("POST /api/v1/assessments", accepted)
    service.on("GET /api/v1/assessments/42/status", polled, said("ok"))
    waiting = {"wait_for_completion": True, "poll_interval": 0.05, "timeout": 240}
    assert attempts.run(OurSubmit(task_id="t", payload={}, deferrable=deferrable, **waiting)) == "42"


def test_a_reason_in_other_words(service: Service, attempts: Attempts, deferrable: bool) -> None:
    service.on("GET /api/v1/assessments/42/status", said("bad", why="no such framework"))
    task = OurSensor(task_id="t", assessment_id=42, poll_interval=0.05, deferrable=deferrable, timeout=240)
    with pytest.raises(exc.ComplianceJobError, match="Assessment 42 failed: no such framework"):
        attempts.run(task)


def test_one_connection_may_be_read_in_two_ways(service: Service) -> None:
    service.on("GET /api/v1/assessments/42/status", said("ok"))
    service.on("GET /api/v1/assessments/43/status", Reply(json={"id": 43, "status": "FAILED"}))

    async def scenario() -> list[dict[str, Any]]:
        until = time.time() + 30
        ours = ComplianceAssessmentTrigger(
            "compliance_default", ["42"], 0.1, until, hook_class=check_hook_class(OurHook)
        )
        usual = ComplianceAssessmentTrigger("compliance_default", ["43"], 0.1, until)
        return list(await asyncio.gather(fire(ours), fire(usual)))

    ours, usual = asyncio.run(scenario())
    assert (ours["assessments"]["42"]["status"], usual["assessments"]["43"]["status"]) == (
        "COMPLETED",
        "FAILED",
    )


def test_a_hook_that_the_triggerer_can_t_import_is_said_so() -> None:
    for path in ("no_such_module.Hook", "airflow_provider.hooks.compliance.NoSuchHook", "Hook"):
        trigger = ComplianceAssessmentTrigger("c", ["42"], 1.0, time.time() + 60, hook_class=path)
        ending = asyncio.run(fire(trigger))
        assert (ending["status"], ending["transient"]) == ("error", False)
        assert f"can't import the hook class '{path}'" in ending["message"]
        assert "not into a DAG file" in ending["message"]
