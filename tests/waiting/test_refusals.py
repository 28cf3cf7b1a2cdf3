"""When a refusal counts: the one rule, and calls that are repeated until then."""

from __future__ import annotations

import asyncio
import io
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.operators import assessment, content, framework
from airflow_provider.operators.assessment import ComplianceCancelAssessmentOperator
from airflow_provider.operators.content import ComplianceCancelContentOperator
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from airflow_provider.waiting import refusals, rules
from airflow_provider.waiting.refusals import outlast_refusals, outlast_refusals_sync
from airflow_provider.waiting.rules import OUTAGE_SECONDS, REFUSAL_SECONDS, Refusals, is_refusal
from tests.support.attempts import Attempts
from tests.support.virtual_time import run, seconds

LOG = logging.getLogger(__name__)
FORBIDDEN = exc.ComplianceRefusedError("403", status=403)
FRESH_TOKEN = exc.ComplianceAuthError("401")
FRESH_TOKEN.has_fresh_token = True


def client(has_worked: bool = False) -> Any:
    return SimpleNamespace(has_worked=has_worked)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exc.ComplianceNotFoundError("404", status=404), True),
        (FORBIDDEN, True),
        (exc.ComplianceRefusedError("409", status=409), True),
        (exc.ComplianceAuthError("401"), True),
        (exc.ComplianceConfigError("no host"), True),
        (exc.ComplianceTlsError("expired"), True),
        (exc.ComplianceRefusedError("400", status=400), False),
        (exc.ComplianceRefusedError("413", status=413), False),
        (exc.ComplianceRefusedError("415", status=415), False),
        (exc.ComplianceRefusedError("422", status=422), False),
        (exc.ComplianceServerError("500", status=500), False),
        (exc.ComplianceThrottledError("429", status=429), False),
        (exc.ComplianceConnectionError("reset"), False),
        (exc.ComplianceUncertainError("perhaps"), False),
        (exc.ComplianceInputError("empty"), False),
    ],
)
def test_an_error_that_a_gateway_may_send_is_a_refusal(error: exc.ComplianceError, expected: bool) -> None:
    assert is_refusal(error) is expected


@pytest.mark.parametrize(
    ("error", "has_worked", "seconds", "expected"),
    [
        (FORBIDDEN, True, None, OUTAGE_SECONDS),
        (FORBIDDEN, False, None, REFUSAL_SECONDS),
        (FORBIDDEN, False, 60.0, 60.0),
        (exc.ComplianceAuthError("401"), True, None, OUTAGE_SECONDS),
        (exc.ComplianceAuthError("401"), False, None, 0.0),
        (FRESH_TOKEN, False, None, REFUSAL_SECONDS),  # as a 403 is: the login has just worked
        (exc.ComplianceConfigError("no host"), False, 60.0, 0.0),
    ],
)
def test_how_long_a_refusal_is_outlasted(
    error: exc.ComplianceError, has_worked: bool, seconds: float | None, expected: float
) -> None:
    observed = Refusals()
    if not expected:
        assert observed.observe(error, 100.0, has_worked, seconds) is error
        return
    assert observed.observe(error, 100.0, has_worked, seconds) is None
    assert observed.observe(error, 99.9 + expected, has_worked, seconds) is None
    counted = observed.observe(error, 100.0 + expected, has_worked, seconds)
    assert type(counted) is type(error)
    assert (counted.transient, error.transient) == (True, False)


def refuse(error: exc.ComplianceError, until: float, now: Callable[[], float]) -> Callable[[], str]:
    def call() -> str:
        if now() < until:
            raise error
        return "done"

    return call


@pytest.mark.parametrize(("has_worked", "until"), [(False, 29.0), (True, 899.0)])
def test_a_call_outlasts_a_blip(has_worked: bool, until: float, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> str:
        call = refuse(FORBIDDEN, until, seconds)
        return await outlast_refusals(lambda: asyncio.sleep(0, call()), client(has_worked), LOG)

    assert run(story()) == "done"
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda pause: clock.append(clock.pop() + pause))
    assert outlast_refusals_sync(refuse(FORBIDDEN, until, lambda: clock[0]), client(has_worked)) == "done"


@pytest.mark.parametrize(
    ("error", "has_worked", "after"),
    [
        (FORBIDDEN, False, REFUSAL_SECONDS),
        (FORBIDDEN, True, OUTAGE_SECONDS),
        (exc.ComplianceAuthError("401"), False, 0.0),
        (exc.ComplianceServerError("500", status=500), True, 0.0),
        (exc.ComplianceRefusedError("422", status=422), True, 0.0),
    ],
)
def test_a_call_ends_with_an_error_that_counts(
    error: exc.ComplianceError, has_worked: bool, after: float
) -> None:
    async def story() -> float:
        def fail() -> Any:
            raise error

        with pytest.raises(type(error)):
            await outlast_refusals(fail, client(has_worked))
        return seconds()

    assert after <= run(story()) <= after + refusals.MAX_PAUSE_SECONDS


def cancel_job(identifier: str, **kwargs: Any) -> Any:
    return ComplianceCancelContentOperator(task_id="t", uuid=identifier, **kwargs)


def cancel_assessment(identifier: str, **kwargs: Any) -> Any:
    return ComplianceCancelAssessmentOperator(task_id="t", assessment_id=identifier, **kwargs)


def add_job(service: Emulator) -> str:
    return service.add_job(text="a")


def add_assessment(service: Emulator) -> str:
    return str(service.add_assessment({"a": 1})["uuid"])


KINDS = [(cancel_job, add_job, "cancel"), (cancel_assessment, add_assessment, "cancel_assessment")]


@pytest.mark.parametrize("failing", [["cancel*"], ["cancel*", "get_*", "list_*"]], ids=["delete", "all"])
@pytest.mark.parametrize(("cancel", "add", "operation"), KINDS)
def test_a_404_while_the_job_is_there_does_not_count_as_cancelled(
    service: Emulator,
    attempts: Attempts,
    monkeypatch: pytest.MonkeyPatch,
    cancel: Any,
    add: Any,
    operation: str,
    failing: list[str],
) -> None:
    """Also where a gateway answers 404 for everything."""
    for name in ("OUTAGE_SECONDS", "REFUSAL_SECONDS"):
        monkeypatch.setattr(rules, name, 0.1)
    identifier = add(service)
    for operations in failing:
        service.fail(operations, status=404, times=None)
    with pytest.raises(exc.ComplianceNotFoundError) as caught:
        attempts.run(cancel(identifier))
    assert caught.value.transient  # a retry may reach the service


@pytest.mark.parametrize(("cancel", "add", "operation"), KINDS)
def test_a_gateway_that_answers_404_for_a_moment_is_outlasted(
    service: Emulator, attempts: Attempts, cancel: Any, add: Any, operation: str
) -> None:
    identifier = add(service)
    service.fail(operation, status=404, times=2)
    attempts.run(cancel(identifier))
    assert service.count(operation, 200) == 1


URL = "http://127.0.0.1:9/page"
CALLS: dict[str, Callable[[Emulator, Path], Any]] = {
    "submit_url": lambda *_: content.ComplianceSubmitUrlOperator(task_id="t", url=URL),
    "submit_file": lambda *_: content.ComplianceSubmitFileOperator(
        task_id="t", file=io.BytesIO(b"%PDF-1.4 x"), file_name="a.pdf"
    ),
    "refresh": lambda service, _: content.ComplianceRefreshContentOperator(
        task_id="t", uuid=add_job(service)
    ),
    "submit_assessment": lambda *_: assessment.ComplianceSubmitAssessmentOperator(task_id="t", payload={}),
    "get_assessment_results": lambda service, _: assessment.ComplianceGetAssessmentResultsOperator(
        task_id="t", assessment_id=add_assessment(service)
    ),
    "get_content": lambda service, folder: ComplianceContentToObjectStorageOperator(
        task_id="t", uuid=service.add_job(text="a", status="COMPLETED"), destination=f"{folder}/"
    ),
    "list_frameworks": lambda *_: framework.ComplianceListFrameworksOperator(task_id="t"),
    "list_criteria": lambda *_: framework.ComplianceListCriteriaOperator(task_id="t", framework_id=1),
}


@pytest.mark.parametrize("status", [403, 404, 405])
@pytest.mark.parametrize("operation", CALLS)
def test_every_operator_outlasts_a_gateway_that_refuses_a_call(
    service: Emulator, attempts: Attempts, tmp_path: Path, operation: str, status: int
) -> None:
    task = CALLS[operation](service, tmp_path)
    service.fail(operation, status=status, times=2)
    assert attempts.run(task)
    assert (service.count(operation, status), service.count(operation)) == (2, 3)


@pytest.mark.parametrize("operation", CALLS)
def test_a_refusal_that_lasts_fails_the_task_with_a_retry(
    service: Emulator,
    attempts: Attempts,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    operation: str,
) -> None:
    for name in ("OUTAGE_SECONDS", "REFUSAL_SECONDS"):
        monkeypatch.setattr(rules, name, 0.0)
    task = CALLS[operation](service, tmp_path)
    service.fail(operation, status=403, times=None)
    with pytest.raises(exc.ComplianceRefusedError, match="No request has succeeded") as caught:
        attempts.run(task)
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize(
    ("operation", "task"),
    [
        ("refresh", content.ComplianceRefreshContentOperator(task_id="t", uuid="gone")),
        (
            "get_assessment_results",
            assessment.ComplianceGetAssessmentResultsOperator(task_id="t", assessment_id="gone"),
        ),
        ("list_criteria", framework.ComplianceListCriteriaOperator(task_id="t", framework_id="gone")),
    ],
)
def test_a_404_counts_at_once_if_the_service_says_the_same_by_another_call(
    service: Emulator, attempts: Attempts, operation: str, task: Any
) -> None:
    with pytest.raises(exc.ComplianceNotFoundError) as caught:
        attempts.run(task)
    assert isinstance(caught.value, AirflowFailException)
    assert service.count(operation) == 1


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_an_answer_about_the_request_itself_counts_at_once(
    service: Emulator, attempts: Attempts, tmp_path: Path, status: int
) -> None:
    service.fail("submit_url", status=status, times=None)
    with pytest.raises(exc.ComplianceRefusedError) as caught:
        attempts.run(CALLS["submit_url"](service, tmp_path))
    assert isinstance(caught.value, AirflowFailException)
    assert service.count("submit_url") == 1
