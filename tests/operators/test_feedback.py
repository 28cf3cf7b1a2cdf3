"""The operator that sends one feedback."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.feedback import ComplianceSubmitFeedbackOperator
from tests.support.attempts import Attempts, Interrupted
from tests.support.state_stores import STATE_STORES, make_attempts


def submit(**kwargs: Any) -> ComplianceSubmitFeedbackOperator:
    values: dict[str, Any] = {"expert_id": "e-1", "rational_feedback": "Clause 2 says so."}
    return ComplianceSubmitFeedbackOperator(task_id="t", **{**values, **kwargs})


def response_id(service: Emulator) -> int:
    made = service.add_assessment({"text": "personal data", "frameworkId": 2})
    number: int = made["results"][0]["assessmentResponseId"]
    return number


def sent(service: Emulator) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in each.items() if name not in ("subject", "receivedAt")}
        for each in service.feedback()
    ]


def test_feedback_arrives_as_it_was_given(service: Emulator, attempts: Attempts) -> None:
    number = response_id(service)
    task = submit(assessment_response_id=number, category_feedback="MISSING")
    assert attempts.run(task) is None
    assert sent(service) == [
        {
            "expertId": "e-1",
            "rationalFeedback": "Clause 2 says so.",
            "assessmentResponseId": number,
            "categoryFeedback": "MISSING",
        }
    ]


@pytest.mark.parametrize("nothing", [None, "", "None", " "])
def test_a_parameter_that_rendered_to_nothing_is_not_sent(
    service: Emulator, attempts: Attempts, nothing: str | None
) -> None:
    attempts.run(submit(assessment_response_id=nothing, category_feedback=nothing))
    assert sent(service) == [{"expertId": "e-1", "rationalFeedback": "Clause 2 says so."}]


def test_an_id_that_went_through_a_template_is_a_number_again(service: Emulator, attempts: Attempts) -> None:
    number = response_id(service)
    attempts.run(submit(assessment_response_id=f" {number}\n"))
    assert sent(service)[0]["assessmentResponseId"] == number


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"expert_id": " "}, "expert_id"),
        ({"expert_id": "None"}, "expert_id"),
        ({"expert_id": "e\nERROR forged"}, "'e ERROR forged' is not a valid expert_id"),
        ({"rational_feedback": ""}, "rational_feedback"),
        ({"category_feedback": "GOOD"}, "category_feedback must be one of"),
        ({"assessment_response_id": "4_2"}, "'4_2' is not the ID"),
        ({"assessment_response_id": 2**63}, "is not the ID"),
        ({"assessment_response_id": 1.0}, "is not the ID"),
        ({"assessment_response_id": True}, "is not the ID"),
    ],
)
def test_an_invalid_parameter_ends_the_task_before_anything_is_sent(
    service: Emulator, attempts: Attempts, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(exc.ComplianceInputError, match=message) as caught:
        attempts.run(submit(**wrong))
    assert isinstance(caught.value, AirflowFailException)
    assert service.count("submit_feedback") == 0


def test_feedback_that_may_have_gone_through_is_not_retried(service: Emulator, attempts: Attempts) -> None:
    service.fail("submit_feedback", reset="after")
    with pytest.raises(exc.ComplianceUncertainError) as caught:
        attempts.run(submit())
    assert isinstance(caught.value, AirflowFailException)
    assert len(sent(service)) == 1


def test_feedback_that_surely_did_not_go_through_is_retried(service: Emulator, attempts: Attempts) -> None:
    service.fail("submit_feedback", status=429, retry_after=0, times=6)
    with pytest.raises(exc.ComplianceThrottledError) as caught:
        attempts.run(submit())
    assert not isinstance(caught.value, AirflowFailException)


def test_it_maps_and_each_bears_the_name_of_its_response(service: Emulator) -> None:
    with DAG("d", schedule=None):
        mapped = ComplianceSubmitFeedbackOperator.partial(task_id="t", expert_id="e").expand_kwargs(
            [{"rational_feedback": "r", "assessment_response_id": 1}]
        )
    assert type(mapped).__name__ == "MappedOperator"
    assert submit(assessment_response_id=1).title == "#1"
    assert submit(assessment_response_id=None).title == submit().expert_id


@pytest.mark.parametrize("memory", STATE_STORES)
def test_a_retry_after_an_attempt_that_died_while_it_sent_sends_nothing(
    service: Emulator, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = make_attempts(memory, tmp_path, monkeypatch)
    send = ComplianceHook.submit_feedback

    def send_and_die(self: ComplianceHook, *feedback: Any) -> None:
        send(self, *feedback)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(ComplianceHook, "submit_feedback", send_and_die)
        with pytest.raises(SystemExit):
            attempts.run(submit())
    with pytest.raises(exc.ComplianceUncertainError, match="A previous attempt ended while it sent") as error:
        attempts.run(submit())
    assert isinstance(error.value, AirflowFailException)
    assert len(sent(service)) == 1
    attempts.clear()
    attempts.run(submit())
    assert len(sent(service)) == 2


@pytest.mark.parametrize("memory", STATE_STORES)
def test_a_retry_of_what_was_sent_succeeds_and_sends_nothing(
    service: Emulator, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = make_attempts(memory, tmp_path, monkeypatch)
    attempts.run(submit())
    attempts.run(submit())  # the worker died before Airflow knew
    assert len(sent(service)) == 1
    attempts.run(submit(rational_feedback="Another one."))
    assert len(sent(service)) == 2
    attempts.clear()
    attempts.run(submit(rational_feedback="Another one."))
    assert len(sent(service)) == 3  # clear means run again


def test_a_run_that_was_created_again_sends_again(service: Emulator, attempts: Attempts) -> None:
    for start in (1, 1, 2):
        attempts.run(submit(), dag_run=SimpleNamespace(start_date=datetime(2026, 1, start, tzinfo=UTC)))
    assert len(sent(service)) == 2


def test_a_renamed_connection_sends_nothing_twice(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts.run(submit())
    monkeypatch.setenv("AIRFLOW_CONN_RENAMED", os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"])
    attempts.run(submit(conn_id="renamed"))
    assert len(sent(service)) == 1


@pytest.mark.parametrize("operation", range(1, 9))
def test_a_retry_at_any_moment_sends_nothing_twice(
    service: Emulator, attempts: Attempts, operation: int
) -> None:
    succeeded = []

    def run() -> None:
        try:
            attempts.run(submit())
        except (exc.ComplianceSupersededError, exc.ComplianceUncertainError):
            return
        succeeded.append(attempts.try_number)

    attempts.store = Interrupted(operation, run)
    run()
    assert len(sent(service)) == 1 or (not sent(service) and not succeeded)
    assert attempts.try_number == (2 if operation < 8 else 1)  # all moments are covered
