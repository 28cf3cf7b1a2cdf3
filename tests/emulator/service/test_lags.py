"""What services do now and then: jobs found late, refreshes that begin late, other forms of times."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator
    from tests.emulator.pages import Site

FRAMEWORKS = "/api/v1/frameworks"


@pytest.mark.compliance_service(visible="polls:3")
def test_a_job_is_unknown_for_the_first_polls(raw: Raw) -> None:
    uuid, other = raw.submit(), raw.submit()

    assert raw.status(uuid).status_code == 404
    assert raw.batch(uuid) == []
    assert raw.delete(f"{CONTENT}/{uuid}").status_code == 404
    assert [record["uuid"] for record in raw.batch(uuid, other)] == [uuid]
    assert raw.content(uuid).status_code == 200


@pytest.mark.compliance_service(visible="seconds:200")
def test_a_job_is_unknown_for_the_first_seconds(raw: Raw, service: Emulator) -> None:
    uuid = raw.submit()
    assert raw.status(uuid).status_code == 404
    service.advance(201)
    assert raw.status(uuid).status_code == 303


@pytest.mark.parametrize("visible", ["manual", "sometimes"])
def test_when_a_job_is_found_must_be_possible(service: Emulator, visible: str) -> None:
    with pytest.raises(ValueError, match="visible must be"):
        service.configure(visible=visible)


@pytest.mark.compliance_service(refresh_lag=2, jobs="polls:1")
def test_a_refresh_may_begin_late(raw: Raw, site: Site, service: Emulator) -> None:
    url = site.put("/page", "<p>old</p>")
    uuid = raw.post(f"{CONTENT}/url", json={"url": url}).json()["uuid"]
    assert [raw.batch(uuid)[0]["status"] for _ in range(2)] == ["RUNNING", "COMPLETED"]
    site.put("/page", "<p>new</p>")

    assert raw.post(f"{CONTENT}/{uuid}/refresh").json()["status"] == "PENDING"

    assert raw.content(uuid).text == "old"
    assert [raw.batch(uuid)[0]["status"] for _ in range(4)] == [
        "COMPLETED",
        "COMPLETED",
        "RUNNING",
        "COMPLETED",
    ]
    assert raw.content(uuid).text == "new"


@pytest.mark.compliance_service(naive_times=True)
def test_times_may_have_no_zone(raw: Raw) -> None:
    (record,) = raw.batch(raw.submit())

    for name in ("createdAt", "completedAt"):
        assert datetime.fromisoformat(record[name]).tzinfo is None


def test_an_answer_may_come_byte_by_byte(raw: Raw, service: Emulator) -> None:
    uuid = service.add_job(text="0123456789")
    service.fail("get_content", drip=0.02)
    raw.log_in()

    started = time.monotonic()
    assert raw.content(uuid).text == "0123456789"
    assert time.monotonic() - started >= 9 * 0.02  # nobody waits for the pause after the last byte
    assert service.count("get_content", 200) == 1


def test_a_client_that_does_not_wait_for_a_dripping_answer_does_no_harm(raw: Raw, service: Emulator) -> None:
    service.fail("list_frameworks", drip=3600)
    with raw.get(FRAMEWORKS, stream=True) as response:
        assert response.status_code == 200
    assert raw.get(FRAMEWORKS).status_code == 200


@pytest.mark.parametrize("operation", ["list_frameworks", "login"])
@pytest.mark.parametrize(
    "fault", [{"status": 404}, {"status": 403}, {"html": True}, {"status": 403, "html": True}]
)
def test_the_service_and_the_identity_provider_can_refuse_until_the_fault_is_lifted(
    raw: Raw, service: Emulator, operation: str, fault: dict[str, Any]
) -> None:
    raw.log_in()
    service.fail(operation, times=None, **fault)

    def ask() -> Any:
        return raw.get(FRAMEWORKS) if operation == "list_frameworks" else raw.post_token()

    for _ in range(3):
        answer = ask()
        assert answer.status_code == fault.get("status", 200)
        assert answer.headers["Content-Type"].startswith("text/html") == ("html" in fault)
    service.clear_faults()
    assert ask().json()


def test_an_operation_can_be_redirected_elsewhere(raw: Raw, service: Emulator) -> None:
    service.fail("submit_url", status=302, html=True, location="/maintenance.html")
    answer = raw.post(f"{CONTENT}/url", json={"url": "http://127.0.0.1:9/"})

    assert (answer.status_code, answer.headers["Location"]) == (302, "/maintenance.html")
    assert service.jobs() == []


def test_a_password_can_be_changed_which_ends_all_sessions(raw: Raw, service: Emulator) -> None:
    session = raw.log_in()
    assert raw.control("POST", "users/password", {"password": "another"}).status_code == 200

    assert raw.get(FRAMEWORKS).status_code == 401
    assert raw.renew(session["refresh_token"]).status_code == 400
    assert raw.post_token().status_code == 401
    with Raw(service) as informed:
        assert informed.get(FRAMEWORKS).status_code == 200
    service.reset()
    assert raw.post_token().status_code == 200


def test_the_password_of_another_user_can_be_changed(raw: Raw, service: Emulator) -> None:
    service.add_user("eve", "one")
    service.change_password("two", username="eve")

    assert raw.post_token(username="eve", password="two").status_code == 200
    assert raw.post_token().status_code == 200
    with pytest.raises(KeyError, match="no user mallory"):
        service.change_password("three", username="mallory")
