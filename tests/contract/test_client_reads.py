"""The client's half of the samples: it reads each answer, and sends each request."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from airflow_provider.client import endpoints
from airflow_provider.client.exchange import Exchange, ThrottlePause
from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.client.models import Criterion, Framework
from airflow_provider.client.tokens import TokenCache
from tests.contract.samples import FOLDER, load
from tests.support.values import settings_for

SETTINGS = settings_for("https://api.example.com")
JOBS = [path.stem for path in sorted(FOLDER.glob("job-*.json"))]


def answer(sample: Any, status: int = 200) -> HttpResponse:
    body = json.dumps(sample).encode()
    return HttpResponse(status, {"content-length": str(len(body))}, body, "https://api.example.com/x")


def sent(call: Any) -> Any:
    body = Exchange(call, SETTINGS, ThrottlePause()).next_request(None).body
    assert isinstance(body, bytes)
    return json.loads(body)


def assert_read(job: Any, sample: dict[str, Any]) -> None:
    read = job.model_dump(mode="json", by_alias=True)
    assert read.keys() == sample.keys()
    for name, value in sample.items():
        if name.endswith("At") and value is not None:
            assert datetime.fromisoformat(read[name]) == datetime.fromisoformat(value), name
        else:
            assert read[name] == value, name


@pytest.mark.parametrize("name", JOBS)
def test_every_job_is_read_field_by_field(name: str) -> None:
    sample = load(name)
    assert_read(endpoints.get_status(sample["uuid"]).parse(answer(sample)), sample)
    assert_read(endpoints.submit_url("https://example.com").parse(answer(sample, 202)), sample)
    assert_read(endpoints.refresh(sample["uuid"]).parse(answer(sample, 202)), sample)


def test_a_batch_is_read_job_by_job() -> None:
    sample = [load("job-completed"), load("job-failed") | {"uuid": "8e4d2f3b-64c1-4a58-8c11-0d5e6a7b8c9d"}]
    call = endpoints.get_batch(record["uuid"] for record in sample)
    for job, record in zip(call.parse(answer(sample)), sample, strict=True):
        assert_read(job, record)


def test_frameworks_and_criteria_are_read() -> None:
    frameworks, criteria = load("frameworks"), load("criteria")
    read = endpoints.list_frameworks().parse(answer(frameworks))
    for framework, sample in zip(read, frameworks, strict=True):
        assert isinstance(framework, Framework)
        assert framework.model_dump(by_alias=True) == {**sample, "id": str(sample["id"])}
    for criterion, sample in zip(endpoints.list_criteria("1").parse(answer(criteria)), criteria, strict=True):
        assert isinstance(criterion, Criterion)
        assert criterion.model_dump(by_alias=True) == sample


def test_a_token_answer_is_read() -> None:
    sample = load("token-answer")
    token = next(TokenCache(SETTINGS).renew()).parse(answer(sample))
    assert token.access_token.get_secret_value() == sample["access_token"]
    assert token.refresh_token.get_secret_value() == sample["refresh_token"]
    assert (token.expires_in, token.refresh_expires_in) == (
        sample["expires_in"],
        sample["refresh_expires_in"],
    )


def test_requests_have_the_fields_of_the_samples() -> None:
    url, batch = load("url-submit-request"), load("batch-status-request")
    assert sent(endpoints.submit_url(url["url"])) == url
    assert sent(endpoints.get_batch(batch["uuids"])) == batch


@pytest.mark.parametrize("name", ["feedback-request", "feedback-request-minimal"])
def test_feedback_has_the_fields_of_the_samples(name: str) -> None:
    sample = load(name)
    call = endpoints.submit_feedback(
        sample["expertId"],
        sample["rationalFeedback"],
        sample.get("assessmentResponseId"),
        sample.get("categoryFeedback"),
    )
    assert sent(call) == sample


def test_token_requests_have_the_fields_of_the_samples() -> None:
    cache = TokenCache(SETTINGS)
    renewal = cache.renew()
    login = next(renewal)
    assert login.form is not None
    assert login.form.keys() == load("token-password-request").keys()
    with pytest.raises(StopIteration):
        renewal.send(login.parse(answer({**load("token-answer"), "expires_in": 0})))
    refresh = next(cache.renew())
    assert refresh.form is not None
    assert refresh.form.keys() == load("token-refresh-request").keys()
