from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import requests

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator
    from tests.emulator.raw import Raw


def test_controls_can_be_used_over_http(raw: Raw, service: Emulator) -> None:
    fault = raw.control("fail", operation="list_frameworks", status=503, retry_after=3).json()
    assert raw.get("/api/v1/frameworks").headers["Retry-After"] == "3"
    uuid = raw.control("add_job", text="hello", status="RUNNING").json()
    assert raw.control("set_job", uuid=uuid, status="COMPLETED").json() is None
    assert raw.content(uuid).text == raw.control("text", uuid=uuid).json() == "hello"
    assert fault
    counters = raw.control("counters").json()
    assert counters == service.counters()
    assert counters["operations"] == {
        "get_content": {"200": 1},
        "list_frameworks": {"503": 1},
        "login": {"200": 1},
    }


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

    raw.control("reset")

    assert service.jobs() == service.assessments() == service.feedback() == service.faults() == []
    assert service.frameworks()
    assert service.counters()["total"] == 0
    assert service.settings()["jobs"] == "instant"
    assert raw.post_token(username="other", password="secret").status_code == 401
    raw.log_in()
    assert raw.status(raw.submit()).status_code == 303


@pytest.mark.parametrize(
    ("name", "fields", "status"),
    [
        ("fail", {"operation": "nothing", "status": 500}, 400),
        ("fail", {"operation": "cancel", "status": "500"}, 400),
        ("fail", {"colour": "red"}, 400),
        ("fail_jobs", {"times": 0}, 400),
        ("configure", {"speed": 9}, 400),
        ("configure", {"endpoints": {}}, 400),
        ("add_job", {"charset": "nonsense"}, 400),
        ("add_job", {"username": "unknown"}, 404),
        ("job", {"uuid": "nothing"}, 404),
        ("set_frameworks", {"frameworks": 5}, 400),
        ("advance", {"seconds": -1}, 400),
        ("stop", {}, 404),
        ("_job", {"uuid": "nothing"}, 404),
    ],
)
def test_a_wrong_use_of_a_control_is_refused_with_a_reason(
    raw: Raw, name: str, fields: dict[str, Any], status: int
) -> None:
    response = raw.control(name, **fields)

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
