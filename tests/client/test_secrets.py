"""No secret in a log, an error, a traceback or a repr, whatever goes wrong."""

from __future__ import annotations

import io
import logging
import traceback
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceError
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
    for name in ("", "urllib3", "requests", "aiohttp", "asyncio", "airflow_provider"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    return caplog


def shown(error: BaseException) -> str:
    with_locals = traceback.TracebackException.from_exception(error, capture_locals=True)
    lines = [line for frame in with_locals.stack for line in (frame.locals or {}).items() if _ours(frame)]
    return f"{error} {error!r} {vars(error)} {''.join(traceback.format_exception(error))} {lines}"


def _ours(frame: traceback.FrameSummary) -> bool:
    """Look at our own locals only, and not where a secret has to be plain to be sent."""
    return "airflow_provider" in frame.filename and frame.name not in ("renewal", "_send")


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


def test_a_refused_refresh_shows_no_secret(
    run: Any, service: Service, everything_logged: pytest.LogCaptureFixture
) -> None:
    service.on("GET /api/v1/frameworks", Reply(401))
    service.on("POST /token", service._issue_token, echo(400))
    with pytest.raises(ComplianceError) as caught:
        run("list_frameworks")
    assert len(service.grants()) == 3
    text = shown(caught.value) + everything_logged.text
    assert not [secret for secret in SECRETS if secret in text]
