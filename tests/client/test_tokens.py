"""The token cache as a state machine, without I/O."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider import exceptions as exc
from airflow_provider.client.http.wire import Call, HttpResponse, reveal
from airflow_provider.client.tokens import (
    REFUSAL_CACHE_SECONDS,
    UNCONFIRMED_REFUSAL_SECONDS,
    AccessToken,
    TokenCache,
    TokenResponse,
)
from tests.support.clock import ManualClock
from tests.support.values import CLIENT_SECRET, settings_for


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(clock: ManualClock) -> TokenCache:
    return TokenCache(settings_for("https://api.example.com", token_url="https://id.example/token"), clock)


def answer(name: str, **fields: Any) -> TokenResponse:
    return TokenResponse(access_token=SecretStr(name), refresh_token=SecretStr(f"r-{name}"), **fields)


def renew(cache: TokenCache, *answers: TokenResponse | Exception) -> tuple[AccessToken, list[str]]:
    """Carry out a renewal with these answers, and tell which grants it asked for."""
    flow, grants, queue = cache.renew(), [], list(answers)
    call: Call[TokenResponse] = next(flow)
    while True:
        assert call.form is not None
        grants.append(str(call.form["grant_type"]))
        result = queue.pop(0)
        try:
            call = flow.throw(result) if isinstance(result, Exception) else flow.send(result)
        except StopIteration as end:
            return end.value, grants


@pytest.mark.parametrize(
    ("life", "usable_for"),
    [(300, 270), (150, 120), (100, 80), (5, 4), (0, 0), (-1, 0), (None, 48), (float("nan"), 48)],
)
def test_a_token_is_renewed_half_a_minute_or_a_fifth_of_its_life_before_its_end(
    cache: TokenCache, clock: ManualClock, life: float | None, usable_for: float
) -> None:
    token, grants = renew(cache, answer("a", expires_in=life))
    assert grants == ["password"]
    assert cache.latest == token
    clock.now += max(0.0, usable_for - 0.001)
    assert (cache.get_usable() == token) is (usable_for > 0)
    clock.now += 0.002
    assert cache.get_usable() is None


def test_a_refused_token_is_not_used_again_but_a_newer_one_is(cache: TokenCache) -> None:
    old, _ = renew(cache, answer("a", expires_in=300))
    assert cache.get_usable(refused=old) is None
    new, grants = renew(cache, answer("b", expires_in=300))
    assert grants == ["refresh_token"]
    assert cache.get_usable(refused=old) == new


def test_a_passing_fault_keeps_the_refresh_token(cache: TokenCache) -> None:
    renew(cache, answer("a", expires_in=300))
    with pytest.raises(exc.ComplianceServerError):
        renew(cache, exc.ComplianceServerError("down", status=500))
    _, grants = renew(cache, answer("b", expires_in=300))
    assert grants == ["refresh_token"]


@pytest.mark.parametrize(
    ("refresh_life", "later", "grant"),
    [
        (1800, 1799, "refresh_token"),
        (1800, 1800, "password"),
        (0, 1e6, "refresh_token"),
        (None, 1e6, "refresh_token"),
    ],
)
def test_a_refresh_token_is_used_until_its_end(
    cache: TokenCache, clock: ManualClock, refresh_life: float | None, later: float, grant: str
) -> None:
    renew(cache, answer("a", expires_in=300, refresh_expires_in=refresh_life))
    clock.now += later
    _, grants = renew(cache, answer("b", expires_in=300))
    assert grants == [grant]


@pytest.mark.parametrize(
    ("transient", "seconds"), [(False, REFUSAL_CACHE_SECONDS), (True, UNCONFIRMED_REFUSAL_SECONDS)]
)
def test_a_refused_password_is_remembered_for_a_while(
    cache: TokenCache, clock: ManualClock, transient: bool, seconds: float
) -> None:
    refusal = exc.ComplianceAuthError("no")
    refusal.transient = transient
    with pytest.raises(exc.ComplianceAuthError):
        renew(cache, refusal)
    clock.now += seconds - 1
    with pytest.raises(exc.ComplianceAuthError, match="no"):
        cache.get_usable()
    clock.now += 1
    assert cache.get_usable() is None
    token, _ = renew(cache, answer("a", expires_in=300))
    assert cache.get_usable() == token


def test_tokens_can_not_be_printed(cache: TokenCache) -> None:
    token, _ = renew(cache, answer("very-secret", expires_in=300))
    shown = f"{token!r} {token} {cache._tokens!r} {answer('very-secret')!r} {cache._settings!r}"
    assert "very-secret" not in shown
    assert "pa55" not in shown


def test_a_renewal_that_brings_the_same_token_is_a_renewal(cache: TokenCache) -> None:
    old, _ = renew(cache, answer("a", expires_in=300))
    new, _ = renew(cache, answer("a", expires_in=300))
    assert cache.get_usable(refused=old) is new


def test_the_life_of_a_token_begins_when_it_was_asked_for(cache: TokenCache, clock: ManualClock) -> None:
    flow = cache.renew()
    next(flow)
    clock.now += 100
    with pytest.raises(StopIteration):
        flow.send(answer("a", expires_in=300, refresh_expires_in=250))
    clock.now += 169
    assert cache.get_usable()
    clock.now += 1
    assert cache.get_usable() is None
    _, grants = renew(cache, answer("b", expires_in=300))
    assert grants == ["password"]


def test_a_remembered_refusal_does_not_gather_the_frames_of_all_who_met_it(cache: TokenCache) -> None:
    with pytest.raises(exc.ComplianceAuthError):
        renew(cache, exc.ComplianceAuthError("no"))
    seen = []
    for _ in range(2):
        with pytest.raises(exc.ComplianceAuthError) as caught:
            cache.get_usable()
        seen.append(caught.value)
    assert seen[0] is not seen[1]


@pytest.mark.parametrize("status", [403, 404, 405])
@pytest.mark.parametrize("error", ["Not Found", "Forbidden", "not_found", ""])
def test_an_error_field_of_something_else_is_no_refusal_of_credentials(
    cache: TokenCache, status: int, error: str
) -> None:
    """Many a gateway answers with a field of that name."""
    body = json.dumps({"error": error}).encode()
    map_error = next(cache.renew()).map_error(HttpResponse(status, {}, body, "https://id.example/token"))
    assert isinstance(map_error, exc.ComplianceConfigError)
    assert map_error.transient


def test_a_refused_refresh_token_is_not_tried_again_when_the_login_fails_too(cache: TokenCache) -> None:
    renew(cache, answer("a", expires_in=300))
    with pytest.raises(exc.ComplianceServerError):
        renew(cache, exc.ComplianceAuthError("used"), exc.ComplianceServerError("down", status=500))
    _, grants = renew(cache, answer("b", expires_in=300))
    assert grants == ["password"]


def test_a_grant_has_the_fields_of_oauth(cache: TokenCache) -> None:
    def form(call: Call[TokenResponse]) -> dict[str, str]:
        assert (call.method, call.path) == ("POST", "https://id.example/token")
        assert call.form is not None
        return {name: reveal(value) for name, value in call.form.items()}

    settings = cache._settings
    assert form(next(cache.renew())) == {
        "grant_type": "password",
        "username": settings.username,
        "password": settings.password.get_secret_value(),
        "client_id": settings.client_id,
        "client_secret": settings.client_secret.get_secret_value(),
    }
    renew(cache, answer("a", expires_in=300))
    assert form(next(cache.renew())) == {
        "grant_type": "refresh_token",
        "refresh_token": "r-a",
        "client_id": settings.client_id,
        "client_secret": settings.client_secret.get_secret_value(),
    }


def explain(cache: TokenCache, status: int, **fields: str) -> exc.ComplianceError:
    """Return the error that a token endpoint's refusal becomes."""
    body = json.dumps(fields).encode()
    error = next(cache.renew()).map_error(HttpResponse(status, {}, body, "https://id.example/token"))
    assert isinstance(error, exc.ComplianceError)
    return error


OF_THE_CLIENT = ("invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope")
OF_THE_USER = ("invalid_grant", "invalid_request", "access_denied")


@pytest.mark.parametrize("code", [*OF_THE_CLIENT, *OF_THE_USER])
def test_every_error_of_oauth_names_who_was_refused_with_any_status(cache: TokenCache, code: str) -> None:
    for status in (400, 403, 503):
        error = explain(cache, status, error=code, error_description="so it is")
        assert isinstance(error, exc.ComplianceAuthError)
        who = f"client '{cache._settings.client_id}'" if code in OF_THE_CLIENT else "user 'alice'"
        assert f"refused {who} ({code}: so it is)" in str(error)


def test_a_proxy_that_wants_credentials_is_not_the_identity_provider(cache: TokenCache) -> None:
    error = explain(cache, 407)
    assert isinstance(error, exc.ComplianceConnectionError)
    assert error.transient
    assert isinstance(explain(cache, 408), exc.ComplianceConfigError)


def test_a_token_response_may_be_a_megabyte_and_needs_no_type(cache: TokenCache) -> None:
    call = next(cache.renew())
    assert call.limit == 1024**2
    parsed = call.parse(HttpResponse(200, {}, b'{"access_token": "a"}', "https://id.example/token"))
    assert parsed.token_type == "bearer"
    # Its names are those of OAuth alone.
    camel = HttpResponse(200, {}, b'{"accessToken": "a"}', "https://id.example/token")
    with pytest.raises(exc.ComplianceProtocolError, match="has no access_token"):
        call.parse(camel)


@pytest.fixture
def client_cache(clock: ManualClock) -> TokenCache:
    settings = settings_for(
        "https://api.example.com",
        token_url="https://id.example/token",
        grant_type="client_credentials",
        username="",
        password=SecretStr(""),
    )
    return TokenCache(settings, clock)


def test_client_credentials_log_in_without_a_user(client_cache: TokenCache) -> None:
    call = next(client_cache.renew())
    assert call.form is not None
    assert call.form == {"grant_type": "client_credentials"}
    assert call.basic_auth is not None
    client, secret = call.basic_auth
    assert (client, reveal(secret)) == ("partner", CLIENT_SECRET)
    assert CLIENT_SECRET not in repr(call)


def test_client_credentials_log_in_again_where_there_is_no_refresh_token(client_cache: TokenCache) -> None:
    token = TokenResponse(access_token=SecretStr("a"), expires_in=300)
    assert renew(client_cache, token)[1] == ["client_credentials"]
    assert renew(client_cache, token)[1] == ["client_credentials"]


@pytest.mark.parametrize("code", ["invalid_client", "invalid_grant", "access_denied"])
def test_refused_client_credentials_name_the_client_and_are_not_tried_again(
    client_cache: TokenCache, code: str
) -> None:
    flow = client_cache.renew()
    call = next(flow)
    response = HttpResponse(401, {}, json.dumps({"error": code}).encode(), "https://id.example/token")
    error = call.map_error(response)
    assert error is not None
    with pytest.raises(exc.ComplianceAuthError, match=r"refused client 'partner'.*'client_secret'"):
        flow.throw(error)
    with pytest.raises(exc.ComplianceAuthError, match="refused client 'partner'"):
        client_cache.get_usable()
