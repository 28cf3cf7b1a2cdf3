"""The contract's tables of endpoints and behaviors, row by row, by raw HTTP against the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import pytest
from requests import Response

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_docx, make_pdf
from tests.contract.samples import FOLDER, assert_matches, load
from tests.emulator.pages import Site
from tests.emulator.raw import CONTENT, Raw, claims_of

Send = Callable[[Raw, Emulator, Site], Response]
FEEDBACK = "/api/v1/assessmentFeedback"
OF_A_PAGE = {name: load("job-url-completed")[name] for name in ("sourceType", "sourceUrl", "fileName")}
PENDING_PAGE = load("job-pending") | OF_A_PAGE


def has_status(status: str) -> Send:
    error = "damaged" if status == "FAILED" else None
    return lambda raw, service, _: raw.status(
        service.add_job(status=status, error=error, file_name="contract.pdf")
    )


def submit_page(raw: Raw, _: Emulator, site: Site) -> Response:
    body = {**load("url-submit-request"), "url": site.put("/terms", "<p>Terms</p>")}
    return raw.post(f"{CONTENT}/url", json=body)


def ask_batch(raw: Raw, *uuids: str) -> Response:
    return raw.post(f"{CONTENT}/status/batch", json={**load("batch-status-request"), "uuids": uuids})


def send_feedback(raw: Raw, service: Emulator, _: Site) -> Response:
    number = service.add_assessment({})["results"][0]["assessmentResponseId"]
    full = load("feedback-request")
    assert full["assessmentResponseId"] == number, "the first number that the emulator gives out"
    return raw.post(FEEDBACK, json=full)


def log_in(raw: Raw, *_: object) -> Response:
    return raw.session.post(raw.service.token_url, data=load("token-password-request"), timeout=30)


def renew(raw: Raw, *_: object) -> Response:
    form = {**load("token-refresh-request"), "refresh_token": log_in(raw).json()["refresh_token"]}
    return raw.session.post(raw.service.token_url, data=form, timeout=30)


# What is sent, the status of the answer, and its body: a sample, JSON like a sample, or bytes.
ANSWERS: dict[str, tuple[Send, int, Any]] = {
    "submit a PDF": (lambda raw, *_: raw.upload(), 202, "job-pending"),
    "submit a DOCX": (lambda raw, *_: raw.upload(make_docx("x"), "a.docx"), 202, "job-pending"),
    "submit a page": (submit_page, 202, PENDING_PAGE),
    "status PENDING": (has_status("PENDING"), 200, "job-pending"),
    "status RUNNING": (has_status("RUNNING"), 200, "job-running"),
    "status FAILED": (has_status("FAILED"), 200, "job-failed"),
    "status CANCELLED": (has_status("CANCELLED"), 200, "job-cancelled"),
    "status of a completed job": (lambda raw, *_: raw.status(raw.submit()), 303, b""),
    "batch of one": (lambda raw, *_: ask_batch(raw, raw.submit()), 200, [load("job-completed")]),
    "batch of several": (
        lambda raw, *_: ask_batch(raw, raw.submit(), raw.submit(b"%PDF-1.4 broken")),
        200,
        [load("job-completed"), load("job-failed")],
    ),
    "batch of a page": (
        lambda *given: ask_batch(given[0], submit_page(*given).json()["uuid"]),
        200,
        [load("job-url-completed")],
    ),
    "batch of unknown jobs": (
        lambda raw, *_: raw.post(f"{CONTENT}/status/batch", json=load("batch-status-request")),
        200,
        b"[]",
    ),
    "content": (lambda raw, *_: raw.content(raw.submit(make_pdf("Hello world"))), 200, b"Hello world"),
    "refresh": (lambda raw, *_: raw.post(f"{CONTENT}/{raw.submit()}/refresh"), 202, "job-pending"),
    "cancel": (lambda raw, *_: raw.delete(f"{CONTENT}/{raw.submit()}"), 200, b""),
    "frameworks": (lambda raw, *_: raw.get("/api/v1/frameworks"), 200, "frameworks"),
    "criteria": (lambda raw, *_: raw.get("/api/v1/frameworks/1/criteria"), 200, "criteria"),
    "feedback": (send_feedback, 200, b""),
    "feedback, minimal": (
        lambda raw, *_: raw.post(FEEDBACK, json=load("feedback-request-minimal")),
        200,
        b"",
    ),
    "token by password": (log_in, 200, "token-answer"),
    "token by refresh token": (renew, 200, "token-answer"),
    # Paths that the contract leaves open: the provider's defaults.
    "application info": (lambda raw, *_: raw.get("/api/v1/info"), 200, None),
    "assessment": (lambda raw, *_: raw.post("/api/v1/assessments", json={}), 202, None),
}


@pytest.mark.parametrize("row", ANSWERS)
def test_the_answer_is_as_the_contract_says(raw: Raw, service: Emulator, site: Site, row: str) -> None:
    send, status, expected = ANSWERS[row]
    response = send(raw, service, site)
    assert response.status_code == status
    if isinstance(expected, bytes):
        assert response.content == expected
    elif expected is not None:
        assert_matches(response.json(), load(expected) if isinstance(expected, str) else expected)
    if row == "content":
        assert response.headers["Content-Type"].split(";")[0] == "text/plain"


def test_every_sample_is_compared() -> None:
    requests = {path.stem for path in FOLDER.glob("*-request*.json")}
    answers = {row[2] for row in ANSWERS.values() if isinstance(row[2], str)}
    in_lists = {"job-completed", "job-failed", "job-url-completed"}
    assert {path.stem for path in FOLDER.glob("*.json")} == requests | answers | in_lists


@pytest.mark.parametrize("row", ["submit a PDF", "submit a page", "refresh", "status of a completed job"])
def test_a_location_leads_to_the_status_and_then_to_the_text(
    raw: Raw, service: Emulator, site: Site, row: str
) -> None:
    response = ANSWERS[row][0](raw, service, site)
    (job,) = service.jobs()
    leads_to = "content" if response.status_code == 303 else "status"
    target = urljoin(response.url, response.headers["Location"])
    assert target == f"{service.url}{CONTENT}/{job['uuid']}/{leads_to}"


def test_a_refresh_processes_a_failed_job_again(raw: Raw, service: Emulator) -> None:
    service.fail_jobs("Out of memory.")
    uuid = raw.submit()
    assert raw.status(uuid).json()["error"] == "Out of memory."
    assert raw.post(f"{CONTENT}/{uuid}/refresh").json()["uuid"] == uuid
    assert raw.status(uuid).status_code == 303


def test_feedback_is_kept_as_it_was_sent(raw: Raw, service: Emulator) -> None:
    body = {"expertId": "e", "rationalFeedback": "r", "categoryFeedback": "SUFFICIENTLY_REGULATED"}
    raw.post(FEEDBACK, json=body)
    assert service.feedback()[0].items() >= body.items()


def test_every_call_is_made_on_behalf_of_the_partner_that_the_token_names(
    raw: Raw, service: Emulator
) -> None:
    token = raw.log_in()["access_token"]
    raw.submit()
    assert service.jobs()[0]["subject"] == claims_of(token)["sub"]


def test_a_token_lives_300_seconds_and_a_refresh_token_1800(raw: Raw, service: Emulator) -> None:
    first = raw.log_in()
    service.advance(250)
    assert raw.get("/api/v1/info").status_code == 200
    service.advance(50)
    assert raw.get("/api/v1/info").status_code == 401
    service.advance(1400)
    second = raw.renew(first["refresh_token"])
    assert second.status_code == 200
    service.advance(1800)
    assert raw.renew(second.json()["refresh_token"]).status_code == 400
