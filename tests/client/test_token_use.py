"""Tokens: one login for all, renewed in time, by both clients over real sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client import base, tokens
from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.client.base import PendingRefresh, TokenProvider, get_shared_state
from airflow_provider.client.http.wire import LocalIO, Pause
from airflow_provider.client.settings import Settings
from airflow_provider.client.sync import ComplianceClient
from tests.support.service import Hang, Received, Reply, Service
from tests.support.signals import until
from tests.support.values import settings_for

FRAMEWORKS = "GET /api/v1/frameworks"


def accept_from(number: int) -> Callable[[Received], Reply]:
    """Accept only tokens from this number on."""

    def answer(request: Received) -> Reply:
        good = int(request.token.removeprefix("access-")) >= number
        return Reply(json=[]) if good else Reply(401, headers={"WWW-Authenticate": "Bearer"})

    return answer


def test_a_401_costs_one_renewal_and_one_repeat(run: Any, service: Service) -> None:
    service.on(FRAMEWORKS, accept_from(2))
    assert run("list_frameworks") == []
    assert service.grants() == ["password", "refresh_token"]
    assert service.requests_to("POST /token")[1].form["refresh_token"] == "refresh-1"
    assert [r.token for r in service.requests_to(FRAMEWORKS)] == ["access-1", "access-2"]


def test_a_401_costs_one_renewal_for_a_whole_crowd(run: Any, service: Service) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    run("list_frameworks")
    service.on(FRAMEWORKS, accept_from(2))
    assert run.crowd(20, "list_frameworks") == [[]] * 20
    assert service.grants() == ["password", "refresh_token"]


def test_a_crowd_logs_in_once(run: Any, service: Service) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    assert run.crowd(20, "list_frameworks") == [[]] * 20
    assert service.grants() == ["password"]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            401,
            {"error": "invalid_grant", "error_description": "Invalid user credentials"},
            r"refused user 'alice' \(inv",
        ),
        (400, {"error": "invalid_request"}, "refused user 'alice'.*and the extras 'client_id'"),
        (401, {"error": "invalid_client"}, "refused client 'partner'.*'client_id' and 'client_secret'"),
        (400, {"error": "unauthorized_client"}, "refused client 'partner'"),
        (403, {"error": "access_denied"}, r"refused user 'alice' \(access_denied\)"),
        (401, {"error": "unauthorized", "error_description": "Bad credentials"}, r"\(unauthorized: Bad"),
    ],
)
def test_wrong_credentials_are_tried_once_and_never_again(
    run: Any, service: Service, status: int, body: Any, message: str
) -> None:
    service.on("POST /token", Reply(status, json=body))
    for _ in range(2):
        with pytest.raises(exc.ComplianceAuthError, match=f"{message}.*compliance_default") as caught:
            run("list_frameworks")
        assert not caught.value.transient
    errors = run.crowd(10, "list_frameworks")
    assert {type(error) for error in errors} == {exc.ComplianceAuthError}
    assert service.grants() == ["password"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b""),  # as some identity providers refuse a password
        (400, b""),
        (403, b""),
        (401, b"<html>"),  # a gateway's page
        (400, b'{"error": 7}'),
        (401, b'{"error": "Unauthorized"}'),
    ],
)
def test_refusal_without_an_oauth_error_is_transient_and_costs_one_login(
    run: Any, service: Service, status: int, body: bytes
) -> None:
    service.on("POST /token", Reply(status, body=body))
    errors = [*run.crowd(5, "list_frameworks"), *run.crowd(5, "list_frameworks")]
    assert {type(error) for error in errors} == {exc.ComplianceAuthError}
    assert {error.transient for error in errors} == {True}
    assert service.grants() == ["password"]


def outage(status: int, code: str) -> Reply:
    return Reply(status, json={"error": code, "error_description": "Try later"})


BLIPS = {
    "404": Reply(404),
    "405": Reply(405),
    "403": Reply(403, body=b"<html>WAF</html>", headers={"Content-Type": "text/html"}),
    "407": Reply(407),
    "451": Reply(451),
    "302": Reply(302, headers={"Location": "/maintenance.html"}),
    "page": Reply(body=b"<html>Maintenance</html>", headers={"Content-Type": "text/html"}),
    **{f"{status}, an outage": outage(status, "temporarily_unavailable") for status in (400, 401, 403)},
    "400, an error of the server": outage(400, "server_error"),
}


@pytest.mark.parametrize("blip", BLIPS)
def test_a_login_outlasts_what_says_nothing_about_credentials(
    connect: Any, service: Service, blip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "CROWD_SECONDS", 0.0)
    service.on(FRAMEWORKS, Reply(json=[]))
    service.on("POST /token", *[BLIPS[blip]] * 4, service._issue_token)
    run = connect(settings_for(service.url, max_retries=2))
    with pytest.raises(exc.ComplianceError) as caught:
        run("list_frameworks")
    assert caught.value.transient
    assert not isinstance(caught.value, exc.ComplianceAuthError)
    assert len(service.grants()) == 3
    assert run("list_frameworks") == []  # it is not remembered
    assert len(service.grants()) == 5


def test_a_page_in_place_of_the_token_endpoint_is_asked_for_once_by_a_crowd(
    connect: Any, service: Service
) -> None:
    service.on("POST /token", BLIPS["403"])
    run = connect(settings_for(service.url, max_retries=0))
    errors = [*run.crowd(5, "list_frameworks"), *run.crowd(4, "list_frameworks")]
    assert {type(error) for error in errors} == {exc.ComplianceConfigError}
    assert len(service.grants()) == 1


def test_credentials_that_worked_fail_transiently_when_good_tokens_stay_refused(
    connect: Any, service: Service
) -> None:
    service.on(FRAMEWORKS, Reply(404), Reply(json=[]), Reply(401, json={"message": "stale keys"}))
    settings = settings_for(service.url, max_retries=2)
    run = connect(settings)
    with pytest.raises(exc.ComplianceNotFoundError):
        run("list_frameworks")
    assert not get_shared_state(settings).has_worked
    run("list_frameworks")
    assert get_shared_state(settings).has_worked
    with pytest.raises(exc.ComplianceAuthError, match=r"fresh token \(401, 'stale keys'\)") as caught:
        run("list_frameworks")
    assert caught.value.transient
    assert caught.value.has_fresh_token
    assert len(service.requests_to(FRAMEWORKS)) == 2 + 1 + 3
    assert service.grants() == ["password", "refresh_token"]


@pytest.mark.parametrize(
    "answer",
    [
        Reply(body=b"<html>", headers={"Content-Type": "text/html"}),
        Reply(json={"token": "x"}),
        Reply(json=[]),
        Reply(json={"access_token": "x", "token_type": "mac"}),
        Reply(json={"access_token": "x\r\nEvil: 1"}),
        Reply(json={"access_token": "x y"}),
        Reply(json={"access_token": "xü"}),
        Reply(json={"access_token": {"x": "y"}}),
        Reply(302, headers={"Location": "/login"}),
    ],
    ids=str,
)
def test_an_odd_token_answer_is_a_protocol_error(run: Any, service: Service, answer: Reply) -> None:
    service.on("POST /token", answer)
    with pytest.raises(exc.ComplianceProtocolError):
        run("list_frameworks")


def test_a_faulty_identity_provider_is_a_transient_error_for_all(
    connect: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers, acquire = list[Any](), TokenProvider.acquire

    def counted(self: TokenProvider, refused: Any) -> Any:
        acquired = acquire(self, refused)
        callers.append(acquired)
        return acquired

    def fail(_: Received) -> Reply:
        until(lambda: len(callers) >= 10)  # all wait for this answer
        return Reply(500)

    monkeypatch.setattr(TokenProvider, "acquire", counted)
    service.on("POST /token", fail)
    run = connect(settings_for(service.url, max_retries=1))
    errors = run.crowd(10, "list_frameworks")
    assert {type(error) for error in errors} == {exc.ComplianceServerError}
    assert len(service.grants()) < 10


def test_clients_of_equal_settings_share_one_login_across_threads_and_event_loops(
    service: Service, settings: Settings
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))

    async def with_aiohttp() -> None:
        async with AsyncComplianceClient(settings) as client:
            await asyncio.gather(*(client.list_frameworks() for _ in range(5)))

    def in_thread(number: int) -> None:
        if number % 2:
            asyncio.run(with_aiohttp())
        else:
            with ComplianceClient(settings_for(service.url, name="another connection")) as client:
                client.list_frameworks()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(in_thread, range(8)))
    assert service.grants() == ["password"]


def test_a_cancelled_leader_leaves_the_renewal_to_another(service: Service, settings: Settings) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    service.on("POST /token", Hang(), service._issue_token)

    async def scenario() -> list[Any]:
        async with AsyncComplianceClient(settings) as client:
            leader = asyncio.create_task(client.list_frameworks())
            await asyncio.to_thread(service.first_request.wait, 30)
            others = [asyncio.create_task(client.list_frameworks()) for _ in range(5)]
            impatient = asyncio.create_task(client.list_frameworks())
            await asyncio.sleep(0.05)
            impatient.cancel()
            leader.cancel()
            results = await asyncio.gather(*others)
            with pytest.raises(asyncio.CancelledError):
                await leader
            return results

    assert asyncio.run(scenario()) == [[]] * 5
    assert service.grants() == ["password", "password"]


def test_a_leader_whose_loop_died_is_not_waited_for_for_ever(
    connect: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    settings = settings_for(service.url)
    shared = get_shared_state(settings)
    monkeypatch.setattr(base, "REFRESH_TIMEOUT_SECONDS", 0.1)
    dead = shared.tokens.acquire(None)
    assert isinstance(dead, PendingRefresh)
    assert dead.is_leader
    run = connect(settings)
    assert run("list_frameworks") == []
    assert service.grants() == ["password"]
    shared.tokens.abandon(dead)  # and should it come back after all, it disturbs no one
    assert run("list_frameworks") == []
    assert service.grants() == ["password"]


def test_a_lock_that_comes_after_a_cancellation_is_released(settings: Settings) -> None:
    """At once, not when its frames are collected: the next login in this process would wait for minutes."""
    may_acquire, is_released = threading.Event(), threading.Event()
    lock = SimpleNamespace(release=is_released.set)

    def acquire() -> Any:
        assert may_acquire.wait(30)
        return lock

    steps = AsyncComplianceClient(settings)._step(LocalIO(acquire))
    assert isinstance(next(steps), base.Wait)
    steps.close()
    may_acquire.set()
    assert is_released.wait(30)


def test_steps_of_an_async_client_let_its_event_loop_run(settings: Settings) -> None:
    future: Future[str] = Future()

    def steps() -> Any:
        yield Pause(0.001)
        assert "paused" in done
        yield base.Wait(future, 30.0)
        return future.result()

    done: list[str] = []

    async def scenario() -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(done.append, "paused")
        loop.call_later(0.002, future.set_result, "waited")
        return str(await AsyncComplianceClient(settings)._perform(steps()))

    assert asyncio.run(scenario()) == "waited"


def test_a_blocking_call_on_the_thread_of_the_event_loop_does_not_wait_for_the_loop(
    service: Service, settings: Settings
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    service.on("POST /token", Hang(), service._issue_token)

    async def scenario() -> list[Any]:
        async with AsyncComplianceClient(settings) as client:
            leader = asyncio.create_task(client.list_frameworks())
            await asyncio.to_thread(service.first_request.wait, 30)
            with ComplianceClient(settings) as blocking:
                result = blocking.list_frameworks()
            leader.cancel()
            return result

    assert asyncio.run(scenario()) == []
