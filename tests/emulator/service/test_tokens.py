from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.emulator.raw import Raw, claims_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider.emulator import Emulator

FRAMEWORKS = "/api/v1/frameworks"


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_id": "nobody"}, 401, "invalid_client"),
        ({"password": "wrong"}, 401, "invalid_grant"),
        ({"username": "nobody"}, 401, "invalid_grant"),
        ({"grant_type": "implicit"}, 400, "unsupported_grant_type"),
    ],
)
def test_wrong_credentials_get_the_oauth_error(
    raw: Raw, changes: dict[str, str], status: int, error: str
) -> None:
    response = raw.post_token(**changes)

    assert response.status_code == status
    assert response.json()["error"] == error
    assert response.json()["error_description"]


def test_a_used_refresh_token_is_refused_and_the_new_one_still_works(raw: Raw) -> None:
    first = raw.log_in()
    second = raw.renew(first["refresh_token"]).json()

    again = raw.renew(first["refresh_token"])

    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert raw.renew(second["refresh_token"]).status_code == 200


def test_an_access_token_cannot_be_used_to_refresh(raw: Raw) -> None:
    response = raw.renew(raw.log_in()["access_token"])

    assert response.status_code == 400
    assert response.json() == {"error": "invalid_grant", "error_description": "Invalid token"}


@pytest.mark.parametrize("kind", ["garbage", "not ascii", "changed", "refresh token"])
def test_a_token_that_was_not_issued_is_refused(raw: Raw, kind: str) -> None:
    answer = raw.log_in()
    good = answer["access_token"]
    assert (claims_of(good)["exp"] - claims_of(good)["iat"]) in (300, 301)
    token = {
        "garbage": "not-a-token",
        "not ascii": "\xff.\xff.\xff",
        "changed": good[:-1] + ("a" if good[-1] != "a" else "b"),
        "refresh token": answer["refresh_token"],
    }[kind]

    response = raw.get(FRAMEWORKS, token=token)

    assert response.status_code == 401
    assert 'error="invalid_token"' in response.headers["WWW-Authenticate"]
    assert raw.get(FRAMEWORKS, token=good).status_code == 200


@pytest.mark.parametrize(
    ("grant_type", "missing"),
    [
        *(("password", name) for name in ("username", "password", "client_id", "client_secret")),
        *(("refresh_token", name) for name in ("refresh_token", "client_id", "client_secret")),
        (None, "grant_type"),
    ],
)
def test_each_parameter_of_a_grant_is_required(raw: Raw, grant_type: str | None, missing: str) -> None:
    token = raw.log_in()["refresh_token"]
    form: dict[str, str | None] = {"refresh_token": token, "grant_type": grant_type, missing: None}

    response = raw.post_token(**form)

    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")
    assert response.json()["error_description"] == f"Missing form parameter: {missing}"


@pytest.mark.parametrize(
    ("act", "is_refreshable"),
    [
        (lambda service: service.expire_tokens(), True),
        (lambda service: service.advance(301), True),
        (lambda service: service.revoke_tokens(), False),
        (lambda service: service.change_password("another"), False),
        (lambda service: service.reset(), False),
    ],
)
def test_tokens_can_be_invalidated(
    raw: Raw, service: Emulator, act: Callable[[Emulator], object], is_refreshable: bool
) -> None:
    issued = raw.log_in()
    act(service)

    assert raw.get(FRAMEWORKS, token=issued["access_token"]).status_code == 401
    renewed = raw.renew(issued["refresh_token"])
    assert renewed.status_code == (200 if is_refreshable else 400)
    with Raw(service) as informed:  # with the connection as it is now
        assert informed.get(FRAMEWORKS).status_code == 200
    if is_refreshable:
        assert renewed.json()["session_state"] == issued["session_state"]
        assert raw.get(FRAMEWORKS, token=renewed.json()["access_token"]).status_code == 200
        assert (service.counters()["logins"], service.counters()["refreshes"]) == (2, 1)
