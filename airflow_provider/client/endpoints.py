"""Every operation of the contract: a function that returns a `Call`, or a `Flow` of several calls."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from airflow_provider.client.http.bodies import TextStream
from airflow_provider.client.http.wire import Body, Call, HttpResponse, normalize_path
from airflow_provider.client.models import (
    Assessment,
    ContentJob,
    Criterion,
    FeedbackCategory,
    Framework,
    JobStatus,
)
from airflow_provider.client.responses import (
    Translate,
    as_assessment,
    check_complete,
    check_see_other,
    check_text,
    read_accepted_assessment,
    read_accepted_job,
    read_job,
    read_models,
    read_nothing,
    read_object,
)
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceNotFoundError,
    ComplianceRefusedError,
)
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import sanitize

T = TypeVar("T")
Flow: TypeAlias = Generator[Call[Any], Any, T]
"""Yields calls, and receives the result or the error of each."""

CONTENT = "/api/v1/content-processing"
FRAMEWORKS = "/api/v1/frameworks"
FEEDBACK = "/api/v1/assessmentFeedback"
SEE_OTHER = frozenset({303})
_METHOD = re.compile(r"(?!connect$)[a-z]+", re.ASCII | re.IGNORECASE)
_URL = re.compile(r"https?://[^/?#\s]", re.IGNORECASE)
_HEADER = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)

# Size limits of successful responses, decompressed; a single record has the default of `Call`.
BYTES_PER_JOB, MIN_BATCH_BYTES = 4 * 1024, 8 * 1024**2  # one of many jobs may have a long error
LIST_BYTES = 64 * 1024**2
TEXT_BYTES = 256 * 1024**2


def submit_file(file: Body) -> Call[ContentJob]:
    """Submit a document; `file` is its multipart form."""
    return Call("POST", f"{CONTENT}/file", body=file, parse=read_accepted_job, operation="submit_file")


def submit_url(url: str) -> Call[ContentJob]:
    """Submit a web page."""
    url = url.strip() if isinstance(url, str) else ""
    if not _URL.match(url) or not url.isprintable():
        shown = url if "://" in url else redact(f"https://{url}").removeprefix("https://")
        raise ComplianceInputError(
            f"{sanitize(shown, 200)!r} is not a valid URL: it must start with http:// or https:// and "
            "a host, without control characters."
        )
    return Call("POST", f"{CONTENT}/url", json={"url": url}, parse=read_accepted_job, operation="submit_url")


def get_status(uuid: str) -> Call[ContentJob]:
    """Get the status of one job; a 303 redirect to its content means completed."""

    def job(response: HttpResponse) -> ContentJob:
        if is_completed := response.status == 303:
            check_see_other(response, uuid)
        record = read_job(response, uuid, strict=not is_completed)
        return record.model_copy(update={"status": JobStatus.COMPLETED}) if is_completed else record

    return _read("get_status", f"{CONTENT}/{_segment(uuid)}/status", job, ok_statuses=SEE_OTHER)


def get_batch(uuids: Iterable[str]) -> Call[list[ContentJob]]:
    """Get the status of many jobs in one request; unknown ones may be missing in the response."""
    requested = list(uuids)
    known = {uuid.lower() for uuid in requested}

    def is_requested(record: dict[str, Any]) -> bool:
        return str(record.get("uuid")).lower() in known

    def jobs(response: HttpResponse) -> list[ContentJob]:
        found: dict[str, ContentJob] = {}
        # Validate only requested records: a broken service may send any number.
        for job in read_models(response, ContentJob, is_requested):
            if job.uuid not in found or (job.status.is_final and not found[job.uuid].status.is_final):
                found[job.uuid] = job  # the first final one of several records
        return list(found.values())

    return Call(
        "POST",
        f"{CONTENT}/status/batch",
        json={"uuids": requested},
        parse=jobs,
        idempotent=True,
        limit=max(MIN_BATCH_BYTES, BYTES_PER_JOB * len(requested)),
        operation="get_statuses",
    )


def get_content(uuid: str) -> Call[str]:
    """Get the extracted text in memory, up to 256 MB; stream or download larger ones."""

    def text(response: HttpResponse) -> str:
        check_text(response)
        stream = TextStream.from_response(response)
        return (stream.feed(response.body) + stream.finish()).decode()

    return _read("get_content", f"{CONTENT}/{_segment(uuid)}/content", text, limit=TEXT_BYTES)


def stream_content(uuid: str) -> Call[tuple[TextStream, HttpResponse]]:
    """Stream the extracted text: its decoder, and the response, which the caller has to close."""

    def text(response: HttpResponse) -> tuple[TextStream, HttpResponse]:
        check_text(response)
        return TextStream.from_response(response), response

    return _read("get_content", f"{CONTENT}/{_segment(uuid)}/content", text, stream=True, limit=None)


def cancel(uuid: str) -> Call[None]:
    """Cancel and delete a job."""
    return Call(
        "DELETE", f"{CONTENT}/{_segment(uuid)}", parse=read_nothing, idempotent=True, operation="cancel"
    )


def refresh(uuid: str) -> Call[ContentJob]:
    """Process a failed or stale job again."""

    def job(response: HttpResponse) -> ContentJob:
        record = ContentJob.model_validate(read_object(response, strict=False))
        return record.model_copy(update={"uuid": uuid})

    return Call("POST", f"{CONTENT}/{_segment(uuid)}/refresh", parse=job, operation="refresh")


def list_frameworks() -> Call[list[Framework]]:
    """List all frameworks with their criteria."""
    return _read("list_frameworks", FRAMEWORKS, partial(read_models, model=Framework), limit=LIST_BYTES)


def list_criteria(framework_id: str | int) -> Call[list[Criterion]]:
    """List the criteria of one framework."""
    path = f"{FRAMEWORKS}/{_segment(framework_id, 'framework id')}/criteria"
    return _read("list_criteria", path, partial(read_models, model=Criterion), limit=LIST_BYTES)


def submit_feedback(
    expert_id: str,
    rational_feedback: str,
    assessment_response_id: int | None = None,
    category_feedback: str | None = None,
) -> Call[None]:
    """Send an expert's feedback on an assessment; it is validated before it is sent."""
    payload: dict[str, Any] = {}
    for field, name, value in (
        ("expertId", "expert_id", expert_id),
        ("rationalFeedback", "rational_feedback", rational_feedback),
    ):
        if not isinstance(value, str) or not value.strip():
            raise ComplianceInputError(f"{name} of the feedback is required and must not be blank.")
        payload[field] = value
    if assessment_response_id is not None:
        number = assessment_response_id
        if isinstance(number, bool) or not isinstance(number, int) or not -(2**63) <= number < 2**63:
            raise ComplianceInputError(f"assessment_response_id must be a 64-bit integer, not {number!r}.")
        payload["assessmentResponseId"] = number
    if category_feedback is not None:
        if category_feedback not in list(FeedbackCategory):
            known = ", ".join(FeedbackCategory)
            raise ComplianceInputError(
                f"category_feedback must be one of {known}, not {category_feedback!r}."
            )
        payload["categoryFeedback"] = str(category_feedback)
    return Call("POST", FEEDBACK, json=payload, parse=read_nothing, operation="submit_feedback")


def get_application_info() -> Call[dict[str, Any]]:
    """Get the service's application info."""
    return _configured("application_info", _read("get_application_info", "", read_object))


def submit_assessment(payload: Any, translate: Translate = dict) -> Call[Assessment]:
    """Submit an assessment; the payload is sent unchanged."""
    try:
        json_module.dumps(payload, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ComplianceInputError(f"The payload of the assessment is not JSON: {error}.") from None
    parse = partial(read_accepted_assessment, translate=translate)
    return _configured(
        "assessment_submit", Call("POST", "", parse, json=payload, operation="submit_assessment")
    )


def get_assessment(assessment_id: str | int, translate: Translate = dict) -> Call[Assessment]:
    """Get the status of an assessment; 303 means completed, as for content."""

    def assessment(response: HttpResponse) -> Assessment:
        if response.status == 303:
            # The contract does not say where the results are.
            check_see_other(response, str(assessment_id), any_path=True)
            raw = read_object(response, strict=False)
            return Assessment(id=str(assessment_id), status=JobStatus.COMPLETED, raw=raw)
        return as_assessment(read_object(response), str(assessment_id), translate)

    path = _segment(assessment_id, "assessment id")
    return _configured(
        "assessment_status", _read("get_assessment", path, assessment, ok_statuses=SEE_OTHER), assessment_id
    )


def get_assessment_results(assessment_id: str | int) -> Call[Any]:
    """Get the results of an assessment, as JSON that the profile is not applied to yet."""
    return _results(assessment_id, HttpResponse.json)


def get_raw_assessment_results(assessment_id: str | int) -> Call[tuple[bytes, Any]]:
    """Get the results of an assessment: the bytes that the service sent, and their JSON."""
    return _results(assessment_id, lambda response: (response.body, response.json()))


def _results(assessment_id: str | int, read: Callable[[HttpResponse], T]) -> Call[T]:
    def results(response: HttpResponse) -> T:
        check_complete(response)
        return read(response.as_sent)  # as stored results: the hook's findings_of converts both

    path = _segment(assessment_id, "assessment id")
    call = _read("get_assessment_results", path, results, limit=LIST_BYTES)
    return _configured("assessment_results", call, assessment_id)


def cancel_assessment(assessment_id: str | int) -> Call[None]:
    """Cancel an assessment."""
    path = _segment(assessment_id, "assessment id")
    call = Call("DELETE", path, read_nothing, idempotent=True, operation="cancel_assessment")
    return _configured("assessment_cancel", call, assessment_id)


def request(
    method: str,
    path: str,
    *,
    params: Mapping[str, str] | None = None,
    json: Any = None,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    idempotent: bool | None = None,
) -> Call[HttpResponse]:
    """Make any other call of the service; redirects are returned, error responses raise."""
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise ComplianceInputError(f"{method!r} is not an HTTP method.")
    if not isinstance(path, str) or not path.startswith("/") or path.startswith("//"):
        raise ComplianceInputError(f"{path!r} is not a path of the service: it must start with a single '/'.")
    if not isinstance(data, bytes | None):
        raise ComplianceInputError(f"The data of a request must be bytes, not {type(data).__name__}.")
    try:
        path = normalize_path(path)
        if params:
            path += f"{'&' if '?' in path else '?'}{urlencode(params)}"
        json_module.dumps(json, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ComplianceInputError(f"The request can't be sent: {error}.") from None
    for name, value in (headers or {}).items():
        is_valid = isinstance(name, str) and _HEADER.fullmatch(name) and isinstance(value, str)
        if not is_valid or not value.isascii() or not value.isprintable():
            raise ComplianceInputError(f"The header {name!r} is not valid: use printable ASCII.")
        if name.lower() in ("authorization", "host", "content-length", "transfer-encoding"):
            raise ComplianceInputError(f"The header '{name}' is set by the client.")
    method = method.upper()
    return Call(
        method,
        path,
        json=json,
        body=data,
        headers=headers or {},
        parse=lambda response: response,
        ok_statuses=frozenset(range(300, 400)),
        allow_html=True,
        limit=LIST_BYTES,
        idempotent=method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
        if idempotent is None
        else idempotent,
    )


def _segment(value: str | int, what: str = "uuid") -> str:
    """Quote one path segment; refuse one that would change the path."""
    text = str(value).strip() if isinstance(value, str | int) else ""
    if text in ("", ".", ".."):
        raise ComplianceInputError(f"{value!r} is not a valid {what}.")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise ComplianceInputError(f"{value!r} is not a valid {what}.") from None


def _read(operation: str, path: str, parse: Callable[[HttpResponse], T], **options: Any) -> Call[T]:
    return Call("GET", path, parse, idempotent=True, operation=operation, **options)


def _configured(endpoint: str, call: Call[T], assessment_id: str | int | None = None) -> Call[T]:
    """Send a call to a path that is a setting; a 404 or 405 says where to set it."""
    reason = "The path is probably wrong"
    if assessment_id is not None:
        reason = f"Either the service does not know assessment '{assessment_id}', or the path is wrong"

    def map_error(response: HttpResponse) -> ComplianceError | None:
        if response.status not in (404, 405):
            return None
        kind = ComplianceNotFoundError if response.status == 404 else ComplianceRefusedError
        return kind(
            f"{response.url} returned {response.status}. {reason}: the API specification leaves it open. "
            f"Set '{endpoint}' in the connection's extra 'endpoints'.",
            status=response.status,
        )

    return replace(call, endpoint=endpoint, map_error=map_error)
