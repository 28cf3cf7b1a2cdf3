from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator
    from tests.emulator.raw import Raw

FRAMEWORKS = "/api/v1/frameworks"


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


def test_a_token_is_signed_with_a_key_of_the_jwks_endpoint(raw: Raw, service: Emulator) -> None:
    token = raw.log_in()["access_token"]
    keys = requests.get(service.token_url.removesuffix("token") + "certs", timeout=30).json()
    key = jwt.PyJWKSet.from_dict(keys)[jwt.get_unverified_header(token)["kid"]]

    claims = jwt.decode(token, key.key, algorithms=["RS256"], options={"verify_aud": False})

    assert claims["exp"] - claims["iat"] in (300, 301)
    assert keys["keys"][0].keys() == {"kty", "key_ops", "n", "e", "kid", "alg", "use"}


@pytest.mark.parametrize("missing", ["username", "password", "client_id", "client_secret", "grant_type"])
def test_each_parameter_of_the_password_grant_is_required(raw: Raw, missing: str) -> None:
    response = raw.post_token(**{missing: None})

    assert response.status_code == 400
    assert response.json() == {
        "error": "invalid_request",
        "error_description": f"Missing form parameter: {missing}",
    }


@pytest.mark.parametrize("missing", ["client_id", "client_secret", "refresh_token"])
def test_each_parameter_of_the_refresh_grant_is_required(raw: Raw, missing: str) -> None:
    refresh_token = raw.log_in()["refresh_token"]

    response = raw.post_token(
        username=None,
        password=None,
        grant_type="refresh_token",
        refresh_token=None if missing == "refresh_token" else refresh_token,
        **({} if missing == "refresh_token" else {missing: None}),
    )

    assert response.status_code == 400
    assert response.json()["error"] == "invalid_request"


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


def test_a_refresh_gives_new_tokens_of_the_same_session(raw: Raw) -> None:
    first = raw.log_in()

    second = raw.renew(first["refresh_token"]).json()

    assert second["session_state"] == first["session_state"]
    assert second["access_token"] != first["access_token"]
    assert second["refresh_token"] != first["refresh_token"]
    assert raw.get(FRAMEWORKS, token=second["access_token"]).status_code == 200


def test_a_used_refresh_token_is_refused_and_the_new_one_still_works(raw: Raw) -> None:
    first = raw.log_in()
    second = raw.renew(first["refresh_token"]).json()

    again = raw.renew(first["refresh_token"])

    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert raw.renew(second["refresh_token"]).status_code == 200


def test_an_expired_refresh_token_is_refused(raw: Raw, service: Emulator) -> None:
    refresh_token = raw.log_in()["refresh_token"]
    service.advance(1801)

    response = raw.renew(refresh_token)

    assert (response.status_code, response.json()["error"]) == (400, "invalid_grant")


def test_an_access_token_cannot_be_used_to_refresh(raw: Raw) -> None:
    response = raw.renew(raw.log_in()["access_token"])

    assert response.status_code == 400
    assert response.json() == {"error": "invalid_grant", "error_description": "Invalid token"}


def test_the_signature_of_a_token_is_checked_once(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Mock(wraps=jwt.decode)
    monkeypatch.setattr(jwt, "decode", decode)
    token = raw.log_in()["access_token"]
    assert {raw.get(FRAMEWORKS, token=token).status_code for _ in range(5)} == {200}
    assert decode.call_count == 1


def test_revoked_tokens_work_neither_to_call_nor_to_refresh(raw: Raw, service: Emulator) -> None:
    answer = raw.log_in()
    service.revoke_tokens()

    assert raw.get(FRAMEWORKS, token=answer["access_token"]).status_code == 401
    assert raw.renew(answer["refresh_token"]).status_code == 400
    assert raw.log_in()["not-before-policy"] > 0


def test_expired_access_tokens_can_still_be_refreshed(raw: Raw, service: Emulator) -> None:
    answer = raw.log_in()
    service.expire_tokens()

    assert raw.get(FRAMEWORKS, token=answer["access_token"]).status_code == 401
    renewed = raw.renew(answer["refresh_token"]).json()
    assert raw.get(FRAMEWORKS, token=renewed["access_token"]).status_code == 200


def test_logins_and_refreshes_are_counted_apart_and_no_token_is_kept(raw: Raw, service: Emulator) -> None:
    answer = raw.log_in()
    raw.renew(answer["refresh_token"])
    raw.post_token(password="wrong")

    counters = service.counters()
    assert (counters["logins"], counters["refreshes"]) == (1, 1)
    assert counters["operations"]["login"] == {"200": 1, "401": 1}
    seen = json.dumps([service.tokens(), service.requests(), service.overview()])
    assert answer["access_token"] not in seen
    assert answer["refresh_token"] not in seen


def forge(claims: dict[str, Any], kid: str = "emulator-1") -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return jwt.encode(claims, key, algorithm="RS256", headers={"kid": kid})


def without_signature(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none", "kid": "emulator-1"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return f"{encoded[0]}.{encoded[1]}."


@pytest.mark.parametrize(
    "kind", ["other key", "unknown key", "no signature", "garbage", "not ascii", "changed", "refresh token"]
)
def test_a_forged_token_is_refused(raw: Raw, kind: str) -> None:
    answer = raw.log_in()
    good = answer["access_token"]
    head, _, signature = good.split(".")
    changed = (
        base64.urlsafe_b64encode(json.dumps({**claims_of(good), "sub": "x"}).encode()).rstrip(b"=").decode()
    )
    token = {
        "other key": forge(claims_of(good)),
        "unknown key": forge(claims_of(good), kid="other"),
        "no signature": without_signature(claims_of(good)),
        "garbage": "not-a-token",
        "not ascii": "\xff.\xff.\xff",
        "changed": f"{head}.{changed}.{signature}",
        "refresh token": answer["refresh_token"],
    }[kind]

    response = raw.get(FRAMEWORKS, token=token)

    assert response.status_code == 401
    assert 'error="invalid_token"' in response.headers["WWW-Authenticate"]
    assert raw.get(FRAMEWORKS, token=good).status_code == 200


def test_client_credentials_give_an_access_token_of_the_service_account_and_no_refresh_token(
    raw: Raw, service: Emulator
) -> None:
    answer = raw.post_token(grant_type="client_credentials", username=None, password=None).json()
    assert answer.keys() >= {"access_token", "expires_in", "token_type"}
    assert "refresh_token" not in answer
    assert claims_of(answer["access_token"])["preferred_username"] == "service-account-airflow"
    header = {"Authorization": f"Bearer {answer['access_token']}"}
    assert requests.get(f"{service.url}{FRAMEWORKS}", headers=header, timeout=30).status_code == 200
    basic = raw.session.post(
        service.token_url,
        data={"grant_type": "client_credentials"},
        auth=(raw.credentials["client_id"], raw.credentials["client_secret"]),
        timeout=30,
    )
    assert basic.status_code == 200
    refused = raw.post_token(grant_type="client_credentials", client_secret="wrong")
    assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
