from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator

FRAMEWORKS = "/api/v1/frameworks"


def test_a_fault_hits_a_number_of_calls_of_one_operation(raw: Raw, service: Emulator) -> None:
    service.fail("list_frameworks", status=503, retry_after=2, times=2)

    answers = [raw.get(FRAMEWORKS) for _ in range(3)]
    other = raw.get(f"{FRAMEWORKS}/1/criteria")

    assert [answer.status_code for answer in answers] == [503, 503, 200]
    assert answers[0].headers["Retry-After"] == "2"
    assert answers[0].json()["status"] == 503
    assert other.status_code == 200
    assert service.counters()["operations"]["list_frameworks"] == {"200": 1, "503": 2}
    assert service.faults() == []


def test_faults_come_one_after_the_other_and_can_let_calls_pass_first(raw: Raw, service: Emulator) -> None:
    service.fail("list_frameworks", status=429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT", skip=1)
    service.fail("list_*", status=500, skip=1)

    answers = [raw.get(FRAMEWORKS) for _ in range(4)]

    assert [answer.status_code for answer in answers] == [200, 429, 500, 200]
    assert answers[1].headers["Retry-After"] == "Wed, 21 Oct 2026 07:28:00 GMT"


def test_a_call_without_a_valid_token_does_not_use_up_a_fault(raw: Raw, service: Emulator) -> None:
    service.fail("list_frameworks", status=503)

    assert raw.get(FRAMEWORKS, token="bad").status_code == 401
    assert raw.get(FRAMEWORKS).status_code == 503


@pytest.mark.parametrize("grant", ["login", "refresh_token"])
def test_each_grant_of_the_token_endpoint_can_fail_alone(raw: Raw, service: Emulator, grant: str) -> None:
    refresh_token = raw.log_in()["refresh_token"]
    service.fail(grant, status=503)

    statuses = {"login": raw.post_token().status_code, "refresh_token": raw.renew(refresh_token).status_code}

    assert statuses == {"login": 200, "refresh_token": 200, grant: 503}


@pytest.mark.parametrize(("reset", "carried_out"), [("before", 0), ("after", 1)])
def test_a_connection_is_reset_before_or_after_the_work(
    raw: Raw, service: Emulator, reset: str, carried_out: int
) -> None:
    raw.log_in()
    service.fail("submit_file", reset=reset)

    with pytest.raises(requests.ConnectionError, match=r"reset by peer|Broken pipe|aborted"):
        raw.upload()

    assert len(service.jobs()) == carried_out
    assert service.count("submit_file", "reset") == 1
    assert raw.upload().status_code == 202


def read_until_reset(service: Emulator, path: str, token: str) -> bytes:
    """Read an answer from a socket until the other side resets the connection; a plain end is not a reset."""
    data = b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        head = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        connection.sendall(head.encode())
        try:
            while chunk := connection.recv(65536):
                data += chunk
        except ConnectionResetError:
            return data
    raise AssertionError("The connection ended without a reset.")


def test_a_reset_in_the_middle_is_a_real_one_after_half_of_the_body(raw: Raw, service: Emulator) -> None:
    uuid = service.add_job(text="0123456789" * 100)
    service.fail("get_content", reset="middle")

    data = read_until_reset(service, f"{CONTENT}/{uuid}/content", raw.log_in()["access_token"])

    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-length: 1000" in head.lower()
    assert len(body) == 500
    assert service.counters()["operations"]["get_content"] == {"reset": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operation": "get_everything", "status": 500}, "Unknown operation 'get_everything'"),
        ({"operation": "cancel"}, "Specify at least one fault"),
        ({"operation": "cancel", "status": 42}, "status must be"),
        ({"operation": "cancel", "reset": "never"}, "reset must be"),
        ({"operation": "cancel", "status": 500, "times": 0}, "times must be"),
    ],
)
def test_a_fault_that_can_never_happen_is_refused(
    service: Emulator, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        service.fail(**arguments)


def test_a_fault_without_end_lasts_until_it_is_cleared(raw: Raw, service: Emulator) -> None:
    first = service.fail("*", status=500, times=None)
    raw.post_token()
    service.fail("list_frameworks", status=501)

    assert raw.post_token().status_code == 500
    assert service.faults()[0]["hits"] == 2
    service.clear_faults(first)
    assert raw.get(FRAMEWORKS).status_code == 501
    assert service.faults() == []


@pytest.mark.parametrize(
    ("fault", "status", "kind", "text"),
    [
        ({"html": True}, 200, "text/html", "<!DOCTYPE html>"),
        ({"html": True, "status": 502}, 502, "text/html", "<!DOCTYPE html>"),
        ({"body": '{"cut": '}, 200, "application/json", '{"cut": '),
        ({"body": [{"id": 1}], "status": 404}, 404, "application/json", '[{"id": 1}]'),
        ({"body": "", "content_type": "text/plain"}, 200, "text/plain", ""),
    ],
)
def test_a_fault_replaces_the_response(
    raw: Raw, service: Emulator, fault: dict[str, Any], status: int, kind: str, text: str
) -> None:
    service.fail("list_frameworks", **fault)

    answer = raw.get(FRAMEWORKS)

    assert (answer.status_code, answer.text[: len(text) or 1]) == (status, text)
    assert answer.headers["Content-Type"].startswith(kind)


@pytest.mark.parametrize("fault", [{"delay": 0.2}, {"stall": 0.2}, {}])
def test_a_response_is_delayed_or_stalled_or_late(raw: Raw, service: Emulator, fault: dict[str, Any]) -> None:
    uuid = service.add_job(text="x" * 1000)
    raw.log_in()
    if fault:
        service.fail("get_content", **fault)
    else:
        service.configure(latency=0.2)

    started = time.monotonic()
    assert raw.content(uuid).text == "x" * 1000
    assert time.monotonic() - started >= 0.2
