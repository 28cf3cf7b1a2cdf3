"""Each behaviour of the client, proven on both clients over real sockets."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from airflow_provider import exceptions as exc
from airflow_provider.client.base import get_shared_state
from tests.support.server_time import logged_in
from tests.support.service import Hang, Raw, Reply, Service
from tests.support.values import CONTENT, PDF, UUID, settings_for

STATUS = f"GET {CONTENT}/{UUID}/status"
TEXT = f"GET {CONTENT}/{UUID}/content"
RUNNING = Reply(json={"uuid": UUID, "status": "RUNNING"})
ACCEPT_ENCODING = Reply(202, json={"uuid": UUID, "status": "PENDING"})


def test_303_is_completed_and_never_followed(run: Any, service: Service) -> None:
    service.on(STATUS, Reply(303, headers={"Location": f"{CONTENT}/{UUID}/content"}))
    service.on(TEXT, Reply(body=b"text"))
    job = run("get_status", UUID)
    assert (job.uuid, job.status) == (UUID, "COMPLETED")
    assert not service.requests_to(TEXT)


def test_303_that_does_not_name_the_job_is_confirmed_by_a_batch(run: Any, service: Service) -> None:
    service.on(STATUS, Reply(303, headers={"Location": "/store/7"}))
    service.on(f"POST {CONTENT}/status/batch", Reply(json=[{"uuid": UUID.upper(), "status": "RUNNING"}]))
    job = run("get_status", UUID)
    assert (job.uuid, job.status) == (UUID, "RUNNING")


def test_submit_url_sends_json_and_returns_the_job(run: Any, service: Service) -> None:
    service.on(f"POST {CONTENT}/url", ACCEPT_ENCODING)
    job = run("submit_url", "https://example.com/privacy-policy")
    assert (job.uuid, job.status) == (UUID, "PENDING")
    (request,) = service.requests_to(f"POST {CONTENT}/url")
    assert request.headers["content-type"] == "application/json"
    assert request.json == {"url": "https://example.com/privacy-policy"}


@pytest.mark.parametrize("source", ["path", "str", "file", "middle of a file"])
def test_a_document_is_sent_as_one_multipart_part_of_known_length(
    run: Any, service: Service, tmp_path: Path, source: str
) -> None:
    service.on(f"POST {CONTENT}/file", ACCEPT_ENCODING)
    path = tmp_path / 'Prüf"bericht.pdf'
    path.write_bytes(PDF)
    file: Any = path
    if source == "str":
        file = str(path)
    elif source == "file":
        file = path.open("rb")
    elif source == "middle of a file":
        file = io.BytesIO(b"garbage" + PDF)
        file.seek(7)
        file.name = 'Prüf"bericht.pdf'
    job = run("submit_file", file)
    if source == "file":
        file.close()
    assert job.uuid == UUID
    (request,) = service.requests_to(f"POST {CONTENT}/file")
    boundary = request.headers["content-type"].removeprefix("multipart/form-data; boundary=")
    assert "transfer-encoding" not in request.headers
    assert (
        request.body
        == (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="Prüf%22bericht.pdf"\r\n'
            f"Content-Type: application/pdf\r\n\r\n"
        ).encode()
        + PDF
        + f"\r\n--{boundary}--\r\n".encode()
    )


@pytest.mark.parametrize(
    "head", [{"X-Large": "a" * 200_000}, {f"X-Large-{number}": "a" * 1000 for number in range(200)}]
)
def test_oversized_head_of_a_response_is_named(
    run: Any, service: Service, head: dict[str, str], request: pytest.FixtureRequest
) -> None:
    if len(head) > 1 and "aiohttp" in request.node.name and aiohttp.__version__ < "3.14":
        pytest.skip("this aiohttp reads any number of fields")
    service.on(STATUS, Reply(json={"uuid": UUID, "status": "RUNNING"}, headers=head))
    with pytest.raises(exc.ComplianceProtocolError, match=r"the response is too large \(its head\)"):
        run("get_status", UUID)
    assert len(service.received) == 2  # with the login: a retry would get as much again


@pytest.mark.parametrize("map_error", [Reply(401), Reply(429, headers={"Retry-After": "0"})])
def test_a_refused_upload_is_sent_whole_again(run: Any, service: Service, map_error: Reply) -> None:
    service.on(f"POST {CONTENT}/file", map_error, ACCEPT_ENCODING)
    document = PDF + b"x" * 1_000_000
    assert run("submit_file", io.BytesIO(document)).uuid == UUID
    first, second = service.requests_to(f"POST {CONTENT}/file")
    assert first.body == second.body
    assert document in second.body


SUBMITS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "submit_url": (f"POST {CONTENT}/url", ("https://example.com",)),
    "submit_file": (f"POST {CONTENT}/file", (PDF,)),
    "submit_feedback": ("POST /api/v1/assessmentFeedback", ("e", "r")),
    "refresh": (f"POST {CONTENT}/{UUID}/refresh", (UUID,)),
    "submit_assessment": ("POST /api/v1/assessments", ({"a": 1},)),
}
HTML = {"Content-Type": "text/html; charset=utf-8"}
PAGES = [
    Reply(body=b"<html>Sign in</html>", headers=HTML),
    Reply(body=b"<html/>", headers={"Content-Type": "application/xhtml+xml"}),
    Reply(202, body=b"<html>Sign in</html>", headers=HTML),
    Reply(body=b"<html>", headers={**HTML, "Location": f"{CONTENT}/login/status"}),
    Reply(302, headers={"Location": "/maintenance.html"}),
]
BREAKS = [
    *map(Reply, (500, 502, 503, 504)),
    Raw(reset=True),
    Raw(),
    Raw(b"HTTP/1.1 202 Accepted\r\n"),
    Raw(b"HTTP/1.1 202 Accepted\r\nContent-Type: te"),
]


@pytest.mark.parametrize("action", [*BREAKS, *PAGES], ids=str)
@pytest.mark.parametrize("method", SUBMITS)
def test_a_submit_without_an_answer_of_the_service_is_uncertain_and_never_repeated(
    run: Any, service: Service, action: Any, method: str
) -> None:
    route, args = SUBMITS[method]
    service.on(route, action)
    with pytest.raises(exc.ComplianceUncertainError, match="may or may not have accepted it") as caught:
        run(method, *(io.BytesIO(arg) if arg is PDF else arg for arg in args))
    assert caught.value.transient
    assert "accepted the submit" not in str(caught.value)
    assert len(service.requests_to(route)) == 1


def test_an_error_that_the_caller_handles_is_not_that_of_the_request(
    run: Any, service: Service, client_kind: str
) -> None:
    """A submit that broke is not taken for one that never connected, and not sent again."""

    async def fail_to_connect() -> None:
        async with aiohttp.ClientSession() as session:
            await session.get("http://127.0.0.1:9")

    service.on(f"POST {CONTENT}/url", Raw(reset=True))
    try:
        requests.get("http://127.0.0.1:9") if client_kind == "requests" else asyncio.run(fail_to_connect())
    except (requests.ConnectionError, aiohttp.ClientConnectorError):
        with pytest.raises(exc.ComplianceUncertainError):
            run("submit_url", "https://example.com")
    assert len(service.requests_to(f"POST {CONTENT}/url")) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_pause_longer_than_a_call_s_patience_costs_one_request(
    connect: Any, service: Service, status: int
) -> None:
    service.on(STATUS, Reply(status, headers={"Retry-After": "900"}))
    settings = settings_for(service.url)
    run = connect(settings)
    for method, args in [("get_status", (UUID,)), ("list_frameworks", ())] * 2:
        with pytest.raises(exc.ComplianceThrottledError) as caught:
            run(method, *args)
        assert caught.value.transient
        assert 600 < (caught.value.retry_after or 0) <= 900
    assert [f"{r.method} {r.path}" for r in service.received] == ["POST /token", STATUS]
    assert get_shared_state(settings).service_pause.count == 1


def test_request_without_a_body_has_no_type(run: Any, service: Service) -> None:
    service.on(f"POST {CONTENT}/{UUID}/refresh", ACCEPT_ENCODING)
    run("refresh", UUID)
    assert "content-type" not in service.received[-1].headers


def test_a_submit_that_gets_no_answer_in_time_is_uncertain(connect: Any, service: Service) -> None:
    service.on(f"POST {CONTENT}/url", Hang())
    run = logged_in(connect, settings_for(service.url, timeout=0.2))
    with pytest.raises(exc.ComplianceUncertainError, match="timed out"):
        run("submit_url", "https://example.com")


def test_refused_connection_is_a_transient_error_that_names_the_address(
    connect: Any, service: Service
) -> None:
    run = connect(settings_for("http://127.0.0.1:9", token_url=f"{service.url}/token", max_retries=1))
    with pytest.raises(
        exc.ComplianceConnectionError, match=r"127\.0\.0\.1:9.*could not connect.*refused"
    ) as caught:
        run("submit_url", "https://example.com")
    assert caught.value.transient


@pytest.mark.parametrize(
    "cut", [Raw(b"HTTP/1.1 429 Slow\r\nContent-Length: 99\r\n\r\nhalf"), Reply(429, body=b"x" * 10**6)]
)
def test_an_error_page_that_is_cut_or_huge_still_counts_by_its_status(
    run: Any, service: Service, cut: Any
) -> None:
    service.on(f"POST {CONTENT}/url", cut, ACCEPT_ENCODING)
    assert run("submit_url", "https://example.com").uuid == UUID


@pytest.mark.parametrize("at", [0, 500_000], ids=["first read", "later read"])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("of a store's library")])
def test_any_error_of_a_store_becomes_a_read_error(
    run: Any, service: Service, at: int, error: Exception
) -> None:
    class Failing(io.BytesIO):
        name = "contract.pdf"

        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= at:
                raise error
            return super().read(size)

    service.on(f"POST {CONTENT}/file", ACCEPT_ENCODING)
    with pytest.raises(exc.ComplianceReadError, match=r"'contract\.pdf' can't be read") as caught:
        run("submit_file", Failing(PDF * 300_000))
    assert caught.value.transient
    assert not service.requests_to(f"POST {CONTENT}/file")


def test_a_redirect_is_an_error_and_the_token_goes_nowhere_else(run: Any, service: Service) -> None:
    with Service().running() as other:
        other.on("GET /api/v1/frameworks", Reply(json=[]))
        service.on(
            "GET /api/v1/frameworks", Reply(302, headers={"Location": f"{other.url}/api/v1/frameworks"})
        )
        with pytest.raises(exc.ComplianceProtocolError, match="redirected"):
            run("list_frameworks")
        assert not other.received


def test_any_other_call_is_authenticated(run: Any, service: Service) -> None:
    service.on("PUT /api/v2/thing", Reply(307, body=b"there", headers={"X-A": "b"}))
    answer = run("request", "put", "/api/v2/thing", params={"q": "a b"}, data=b"raw", headers={"X-Mine": "1"})
    assert (answer.status, answer.body, answer.headers["x-a"]) == (307, b"there", "b")
    request = service.received[-1]
    assert (request.path, request.body, request.token) == ("/api/v2/thing?q=a+b", b"raw", "access-1")
    assert request.headers["x-mine"] == "1"


def test_cookies_and_netrc_do_not_interfere(
    connect: Any, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login mallory password guess\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    service.on(STATUS, Reply(json={}, headers={"Set-Cookie": "a=b; Path=/"}))
    run = connect(settings_for(service.url))
    run("get_status", UUID)
    run("get_status", UUID)
    last = service.received[-1]
    assert (last.token, "cookie" in last.headers) == ("access-1", False)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/\u00fc b/%7e%2f?q=\u00e4", "/%C3%BC%20b/~%2F?q=%C3%A4"),
        ("/a/../b[1]{2}", "/b%5B1%5D%7B2%7D"),
        ("/100%", "/100%25"),
    ],
)
def test_both_clients_send_the_same_path(connect: Any, service: Service, path: str, sent: str) -> None:
    prefix = "/pr\u00e4fix"
    run = connect(settings_for(f"{service.url}{prefix}", token_url=f"{service.url}/token"))
    service.on(f"GET /pr%C3%A4fix{sent.partition('?')[0]}", Reply(json={}))
    assert run("request", "GET", path).status == 200
    assert service.received[-1].path == f"/pr%C3%A4fix{sent}"
