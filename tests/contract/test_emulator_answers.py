"""The emulator's answers against the samples, key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.samples import FOLDER, assert_matches, load
from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator
    from tests.emulator.pages import Site

USED = {
    "job-pending",
    "job-running",
    "job-completed",
    "job-failed",
    "job-cancelled",
    "job-url-completed",
    "batch-status-request",
    "batch-status-answer",
    "url-submit-request",
    "feedback-request",
    "feedback-request-minimal",
    "frameworks",
    "criteria",
    "token-password-request",
    "token-refresh-request",
    "token-answer",
}


def test_every_sample_is_compared_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == USED


def test_a_submit_answers_with_a_pending_job(raw: Raw) -> None:
    assert_matches(raw.upload().json(), load("job-pending"))


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "FAILED", "CANCELLED"])
def test_the_status_of_a_job_that_is_not_completed(raw: Raw, service: Emulator, status: str) -> None:
    error = "damaged" if status == "FAILED" else None
    uuid = service.add_job(status=status, error=error, file_name="contract.pdf")

    assert_matches(raw.status(uuid).json(), load(f"job-{status.lower()}"))


def test_a_completed_job_in_a_batch(raw: Raw) -> None:
    [record] = raw.batch(raw.submit())

    assert_matches(record, load("job-completed"))


def test_a_batch_of_several_jobs(raw: Raw) -> None:
    good, bad = raw.submit(), raw.submit(b"%PDF-1.4 broken")
    request = {**load("batch-status-request"), "uuids": [good, bad]}

    answer = raw.post(f"{CONTENT}/status/batch", json=request)

    assert_matches(answer.json(), load("batch-status-answer"))


def test_the_batch_request_of_the_sample_is_accepted(raw: Raw) -> None:
    answer = raw.post(f"{CONTENT}/status/batch", json=load("batch-status-request"))

    assert (answer.status_code, answer.json()) == (200, [])


def test_a_job_of_a_page(raw: Raw, site: Site) -> None:
    request = {**load("url-submit-request"), "url": site.put("/terms", "<p>Terms</p>")}

    submitted = raw.post(f"{CONTENT}/url", json=request).json()
    [completed] = raw.batch(submitted["uuid"])

    assert_matches(completed, load("job-url-completed"))


def test_the_feedback_requests_of_the_samples_are_accepted(raw: Raw, service: Emulator) -> None:
    number = service.add_assessment({})["results"][0]["assessmentResponseId"]
    full, minimal = load("feedback-request"), load("feedback-request-minimal")
    assert full["assessmentResponseId"] == number, "the first number that the emulator gives out"

    answers = [raw.post("/api/v1/assessmentFeedback", json=body).status_code for body in (full, minimal)]

    assert answers == [200, 200]


def test_the_list_of_frameworks_and_of_criteria(raw: Raw) -> None:
    frameworks = raw.get("/api/v1/frameworks").json()
    criteria = raw.get(f"/api/v1/frameworks/{frameworks[0]['id']}/criteria").json()

    assert_matches(frameworks, load("frameworks"))
    assert_matches(criteria, load("criteria"))


def test_both_grants_answer_with_the_same_fields(raw: Raw) -> None:
    by_password = raw.session.post(
        raw.service.token_url, data=load("token-password-request"), timeout=30
    ).json()
    request = {**load("token-refresh-request"), "refresh_token": by_password["refresh_token"]}
    by_refresh = raw.session.post(raw.service.token_url, data=request, timeout=30).json()

    assert_matches(by_password, load("token-answer"))
    assert_matches(by_refresh, load("token-answer"))
