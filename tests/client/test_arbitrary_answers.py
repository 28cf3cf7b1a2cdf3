"""Whatever comes back: a result, or one of the documented errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.client import batches, endpoints
from airflow_provider.client.exchange import Exchange, ThrottlePause
from airflow_provider.client.http.bodies import TextStream
from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.client.models import ContentJob
from airflow_provider.client.tokens import TokenCache
from airflow_provider.exceptions import ComplianceError
from tests.support.values import UUID, settings_for

SETTINGS = settings_for("https://api.example.com")
CALLS = [
    endpoints.submit_url("https://example.com"),
    endpoints.get_status(UUID),
    endpoints.get_batch([UUID]),
    endpoints.get_content(UUID),
    endpoints.stream_content(UUID),
    endpoints.cancel(UUID),
    endpoints.refresh(UUID),
    endpoints.list_frameworks(),
    endpoints.list_criteria("7"),
    endpoints.submit_feedback("e", "r"),
    endpoints.get_application_info(),
    endpoints.submit_assessment({}),
    endpoints.get_assessment("7"),
    endpoints.get_assessment_results("7"),
    endpoints.cancel_assessment("7"),
    endpoints.request("GET", "/x"),
    next(TokenCache(SETTINGS).renew()),
]

WORDS = """uuid id assessmentId status error createdAt criteria codeName message access_token refresh_token
expires_in refresh_expires_in token_type error_description"""
KEYS = st.sampled_from(WORDS.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("COMPLETED")
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(), inner, max_size=6),
    max_leaves=12,
)
BODIES = st.binary() | JSON.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
STATUSES = st.sampled_from([200, 202, 204, 303, 302, 400, 401, 404, 429, 500, 503]) | st.integers(200, 999)
HEADERS = st.dictionaries(
    st.sampled_from(["content-type", "content-length", "location", "retry-after", "transfer-encoding"]),
    st.text()
    | st.sampled_from(["text/html", "chunked", "10", "text/plain; charset=utf-16", "http://[::1", "//x/y"]),
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path[-30:]}")
@given(status=STATUSES, headers=HEADERS, body=BODIES)
@settings(max_examples=25, deadline=None)
def test_any_answer_is_a_result_or_a_documented_error(
    call: Any, status: int, headers: dict[str, str], body: bytes
) -> None:
    exchange: Exchange[Any] = Exchange(call, SETTINGS, ThrottlePause())
    try:
        exchange.evaluate(HttpResponse(status, headers, body, "https://api.example.com/x"))
        exchange.delay()
    except ComplianceError as error:
        assert str(error)


@given(body=JSON, alone=JSON)
@settings(max_examples=50, deadline=None)
def test_any_batch_answer_gives_only_jobs_that_were_asked_for(body: Any, alone: Any) -> None:
    def response(value: Any) -> HttpResponse:
        content = json.dumps(value).encode("utf-8", "surrogatepass")
        return HttpResponse(200, {"content-length": "1"}, content, "https://api.example.com/x")

    flow = batches.get_statuses(["a", "b"], batches.BatchLimit(100))
    try:
        call = next(flow)
        call = flow.send(call.parse(response(body)))
        while True:
            call = flow.send(call.parse(response(alone)))
    except StopIteration as end:
        assert {uuid: job.uuid for uuid, job in end.value.items()} == {u: u for u in end.value}
        assert all(isinstance(job, ContentJob) for job in end.value.values())
    except ComplianceError as error:
        assert str(error)


@given(
    pieces=st.lists(st.binary()),
    charset=st.sampled_from(["utf-8", "utf-16", "utf-7", "gb18030", "cp1252"]) | st.text(),
)
@settings(deadline=None)
def test_any_bytes_in_any_charset_become_utf8(pieces: list[bytes], charset: str) -> None:
    head = {"content-length": "1", "content-type": f"text/plain; charset={charset}"}
    try:
        stream = TextStream.from_response(HttpResponse(200, head))
        text = b"".join([*(stream.feed(piece) for piece in pieces), stream.finish()])
    except ComplianceError as error:
        assert str(error)
    else:
        text.decode()


@given(pieces=st.lists(st.text().map(lambda text: text.encode("utf-8", "replace"))), cut=st.integers(1, 5))
@settings(deadline=None)
def test_utf8_passes_unchanged_however_it_is_cut(pieces: list[bytes], cut: int) -> None:
    whole = b"".join(pieces)
    stream = TextStream("utf-8")
    parts = [stream.feed(whole[at : at + cut]) for at in range(0, len(whole), cut)]
    assert b"".join([*parts, stream.finish()]) == whole
