"""What all clients of a login share, without I/O."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from airflow_provider import exceptions as exc
from airflow_provider.client import base
from airflow_provider.client.base import (
    BaseClient,
    PendingRefresh,
    SharedState,
    TokenProvider,
    get_shared_state,
    reset_shared_state,
)
from airflow_provider.client.endpoints import list_frameworks
from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.client.settings import Settings
from airflow_provider.client.tokens import AccessToken
from tests.support.values import settings_for

TOKEN = AccessToken(SecretStr("t"), 1e12)


class Cache:
    """A token cache in the state that a test needs."""

    usable: AccessToken | None = None
    latest: AccessToken | None = None
    refused: list[AccessToken | None]

    def __init__(self) -> None:
        self.refused = []

    def get_usable(self, refused: AccessToken | None = None) -> AccessToken | None:
        self.refused.append(refused)
        return self.usable


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def provider(cache: Any) -> TokenProvider:
    return TokenProvider(cache)


def pending(provider: TokenProvider) -> PendingRefresh:
    found = provider.acquire(None)
    assert isinstance(found, PendingRefresh)
    return found


def test_the_first_one_leads_the_refresh_and_the_others_wait_for_it(
    provider: TokenProvider, cache: Cache
) -> None:
    leader, follower = pending(provider), pending(provider)
    assert (leader.is_leader, follower.is_leader) == (True, False)
    assert follower.future is leader.future
    assert follower.thread == leader.thread == threading.get_ident()
    assert not follower.future.cancel()  # a waiter who leaves does not take the others along
    with provider.refreshing(leader):
        cache.usable = cache.latest = TOKEN
        assert not follower.future.done()
    assert follower.future.result(0) is TOKEN
    assert provider.acquire(None) is TOKEN


def test_an_error_of_the_refresh_is_an_error_for_all(provider: TokenProvider) -> None:
    leader, follower = pending(provider), pending(provider)
    error = exc.ComplianceAuthError("A wrong password.")
    with pytest.raises(exc.ComplianceAuthError) as raised, provider.refreshing(leader):
        raise error
    assert raised.value is error
    told = follower.future.exception(0)
    assert isinstance(told, exc.ComplianceAuthError)
    assert str(told) == "A wrong password."
    assert told is not error  # else all would add their frames to one traceback
    assert pending(provider).is_leader


def test_after_an_unexpected_end_of_the_refresh_another_one_leads(provider: TokenProvider) -> None:
    leader, follower = pending(provider), pending(provider)
    with pytest.raises(KeyboardInterrupt), provider.refreshing(leader):
        raise KeyboardInterrupt
    assert follower.future.result(0) is None
    assert pending(provider).is_leader


def test_an_abandoned_refresh_does_not_end_the_next_one(provider: TokenProvider, cache: Cache) -> None:
    first = pending(provider)
    provider.abandon(first)
    assert first.future.result(0) is None
    second = pending(provider)
    assert second.is_leader
    assert second.future is not first.future
    with provider.refreshing(first):  # its leader was slow, not dead
        cache.latest = TOKEN
    assert first.future.result(0) is None
    follower = pending(provider)
    assert not follower.is_leader
    assert follower.future is second.future


@pytest.fixture
def settings() -> Settings:
    return settings_for("https://api.example.com", retry_seconds=100.0, timeout=7.0, batch_size=17)


def test_equal_settings_share_their_state(settings: Settings) -> None:
    state = get_shared_state(settings)
    assert get_shared_state(replace(settings)) is state
    assert get_shared_state(settings_for("https://api.example.com", username="bob")) is not state
    reset_shared_state()
    assert get_shared_state(settings) is not state


def test_the_service_and_the_identity_provider_throttle_separately(settings: Settings) -> None:
    state = SharedState(settings)
    service_call = list_frameworks()
    login = next(state.tokens.cache.renew())
    assert state.throttle_pause(service_call) is state.service_pause
    assert state.throttle_pause(login) is state.token_pause
    assert state.service_pause is not state.token_pause


class Client(BaseClient):
    def _new_session(self) -> object:
        return object()


def test_a_client_tells_what_its_process_has_seen(settings: Settings) -> None:
    client = Client(settings)
    assert (client.throttlings, client.has_worked, client.is_logged_in) == (0, False, False)
    state = get_shared_state(settings)
    state.service_pause.extend(1.0)
    state.has_worked = True
    flow = state.tokens.cache.renew()
    login = next(flow)
    with pytest.raises(StopIteration):
        flow.send(login.parse(_token_response()))
    assert (client.throttlings, client.has_worked, client.is_logged_in) == (1, True, True)


def _token_response() -> Any:
    return HttpResponse(200, {}, b'{"access_token": "t", "token_type": "Bearer"}', "https://id.example/token")


def test_a_fork_forgets_the_login_and_replaces_the_session(settings: Settings) -> None:
    client = Client(settings)
    state, session = get_shared_state(settings), client._session
    state.has_worked = True
    tokens = state.tokens
    state.after_fork()
    client.after_fork()
    assert (state.has_worked, state.settings) == (False, settings)
    assert state.tokens is not tokens
    assert client._session is not session
    assert session in base._left_to_parent  # else it would be closed here, which could disturb the parent


def test_a_proxy_is_chosen_for_the_server_of_the_call(settings: Settings) -> None:
    client = Client(settings)
    asked: list[str] = []

    def choose(url: str) -> str:
        asked.append(url)
        return f"proxy of {url}"

    client._proxy_for = choose  # type: ignore[assignment] # a cache of the same
    login = next(client._shared.tokens.cache.renew())
    assert client._proxy(list_frameworks()) == f"proxy of {settings.base_url}"
    assert client._proxy(login) == f"proxy of {settings.token_url}"
