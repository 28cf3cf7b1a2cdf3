"""No failure shows a secret in a log, an error, a traceback or a repr."""

from __future__ import annotations

import html
import io
import json
import logging
import re
import traceback
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from pydantic import SecretStr

from airflow_provider.client import endpoints
from airflow_provider.client.exchange import Exchange, ThrottlePause
from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.exceptions import ComplianceError, ComplianceHttpError
from tests.support.service import Raw, Received, Reply, Service
from tests.support.values import CLIENT_SECRET, CONTENT, PASSWORD, PDF, UUID, settings_for

SECRETS = (PASSWORD, "pa55", CLIENT_SECRET, "access-", "refresh-")
OPERATIONS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("submit_file", f"POST {CONTENT}/file", (io.BytesIO(PDF),)),
    ("submit_url", f"POST {CONTENT}/url", ("https://example.com",)),
    ("get_status", f"GET {CONTENT}/{UUID}/status", (UUID,)),
    ("get_statuses", f"POST {CONTENT}/status/batch", ([UUID],)),
    ("get_content", f"GET {CONTENT}/{UUID}/content", (UUID,)),
    ("download_content", f"GET {CONTENT}/{UUID}/content", (UUID, io.BytesIO())),
    ("cancel", f"DELETE {CONTENT}/{UUID}", (UUID,)),
    ("refresh", f"POST {CONTENT}/{UUID}/refresh", (UUID,)),
    ("list_frameworks", "GET /api/v1/frameworks", ()),
    ("submit_feedback", "POST /api/v1/assessmentFeedback", ("e", "r")),
    ("submit_assessment", "POST /api/v1/assessments", ({},)),
    ("get_assessment", "GET /api/v1/assessments/1/status", ("1",)),
]


def echo(status: int) -> Any:
    """Answer like a careless gateway: with all that it was told."""

    def answer(request: Received) -> Reply:
        told = f"{dict(request.headers)} {request.body!r} {request.form if request.body else ''}"
        return Reply(status, json={"message": told, "error": told, "error_description": told})

    return answer


FAULTS: dict[str, Any] = {
    **{f"echo {status}": echo(status) for status in (302, 400, 401, 403, 404, 409, 429, 500, 503)},
    "reset": Raw(reset=True),
    "closed": Raw(),
    "not http": Raw(b"\x00\xff nonsense\r\n\r\n"),
    "half": Raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\nhalf"),
    "html": Reply(body=b"<html>", headers={"Content-Type": "text/html"}),
}


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    for name in ("urllib3", "requests", "aiohttp", "asyncio", "airflow_provider"):
        caplog.set_level(logging.DEBUG, name)  # until the test is over
    return caplog


def shown(error: BaseException) -> str:
    """All that a tool could show of an error: its chain, and the locals of each frame, with their content."""
    said: list[str] = []
    link: BaseException | None = error
    while link is not None:
        said += [str(link), repr(link), repr(vars(link))]
        for frame, _ in traceback.walk_tb(link.__traceback__):
            said += map(_local, _seen(frame))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return " ".join([*said, *traceback.format_exception(error)])


def _seen(frame: FrameType) -> list[Any]:
    is_test = frame.f_code.co_filename.startswith(str(Path(__file__).parents[1]))
    return [] if is_test else list(frame.f_locals.values())


def _local(value: Any) -> str:
    """Show a value as Sentry does: containers by their content, anything else by its repr."""
    if isinstance(value, dict):
        return " ".join(f"{_local(key)} {_local(item)}" for key, item in value.items())
    if isinstance(value, list | tuple | set):
        return " ".join(map(_local, value))
    return repr(value)


@pytest.mark.parametrize("fault", FAULTS)
def test_failing_calls_show_no_secret(
    connect: Any, service: Service, everything_logged: pytest.LogCaptureFixture, fault: str
) -> None:
    run = connect(settings_for(service.url, max_retries=1))
    said = []
    for method, route, args in OPERATIONS:
        service.on(route, FAULTS[fault])
        try:
            run(method, *args)
        except ComplianceError as error:
            said.append(shown(error))
    text = " ".join([*said, everything_logged.text, repr(run._client.settings), repr(vars(run._client))])
    assert said
    assert not [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize("fault", FAULTS)
def test_failing_logins_show_no_secret(
    connect: Any, service: Service, everything_logged: pytest.LogCaptureFixture, fault: str
) -> None:
    run = connect(settings_for(service.url, max_retries=1))
    service.on("POST /token", FAULTS[fault])
    with pytest.raises(ComplianceError) as caught:
        run("list_frameworks")
    text = shown(caught.value) + everything_logged.text
    assert not [secret for secret in SECRETS if secret in text]


class Fading(io.BytesIO):
    """A document whose store goes away while it is sent."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 500_000:
            raise OSError(5, "Input/output error")
        return super().read(size)


@pytest.mark.parametrize(
    ("method", "args"), [("list_frameworks", ()), ("submit_file", (Fading(PDF * 300_000),))]
)
def test_a_refused_refresh_and_an_upload_that_breaks_show_no_secret(
    run: Any, service: Service, everything_logged: pytest.LogCaptureFixture, method: str, args: Any
) -> None:
    service.on("GET /api/v1/frameworks", Reply(401))
    service.on("POST /token", service._issue_token, echo(400))
    with pytest.raises(ComplianceError) as caught:
        run(method, *args)
    assert len(service.grants()) == (1 if args else 3)
    text = shown(caught.value) + everything_logged.text
    assert not [secret for secret in SECRETS if secret in text]


TRICKY = 'it\'s <a> "p&ss" w/ü 100%'
ECHOES = {
    "as it is": TRICKY,
    "HTML": html.escape(TRICKY),
    "HTML without quotes": html.escape(TRICKY, quote=False),
    "HTML in decimal": TRICKY.replace("&", "&amp;").replace("'", "&#39;").replace('"', "&#34;"),
    "HTML in padded decimal": TRICKY.replace("&", "&#038;").replace("'", "&#039;"),
    "HTML by name": TRICKY.replace("&", "&amp;").replace("'", "&apos;").replace("ü", "&uuml;"),
    "HTML in upper case": TRICKY.replace("'", "&#X27;").replace("ü", "&#XFC;"),
    "HTML twice": html.escape(html.escape(TRICKY)),
    "form": quote_plus(TRICKY),
    "form in lower case": re.sub("%..", lambda hit: hit[0].lower(), quote_plus(TRICKY)),
    "URL": quote(TRICKY, safe=""),
    "URL in lower case": re.sub("%..", lambda hit: hit[0].lower(), quote(TRICKY, safe="")),
    "URL with slashes": quote(TRICKY),
    "URL of a browser": quote(TRICKY, safe="'()*!/"),
    "URL twice": quote(quote(TRICKY, safe=""), safe=""),
    "URL in latin-1": quote(TRICKY, safe="", encoding="latin-1"),
    "JSON": json.dumps(TRICKY)[1:-1],
    "JSON with letters": json.dumps(TRICKY, ensure_ascii=False)[1:-1],
    "JSON with slashes escaped": json.dumps(TRICKY)[1:-1].replace("/", "\\/"),
    "JSON safe for HTML": "".join(f"\\u{ord(c):04x}" if c in "<>&'\"" else c for c in TRICKY),
    "JSON in upper case": "".join(f"\\u{ord(c):04X}" if c in "<>&'\"ü" else c for c in TRICKY),
    "Python": repr(TRICKY.encode()),
}


@pytest.mark.parametrize("echo", ECHOES)
def test_a_password_is_blanked_out_however_it_comes_back(echo: str) -> None:
    settings = settings_for("https://api.example.com", password=SecretStr(TRICKY))
    exchange: Exchange[Any] = Exchange(endpoints.list_frameworks(), settings, ThrottlePause())
    written = ECHOES[echo]
    page, headers = f"You sent {written} to us.", {"location": f"/login?p={written}"}
    for status in (400, 302):
        with pytest.raises(ComplianceError) as caught:
            exchange.evaluate(HttpResponse(status, headers, page.encode(), "https://api.example.com"))
        said = f"{caught.value} {vars(caught.value)}"
        assert written[len(written) // 3 : len(written) * 2 // 3] not in said
        if status == 400 and echo != "Python":
            assert getattr(caught.value, "body", None) == "You sent *** to us."


def test_the_reason_of_a_failed_job_shows_no_secret(run: Any, service: Service) -> None:
    """A service may echo what was sent to it, also where it answers with 200."""
    echoed = {"status": "FAILED", "error": f"Bad request: password={PASSWORD}"}
    service.on(f"GET {CONTENT}/{UUID}/status", Reply(json={"uuid": UUID, **echoed}))
    service.on(f"POST {CONTENT}/status/batch", Reply(json=[{"uuid": UUID, **echoed}, {"uuid": "other"}]))
    service.on("GET /api/v1/assessments/1/status", Reply(json={"id": "1", **echoed}))
    found = (
        run("get_status", UUID),
        run("get_statuses", [UUID])[UUID],
        run("get_assessment", "1"),
    )
    assert {each.error for each in found} == {"Bad request: password=***"}


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("get_status", lambda token: Reply(303, headers={"Location": f"/login/{token}"})),
        ("get_status", lambda token: Reply(json={"uuid": token})),
        ("get_status", lambda token: Reply(json={"uuid": "x" * 95 + token})),
        ("get_status", lambda token: Reply(body=b"x", headers={"Content-Type": token})),
        ("get_content", lambda token: Reply(body=b"x", headers={"Content-Type": f"application/{token}"})),
        ("get_content", lambda token: Reply(body=b"x", headers={"Content-Encoding": token})),
        ("get_content", lambda token: Reply(headers={"Content-Type": f"text/plain; charset={token}"})),
    ],
    ids=["redirect", "id", "cut id", "not JSON", "not a text", "encoding", "charset"],
)
def test_a_token_that_a_successful_response_echoes_is_not_shown(
    run: Any, service: Service, everything_logged: pytest.LogCaptureFixture, method: str, reply: Any
) -> None:
    def echo(request: Received) -> Reply:
        answer: Reply = reply(request.headers["authorization"].removeprefix("Bearer "))
        return answer

    service.on(f"GET {CONTENT}/{UUID}/{method.removeprefix('get_')}", echo)
    text = ""
    try:
        run(method, UUID)
    except ComplianceError as error:
        text = shown(error)
    text += everything_logged.text
    assert UUID in text
    assert not [secret for secret in (*SECRETS, "xacc") if secret in text]


def test_a_secret_in_another_charset_is_blanked_out() -> None:
    settings = settings_for("https://api.example.com", password=SecretStr("gr\u00fc\u00dfe-an-alle"))
    exchange: Exchange[Any] = Exchange(endpoints.list_frameworks(), settings, ThrottlePause())
    with pytest.raises(ComplianceHttpError) as caught:
        exchange.evaluate(
            HttpResponse(400, {}, "gr\u00fc\u00dfe-an-alle".encode("latin-1"), "https://api.example.com")
        )
    assert caught.value.body == "***"
