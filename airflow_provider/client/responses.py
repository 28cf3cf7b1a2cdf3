"""Parse responses, successful or not, without I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.client.models import Assessment, ContentJob, JobStatus, WireModel
from airflow_provider.exceptions import ComplianceProtocolError
from airflow_provider.redaction.text import one_line, sanitize

Model = TypeVar("Model", bound=WireModel)
BODY_EXCERPT_CHARS = 500
UNTYPED = ("", "application/octet-stream")  # it is a text if it can be decoded


class UnconfirmedRedirectError(ComplianceProtocolError):
    """A 303 that does not name the job: its status has to say whether it is completed."""


def read_nothing(response: HttpResponse) -> None:
    """Accept any successful response, for which the contract defines no body, unless it is about an error."""
    record = read_object(response, strict=False)
    if record.get("error") and not record.get("uuid"):  # a job that failed has both
        raise ComplianceProtocolError(
            f"{response.url} returned {response.status} with an error{error_message(response)}."
        )


def read_object(response: HttpResponse, *, strict: bool = True) -> dict[str, Any]:
    """Read a JSON object; unless `strict`, anything else counts as an empty one."""
    if not (strict or response.body):  # as that of a 303
        return {}
    try:
        value = response.json()
        if isinstance(value, dict):
            return value
        raise ComplianceProtocolError(f"The response from {response.url} is not a JSON object.")
    except ComplianceProtocolError:
        if strict:
            raise
        return {}


def read_models(
    response: HttpResponse, model: type[Model], wanted: Callable[[dict[str, Any]], bool] = lambda _: True
) -> list[Model]:
    """Read a JSON array of objects; other values, and unwanted objects, are ignored."""
    check_complete(response)
    value = response.json()
    if not isinstance(value, list):
        raise ComplianceProtocolError(f"The response from {response.url} is not a JSON array.")
    return [model.model_validate(item) for item in value if isinstance(item, dict) and wanted(item)]


def read_job(response: HttpResponse, uuid: str, *, strict: bool) -> ContentJob:
    """Read the record of a job; refuse another job's record, which a cache may return."""
    job = ContentJob.model_validate(read_object(response, strict=strict))
    if job.uuid and normalize_id(job.uuid) != normalize_id(uuid):
        raise ComplianceProtocolError(
            f"The response from {response.url} is about another job, '{one_line(job.uuid)[:100]}': check for "
            "a cache in front of the service."
        )
    return job if job.uuid == uuid else job.model_copy(update={"uuid": uuid})


def check_see_other(response: HttpResponse, identifier: str, *, any_path: bool = False) -> None:
    """Doubt a 303 that leads elsewhere, such as to a login page; without a usable Location it counts.

    :param any_path: any path on the origin of the request will do
    """
    location = response.headers.get("location", "")
    try:
        path = urlsplit(urljoin(response.url, location)).path
    except ValueError:
        return
    wanted = normalize_id(identifier)
    is_named = any(normalize_id(unquote(part)) == wanted for part in path.split("/"))
    if location and not is_named and not (any_path and response.location):
        raise UnconfirmedRedirectError(
            f"{response.url} was redirected (303) to {response.target!r}, which is not the result "
            f"of '{identifier}': that is a proxy or a login page, not the service."
        )


def check_complete(response: HttpResponse) -> None:
    """Refuse a successful response that is not the whole result: 202 is not ready, others are a part."""
    if re.search(r""";\s*rel="?next\b""", response.headers.get("link", ""), re.IGNORECASE):
        raise ComplianceProtocolError(f"{response.url} returned only a part, as its header 'Link' says.")
    if response.status in (202, 206):
        raise ComplianceProtocolError(
            f"{response.url} returned {response.status} {reason_phrase(response.status)}, not the result. "
            "Retry later."
        )


def check_text(response: HttpResponse) -> None:
    """Refuse a response that is not a text: another type is the answer of a gateway."""
    check_complete(response)
    kind = response.content_type
    if not (kind.startswith("text/") or kind in UNTYPED) or kind.endswith(("json", "xml")):
        raise ComplianceProtocolError(
            f"{response.url} returned {one_line(kind)}, not a text: that is a proxy, not the service."
        )


def normalize_id(value: object) -> str:
    """Return an id as ids are compared."""
    return str(value).strip().strip("{}").replace("-", "").casefold()


def read_accepted_job(response: HttpResponse) -> ContentJob:
    """Read the response to a submit: the record, or at least its id from the Location."""
    job = ContentJob.model_validate(_accepted_record(response))
    return job if job.uuid else job.model_copy(update={"uuid": _accepted_id(response)})


Translate = Callable[[dict[str, Any]], dict[str, Any]]
"""Maps an assessment record to one with the fields `id`, `status` and `error`."""


def read_accepted_assessment(response: HttpResponse, translate: Translate) -> Assessment:
    """Read the response to a submit: the record, or at least its id from the Location."""
    assessment = as_assessment(_accepted_record(response), "", translate)
    return assessment if assessment.id else assessment.model_copy(update={"id": _accepted_id(response)})


def as_assessment(record: dict[str, Any], fallback: str, translate: Translate) -> Assessment:
    """Parse an assessment record, whose fields the contract does not define."""
    try:
        fields = translate(record) if record else {}  # a submit may be accepted with a Location alone
        ids = [fields.get(key) for key in ("assessmentId", "uuid", "id")]
        error, status = fields.get("error"), fields.get("status", JobStatus.RUNNING)
    except Exception as problem:
        raise _non_retryable(
            f"The record of an assessment could not be translated: {problem!r}. Fix translate_assessment "
            "of the hook."
        ) from None
    named = [str(value) for value in ids if isinstance(value, str | int) and str(value)]
    if fallback and named and normalize_id(fallback) not in map(normalize_id, named):
        raise ComplianceProtocolError(
            f"The status of assessment '{fallback}' belongs to another, '{named[0][:100]}': check for a "
            "cache in front of the service."
        )
    known = fallback or next(iter(named), "")
    return Assessment.model_validate({"id": known, "status": status, "error": error, "raw": record})


def _accepted_record(response: HttpResponse) -> dict[str, Any]:
    """Read the record of a submit; it may be missing if the body is empty or a Location is given."""
    try:
        record = response.json()
    except ComplianceProtocolError:
        if response.body.strip() and not response.location:
            raise
        return {}
    return record if isinstance(record, dict) else {}


def _accepted_id(response: HttpResponse) -> str:
    """Find the id in the Location, if the body has none."""
    for part in reversed((response.location or "").split("/")):
        if part and part not in ("status", "content", "results"):
            if (found := unquote(part)).isprintable():
                return found
            break
    if response.status != HTTPStatus.ACCEPTED and not response.location:
        # The service accepts with 202; this may come from a proxy.
        raise ComplianceProtocolError(f"{response.url} returned {response.status} without an id.")
    raise _non_retryable(
        f"The service accepted the submit ({response.status}), but its response has neither an id nor a "
        "usable Location, so the job can't be tracked. Check the service before you submit it again: it may "
        "be running."
    )


def _non_retryable(message: str) -> ComplianceProtocolError:
    """Make a non-retryable error: a retry would only submit again."""
    error = ComplianceProtocolError(message)
    error.transient = False
    return error


def proxy_hint(response: HttpResponse) -> str:
    """Say what to do about a proxy that requires authentication (407)."""
    proxy = f"The proxy {response.proxy}" if response.proxy else "A proxy"
    return f"{proxy} requires authentication (407): check the variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY."


def retry_after(response: HttpResponse) -> float | None:
    """Parse Retry-After, in seconds or as a date."""
    value = response.headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def reason_phrase(status: int) -> str:
    """Return the standard reason phrase of a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "error"


def body_excerpt(response: HttpResponse) -> str:
    """Return the beginning of a body, as text on one line."""
    return sanitize(response.body[: BODY_EXCERPT_CHARS * 8].decode(errors="replace"), BODY_EXCERPT_CHARS)


def error_message(response: HttpResponse) -> str:
    """Return the service's own message, from the usual fields of an error body."""
    record = read_object(response, strict=False)
    for key in ("message", "error_description", "detail", "error", "title"):
        if isinstance(text := record.get(key), str) and text.strip():
            return f", {sanitize(text, BODY_EXCERPT_CHARS)!r}"
    return ""


def oauth_error(response: HttpResponse) -> tuple[str, str]:
    """Read `error` and `error_description` of RFC 6749, truncated and on one line."""
    record = read_object(response, strict=False)

    def field_text(name: str, length: int) -> str:
        return one_line(text[:length]) if isinstance(text := record.get(name), str) else ""

    return field_text("error", 100), field_text("error_description", 200)
