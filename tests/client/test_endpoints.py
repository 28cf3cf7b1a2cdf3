"""Each operation of the contract as a call, without I/O."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client import endpoints
from airflow_provider.client.exchange import Exchange, ThrottlePause
from airflow_provider.client.http.wire import Call, HttpResponse
from airflow_provider.client.models import FeedbackCategory
from airflow_provider.emulator.settings import OPERATIONS
from tests.support.values import settings_for

MB = 1024 * 1024
CONTENT = "/api/v1/content-processing"
FILE: Any = b"a form"
CATEGORIES = ", ".join(FeedbackCategory)


def response(status: int = 200, body: Any = None, **headers: str) -> HttpResponse:
    given = {"content-length": "1", **headers}
    return HttpResponse(
        status, given, b"" if body is None else json.dumps(body).encode(), "https://a.example/x"
    )


CALLS: dict[str, tuple[Callable[[], Call[Any]], tuple[Any, ...]]] = {
    # method, path, JSON, idempotent, stream, limit in MB
    "submit_file": (lambda: endpoints.submit_file(FILE), ("POST", f"{CONTENT}/file", None, False, False, 8)),
    "submit_url": (
        lambda: endpoints.submit_url(" https://example.com/ "),
        ("POST", f"{CONTENT}/url", {"url": "https://example.com/"}, False, False, 8),
    ),
    "get_status": (
        lambda: endpoints.get_status("a/b"),
        ("GET", f"{CONTENT}/a%2Fb/status", None, True, False, 8),
    ),
    "get_batch": (
        lambda: endpoints.get_batch(iter(["a", "b"])),
        ("POST", f"{CONTENT}/status/batch", {"uuids": ["a", "b"]}, True, False, 8),
    ),
    "get_content": (
        lambda: endpoints.get_content("a"),
        ("GET", f"{CONTENT}/a/content", None, True, False, 256),
    ),
    "stream_content": (
        lambda: endpoints.stream_content("a"),
        ("GET", f"{CONTENT}/a/content", None, True, True, None),
    ),
    "cancel": (lambda: endpoints.cancel(" a "), ("DELETE", f"{CONTENT}/a", None, True, False, 8)),
    "refresh": (lambda: endpoints.refresh("a"), ("POST", f"{CONTENT}/a/refresh", None, False, False, 8)),
    "list_frameworks": (
        lambda: endpoints.list_frameworks(),
        ("GET", "/api/v1/frameworks", None, True, False, 64),
    ),
    "list_criteria": (
        lambda: endpoints.list_criteria(7),
        ("GET", "/api/v1/frameworks/7/criteria", None, True, False, 64),
    ),
    "submit_feedback": (
        lambda: endpoints.submit_feedback("e", "r", 5),
        (
            "POST",
            "/api/v1/assessmentFeedback",
            {"expertId": "e", "rationalFeedback": "r", "assessmentResponseId": 5},
            False,
            False,
            8,
        ),
    ),
    "get_application_info": (
        lambda: endpoints.get_application_info(),
        ("GET", "/api/v1/info", None, True, False, 8),
    ),
    "submit_assessment": (
        lambda: endpoints.submit_assessment({"a": 1}),
        ("POST", "/api/v1/assessments", {"a": 1}, False, False, 8),
    ),
    "get_assessment": (
        lambda: endpoints.get_assessment("a b"),
        ("GET", "/api/v1/assessments/a%20b/status", None, True, False, 8),
    ),
    "get_assessment_results": (
        lambda: endpoints.get_assessment_results(7),
        ("GET", "/api/v1/assessments/7/results", None, True, False, 64),
    ),
    "get_raw_assessment_results": (
        lambda: endpoints.get_raw_assessment_results(7),
        ("GET", "/api/v1/assessments/7/results", None, True, False, 64),
    ),
    "cancel_assessment": (
        lambda: endpoints.cancel_assessment("a"),
        ("DELETE", "/api/v1/assessments/a", None, True, False, 8),
    ),
}


OPERATION = {
    "get_batch": "get_statuses",
    "stream_content": "get_content",
    "get_raw_assessment_results": "get_assessment_results",
}


def test_the_emulator_knows_the_operations_by_the_same_names() -> None:
    assert {OPERATION.get(name, name) for name in CALLS} == set(OPERATIONS)
    assert endpoints.request("GET", "/anything").operation == "request"


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_as_the_contract_says(name: str) -> None:
    make, expected = CALLS[name]
    call = make()
    limit = call.limit if call.limit is None else call.limit / MB
    path = Exchange(call, settings_for("https://h"), ThrottlePause()).url.removeprefix("https://h")
    assert (call.method, path, call.json, call.idempotent, call.stream, limit) == expected
    assert call.authorized
    assert not call.allow_html
    assert call.operation == OPERATION.get(name, name)
    assert call.body == (FILE if name == "submit_file" else None)
    assert call.ok_statuses == ({303} if name in ("get_status", "get_assessment") else set())


@pytest.mark.parametrize("uuid", ["", " ", ".", "..", None, "\ud800"])
def test_an_id_that_would_change_the_path_is_refused(uuid: Any) -> None:
    with pytest.raises(exc.ComplianceInputError, match=r"is not a valid uuid\.$"):
        endpoints.get_status(uuid)
    with pytest.raises(exc.ComplianceInputError, match=r"is not a valid framework id\.$"):
        endpoints.list_criteria(uuid)
    with pytest.raises(exc.ComplianceInputError, match=r"is not a valid assessment id\.$"):
        endpoints.cancel_assessment("" if uuid is None else uuid)


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        (("", "r"), "expert_id of the feedback is required and must not be blank."),
        (("e", " "), "rational_feedback of the feedback is required and must not be blank."),
        (("e", "r", 2**63), f"assessment_response_id must be a 64-bit integer, not {2**63}."),
        (("e", "r", True), "assessment_response_id must be a 64-bit integer, not True."),
        (
            ("e", "r", 1, "GOOD"),
            f"category_feedback must be one of {CATEGORIES}, not 'GOOD'.",
        ),
    ],
)
def test_invalid_feedback_is_named(feedback: Any, message: str) -> None:
    with pytest.raises(exc.ComplianceInputError) as caught:
        endpoints.submit_feedback(*feedback)
    assert str(caught.value) == message


def test_a_redirect_means_that_a_job_is_completed() -> None:
    call = endpoints.get_status("a")
    assert call.parse(response(303)).status == "COMPLETED"
    assert call.parse(response(303, {"status": "RUNNING", "fileName": "f"})).file_name == "f"
    assert call.parse(response(200, {"status": "RUNNING"})).status == "RUNNING"
    with pytest.raises(exc.ComplianceProtocolError):
        call.parse(response(200))


def test_a_batch_ignores_what_was_not_asked_for() -> None:
    body = [{"uuid": "A"}, {"uuid": "c"}, {}, {"uuid": 7}]
    assert [each.uuid for each in endpoints.get_batch(["a", "B"]).parse(response(200, body))] == ["A"]


def test_the_limit_of_a_large_batch_grows_with_it() -> None:
    assert endpoints.get_batch(["a"] * 3000).limit == 3000 * 4096
    assert endpoints.get_batch(["a"] * 2048).limit == 8 * MB


def test_a_refreshed_job_keeps_its_id() -> None:
    found = endpoints.refresh("a").parse(response(202, {"uuid": "b", "status": "PENDING"}))
    assert (found.uuid, found.status) == ("a", "PENDING")
    assert endpoints.refresh("a").parse(response(202)).uuid == "a"


def test_a_text_is_read_in_the_charset_of_the_response() -> None:
    found = HttpResponse(
        200, {"content-type": "text/plain; charset=latin-1", "content-length": "1"}, b"\xe4", "https://a"
    )
    assert endpoints.get_content("a").parse(found) == "ä"


@pytest.mark.parametrize("payload", [{"a": float("nan")}, {"a": {1}}])
def test_a_payload_that_is_not_json_is_not_sent(payload: Any) -> None:
    with pytest.raises(exc.ComplianceInputError, match="is not JSON"):
        endpoints.submit_assessment(payload)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0])
def test_feedback_takes_any_64_bit_number_and_each_category(number: int) -> None:
    category = next(iter(FeedbackCategory))
    payload = endpoints.submit_feedback("e", "r", number, category).json
    assert payload["assessmentResponseId"] == number
    assert payload["categoryFeedback"] == str(category)


def test_an_assessment_is_completed_by_a_redirect() -> None:
    call = endpoints.get_assessment(7)
    found = call.parse(response(303, {"x": 1}))
    assert (found.id, found.status, found.raw) == ("7", "COMPLETED", {"x": 1})
    assert call.parse(response(303)).raw == {}
    translated = endpoints.get_assessment(7, lambda record: {"status": record["state"]})
    assert translated.parse(response(200, {"state": "COMPLETED"})).status == "COMPLETED"
    submitted = endpoints.submit_assessment({}, lambda record: {"id": record["key"]})
    assert submitted.parse(response(202, {"key": "k"})).id == "k"


@pytest.mark.parametrize("record", [{"id": 7}, {"uuid": "x", "id": "7"}, {}])
def test_the_status_of_an_assessment_may_name_it_in_any_field_or_not_at_all(record: dict[str, Any]) -> None:
    found = endpoints.get_assessment(7).parse(response(200, {"status": "FAILED", **record}))
    assert (found.id, found.status) == ("7", "FAILED")


def test_the_status_of_another_assessment_is_refused() -> None:
    with pytest.raises(exc.ComplianceProtocolError, match=r"assessment '7' .*'other'"):
        endpoints.get_assessment(7).parse(response(200, {"id": "other", "status": "COMPLETED"}))


@pytest.mark.parametrize(
    ("status", "kind"), [(404, exc.ComplianceNotFoundError), (405, exc.ComplianceRefusedError)]
)
def test_a_path_that_may_be_wrong_is_named(status: int, kind: Any) -> None:
    error: Any = endpoints.cancel_assessment("a1").map_error(response(status))
    assert type(error) is kind
    assert error.status == status
    assert "know assessment 'a1', or the path is wrong" in str(error)
    assert "Set 'assessment_cancel' in" in str(error)
    error = endpoints.get_application_info().map_error(response(status))
    assert "The path is probably wrong: the API specification" in str(error)
    assert endpoints.get_application_info().map_error(response(400)) is None


def test_any_other_call_is_sent_as_it_is() -> None:
    call = endpoints.request("patch", "/x y?a=b", json={"a": 1}, headers={"X-A": "b"})
    assert (call.method, call.path, call.json, call.headers) == (
        "PATCH",
        "/x%20y?a=b",
        {"a": 1},
        {"X-A": "b"},
    )
    assert (call.allow_html, call.limit, call.idempotent) == (True, 64 * MB, False)
    assert call.ok_statuses == set(range(300, 400))
    assert call.parse(found := response()) is found
    assert endpoints.request("GET", "/x", params={"a": "b c"}).path == "/x?a=b+c"
    assert endpoints.request("POST", "/x", data=b"d").body == b"d"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"])
def test_idempotent_methods_may_be_retried(method: str) -> None:
    assert endpoints.request(method, "/x").idempotent is (method not in ("POST", "PATCH"))
    assert endpoints.request(method, "/x", idempotent=False).idempotent is False


@pytest.mark.parametrize("method", ["", "CONNECT", "connect", "GET ", "G1", None])
@pytest.mark.parametrize("path", ["/x"])
def test_invalid_method_is_refused(method: Any, path: str) -> None:
    with pytest.raises(exc.ComplianceInputError, match="is not an HTTP method"):
        endpoints.request(method, path)


@pytest.mark.parametrize("path", ["x", "//evil.example/x", "", None])
def test_invalid_path_is_refused(path: Any) -> None:
    with pytest.raises(exc.ComplianceInputError, match="is not a path of the service"):
        endpoints.request("GET", path)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"data": "text"}, "must be bytes, not str"),
        ({"json": {1, 2}}, "can't be sent"),
        ({"json": float("nan")}, "can't be sent"),
        ({"headers": {"a b": "c"}}, "is not valid: use printable ASCII"),
        ({"headers": {5: "c"}}, "is not valid: use printable ASCII"),
        ({"headers": {"HOST": "c"}}, "is set by the client"),
        ({"headers": {"Authorization": "c"}}, "is set by the client"),
        ({"headers": {"Content-Length": "1"}}, "is set by the client"),
        ({"headers": {"Transfer-Encoding": "x"}}, "is set by the client"),
        ({"headers": {"a": "ä"}}, "use printable ASCII"),
        ({"headers": {"a": "b\r\nc"}}, "use printable ASCII"),
        ({"headers": {"a": 5}}, "use printable ASCII"),
    ],
)
def test_request_that_can_not_be_sent_is_refused(arguments: Any, problem: str) -> None:
    with pytest.raises(exc.ComplianceInputError, match=problem):
        endpoints.request("POST", "/x", **arguments)


@pytest.mark.parametrize("url", ["https:///x", "https://?x", "https://a\u202eb", "xhttps://a", None])
def test_invalid_web_address_is_refused(url: Any) -> None:
    with pytest.raises(exc.ComplianceInputError, match="is not a valid URL"):
        endpoints.submit_url(url)
