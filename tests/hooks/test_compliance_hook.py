"""The hook: a connection as a client, and errors that end a task or not."""

from __future__ import annotations

import asyncio
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, ObjectStoragePath

from airflow_provider import exceptions as exc
from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.client.sync import ComplianceClient
from airflow_provider.emulator.settings import OPERATIONS
from airflow_provider.hooks.compliance import ComplianceHook
from tests.support.service import Reply, Service
from tests.support.values import CLIENT_SECRET, CONTENT, PASSWORD, PDF, UUID

FILE = f"POST {CONTENT}/file"
STATUS = f"GET {CONTENT}/{UUID}/status"


@pytest.fixture
def hook(service: Service, monkeypatch: pytest.MonkeyPatch) -> ComplianceHook:
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection(service.url)))
    return ComplianceHook()


def connection(url: str, **extra: Any) -> dict[str, Any]:
    extras = {
        "token_url": f"{url}/token",
        "client_id": "partner",
        "client_secret": CLIENT_SECRET,
        "max_retries": 1,
    }
    return {
        "conn_type": "compliance",
        "host": url,
        "login": "alice",
        "password": PASSWORD,
        "extra": {**extras, **extra},
    }


def test_a_hook_does_nothing_until_it_is_used(service: Service) -> None:
    ComplianceHook("no_such_connection")
    assert not service.received


def test_the_hook_and_both_clients_have_every_operation_of_the_service() -> None:
    for kind in (ComplianceHook, ComplianceClient, AsyncComplianceClient):
        assert not [name for name in OPERATIONS if not hasattr(kind, name)], kind


def test_every_operation_goes_through(hook: ComplianceHook, service: Service) -> None:
    job = Reply(202, json={"uuid": UUID, "status": "PENDING"})
    routes = {
        f"POST {CONTENT}/url": job,
        f"POST {CONTENT}/{UUID}/refresh": job,
        STATUS: Reply(303),
        f"POST {CONTENT}/status/batch": Reply(json=[{"uuid": UUID, "status": "FAILED", "error": "e"}]),
        f"GET {CONTENT}/{UUID}/content": Reply(body="ü".encode()),
        f"DELETE {CONTENT}/{UUID}": Reply(),
        "GET /api/v1/frameworks": Reply(json=[{"id": "f", "criteria": [{"codeName": "c"}]}]),
        "GET /api/v1/frameworks/f/criteria": Reply(json=[{"codeName": "c"}]),
        "POST /api/v1/assessmentFeedback": Reply(),
        "GET /api/v1/info": Reply(json={"name": "n"}),
        "POST /api/v1/assessments": Reply(202, json={"id": 1}),
        "GET /api/v1/assessments/1/status": Reply(303),
        "GET /api/v1/assessments/1/results": Reply(json={"r": 1}),
        "DELETE /api/v1/assessments/1": Reply(),
        "GET /api/v2/x": Reply(body=b"raw"),
    }
    for route, reply in routes.items():
        service.on(route, reply)
    target = io.BytesIO()
    assert hook.submit_url("https://example.com").uuid == UUID
    assert hook.refresh(UUID).status == "PENDING"
    assert hook.get_status(UUID).status == "COMPLETED"
    assert hook.get_statuses([UUID])[UUID].error == hook.get_statuses(UUID)[UUID].error == "e"
    assert hook.get_content(UUID) == "ü"
    assert (hook.download_content(UUID, target), target.getvalue()) == (2, "ü".encode())
    hook.cancel(UUID)
    assert hook.list_frameworks()[0].criteria[0].code_name == "c"
    assert hook.list_criteria("f")[0].code_name == "c"
    hook.submit_feedback("e", "r", category_feedback="MISSING")
    assert hook.get_application_info() == {"name": "n"}
    assert hook.submit_assessment({}).id == "1"
    assert hook.get_assessment("1").status == "COMPLETED"
    assert hook.get_assessment_results("1") == {"r": 1}
    hook.cancel_assessment("1")
    assert hook.request("GET", "/api/v2/x").body == b"raw"
    seen = {f"{r.method} {r.path}" for r in service.received} - {"POST /token"}
    assert seen == set(routes)
    assert service.grants() == ["password"]


def test_an_async_client_of_the_same_connection_shares_the_token(
    hook: ComplianceHook, service: Service
) -> None:
    service.on(STATUS, Reply(303))
    hook.get_status(UUID)

    async def ask() -> str:
        async with await ComplianceHook().get_async_conn() as client:
            return (await client.get_status(UUID)).status

    assert asyncio.run(ask()) == "COMPLETED"
    assert service.grants() == ["password"]


@pytest.mark.parametrize("kind", ["str", "path", "file uri", "storage path", "open file"])
def test_a_local_document_in_any_form(
    hook: ComplianceHook, service: Service, tmp_path: Path, kind: str
) -> None:
    service.on(FILE, Reply(202, json={"uuid": UUID}))
    path = tmp_path / "contract.pdf"
    path.write_bytes(PDF)
    with path.open("rb") as opened:
        forms: dict[str, Any] = {
            "str": str(path),
            "path": path,
            "file uri": path.as_uri(),
            "storage path": ObjectStoragePath(path.as_uri()),
            "open file": opened,
        }
        assert hook.submit_file(forms[kind]).uuid == UUID
    (request,) = service.requests_to(FILE)
    assert PDF in request.body
    assert b'filename="contract.pdf"' in request.body


def test_a_web_address_is_not_a_file(hook: ComplianceHook) -> None:
    with pytest.raises(exc.ComplianceInputError, match="submit_url"):
        hook.submit_file("https://example.com/a.pdf")


def test_non_retryable_error_fails_the_task(hook: ComplianceHook, service: Service) -> None:
    service.on(STATUS, Reply(404, json={"message": "unknown"}))
    with pytest.raises(AirflowFailException) as caught:
        hook.get_status(UUID)
    error = caught.value
    assert isinstance(error, exc.ComplianceNotFoundError)
    assert (error.status, type(error).__name__) == (404, "ComplianceNotFoundError")
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.status, str(copied)) == (exc.ComplianceNotFoundError, 404, str(error))


WRONG = Reply(401, json={"error": "invalid_grant"})


@pytest.mark.parametrize(
    ("route", "reply", "kind", "is_final"),
    [
        ("POST /token", WRONG, exc.ComplianceAuthError, True),
        (STATUS, Reply(400), exc.ComplianceRefusedError, True),
        (STATUS, Reply(500), exc.ComplianceServerError, False),
        (STATUS, Reply(429, headers={"Retry-After": "0"}), exc.ComplianceThrottledError, False),
        (STATUS, Reply(body=b"<html>"), exc.ComplianceProtocolError, False),
    ],
)
def test_only_a_transient_error_is_left_to_the_retries_of_the_task(
    hook: ComplianceHook, service: Service, route: str, reply: Reply, kind: type[Exception], is_final: bool
) -> None:
    service.on(route, reply)
    with pytest.raises(kind) as caught:
        hook.get_status(UUID)
    assert isinstance(caught.value, AirflowFailException) is is_final


def test_a_wrong_connection_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps({"conn_type": "compliance"}))
    for attempt in (ComplianceHook().get_conn, ComplianceHook().list_frameworks):
        with pytest.raises(exc.ComplianceConfigError) as caught:
            attempt()
        assert isinstance(caught.value, AirflowFailException)


def test_a_missing_connection_is_named_however_it_is_read() -> None:
    hook = ComplianceHook("no_such_connection")
    message = r"no Airflow connection 'no_such_connection': create it.*'compliance', or correct conn_id"
    for attempt in (hook.get_conn, hook.list_frameworks, lambda: asyncio.run(hook.get_async_conn())):
        with pytest.raises(exc.ComplianceConfigError, match=message) as caught:
            attempt()
        # A secrets backend that does not respond looks the same: the task may be retried.
        assert caught.value.transient
        assert not isinstance(caught.value, AirflowFailException)
    is_good, said = hook.test_connection()
    assert not is_good
    assert "'no_such_connection'" in said


def test_the_connection_test_logs_in_and_reads_the_frameworks(hook: ComplianceHook, service: Service) -> None:
    service.on("GET /api/v1/frameworks", Reply(json=[{}, {}]))
    assert hook.test_connection() == (True, "Logged in as user 'alice'; the service lists 2 frameworks.")


@pytest.mark.parametrize(
    ("changes", "routes", "said"),
    [
        ({"host": "http://127.0.0.1:9"}, {}, "could not connect (Connection refused)"),
        (
            {"extra": {"token_url": "http://127.0.0.1:9/token"}},
            {},
            "The token request to 127.0.0.1:9: could not connect",
        ),
        ({"host": "https"}, {}, "could not connect"),
        ({}, {"POST /token": Reply(401, json={"error": "invalid_grant"})}, "refused user 'alice'"),
        ({}, {"POST /token": Reply(401, json={"error": "invalid_client"})}, "refused client 'partner'"),
        ({}, {"POST /token": Reply(404)}, "not a token endpoint"),
        (
            {},
            {"GET /api/v1/frameworks": Reply(body=b"<html>", headers={"Content-Type": "text/html"})},
            "HTML page",
        ),
        ({}, {"GET /api/v1/frameworks": Reply(404)}, "404 Not Found"),
        ({"login": None}, {}, "login of this connection is missing"),
    ],
)
def test_the_connection_test_says_what_is_wrong(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    routes: dict[str, Reply],
    said: str,
) -> None:
    for route, reply in routes.items():
        service.on(route, reply)
    fields = connection(service.url)
    if changes.get("host") == "https":
        changes = {"host": service.url.replace("http://", "https://")}
    fields = {**fields, **changes, "extra": {**fields["extra"], **changes.get("extra", {})}}
    monkeypatch.setenv("AIRFLOW_CONN_QXVTBZRW", json.dumps(fields))
    good, message = ComplianceHook("qXvTbZrW").test_connection()
    assert not good
    assert said in message
    assert PASSWORD not in message
    assert "qxvtbzrw" not in message.lower()  # the random id that the test button gives it


@pytest.mark.parametrize("is_changed", [True, False], ids=["changed connection", "same connection"])
def test_a_hook_reads_its_connection_again_when_its_password_is_refused(
    hook: ComplianceHook, service: Service, monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    service.on(STATUS, Reply(303))
    assert hook.get_status(UUID).status == "COMPLETED"
    # The token ends, the refresh token too, and the password is another one by now.
    service.on(STATUS, Reply(401), Reply(303))
    refused = Reply(401, json={"error": "invalid_grant"})
    service.on("POST /token", refused, refused, Reply(json={"access_token": "new", "expires_in": 300}))
    if is_changed:
        rotated = connection(service.url) | {"password": "rotated"}
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(rotated))
        assert hook.get_status(UUID).status == "COMPLETED"
        assert "password=rotated" in service.received[-2].body.decode()
    else:
        with pytest.raises(exc.ComplianceAuthError):
            hook.get_status(UUID)
        assert service.grants() == [
            "password",
            "refresh_token",
            "password",
        ]  # refused once, and not tried again


def test_a_hook_that_knows_its_connection_gives_an_async_client_without_asgiref(
    hook: ComplianceHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a forked child the one thread of asgiref is dead, and a call that waits for it waits forever."""
    import asgiref.sync

    def hangs(*_: Any) -> Any:
        raise AssertionError("asgiref's thread was asked")

    hook.get_conn()
    monkeypatch.setattr(asgiref.sync, "sync_to_async", hangs)
    assert asyncio.run(hook.get_async_conn()).settings == hook.get_conn().settings
