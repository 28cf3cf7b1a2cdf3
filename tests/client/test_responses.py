"""What is read of a response, without I/O."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any

import pytest

from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.client.models import ContentJob, Framework
from airflow_provider.client.responses import (
    as_assessment,
    body_excerpt,
    check_complete,
    check_see_other,
    check_text,
    error_message,
    proxy_hint,
    read_accepted_assessment,
    read_accepted_job,
    read_job,
    read_models,
    read_nothing,
    read_object,
    retry_after,
)
from airflow_provider.exceptions import ComplianceProtocolError

URL = "https://api.example.com/jobs"
UUID = "3f0c2f5e-1c1b-4f59-9c39-5a3a63a1b9a1"


def response(body: Any = b"", status: int = 200, **headers: str) -> HttpResponse:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status, given, body if isinstance(body, bytes) else json.dumps(body).encode(), URL)


@pytest.mark.parametrize(("body", "problem"), [([], "is not a JSON object"), (b"<", "is not JSON")])
def test_other_json_than_an_object_is_an_error_or_an_empty_one(body: Any, problem: str) -> None:
    with pytest.raises(ComplianceProtocolError, match=problem):
        read_object(response(body))
    assert read_object(response(body), strict=False) == {}


@pytest.mark.parametrize(
    ("body", "is_done"),
    [
        (b"", True),
        (b"deleted", True),
        ({"error": None}, True),
        ({"uuid": UUID, "status": "CANCELLED", "error": "The page is gone"}, True),  # the deleted job
        ({"error": "locked"}, False),
        ({"error": {"code": 7}}, False),
    ],
)
def test_success_with_an_error_in_its_body_is_not_done(body: Any, is_done: bool) -> None:
    if is_done:
        assert read_nothing(response(body)) is None  # type: ignore[func-returns-value] # that is what it says
        return
    with pytest.raises(ComplianceProtocolError, match="returned 200 with an error"):
        read_nothing(response(body))


def test_a_list_is_read_without_what_is_not_wanted() -> None:
    body = [{"id": 1, "codeName": "gdpr"}, 7, {"id": 2, "codeName": "dora"}]
    assert [each.code_name for each in read_models(response(body), Framework)] == ["gdpr", "dora"]
    found = read_models(response(body), Framework, lambda record: record["id"] == 2)
    assert [each.code_name for each in found] == ["dora"]
    with pytest.raises(ComplianceProtocolError, match="is not a JSON array"):
        read_models(response({}), ContentJob)


@pytest.mark.parametrize("shown", [UUID, UUID.upper(), f"{{{UUID}}}", f" {UUID.replace('-', '')} ", ""])
def test_a_job_is_recognized_however_its_id_is_written(shown: str) -> None:
    job = read_job(response({"uuid": shown, "status": "RUNNING"}), UUID, strict=True)
    assert (job.uuid, job.status) == (UUID, "RUNNING")


def test_the_record_of_another_job_is_refused() -> None:
    with pytest.raises(ComplianceProtocolError, match=r"is about another job, 'x{100}': check for a cache"):
        read_job(response({"uuid": "x" * 200}), UUID, strict=True)


def test_a_job_without_a_record_is_an_error_only_if_strict() -> None:
    assert read_job(response(b""), UUID, strict=False).uuid == UUID
    with pytest.raises(ComplianceProtocolError):
        read_job(response(b""), UUID, strict=True)


@pytest.mark.parametrize(
    ("location", "found"),
    [
        (f"/api/jobs/{UUID}", UUID),
        (f"/api/jobs/{UUID}/", UUID),
        (f"/api/jobs/{UUID}/status", UUID),
        (f"/api/jobs/{UUID}/content", UUID),
        (f"/api/jobs/{UUID}/results", UUID),
        ("/api/jobs/a%20b", "a b"),
    ],
)
@pytest.mark.parametrize("body", [b"", b" ", b"accepted", {}, []])
def test_the_id_of_a_new_job_may_be_in_the_location(location: str, found: str, body: Any) -> None:
    assert read_accepted_job(response(body, location=location)).uuid == found
    assert read_accepted_assessment(response(body, location=location), dict).id == found


@pytest.mark.parametrize("location", ["", "/", "/status", "/jobs/a%00b", "https://evil.example/jobs/u"])
def test_a_new_job_without_an_id_is_an_error_that_is_not_retried(location: str) -> None:
    with pytest.raises(ComplianceProtocolError, match=r"accepted the submit \(202\)") as error:
        read_accepted_job(response({}, 202, location=location))
    assert not error.value.transient


@pytest.mark.parametrize("body", [b"", {}, {"error": "temporarily unavailable"}])
def test_a_200_without_an_id_may_come_from_a_proxy(body: Any) -> None:
    for read in (read_accepted_job, partial(read_accepted_assessment, translate=dict)):
        with pytest.raises(ComplianceProtocolError, match="returned 200 without an id") as error:
            read(response(body))
        assert error.value.transient


def test_a_response_to_a_submit_that_is_not_json_is_an_error_without_a_location() -> None:
    with pytest.raises(ComplianceProtocolError, match="is not JSON"):
        read_accepted_job(response(b"accepted"))
    assert read_accepted_job(response({"uuid": "u"}, location="/jobs/other")).uuid == "u"
    assert read_accepted_assessment(response({"id": "u"}, location="/jobs/other"), dict).id == "u"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"uuid": "u", "id": "i", "assessmentId": "a"}, "a"),
        ({"uuid": "u", "id": 7}, "u"),
        ({"id": 7}, "7"),
        ({"uuid": "", "id": None, "assessmentId": "a"}, "a"),
        ({"uuid": ["u"]}, ""),
    ],
)
def test_the_id_of_an_assessment_has_several_names(record: dict[str, Any], expected: str) -> None:
    assert as_assessment(record, "", dict).id == expected
    assert as_assessment(record, expected.upper(), dict).id == expected.upper()


def test_a_status_of_another_assessment_is_refused() -> None:
    with pytest.raises(ComplianceProtocolError, match="another, 'a2'") as refused:
        as_assessment({"id": "a2", "status": "COMPLETED"}, "a1", dict)
    assert refused.value.transient


def test_an_assessment_runs_unless_it_says_otherwise() -> None:
    found = as_assessment({"x": 1}, "a", dict)
    assert (found.status, found.error, found.raw) == ("RUNNING", None, {"x": 1})
    found = as_assessment({"status": "FAILED", "error": "why"}, "a", dict)
    assert (found.status, found.error) == ("FAILED", "why")


def test_a_translation_that_fails_is_an_error_that_is_not_retried() -> None:
    def translate(record: dict[str, Any]) -> dict[str, Any]:
        return {"id": record["missing"]}

    with pytest.raises(ComplianceProtocolError, match="Fix translate_assessment") as error:
        as_assessment({"x": 1}, "a", translate)
    assert not error.value.transient


def test_a_proxy_is_named_if_it_is_known() -> None:
    assert proxy_hint(HttpResponse(407, proxy="proxy:3128")).startswith("The proxy proxy:3128 requires")
    assert proxy_hint(HttpResponse(407)).startswith("A proxy requires")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), (" 1.5 ", 1.5), ("-3", 0.0), ("0", 0.0), ("nan", None), ("inf", None), ("soon", None)],
)
def test_retry_after_is_a_number_of_seconds(value: str, seconds: float | None) -> None:
    assert retry_after(response(retry_after=value)) == seconds


def test_retry_after_may_be_missing_past_or_a_date() -> None:
    assert retry_after(response()) is None
    now = datetime.now(UTC)
    assert retry_after(response(retry_after=format_datetime(now - timedelta(days=1)))) == 0.0
    later = retry_after(response(retry_after=format_datetime(now + timedelta(days=1))))
    assert later == pytest.approx(86400, abs=3600)
    naive = format_datetime((now + timedelta(days=1)).replace(tzinfo=None))
    assert retry_after(response(retry_after=naive)) == pytest.approx(86400, abs=3600)


def test_an_excerpt_has_500_characters_on_one_line() -> None:
    assert body_excerpt(response("é".encode() * 1000)) == "é" * 499 + "…"
    assert body_excerpt(response("\U0001f600".encode() * 1000)) == "\U0001f600" * 499 + "…"
    assert "\n" not in body_excerpt(response(b"a\nb"))
    assert body_excerpt(response(b"a\xffb")) == "a�b"


@pytest.mark.parametrize("key", ["message", "error_description", "detail", "error", "title"])
def test_the_message_of_an_error_is_in_one_of_the_usual_fields(key: str) -> None:
    assert error_message(response({key: " why "})) == ", 'why'"
    assert error_message(response({key: "x" * 600})) == f", '{'x' * 499 + '…'}'"


def test_the_most_telling_field_of_an_error_comes_first() -> None:
    fields = ["message", "error_description", "detail", "error", "title"]
    while fields:
        assert error_message(response({name: name for name in fields})) == f", '{fields.pop(0)}'"
    assert error_message(response({"message": " ", "detail": 7, "title": "t"})) == ", 't'"
    assert error_message(response({})) == ""
    assert error_message(response(b"<html>")) == ""


@pytest.mark.parametrize(
    ("location", "any_path", "is_result"),
    [
        ("", False, True),  # the status alone counts
        (f"/content-processing/{UUID}/content", False, True),
        (f"/content-processing/{UUID.upper()}/content", False, True),
        ("https://[", False, True),  # not usable
        ("/login", False, False),
        ("/results/1", True, True),  # on the same origin
        ("https://login.example.com/", True, False),
        (f"https://other.example.com/{UUID}", False, True),  # never followed, but it names the job
    ],
)
def test_see_other_leads_to_the_result(location: str, any_path: bool, is_result: bool) -> None:
    answer = response(status=303, location=location) if location else response(status=303)
    if is_result:
        check_see_other(answer, UUID, any_path=any_path)
        return
    with pytest.raises(ComplianceProtocolError, match="that is a proxy or a login page"):
        check_see_other(answer, UUID, any_path=any_path)


@pytest.mark.parametrize(("status", "is_complete"), [(200, True), (202, False), (206, False), (207, True)])
def test_accepted_or_partial_response_is_not_the_result(status: int, is_complete: bool) -> None:
    if is_complete:
        check_complete(response(status=status))
        return
    with pytest.raises(ComplianceProtocolError, match=f"returned {status} .*, not the result"):
        check_complete(response(status=status))


@pytest.mark.parametrize(
    ("kind", "is_text"),
    [
        ("", True),
        ("text/plain; charset=utf-8", True),
        ("text/markdown", True),
        ("text/json", False),
        ("text/xml", False),
        ("application/json", False),
        ("image/png", False),
        ("application/octet-stream", True),  # if it can be decoded
    ],
)
def test_only_text_is_a_text(kind: str, is_text: bool) -> None:
    answer = response(b"x", content_type=kind) if kind else response(b"x")
    if is_text:
        check_text(answer)
        return
    with pytest.raises(ComplianceProtocolError, match="not a text: that is a proxy"):
        check_text(answer)


@pytest.mark.parametrize(
    ("link", "is_whole"),
    [
        ('</api/v1/frameworks?page=2>; rel="next", </x>; rel=last', False),
        ("</api/v1/frameworks?page=2>; REL=next", False),
        ('</docs>; rel="help nextgen", </x?rel=next>; rel="last"', True),
    ],
)
def test_one_page_of_a_list_is_not_the_list(link: str, is_whole: bool) -> None:
    page = response([{"id": 1}], link=link)
    if is_whole:
        assert len(read_models(page, Framework)) == 1
        return
    with pytest.raises(ComplianceProtocolError, match="only a part"):
        read_models(page, Framework)
