"""Which token the clients use, and when they get a new one, against a real identity provider."""

from __future__ import annotations

import time
from urllib.parse import urlencode

import pytest
from pydantic import SecretStr

from tests.identity.conftest import SHORT_LIFE, Connect, Provider
from tests.identity.servers import TrustingService
from tests.support.clock import ManualClock

pytestmark = pytest.mark.identity_provider

LOGIN, RENEWAL = ("password", 200), ("refresh_token", 200)
CROWD = 20


def test_logs_in_with_the_password_and_calls_the_service_with_the_token(
    connect: Connect, service: TrustingService
) -> None:
    assert connect()("list_frameworks") == []
    assert service.outcomes == [LOGIN]
    assert service.authorizations == [f"Bearer {service.passed_on[0].answer['access_token']}"]


def test_a_crowd_logs_in_once(connect: Connect, service: TrustingService) -> None:
    service.slowness = 0.2
    assert connect().crowd(CROWD, "list_frameworks") == [[]] * CROWD
    assert service.outcomes == [LOGIN]
    assert len(service.authorizations) == CROWD


def test_a_token_near_its_end_is_renewed_and_each_refresh_token_is_used_once(
    connect: Connect, service: TrustingService
) -> None:
    clock = ManualClock()
    client = connect(clock)
    client("list_frameworks")
    for _ in range(3):
        clock.now += 3600 - 31
        client("list_frameworks")  # a second before the renewal is due
        clock.now += 2
        client("list_frameworks")
    assert service.outcomes == [LOGIN, RENEWAL, RENEWAL, RENEWAL]
    given = [grant.answer["refresh_token"] for grant in service.passed_on]
    assert [grant.form["refresh_token"] for grant in service.passed_on[1:]] == given[:-1]
    assert len(set(given)) == len(given), "the identity provider rotates"
    assert service.authorizations[-1] == f"Bearer {service.passed_on[-1].answer['access_token']}"


def test_a_used_refresh_token_is_refused_and_the_password_helps(
    connect: Connect, provider: Provider, service: TrustingService
) -> None:
    client = connect()
    client("list_frameworks")
    # Somebody else uses the client's refresh token first.
    form = {
        "grant_type": "refresh_token",
        "refresh_token": service.passed_on[0].answer["refresh_token"],
        "client_id": provider.client_id,
        "client_secret": provider.client_secret,
    }
    assert service.post(urlencode(form).encode())[0] == 200
    service.refuse(1)
    assert client("list_frameworks") == []
    assert service.outcomes == [LOGIN, ("refresh_token", 400), LOGIN]
    assert service.passed_on[1].answer["error"] == "invalid_grant"
    # From here on, the tokens of the new login count.
    service.refuse(1)
    assert client("list_frameworks") == []
    assert service.outcomes[3:] == [RENEWAL]
    assert service.passed_on[3].form["refresh_token"] == service.passed_on[2].answer["refresh_token"]


def test_a_renewal_whose_answer_is_lost_ends_in_a_login(connect: Connect, service: TrustingService) -> None:
    client = connect()
    client("list_frameworks")
    service.refuse(1)
    service.answers_to_lose = 1
    assert client("list_frameworks") == []
    # The first renewal has used the refresh token up, though nobody saw its answer.
    assert service.outcomes == [LOGIN, RENEWAL, ("refresh_token", 400), LOGIN]
    assert service.passed_on[1].form == service.passed_on[2].form


def test_a_crowd_whose_token_is_refused_renews_once_and_repeats_once(
    connect: Connect, service: TrustingService
) -> None:
    client = connect()
    client("list_frameworks")
    service.slowness = 0.2
    service.refuse(CROWD)
    assert client.crowd(CROWD, "list_frameworks") == [[]] * CROWD
    assert service.outcomes == [LOGIN, RENEWAL]
    old, new = (f"Bearer {grant.answer['access_token']}" for grant in service.passed_on)
    assert service.authorizations == [old] * (1 + CROWD) + [new] * CROWD


class TestTokensThatEndSoon:
    @pytest.fixture
    def provider(self, hasty_provider: Provider) -> Provider:
        return hasty_provider

    def test_they_are_renewed_no_more_often_than_they_end(
        self, connect: Connect, service: TrustingService
    ) -> None:
        client, start = connect(), time.monotonic()
        for _ in range(20):
            assert client("list_frameworks") == []
            time.sleep(SHORT_LIFE / 10)
        renewed_after = SHORT_LIFE * 4 / 5
        tokens = [outcome for outcome in service.outcomes if outcome[1] == 200]
        assert 2 <= len(tokens) <= 1 + (time.monotonic() - start) / renewed_after
        # On a slow machine a refresh token may have ended meanwhile; then a login follows, no second try.
        assert len(service.passed_on) < 2 * len(tokens)

    def test_after_a_long_pause_the_refresh_token_has_ended_and_the_password_helps(
        self, connect: Connect, service: TrustingService
    ) -> None:
        client = connect()
        client("list_frameworks")
        time.sleep(SHORT_LIFE + 1)
        assert client("list_frameworks") == []
        assert service.outcomes == [LOGIN, ("refresh_token", 400), LOGIN]


def test_client_credentials_log_in_without_a_user(
    connect: Connect, provider: Provider, service: TrustingService
) -> None:
    clock = ManualClock()
    client = connect(
        clock,
        grant_type="client_credentials",
        client_id="machine",
        client_secret=SecretStr(provider.machine_secret),
        username="",
        password=SecretStr(""),
    )
    assert client.crowd(CROWD, "list_frameworks") == [[]] * CROWD
    assert service.outcomes == [("client_credentials", 200)]
    assert service.passed_on[0].form == {"grant_type": "client_credentials"}
    token = service.passed_on[0].answer["access_token"]
    assert service.authorizations == [f"Bearer {token}"] * CROWD
    clock.now += 3600
    client("list_frameworks")
    assert service.passed_on[-1].status == 200
    assert service.authorizations[-1] == f"Bearer {service.passed_on[-1].answer['access_token']}"
