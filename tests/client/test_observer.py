"""The observer of a client is told of every request, on both clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.http.wire import Failure, FailureKind, HttpResponse, Observation
from airflow_provider.client.settings import Settings
from tests.support.service import Raw, Reply, Service
from tests.support.values import CONTENT, UUID

STATUS = f"GET {CONTENT}/{UUID}/status"
SUBMIT = f"POST {CONTENT}/url"
RUNNING = Reply(json={"uuid": UUID, "status": "RUNNING"})
TOKEN = "POST /token"

Seen = list[tuple[str, str, bool, type | None]]


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def call(connect: Callable[[Settings], Any], settings: Settings, seen: Seen) -> Any:
    """A client that is observed."""
    caller = connect(settings)

    def observe(each: Observation) -> None:
        seen.append((each.operation, each.status, each.is_retried, type(each.error) if each.error else None))

    caller._client._observer = observe
    return caller


LOGIN = ("login", "200", False, None)


def test_retries_have_the_status_that_caused_them(call: Any, service: Service, seen: Seen) -> None:
    throttled = Reply(429, headers={"Retry-After": "0"})
    service.on(STATUS, Reply(500), throttled, Raw(b""), Reply(503, headers={"Retry-After": "0"}), RUNNING)
    call("get_status", UUID)
    assert seen == [
        LOGIN,
        ("get_status", "500", True, exc.ComplianceServerError),
        ("get_status", "429", True, exc.ComplianceThrottledError),
        ("get_status", "broken", True, exc.ComplianceConnectionError),
        ("get_status", "503", True, exc.ComplianceThrottledError),
        ("get_status", "200", False, None),
    ]


def test_a_refused_token_is_renewed_and_the_call_retried(call: Any, service: Service, seen: Seen) -> None:
    service.on(STATUS, Reply(401), RUNNING)
    call("get_status", UUID)
    renewal = ("refresh_token", "200", False, None)
    assert seen == [LOGIN, ("get_status", "401", True, None), renewal, ("get_status", "200", False, None)]


def test_an_error_is_not_a_retry(call: Any, service: Service, seen: Seen) -> None:
    service.on(SUBMIT, Reply(500))
    with pytest.raises(exc.ComplianceUncertainError):
        call("submit_url", "https://example.com")
    assert seen == [LOGIN, ("submit_url", "500", False, exc.ComplianceUncertainError)]


def test_a_refused_login_is_observed(call: Any, service: Service, seen: Seen) -> None:
    service.on(TOKEN, Reply(400, json={"error": "invalid_grant"}))
    with pytest.raises(exc.ComplianceAuthError):
        call("get_status", UUID)
    assert seen == [("login", "400", False, exc.ComplianceAuthError)]


@pytest.mark.parametrize(
    ("outcome", "label"),
    [
        (HttpResponse(200), "200"),
        (HttpResponse(303), "303"),
        (HttpResponse(799), "other"),
        (Failure(FailureKind.TIMED_OUT, "secret reason"), "timed_out"),
    ],
)
def test_a_status_is_one_of_few_labels(outcome: HttpResponse | Failure, label: str) -> None:
    assert outcome.label == label
