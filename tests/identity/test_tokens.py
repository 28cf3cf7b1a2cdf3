"""Which token the clients use, and when they get a new one, against a real identity provider."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlencode

import pytest
from pydantic import SecretStr

from airflow_provider.exceptions import ComplianceAuthError
from tests.identity.callers import AsyncCaller
from tests.identity.conftest import SHORT_LIFE, Clock, Connect, Provider
from tests.identity.servers import TIMEOUT_SECONDS, FrameworkService, TokenProxy

pytestmark = pytest.mark.identity_provider

LOGIN, RENEWAL = ("password", 200), ("refresh_token", 200)
CROWD = 20


def test_logs_in_with_the_password_and_calls_the_service_with_the_token(
    connect: Connect, proxy: TokenProxy, frameworks: FrameworkService
) -> None:
    assert connect().call() == []
    assert proxy.outcomes == [LOGIN]
    assert frameworks.authorizations == [f"Bearer {proxy.grants[0].answer['access_token']}"]


def test_one_login_serves_many_calls(
    connect: Connect, proxy: TokenProxy, frameworks: FrameworkService
) -> None:
    client = connect()
    assert [client.call() for _ in range(10)] == [[]] * 10
    assert proxy.outcomes == [LOGIN]
    assert len(frameworks.authorizations) == 10


def test_a_crowd_logs_in_once(connect: Connect, proxy: TokenProxy, frameworks: FrameworkService) -> None:
    proxy.slowness = 0.2
    assert connect().crowd(CROWD) == [[]] * CROWD
    assert proxy.outcomes == [LOGIN]
    assert len(frameworks.authorizations) == CROWD


def test_a_token_near_its_end_is_renewed_and_each_refresh_token_is_used_once(
    connect: Connect, proxy: TokenProxy, frameworks: FrameworkService
) -> None:
    clock = Clock()
    client = connect(clock)
    client.call()
    for _ in range(3):
        clock.now += 3600 - 31
        client.call()  # a second before the renewal is due
        clock.now += 2
        client.call()
    assert proxy.outcomes == [LOGIN, RENEWAL, RENEWAL, RENEWAL]
    given = [grant.answer["refresh_token"] for grant in proxy.grants]
    assert [grant.form["refresh_token"] for grant in proxy.grants[1:]] == given[:-1]
    assert len(set(given)) == len(given), "the identity provider rotates"
    assert frameworks.authorizations[-1] == f"Bearer {proxy.grants[-1].answer['access_token']}"


def test_a_used_refresh_token_is_refused_and_the_password_helps(
    connect: Connect, proxy: TokenProxy, provider: Provider, frameworks: FrameworkService
) -> None:
    client = connect()
    client.call()
    # Somebody else uses the client's refresh token first.
    form = {
        "grant_type": "refresh_token",
        "refresh_token": proxy.grants[0].answer["refresh_token"],
        "client_id": provider.client_id,
        "client_secret": provider.client_secret,
    }
    assert proxy.post(urlencode(form).encode())[0] == 200
    frameworks.refuse(1)
    assert client.call() == []
    assert proxy.outcomes == [LOGIN, ("refresh_token", 400), LOGIN]
    assert proxy.grants[1].answer["error"] == "invalid_grant"
    # From here on, the tokens of the new login count.
    frameworks.refuse(1)
    assert client.call() == []
    assert proxy.outcomes[3:] == [RENEWAL]
    assert proxy.grants[3].form["refresh_token"] == proxy.grants[2].answer["refresh_token"]


def test_a_renewal_whose_answer_is_lost_ends_in_a_login(
    connect: Connect, proxy: TokenProxy, frameworks: FrameworkService
) -> None:
    client = connect()
    client.call()
    frameworks.refuse(1)
    proxy.answers_to_lose = 1
    assert client.call() == []
    # The first renewal has used the refresh token up, though nobody saw its answer.
    assert proxy.outcomes == [LOGIN, RENEWAL, ("refresh_token", 400), LOGIN]
    assert proxy.grants[1].form == proxy.grants[2].form


def test_a_crowd_whose_token_is_refused_renews_once_and_repeats_once(
    connect: Connect, proxy: TokenProxy, frameworks: FrameworkService
) -> None:
    client = connect()
    client.call()
    proxy.slowness = 0.2
    frameworks.refuse(CROWD)
    assert client.crowd(CROWD) == [[]] * CROWD
    assert proxy.outcomes == [LOGIN, RENEWAL]
    old, new = (f"Bearer {grant.answer['access_token']}" for grant in proxy.grants)
    assert frameworks.authorizations == [old] * (1 + CROWD) + [new] * CROWD


def test_a_crowd_that_is_refused_with_the_new_token_too_does_not_renew_again(
    connect: Connect, proxy: TokenProxy, frameworks: FrameworkService
) -> None:
    client = connect(max_retries=1)
    client.call()
    proxy.slowness = 0.2
    frameworks.refuse(CROWD)
    frameworks.accepts = False
    errors = client.crowd(CROWD)
    assert {type(error) for error in errors} == {ComplianceAuthError}
    assert "refused with a fresh token" in str(errors[0])
    assert proxy.outcomes == [LOGIN, RENEWAL]
    # It has worked before, so the new token is tried once more, and the errors may pass.
    assert len(frameworks.authorizations) == 1 + 3 * CROWD
    assert all(error.transient for error in errors)


@pytest.mark.parametrize("connect", ["aiohttp"], indirect=True)
def test_a_renewal_that_is_cancelled_halfway_is_taken_over_by_those_who_wait(
    connect: Connect, proxy: TokenProxy
) -> None:
    clock = Clock()
    client = connect(clock)
    assert isinstance(client, AsyncCaller)
    client.call()
    clock.now += 3600

    async def cancel_the_first() -> list[Any]:
        proxy.may_answer.clear()
        first = asyncio.create_task(client.one())
        while len(proxy.grants) < 2:  # noqa: ASYNC110 - the proxy is in a thread of its own
            await asyncio.sleep(0.01)
        # The refresh token is used up now, and the first task will never see the next one.
        others = [asyncio.create_task(client.one()) for _ in range(CROWD)]
        await asyncio.sleep(0)
        first.cancel()
        proxy.may_answer.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    first, *others = client.runner.run(asyncio.wait_for(cancel_the_first(), TIMEOUT_SECONDS))
    assert isinstance(first, asyncio.CancelledError)
    assert others == [[]] * CROWD
    assert proxy.outcomes == [LOGIN, RENEWAL, ("refresh_token", 400), LOGIN]


def test_who_comes_late_with_the_old_token_gets_the_new_one(
    connect: Connect, proxy: TokenProxy, frameworks: FrameworkService
) -> None:
    client = connect()
    client.call()
    tokens = client.shared.tokens
    # Canaille's tokens of one second are spelled the same: a renewal has taken place all the same.
    for _ in range(5):
        old = tokens.cache.latest
        frameworks.refuse(1)
        client.call()
        assert tokens.cache.latest is not old
        assert tokens.acquire(refused=old) is tokens.cache.latest
    assert proxy.outcomes == [LOGIN] + [RENEWAL] * 5


class TestTokensThatEndSoon:
    @pytest.fixture
    def provider(self, hasty_provider: Provider) -> Provider:
        return hasty_provider

    def test_they_are_renewed_no_more_often_than_they_end(self, connect: Connect, proxy: TokenProxy) -> None:
        client, start = connect(), time.monotonic()
        for _ in range(20):
            assert client.call() == []
            time.sleep(SHORT_LIFE / 10)
        renewed_after = SHORT_LIFE * 4 / 5
        tokens = [outcome for outcome in proxy.outcomes if outcome[1] == 200]
        assert 2 <= len(tokens) <= 1 + (time.monotonic() - start) / renewed_after
        # On a slow machine a refresh token may have ended meanwhile; then a login follows, no second try.
        assert len(proxy.grants) < 2 * len(tokens)

    def test_after_a_long_pause_the_refresh_token_has_ended_and_the_password_helps(
        self, connect: Connect, proxy: TokenProxy
    ) -> None:
        client = connect()
        client.call()
        time.sleep(SHORT_LIFE + 1)
        assert client.call() == []
        assert proxy.outcomes == [LOGIN, ("refresh_token", 400), LOGIN]


def test_client_credentials_log_in_without_a_user(
    connect: Connect, proxy: TokenProxy, provider: Provider, frameworks: FrameworkService
) -> None:
    clock = Clock()
    client = connect(
        clock,
        grant_type="client_credentials",
        client_id="machine",
        client_secret=SecretStr(provider.machine_secret),
        username="",
        password=SecretStr(""),
    )
    assert client.crowd(CROWD) == [[]] * CROWD
    assert proxy.outcomes == [("client_credentials", 200)]
    assert proxy.grants[0].form == {"grant_type": "client_credentials"}
    token = proxy.grants[0].answer["access_token"]
    assert frameworks.authorizations == [f"Bearer {token}"] * CROWD
    clock.now += 3600
    client.call()
    assert proxy.grants[-1].status == 200
    assert frameworks.authorizations[-1] == f"Bearer {proxy.grants[-1].answer['access_token']}"


def test_wrong_client_credentials_are_tried_once(connect: Connect, proxy: TokenProxy) -> None:
    client = connect(grant_type="client_credentials", client_id="machine", client_secret=SecretStr("wrong"))
    errors = client.crowd(CROWD)
    assert {type(each) for each in errors} == {ComplianceAuthError}
    assert "refused client 'machine'" in str(errors[0])
    assert len(proxy.grants) == 1
