"""A refusal that is no verdict about credentials passes; on both clients over real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client import tokens
from airflow_provider.client.base import get_shared_state
from tests.support.service import Received, Reply, Service
from tests.support.values import CONTENT, UUID, settings_for

FRAMEWORKS = "GET /api/v1/frameworks"
PAGE = Reply(body=b"<html>Maintenance</html>", headers={"Content-Type": "text/html"})
BLIPS = {
    "404": Reply(404),
    "405": Reply(405),
    "403": Reply(403, body=b"<html>WAF</html>", headers={"Content-Type": "text/html"}),
    "407": Reply(407),
    "451": Reply(451),
    "302": Reply(302, headers={"Location": "/maintenance.html"}),
    "page": PAGE,
}


@pytest.mark.parametrize("blip", BLIPS)
def test_a_login_outlasts_what_says_nothing_about_credentials(run: Any, service: Service, blip: str) -> None:
    service.on("POST /token", BLIPS[blip], BLIPS[blip], service._issue_token)
    service.on(FRAMEWORKS, Reply(json=[]))
    assert run("list_frameworks") == []
    assert len(service.grants()) == 3


@pytest.mark.parametrize("blip", BLIPS)
def test_a_login_that_meets_it_to_the_end_fails_for_now_and_is_not_remembered(
    connect: Any, service: Service, blip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "CROWD_SECONDS", 0.0)
    service.on(FRAMEWORKS, Reply(json=[]))
    service.on("POST /token", BLIPS[blip])
    run = connect(settings_for(service.url, max_retries=1))
    with pytest.raises(exc.ComplianceError) as caught:
        run("list_frameworks")
    assert caught.value.transient
    assert not isinstance(caught.value, exc.ComplianceAuthError)
    assert "compliance_default" in str(caught.value)
    assert len(service.grants()) == 2
    service.on("POST /token", service._issue_token)
    assert run("list_frameworks") == []


def test_a_page_in_place_of_the_token_endpoint_is_asked_for_once_by_a_crowd(
    connect: Any, service: Service
) -> None:
    service.on("POST /token", BLIPS["403"])
    run = connect(settings_for(service.url, max_retries=0))
    errors = [*run.crowd(5, "list_frameworks"), *run.crowd(4, "list_frameworks")]
    assert {type(error) for error in errors} == {exc.ComplianceConfigError}
    assert len(service.grants()) == 1


def refuse_tokens(*numbers: int) -> Any:
    left = list(numbers)

    def answer(request: Received) -> Reply:
        number = int(request.token.removeprefix("access-"))
        if number in left:
            left.remove(number)
            return Reply(401)
        return Reply(json=[]) if request.method == "GET" else Reply(202, json={"uuid": UUID})

    return answer


def test_nothing_has_worked_before_the_first_good_answer(connect: Any, service: Service) -> None:
    settings = settings_for(service.url)
    run = connect(settings)
    service.on(FRAMEWORKS, Reply(500), Reply(404), Reply(json=[]))
    with pytest.raises(exc.ComplianceNotFoundError):
        run("list_frameworks")
    assert not run._client.has_worked
    run("list_frameworks")
    assert run._client.has_worked
    assert get_shared_state(settings).has_worked
    assert not get_shared_state(settings_for(service.url, username="bob")).has_worked


@pytest.mark.parametrize(
    ("method", "route", "args"),
    [("list_frameworks", FRAMEWORKS, ()), ("submit_url", f"POST {CONTENT}/url", ("https://example.com",))],
)
def test_credentials_that_worked_outlast_a_gateway_that_refuses_good_tokens(
    run: Any, service: Service, method: str, route: str, args: Any
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    run("list_frameworks")
    service.on(route, refuse_tokens(1, 2, 2, 2))
    run(method, *args)
    assert service.grants() == ["password", "refresh_token"]


def test_credentials_that_worked_fail_transiently_when_good_tokens_stay_refused(
    connect: Any, service: Service
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]), Reply(401, json={"message": "stale keys"}))
    run = connect(settings_for(service.url, max_retries=2))
    run("list_frameworks")
    with pytest.raises(exc.ComplianceAuthError, match=r"fresh token \(401, 'stale keys'\)") as caught:
        run("list_frameworks")
    assert caught.value.transient
    assert len(service.requests_to(FRAMEWORKS)) == 1 + 1 + 3
    assert service.grants() == ["password", "refresh_token"]
