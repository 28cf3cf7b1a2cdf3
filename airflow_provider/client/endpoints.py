"""Every operation of the contract, each as one function that returns a `Call`."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode

from airflow_provider.client.models import (
    Assessment,
    ContentJob,
    Criterion,
    FeedbackCategory,
    Framework,
    JobStatus,
    WireModel,
)
from airflow_provider.client.settings import Endpoints
from airflow_provider.client.text import TextStream
from airflow_provider.client.wire import Body, Call, HttpResponse
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceNotFoundError,
    ComplianceProtocolError,
    ComplianceRefusedError,
)

CONTENT = "/api/v1/content-processing"
FRAMEWORKS = "/api/v1/frameworks"
FEEDBACK = "/api/v1/assessmentFeedback"
SEE_OTHER = frozenset({303})

Model = TypeVar("Model", bound=WireModel)


def submit_file(file: Body) -> Call[ContentJob]:
    """Submit a document; `file` is its multipart form."""
    return Call("POST", f"{CONTENT}/file", body=file, returns=_accepted_job)


def submit_url(url: str) -> Call[ContentJob]:
    """Submit a web page."""
    url = url.strip() if isinstance(url, str) else ""
    if not url.lower().startswith(("http://", "https://")):
        raise ComplianceInputError(
            f"{url[:200]!r} is no web address: it must begin with http:// or https://."
        )
    return Call("POST", f"{CONTENT}/url", json={"url": url}, returns=_accepted_job)


def get_status(uuid: str) -> Call[ContentJob]:
    """Ask for one job; the redirect 303 says that it is completed."""

    def job(response: HttpResponse) -> ContentJob:
        if response.status == 303:
            return _record(_object(response, strict=False), uuid=uuid, status=JobStatus.COMPLETED)
        return _record(_object(response), uuid=uuid)

    return Call("GET", f"{CONTENT}/{_segment(uuid)}/status", returns=job, returned=SEE_OTHER, repeatable=True)


def get_batch(uuids: Iterable[str]) -> Call[list[ContentJob]]:
    """Ask for many jobs in one request; those that the service does not know may be missing in the answer."""

    def jobs(response: HttpResponse) -> list[ContentJob]:
        return [job for job in _models(response, ContentJob) if job.uuid]

    return Call("POST", f"{CONTENT}/status/batch", json={"uuids": list(uuids)}, returns=jobs, repeatable=True)


def get_content(uuid: str) -> Call[str]:
    """Get the extracted text, in memory."""

    def text(response: HttpResponse) -> str:
        stream = TextStream.of(response)
        return (stream.feed(response.body) + stream.finish()).decode()

    return Call("GET", f"{CONTENT}/{_segment(uuid)}/content", returns=text, repeatable=True)


def stream_content(uuid: str) -> Call[TextStream]:
    """Get the extracted text piece by piece."""
    path = f"{CONTENT}/{_segment(uuid)}/content"
    return Call("GET", path, returns=TextStream.of, repeatable=True, streamed=True)


def cancel(uuid: str) -> Call[None]:
    """Cancel a job and delete it."""
    return Call("DELETE", f"{CONTENT}/{_segment(uuid)}", returns=_nothing, repeatable=True)


def refresh(uuid: str) -> Call[ContentJob]:
    """Process a job again: one that failed, or whose content is stale."""

    def job(response: HttpResponse) -> ContentJob:
        return _record(_object(response, strict=False), uuid=uuid)

    return Call("POST", f"{CONTENT}/{_segment(uuid)}/refresh", returns=job)


def list_frameworks() -> Call[list[Framework]]:
    """List all frameworks with their criteria."""
    return Call("GET", FRAMEWORKS, returns=lambda response: _models(response, Framework), repeatable=True)


def list_criteria(framework_id: str | int) -> Call[list[Criterion]]:
    """List the criteria of one framework."""
    path = f"{FRAMEWORKS}/{_segment(framework_id, 'framework id')}/criteria"
    return Call("GET", path, returns=lambda response: _models(response, Criterion), repeatable=True)


def submit_feedback(
    expert_id: str,
    rational_feedback: str,
    assessment_response_id: int | None = None,
    category_feedback: str | None = None,
) -> Call[None]:
    """Send an expert's feedback on an assessment; it is checked before it is sent."""
    payload: dict[str, Any] = {}
    for name, value in (("expertId", expert_id), ("rationalFeedback", rational_feedback)):
        if not isinstance(value, str) or not value.strip():
            raise ComplianceInputError(f"{name} of the feedback is required and must not be blank.")
        payload[name] = value
    if assessment_response_id is not None:
        number = assessment_response_id
        if isinstance(number, bool) or not isinstance(number, int) or not -(2**63) <= number < 2**63:
            raise ComplianceInputError(f"assessmentResponseId must be a 64-bit integer, not {number!r}.")
        payload["assessmentResponseId"] = number
    if category_feedback is not None:
        if category_feedback not in list(FeedbackCategory):
            known = ", ".join(FeedbackCategory)
            raise ComplianceInputError(f"categoryFeedback must be one of {known}, not {category_feedback!r}.")
        payload["categoryFeedback"] = str(category_feedback)
    return Call("POST", FEEDBACK, json=payload, returns=_nothing)


def get_application_info(paths: Endpoints) -> Call[dict[str, Any]]:
    """Get the service's information about itself."""
    hint = _wrong_path("application_info")
    return Call("GET", paths.application_info, returns=_object, repeatable=True, refusal=hint)


def submit_assessment(paths: Endpoints, payload: Mapping[str, Any]) -> Call[Assessment]:
    """Submit an assessment; the payload goes through as it is."""
    try:
        json_module.dumps(payload, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ComplianceInputError(f"The payload of the assessment is not JSON: {error}.") from None
    hint = _wrong_path("assessment_submit")
    return Call("POST", paths.assessment_submit, json=payload, returns=_accepted_assessment, refusal=hint)


def get_assessment(paths: Endpoints, assessment_id: str | int) -> Call[Assessment]:
    """Ask for the state of an assessment; 303 is completed, as for content."""

    def assessment(response: HttpResponse) -> Assessment:
        if response.status == 303:
            return _assessment(_object(response, strict=False), str(assessment_id), JobStatus.COMPLETED)
        return _assessment(_object(response), str(assessment_id))

    path = _assessment_path(paths.assessment_status, assessment_id)
    hint = _wrong_path("assessment_status", assessment_id)
    return Call("GET", path, returns=assessment, returned=SEE_OTHER, repeatable=True, refusal=hint)


def get_assessment_results(paths: Endpoints, assessment_id: str | int) -> Call[Any]:
    """Get the results of an assessment, as JSON."""
    path = _assessment_path(paths.assessment_results, assessment_id)
    hint = _wrong_path("assessment_results", assessment_id)
    return Call("GET", path, returns=HttpResponse.json, repeatable=True, refusal=hint)


def cancel_assessment(paths: Endpoints, assessment_id: str | int) -> Call[None]:
    """Cancel an assessment."""
    path = _assessment_path(paths.assessment_cancel, assessment_id)
    hint = _wrong_path("assessment_cancel", assessment_id)
    return Call("DELETE", path, returns=_nothing, repeatable=True, refusal=hint)


def request(
    method: str,
    path: str,
    *,
    params: Mapping[str, str] | None = None,
    json: Any = None,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    repeatable: bool | None = None,
) -> Call[HttpResponse]:
    """Make any other call of the service; redirects are returned, error answers raise."""
    if not path.startswith("/") or path.startswith("//"):
        raise ComplianceInputError(f"{path!r} is no path of the service: it must begin with one '/'.")
    path = quote(path, safe="/%?&=:;@!$'()*+,~[]")
    if params:
        path += f"{'&' if '?' in path else '?'}{urlencode(params)}"
    for name, value in (headers or {}).items():
        if name.lower() in ("authorization", "host", "content-length", "transfer-encoding"):
            raise ComplianceInputError(f"The header '{name}' is set by the client.")
        if not all(isinstance(word, str) and word.isascii() and word.isprintable() for word in (name, value)):
            raise ComplianceInputError(f"The header {name!r} can't be sent: use printable ASCII characters.")
    method = method.upper()
    return Call(
        method,
        path,
        json=json,
        body=data,
        headers=headers or {},
        returns=lambda response: response,
        returned=frozenset(range(300, 400)),
        repeatable=method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
        if repeatable is None
        else repeatable,
    )


def _segment(value: str | int, what: str = "uuid") -> str:
    """Quote one path segment; what would leave its place is refused."""
    text = str(value).strip() if isinstance(value, str | int) else ""
    if text in ("", ".", ".."):
        raise ComplianceInputError(f"{value!r} is no {what}.")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise ComplianceInputError(f"{value!r} is no {what}.") from None


def _assessment_path(path: str, assessment_id: str | int) -> str:
    return path.replace("{assessment_id}", _segment(assessment_id, "assessment id"))


def _nothing(response: HttpResponse) -> None:
    """Take any good answer for done; the contract gives it no body."""


def _object(response: HttpResponse, *, strict: bool = True) -> dict[str, Any]:
    """Read a JSON object; where its content is not needed, anything else counts as an empty one."""
    try:
        value = response.json()
    except ComplianceProtocolError:
        if strict:
            raise
        return {}
    if isinstance(value, dict):
        return value
    if strict:
        raise ComplianceProtocolError(f"The answer from {response.url} is not a JSON object.")
    return {}


def _models(response: HttpResponse, model: type[Model]) -> list[Model]:
    value = response.json()
    if not isinstance(value, list):
        raise ComplianceProtocolError(f"The answer from {response.url} is not a JSON array.")
    return [model.model_validate(item) for item in value if isinstance(item, dict)]


def _record(record: dict[str, Any], uuid: str, status: JobStatus | None = None) -> ContentJob:
    job = ContentJob.model_validate(record)
    return job.model_copy(update={"uuid": uuid, **({"status": status} if status else {})})


def _accepted_job(response: HttpResponse) -> ContentJob:
    job = ContentJob.model_validate(_object(response, strict=False))
    return job if job.uuid else job.model_copy(update={"uuid": _accepted_id(response)})


def _accepted_assessment(response: HttpResponse) -> Assessment:
    assessment = _assessment(_object(response, strict=False), "")
    return assessment if assessment.id else assessment.model_copy(update={"id": _accepted_id(response)})


def _assessment(record: dict[str, Any], fallback: str, status: JobStatus | None = None) -> Assessment:
    ids = (record.get(key) for key in ("uuid", "id", "assessmentId"))
    known = next((str(value) for value in ids if isinstance(value, str | int) and str(value)), fallback)
    status = status or record.get("status", JobStatus.RUNNING)
    return Assessment.model_validate(
        {"id": fallback or known, "status": status, "error": record.get("error"), "raw": record}
    )


def _accepted_id(response: HttpResponse) -> str:
    """Find the id in the Location of an answer whose body has none."""
    for part in reversed((response.location or "").split("/")):
        if part and part not in ("status", "content", "results"):
            return unquote(part)
    raise ComplianceProtocolError(
        f"The service took the submit ({response.status}), but its answer has neither an id nor a usable "
        "Location, so the job can't be followed. Do not repeat it blindly: it may be running."
    )


def _wrong_path(
    entry: str, assessment_id: str | int = ""
) -> Callable[[HttpResponse], ComplianceError | None]:
    """Say for a 404 or 405 that the path is a guess of ours, and where to replace it."""

    def refusal(response: HttpResponse) -> ComplianceError | None:
        if response.status not in (404, 405):
            return None
        kind = ComplianceNotFoundError if response.status == 404 else ComplianceRefusedError
        either = (
            f"The service does not know assessment '{assessment_id}', or"
            if assessment_id
            else "It seems that"
        )
        return kind(
            f"{response.url} answered {response.status}. {either} this path is not the service's: the "
            f"contract leaves it open. Set '{entry}' in the connection's extra 'endpoints'.",
            status=response.status,
        )

    return refusal
