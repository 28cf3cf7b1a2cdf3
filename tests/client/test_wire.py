"""Requests, responses and calls as data."""

from __future__ import annotations

import pytest

from airflow_provider.client.http.wire import Call, Failure, FailureKind, HttpRequest, HttpResponse
from airflow_provider.exceptions import ComplianceProtocolError

URL = "https://api.example.com:8443/v1/jobs"


def response(body: bytes = b"", url: str = URL, **headers: str) -> HttpResponse:
    return HttpResponse(200, {name.replace("_", "-"): value for name, value in headers.items()}, body, url)


@pytest.mark.parametrize(
    ("value", "media_type", "is_html"),
    [
        ("text/html", "text/html", True),
        (" Text/HTML ; charset=utf-8", "text/html", True),
        ("application/xhtml+xml", "application/xhtml+xml", True),
        ("application/json", "application/json", False),
        ("text/plain; x=text/html", "text/plain", False),
    ],
)
def test_the_media_type_tells_a_page_from_an_answer(value: str, media_type: str, is_html: bool) -> None:
    found = response(content_type=value)
    assert (found.content_type, found.is_html) == (media_type, is_html)


def test_only_a_length_or_chunks_show_that_a_body_was_cut_off() -> None:
    assert response(content_length="0").is_delimited
    assert response(transfer_encoding="gzip, Chunked").is_delimited
    assert not response(transfer_encoding="gzip").is_delimited
    assert not response(content_length="-1").is_delimited
    assert not response().is_delimited


@pytest.mark.parametrize(("value", "shown"), [("text/plain; x=1", "text/plain"), ("", "no content type")])
@pytest.mark.parametrize("body", [b"my-secret", b"\xff", b"[" * 100_000])
def test_a_body_that_is_not_json_is_an_error_that_does_not_show_it(
    body: bytes, value: str, shown: str
) -> None:
    with pytest.raises(ComplianceProtocolError) as error:
        response(body, content_type=value).json()
    assert str(error.value) == f"The response from {URL} is not JSON ({shown})."
    assert error.value.__context__ is None


def test_a_failure_says_what_happened_and_why() -> None:
    assert str(Failure(FailureKind.BROKEN, "reset")) == "the connection broke (reset)"
    assert [str(Failure(kind)) for kind in FailureKind] == [
        "could not connect",
        "TLS failed",
        "timed out waiting for a response",
        "the connection broke",
        "the response can't be decoded",
        "the response is too large",
    ]


def test_fields_that_may_hold_secrets_are_not_shown() -> None:
    request = HttpRequest("GET", URL, {"Authorization": "my-secret"}, b"my-secret")
    answer = HttpResponse(200, {"x": "my-secret"}, b"my-secret", URL, stream="my-secret")
    call = Call("GET", "/x", str, form={"a": "my-secret"}, body=b"my-secret", headers={"a": "my-secret"})
    assert "my-secret" not in f"{request!r} {answer!r} {call!r}"
    assert "lambda" not in repr(call)
    assert answer == HttpResponse(200, {"x": "my-secret"}, b"my-secret", URL)


def test_a_call_is_authorized_and_sent_once_unless_it_says_otherwise() -> None:
    call = Call("GET", "/x", str)
    assert (call.authorized, call.idempotent, call.stream, call.allow_html) == (True, False, False, False)
    assert (call.json, call.form, call.body, call.headers, call.ok_statuses) == (
        None, None, None, {}, frozenset(),
    )  # fmt: skip
    assert call.map_error(response()) is None
