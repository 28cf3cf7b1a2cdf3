from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator

FRAMEWORKS = "/api/v1/frameworks"


def test_a_fault_hits_so_many_calls_of_one_operation_and_nothing_else(raw: Raw, service: Emulator) -> None:
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


def test_a_fault_without_end_lasts_until_it_is_lifted(raw: Raw, service: Emulator) -> None:
    number = service.fail("*", status=500, times=None)
    raw.post_token()
    other = service.fail("list_frameworks", status=501)

    assert raw.post_token().status_code == 500
    assert service.faults()[0]["hits"] == 2
    assert service.clear_faults(number) == 1
    assert raw.get(FRAMEWORKS).status_code == 501
    assert service.clear_faults(other) == 0


def test_a_call_without_a_good_token_does_not_use_up_a_fault(raw: Raw, service: Emulator) -> None:
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
    """Read an answer from a socket until the other side resets the connection; a plain end is no reset."""
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


def test_even_an_answer_without_a_body_can_break_off(raw: Raw, service: Emulator) -> None:
    uuid = raw.submit()
    service.fail("cancel", reset="middle")

    with pytest.raises(requests.RequestException):
        raw.delete(f"{CONTENT}/{uuid}")

    assert service.jobs() == []


def test_a_slow_answer_comes_late_and_a_stalled_one_stops_in_the_middle(raw: Raw, service: Emulator) -> None:
    uuid = service.add_job(text="x" * 1000)
    raw.log_in()
    service.fail("get_content", delay=0.2)
    service.fail("get_content", stall=0.2)

    started = time.monotonic()
    slow = raw.content(uuid)
    middle = time.monotonic()
    stalled = raw.content(uuid)
    ended = time.monotonic()

    assert (slow.text, stalled.text) == ("x" * 1000, "x" * 1000)
    assert middle - started >= 0.2
    assert ended - middle >= 0.2


def test_an_html_page_comes_in_place_of_json(raw: Raw, service: Emulator) -> None:
    service.fail("list_frameworks", html=True)
    service.fail("list_frameworks", html=True, status=502)

    first, second = raw.get(FRAMEWORKS), raw.get(FRAMEWORKS)

    assert (first.status_code, second.status_code) == (200, 502)
    assert first.headers["Content-Type"].startswith("text/html")
    assert first.text.startswith("<!DOCTYPE html>")


def test_a_body_can_be_anything(raw: Raw, service: Emulator) -> None:
    service.fail("list_frameworks", body='{"cut": ')
    service.fail("list_frameworks", body=[{"id": 1}])
    service.fail("list_frameworks", body="", content_type="text/plain")

    answers = [raw.get(FRAMEWORKS) for _ in range(3)]

    assert [answer.text for answer in answers] == ['{"cut": ', '[{"id": 1}]', ""]


def test_a_location_can_point_to_another_origin(raw: Raw, service: Emulator) -> None:
    uuid = raw.submit()
    service.fail("get_status", location="http://attacker.example/content")

    response = raw.status(uuid)

    assert (response.status_code, response.headers["Location"]) == (303, "http://attacker.example/content")


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


def test_latency_is_added_to_every_answer(raw: Raw, service: Emulator) -> None:
    raw.log_in()
    service.configure(latency=0.1)
    started = time.monotonic()
    raw.get(FRAMEWORKS)

    assert time.monotonic() - started >= 0.1


def test_requests_in_flight_are_counted_and_can_be_limited(raw: Raw, service: Emulator) -> None:
    token = raw.log_in()["access_token"]
    service.configure(concurrency=2)
    service.fail("list_frameworks", delay=600, times=None)
    headers = {"Authorization": f"Bearer {token}"}

    def call() -> requests.Response:
        return requests.get(service.url + FRAMEWORKS, headers=headers, timeout=240)

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(call) for _ in range(2)]
        _wait_for(lambda: service.counters()["in_flight"] == 2)
        refused = call()
        service.stop()
        service.start()
        for each in waiting:
            assert isinstance(each.exception(), requests.ConnectionError)

    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "1"
    assert service.counters()["max_in_flight"] == 3
    assert service.counters()["in_flight"] == 0


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
