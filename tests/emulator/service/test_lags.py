"""What services do now and then: jobs found late, refreshes that begin late, other forms of times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator

FRAMEWORKS = "/api/v1/frameworks"


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
