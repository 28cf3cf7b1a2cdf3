from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.emulator.raw import Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator


def test_faults_can_be_set_seen_and_lifted(raw: Raw) -> None:
    fault = {"operation": "list_frameworks", "status": 503, "retry_after": 3, "times": None}
    number = raw.control("POST", "faults", fault).json()
    assert raw.get("/api/v1/frameworks").headers["Retry-After"] == "3"
    [listed] = raw.control("GET", "faults").json()
    assert (listed["id"], listed["hits"], listed["status"]) == (number, 1, 503)

    assert raw.control("DELETE", f"faults/{number}").json() == {"cleared": 1}
    assert raw.control("DELETE", "faults").json() == {"cleared": 0}
    assert raw.get("/api/v1/frameworks").status_code == 200


def test_planned_failures_can_be_seen_and_cleared(raw: Raw, service: Emulator) -> None:
    raw.control("POST", "faults", {"operation": "cancel", "status": 500, "skip": 2})
    raw.control("POST", "jobs/fail", {"error": "No.", "match": "a*.pdf", "times": 2})
    raw.control("POST", "jobs/fail", {"error": "Never.", "times": None})

    seen = raw.control("GET", "overview").json()
    failures = raw.control("GET", "jobs/fail").json()

    assert seen["faults"] == raw.control("GET", "faults").json() == service.faults()
    assert [(each["operation"], each["skip"], each["remaining"]) for each in seen["faults"]] == [
        ("cancel", 2, 1)
    ]
    assert failures == seen["planned_failures"] == service.planned_failures()
    assert failures == [
        {"id": 1, "error": "No.", "match": "a*.pdf", "remaining": 2, "skip": 0, "hits": 0},
        {"id": 2, "error": "Never.", "match": "*", "remaining": None, "skip": 0, "hits": 0},
    ]
    for _ in range(3):
        raw.submit(name="all.pdf")
    [left] = raw.control("GET", "jobs/fail").json()
    assert (left["id"], left["hits"]) == (2, 1)
    assert raw.control("DELETE", "jobs/fail").json() == {"cleared": 1}
    assert raw.control("GET", "jobs/fail").json() == []
    assert raw.status(raw.submit(name="all.pdf")).status_code == 303


def test_counters_and_requests_can_be_seen_and_do_not_count_the_controls(raw: Raw, service: Emulator) -> None:
    raw.get("/api/v1/info")

    counters = raw.control("GET", "counters").json()

    assert counters == service.counters()
    assert counters["operations"] == {"get_application_info": {"200": 1}, "login": {"200": 1}}
    assert counters["total"] == 2
    assert [each["operation"] for each in raw.control("GET", "requests").json()] == [
        "login",
        "get_application_info",
    ]


def test_settings_can_be_seen_and_changed(raw: Raw) -> None:
    changed = raw.control("PATCH", "settings", {"jobs": "polls:1", "latency": 0}).json()

    assert changed == raw.control("GET", "settings").json()
    assert raw.status(raw.submit()).status_code == 200


def test_jobs_can_be_added_changed_finished_and_removed(raw: Raw) -> None:
    raw.control("PATCH", "settings", {"jobs": "manual"})
    uuid = raw.control("POST", "jobs", {"text": "hello", "file_name": "a.pdf"}).json()
    assert raw.control("GET", f"jobs/{uuid}").json()["status"] == "PENDING"
    raw.control("POST", "jobs/finish", {})
    assert raw.content(uuid).text == "hello"
    assert raw.control("GET", f"jobs/{uuid}/text").text == "hello"
    raw.control("PATCH", f"jobs/{uuid}", {"status": "CANCELLED"})
    assert raw.status(uuid).json()["status"] == "CANCELLED"
    raw.control("POST", "jobs/fail", {"error": "No.", "times": 1})
    failing = raw.submit()
    raw.control("POST", "jobs/finish", {})
    assert raw.status(failing).json()["error"] == "No."
    assert [job["uuid"] for job in raw.control("GET", "jobs").json()] == [failing, uuid]
    assert len(raw.control("GET", "jobs?limit=1").json()) == 1
    raw.control("DELETE", f"jobs/{uuid}")
    assert raw.status(uuid).status_code == 404


def test_tokens_and_users_can_be_handled(raw: Raw, service: Emulator) -> None:
    raw.log_in()
    raw.control("POST", "tokens/expire", {})
    assert raw.get("/api/v1/info").status_code == 401
    refresh_token = raw.log_in()["refresh_token"]
    raw.control("POST", "tokens/revoke", {})
    assert raw.renew(refresh_token).status_code == 400
    subject = raw.control("POST", "users", {"username": "other", "password": "secret"}).json()
    with Raw(service, "other", "secret") as other:
        other.submit()
    assert service.jobs()[0]["subject"] == subject
    assert raw.control("GET", "tokens").json()["latest"][0]["user"] == "other"


def test_catalog_assessments_feedback_and_time_can_be_handled(raw: Raw) -> None:
    frameworks = raw.control("GET", "frameworks").json()
    raw.control("PUT", "frameworks", {"frameworks": frameworks[:1]})
    assert len(raw.get("/api/v1/frameworks").json()) == 1
    done = raw.control("POST", "assessments", {"payload": {"text": "audit"}}).json()
    assert done["status"] == "COMPLETED"
    assert raw.control("GET", "assessments").json() == [done]
    raw.post("/api/v1/assessmentFeedback", json={"expertId": "e", "rationalFeedback": "r"})
    assert raw.control("GET", "feedback").json()[0]["expertId"] == "e"
    raw.control("POST", "advance", {"seconds": 301})
    assert raw.get("/api/v1/info").status_code == 401


def test_the_connection_can_be_asked_for(raw: Raw, service: Emulator) -> None:
    assert raw.control("GET", "connection").json() == service.connection()


def test_a_reset_brings_everything_back_to_the_start(raw: Raw, service: Emulator) -> None:
    raw.submit()
    raw.post("/api/v1/assessments", json={})
    raw.post("/api/v1/assessmentFeedback", json={"expertId": "e", "rationalFeedback": "r"})
    service.add_user("other", "secret")
    service.fail("*", status=500, times=None)
    service.fail_jobs(times=None)
    service.configure(jobs="manual", latency=0.01)
    service.advance(1000)

    raw.control("POST", "reset", {})

    assert service.jobs() == service.assessments() == service.feedback() == service.faults() == []
    assert service.planned_failures() == []
    assert service.counters()["total"] == 0
    assert service.settings()["jobs"] == "instant"
    assert raw.get("/api/v1/info").status_code == 401
    assert raw.post_token(username="other", password="secret").status_code == 401
    raw.log_in()
    assert raw.get("/api/v1/info").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "faults", {"operation": "nothing", "status": 500}, 400),
        ("POST", "faults", {"operation": "cancel", "status": "500"}, 400),
        ("POST", "faults", {"colour": "red"}, 400),
        ("POST", "faults", [], 400),
        ("POST", "jobs/fail", {"times": 0}, 400),
        ("PATCH", "settings", {"speed": 9}, 400),
        ("POST", "jobs", {"charset": "nonsense"}, 400),
        ("POST", "jobs", {"username": "nobody"}, 404),
        ("GET", "jobs/nothing", None, 404),
        ("GET", "jobs/nothing/text", None, 404),
        ("GET", "jobs?limit=many", None, 400),
        ("PUT", "frameworks", {"frameworks": 5}, 400),
        ("POST", "advance", {"seconds": -1}, 400),
        ("GET", "nothing", None, 404),
        ("POST", "counters", {}, 405),
    ],
)
def test_a_wrong_order_is_refused_with_a_reason(
    raw: Raw, method: str, path: str, body: Any, status: int
) -> None:
    response = raw.control(method, path, body)

    assert response.status_code == status
    assert response.json()["message"]


def test_a_form_of_a_foreign_page_can_change_nothing(service: Emulator) -> None:
    url = f"http://127.0.0.1:{service.port}/_emulator/"

    assert requests.post(url + "reset", data={"a": "b"}, timeout=30).status_code == 415
    assert (
        requests.post(
            url + "reset", data="{}", headers={"Content-Type": "text/plain"}, timeout=30
        ).status_code
        == 415
    )
