"""What the error of a wait says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceError, ComplianceJobError, ComplianceJobTimeoutError
from airflow_provider.waiting.results import WaitResult, error_for


def failed(reason: str | None = "It is damaged.") -> dict[str, Any]:
    return {"status": "FAILED", "error": reason}


GUESS = "cancelled, expired, or submitted before its connection got another host or account"


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (failed(), "failed: It is damaged."),
        ({**failed(), "file_name": "contract.pdf"}, "(contract.pdf) failed: It is damaged."),
        ({**failed(), "source_url": "https://a.example/x"}, "(https://a.example/x) failed: It is damaged."),
        (failed(None), "failed: the service gave no reason."),
        ({"status": "CANCELLED"}, "was cancelled."),
        (
            {"status": "UNKNOWN"},
            f"is not known to the service: {GUESS}.",
        ),
        ({"status": "UNKNOWN", "error": "It has expired."}, "is not known to the service. It has expired."),
        ({"status": "RUNNING"}, "is still in progress."),
        ({}, "is still in progress."),
    ],
)
def test_the_state_of_a_job_is_told_in_words(record: dict[str, Any], shown: str) -> None:
    error = error_for(WaitResult("success", {"a": record}), ["a"])
    assert type(error) is ComplianceJobError
    assert str(error) == f"Job a {shown}"
    assert error.failure_kind == ("failed" if "failed" in shown else "gone")


def test_completed_jobs_are_no_error() -> None:
    record = {"status": "COMPLETED"}
    assert error_for(WaitResult("success", {"a": record, "b": record}), ["a", "b"]) is None


def test_an_assessment_is_called_one() -> None:
    error = error_for(WaitResult("success", {"a": {"status": "CANCELLED"}}), ["a", "b"], "assessment")
    assert str(error) == "2 of 2 assessments: Assessment a was cancelled; Assessment b is still in progress."


@pytest.mark.parametrize(("count", "rest"), [(5, ""), (6, "; and 1 more"), (8, "; and 3 more")])
def test_of_many_failed_jobs_the_first_five_are_shown(count: int, rest: str) -> None:
    records = {str(number): failed("Bad.") for number in range(count)} | {"good": {"status": "COMPLETED"}}
    shown = "; ".join(f"Job {number} failed: Bad." for number in range(5)) + rest
    expected = f"{count} of {count + 1} jobs: {shown}".removesuffix(".") + "."
    assert str(error_for(WaitResult("success", records), list(records))) == expected


@pytest.mark.parametrize(
    ("message", "last"), [("", ""), ("503 of the service", " The last poll failed: 503 of the service")]
)
def test_a_timeout_says_how_long_it_took_and_what_the_last_poll_met(message: str, last: str) -> None:
    result = WaitResult("timeout", {}, 12.4, message, pending=["a"])
    error = error_for(result, ["a"])
    assert type(error) is ComplianceJobTimeoutError
    assert str(error) == f"Timed out after 12 s. Job a is still in progress.{last}"


@pytest.mark.parametrize("transient", [False, True])
def test_only_a_transient_error_of_polling_lets_airflow_retry(transient: bool) -> None:
    error = error_for(WaitResult("error", message="No role.", transient=transient), ["a"])
    assert type(error) is (ComplianceJobError if transient else ComplianceError)
    assert str(error) == "No role."


@pytest.mark.parametrize(
    ("status", "is_final"),
    [("COMPLETED", True), ("FAILED", True), ("CANCELLED", True), ("UNKNOWN", True), ("RUNNING", False)],
)
def test_a_result_is_final_when_all_its_records_are(status: str, is_final: bool) -> None:
    records = {"a": {"status": "COMPLETED"}, "b": {"status": status}}
    assert WaitResult("success", records).is_final is is_final


@pytest.mark.parametrize("key", ["jobs", "assessments"])
@pytest.mark.parametrize("status", ["success", "timeout", "error"])
def test_an_event_is_read_as_it_was_sent(key: str, status: Any) -> None:
    result = WaitResult(status, {"a": failed()}, 3.5, "why", True, ["b"])
    event = json.loads(json.dumps(result.event(key)))
    assert event == {
        "status": status,
        key: {"a": failed()},
        "seconds": 3.5,
        "message": "why",
        "transient": True,
        "pending": ["b"],
    }
    assert WaitResult.from_event(event) == result


@pytest.mark.parametrize("event", [None, "success", {}, {"status": "finished"}, {"status": "x" * 500}])
def test_an_unknown_event_is_an_error_that_shows_it_in_short(event: Any) -> None:
    result = WaitResult.from_event(event)
    assert (result.status, result.records, result.transient) == ("error", {}, False)
    assert result.message == f"The trigger sent an unknown event: {str(event)[:200]}"
