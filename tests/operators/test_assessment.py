"""Assessments: each outcome, waiting here and deferred, on the default paths and on other ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.operators import assessment as assessment_module
from airflow_provider.operators.assessment import (
    ComplianceGetAssessmentResultsOperator,
    ComplianceSubmitAssessmentOperator,
)
from tests.support.attempts import Attempts, heard
from tests.support.jobs import ASSESSMENT_PATHS, in_our_hands

PAYLOAD = {"text": "Auditors may carry out an audit.", "frameworkId": 1}


@pytest.fixture(params=ASSESSMENT_PATHS)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with Emulator(endpoints=request.param) as emulator:
        yield in_our_hands(emulator, monkeypatch)


def submit(deferrable: bool = False, **kwargs: Any) -> ComplianceSubmitAssessmentOperator:
    values: dict[str, Any] = {
        "wait_for_completion": True,
        "poll_interval": 0.05,
        "timeout": 240,
        "payload": PAYLOAD,
    }
    return ComplianceSubmitAssessmentOperator(task_id="t", deferrable=deferrable, **{**values, **kwargs})


def get_results(assessment_id: Any, **kwargs: Any) -> ComplianceGetAssessmentResultsOperator:
    return ComplianceGetAssessmentResultsOperator(task_id="t", assessment_id=assessment_id, **kwargs)


def only(service: Emulator) -> dict[str, Any]:
    (assessment,) = service.assessments()
    return assessment


def judgements(results: Any) -> list[tuple[int, str, str]]:
    """What is said of each criterion; the emulator adds fields that no document mentions."""
    return [
        (found["assessmentResponseId"], found["category"], found["rationale"]) for found in results["results"]
    ]


def test_the_payload_goes_through_unchanged(service: Emulator, attempts: Attempts) -> None:
    payload = {"b": [1, {"ü": None}], "a": 2**60, "file": "template.json", "n": 1.5, "": True, "t": "{ x }"}
    attempts.run(submit(payload=payload, wait_for_completion=False))
    assert only(service)["payload"] == payload


@pytest.mark.parametrize("payload", ["{'a': b}", {"a": object()}, {"a": float("nan")}, {"a": {1, 2}}, "x"])
def test_a_payload_that_is_not_json_is_refused_before_it_is_sent(
    service: Emulator, attempts: Attempts, payload: Any
) -> None:
    with pytest.raises(exc.ComplianceInputError, match="not JSON") as caught:
        attempts.run(submit(payload=payload))
    assert isinstance(caught.value, AirflowFailException)
    assert service.count("submit_assessment") == 0


def test_a_completed_assessment_is_a_success(service: Emulator, attempts: Attempts, deferrable: bool) -> None:
    service.configure(jobs="polls:1")
    assessment_id = attempts.run(submit(deferrable))
    assert only(service)["status"] == "COMPLETED"
    assert len(attempts.deferrals) == deferrable
    assert judgements(attempts.run(get_results(assessment_id))) == judgements(only(service))


def test_another_payload_is_another_assessment(service: Emulator, attempts: Attempts) -> None:
    first = attempts.run(submit(wait_for_completion=False))
    in_another_order = dict(reversed(PAYLOAD.items()))
    assert attempts.run(submit(wait_for_completion=False, payload=in_another_order)) == first
    assert attempts.run(submit(wait_for_completion=False, payload={**PAYLOAD, "text": "y"})) != first


def test_neither_log_nor_state_nor_trigger_hold_the_payload(
    service: Emulator, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(exc.ComplianceJobTimeoutError):
        attempts.run(heard(submit(deferrable=True, timeout=0.1)))
    (row,) = attempts.deferrals
    given = {name for name, value in row.items() if value not in (None, "")}
    assert given | {"is_durable"} == {
        "path", "airflow_timeout", "timeout", "began_at", "conn_id", "assessment_ids", "poll_interval",
        "deadline", "cancel_on_kill", "account", "is_durable",
    }  # fmt: skip
    assert "Submitted payload" in caplog.text
    assert "Auditors" not in f"{caplog.text} {row} {attempts.store}"


def test_results_before_the_end_are_retried_with_the_service_s_words(
    service: Emulator, attempts: Attempts
) -> None:
    assessment_id = attempts.run(submit(wait_for_completion=False))
    with pytest.raises(exc.ComplianceRefusedError, match="has no results: it is PENDING") as caught:
        attempts.run(get_results(assessment_id))
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "FAILED", "CANCELLED"])
def test_a_404_for_results_is_final_only_if_the_assessment_has_ended(
    service: Emulator, attempts: Attempts, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assessment_module, "status_in_worker", lambda *_: status)
    with pytest.raises(exc.ComplianceNotFoundError) as caught:
        attempts.run(get_results("7"))
    assert caught.value.transient == (status in ("PENDING", "RUNNING"))
    assert isinstance(caught.value, AirflowFailException) != caught.value.transient
    assert service.count("get_assessment_results") == 1


def test_results_go_to_a_file_named_after_the_assessment(
    service: Emulator, attempts: Attempts, tmp_path: Path
) -> None:
    assessment = service.add_assessment(PAYLOAD)
    folder = f"file://{tmp_path}/results/"
    uri = attempts.run(get_results(assessment["uuid"], destination=folder))
    assert uri == f"{folder}{assessment['uuid']}.json"
    written = json.loads((tmp_path / "results" / f"{assessment['uuid']}.json").read_text())
    assert judgements(written) == judgements(assessment)
    other = f"{tmp_path}/mine.json"
    assert attempts.run(get_results(assessment["uuid"], destination=other)) == other
    assert judgements(json.loads(Path(other).read_text())) == judgements(assessment)


def test_results_with_half_of_a_surrogate_pair_come_back_from_their_file(
    service: Emulator, attempts: Attempts, tmp_path: Path
) -> None:
    assessment = service.add_assessment(PAYLOAD)
    service.fail("get_assessment_results", body='{"rationale": "\\ud800 §"}', content_type="application/json")
    uri = attempts.run(get_results(assessment["uuid"], destination=f"{tmp_path}/mine.json"))
    assert json.loads(Path(uri).read_text()) == {"rationale": "\ud800 §"}


def test_numbers_that_json_does_not_have_are_null(service: Emulator, attempts: Attempts) -> None:
    assessment = service.add_assessment(PAYLOAD)
    body = '{"score": 1e400, "other": NaN, "fine": 0.5}'
    service.fail("get_assessment_results", body=body, content_type="application/json")
    found = attempts.run(get_results(assessment["uuid"]))
    assert found == {"score": None, "other": None, "fine": 0.5}


def test_results_too_large_for_an_xcom_ask_for_a_destination(
    service: Emulator, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assessment_module, "XCOM_LIMIT_BYTES", 100)
    assessment = service.add_assessment(PAYLOAD)
    with pytest.raises(exc.ComplianceInputError, match="set a destination in object storage") as caught:
        attempts.run(get_results(assessment["uuid"]))
    assert isinstance(caught.value, AirflowFailException)
