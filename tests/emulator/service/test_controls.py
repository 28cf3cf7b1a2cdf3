from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import requests

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator
    from tests.emulator.raw import Raw


def test_controls_can_be_used_over_http(raw: Raw, service: Emulator) -> None:
    fault = {"operation": "list_frameworks", "status": 503, "retry_after": 3, "times": None}
    number = raw.control("POST", "faults", fault).json()
    assert raw.get("/api/v1/frameworks").headers["Retry-After"] == "3"
    assert raw.control("DELETE", f"faults/{number}").json() is None
    assert raw.control("GET", "faults").json() == []
    uuid = raw.control("POST", "jobs", {"text": "hello", "status": "RUNNING"}).json()
    raw.control("PATCH", f"jobs/{uuid}", {"status": "COMPLETED"})
    assert raw.content(uuid).text == raw.control("GET", f"jobs/{uuid}/text").json() == "hello"
    raw.control("POST", "jobs/fail", {"error": "No."})
    assert raw.status(raw.submit()).json()["error"] == "No."
    raw.control("PUT", "frameworks", {"frameworks": [{"id": 1}]})
    assert len(raw.get("/api/v1/frameworks").json()) == 1
    assert raw.control("GET", "counters").json() == service.counters()
    assert raw.control("GET", "connection").json() == service.connection()


@pytest.mark.compliance_service(concurrency=1, latency=0.2)
def test_more_requests_in_flight_than_allowed_get_429(raw: Raw, service: Emulator) -> None:
    headers = {"Authorization": f"Bearer {raw.log_in()['access_token']}"}

    def call(_: int) -> requests.Response:
        return requests.get(f"{service.url}/api/v1/info", headers=headers, timeout=60)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(call, range(4)))

    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0].headers["Retry-After"] == "1"


def test_a_reset_restores_the_initial_state(raw: Raw, service: Emulator) -> None:
    raw.submit()
    raw.post("/api/v1/assessments", json={})
    raw.post("/api/v1/assessmentFeedback", json={"expertId": "e", "rationalFeedback": "r"})
    service.add_user("other", "secret")
    service.set_frameworks([])
    service.fail("*", status=500, times=None)
    service.fail_jobs(times=None)
    service.configure(jobs="manual", latency=0.01)
    service.advance(1000)

    raw.control("POST", "reset", {})

    assert service.jobs() == service.assessments() == service.feedback() == service.faults() == []
    assert service.frameworks()
    assert service.counters()["total"] == 0
    assert service.settings()["jobs"] == "instant"
    assert raw.post_token(username="other", password="secret").status_code == 401
    raw.log_in()
    assert raw.status(raw.submit()).status_code == 303


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "faults", {"operation": "nothing", "status": 500}, 400),
        ("POST", "faults", {"operation": "cancel", "status": "500"}, 400),
        ("POST", "faults", {"colour": "red"}, 400),
        ("DELETE", "faults/x", None, 404),
        ("POST", "jobs/fail", {"times": 0}, 400),
        ("PATCH", "settings", {"speed": 9}, 400),
        ("PATCH", "settings", {"endpoints": {}}, 400),
        ("POST", "jobs", {"charset": "nonsense"}, 400),
        ("POST", "jobs", {"username": "unknown"}, 404),
        ("GET", "jobs/nothing", None, 404),
        ("PUT", "frameworks", {"frameworks": 5}, 400),
        ("POST", "advance", {"seconds": -1}, 400),
        ("GET", "nothing", None, 404),
        ("POST", "counters", {}, 405),
    ],
)
def test_a_wrong_use_of_a_control_is_refused_with_a_reason(
    raw: Raw, method: str, path: str, body: Any, status: int
) -> None:
    response = raw.control(method, path, body)

    assert response.status_code == status
    assert response.json()["message"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"data": {"a": "b"}}, 415),  # a form
        ({"data": "{}", "headers": {"Content-Type": "text/plain"}}, 415),
        ({"json": {}, "headers": {"Host": "attacker.example"}}, 421),
    ],
)
def test_another_site_can_change_nothing(service: Emulator, request_: dict[str, Any], status: int) -> None:
    service.add_job()
    answer = requests.post(f"{service.url}/_emulator/reset", timeout=30, **request_)

    assert answer.status_code == status
    assert service.jobs()
