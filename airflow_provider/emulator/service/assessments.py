"""Frameworks, assessments, feedback and application info; assessments follow a simple, deterministic rule.

For each criterion its keywords are searched in the text, ignoring case. None found: MISSING. At least
half of them found: SUFFICIENTLY_REGULATED. Otherwise NOT_SUFFICIENTLY_REGULATED. The rationale quotes the
sentence with most of them.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import uuid
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from airflow_provider.emulator.service.gateway import (
    SUBJECT,
    RequestError,
    get_context,
    json_response,
    read_object,
)

if TYPE_CHECKING:
    from airflow_provider.emulator.service import State
    from airflow_provider.emulator.settings import CompletionRule

FRAMEWORK_FIELDS = ("id", "name", "codeName", "description")
CRITERION_FIELDS = ("name", "codeName", "description")


class Catalog:
    """The frameworks of the catalog file; `keywords` of a criterion are for the assessment rule only."""

    def __init__(self, path: str | None = None) -> None:
        bundled = files("airflow_provider.emulator").joinpath("data", "catalog.json")
        source = bundled if path is None else Path(path)
        text = source.read_text(encoding="utf-8")
        try:
            self._initial = check_frameworks(json.loads(text))
        except ValueError as error:
            raise ValueError(f"The catalog file {path} is not valid: {error}") from None
        self.reset()

    def reset(self) -> None:
        """Restore the catalog of the file."""
        self.frameworks = copy.deepcopy(self._initial)

    def replace(self, frameworks: Any) -> None:
        """Replace the catalog."""
        self.frameworks = copy.deepcopy(check_frameworks(frameworks))

    def find(self, identifier: object) -> dict[str, Any] | None:
        """Return a framework by its id, a number or a text."""
        return next((each for each in self.frameworks if str(each["id"]) == str(identifier)), None)

    def find_by_id_or_code(self, identifier: object) -> dict[str, Any] | None:
        """Return a framework by its id or code name."""
        by_code = (each for each in self.frameworks if each.get("codeName") == identifier)
        return self.find(identifier) or next(by_code, None)


def public_framework(framework: dict[str, Any]) -> dict[str, Any]:
    """Return a framework with the fields that the service shows."""
    shown = {name: framework.get(name) for name in FRAMEWORK_FIELDS}
    return {**shown, "criteria": [public_criterion(each) for each in framework["criteria"]]}


def public_criterion(criterion: dict[str, Any]) -> dict[str, Any]:
    """Return a criterion with the fields that the service shows."""
    return {name: criterion.get(name) for name in CRITERION_FIELDS}


def get_keywords(criterion: dict[str, Any]) -> list[str]:
    """Return the words to search for: the keywords, else the longer words of the name."""
    given = criterion.get("keywords")
    words = given if given else re.findall(r"\w{4,}", str(criterion.get("name") or ""))
    return list(dict.fromkeys(str(word).lower() for word in words))


def check_frameworks(frameworks: Any) -> list[dict[str, Any]]:
    """Validate a catalog: a list of objects with unique ids and lists of criteria."""
    if not isinstance(frameworks, list) or not all(isinstance(each, dict) for each in frameworks):
        raise ValueError("a list of frameworks is expected")
    ids = [str(each.get("id")) for each in frameworks]
    if "None" in ids or len(set(ids)) < len(ids):
        raise ValueError("each framework needs a unique id")
    for framework in frameworks:
        criteria = framework.setdefault("criteria", [])
        if not isinstance(criteria, list) or not all(isinstance(each, dict) for each in criteria):
            raise ValueError(f"the criteria of framework {framework['id']} are not a list of objects")
    return frameworks


SUFFICIENT, INSUFFICIENT, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
CATEGORIES = (SUFFICIENT, INSUFFICIENT, MISSING)
MAX_EXCERPT_CHARS = 400

# Above 2**53, to catch clients that turn int64 numbers into floats.
FIRST_RESPONSE_ID = 2**53 + 1


@dataclass(eq=False)
class Assessment:
    """One assessment and, once finished, its results."""

    subject: str
    payload: dict[str, Any]
    created: float
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    polls: int = 0
    finished: float | None = None
    error: str | None = None
    forced: str | None = None
    force_finish: bool = False
    framework_ids: list[Any] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    def is_due(self, progress: CompletionRule, now: float) -> bool:
        """Whether to compute the results now."""
        waiting = self.finished is None and self.forced is None
        return waiting and (self.force_finish or progress.phase(self.polls, now - self.created) == "DONE")

    def status(self, progress: CompletionRule, now: float) -> str:
        """Return the current status."""
        if self.forced:
            return self.forced
        if self.finished is not None:
            return "FAILED" if self.error else "COMPLETED"
        phase = progress.phase(self.polls, now - self.created)
        return "RUNNING" if phase == "DONE" else phase

    def describe(self, status: str) -> dict[str, Any]:
        """Return the assessment for the controls and the page."""
        return {
            "uuid": self.uuid,
            "status": status,
            "error": self.error,
            "payload": self.payload,
            "results": self.results,
            "created": self.created,
            "completed": self.finished,
        }


def assessment_status(state: State, assessment: Assessment) -> str:
    """Return the current status; compute the results if they are due."""
    progress, now = state.settings.progress, state.clock.now()
    if assessment.is_due(progress, now):
        finish_assessment(state, assessment)
    return assessment.status(progress, now)


def finish_assessment(state: State, assessment: Assessment) -> None:
    """Compute the results, or set the error."""
    assessment.finished = state.clock.now()
    wanted = parse_framework(assessment.payload)
    found = state.catalog.find_by_id_or_code(wanted)
    frameworks = state.catalog.frameworks if wanted is None else [found] if found else []
    if not frameworks:
        known = ", ".join(f"{each['id']} ({each.get('codeName')})" for each in state.catalog.frameworks)
        assessment.error = f"Unknown framework {wanted!r}. Use one of: {known}."
        return
    texts, uuids = parse_contents(assessment.payload)
    for content_uuid in uuids:
        job = state.find_job(content_uuid, assessment.subject)
        status = state.status(job) if job else "unknown"
        if job is None or status != "COMPLETED":
            assessment.error = f"The content {content_uuid} is {status}, it must be COMPLETED."
            return
        texts.append(job.text)
    assessment.framework_ids = [each["id"] for each in frameworks]
    text = "\n".join(texts)
    for framework in frameworks:
        for criterion in framework["criteria"]:
            category, rationale = assess(text, criterion)
            assessment.results.append(
                {
                    "assessmentResponseId": state.response_ids.issue(assessment.subject),
                    "frameworkId": framework["id"],
                    "criterion": criterion.get("codeName"),
                    "criterionName": criterion.get("name"),
                    "category": category,
                    "rationale": rationale,
                }
            )
    state.assessments.resize(assessment, sum(len(each["rationale"]) for each in assessment.results))


def parse_contents(payload: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts and the uuids of content jobs in a payload."""
    texts = [payload["text"]] if isinstance(payload.get("text"), str) else []
    uuids: list[str] = []
    for name in ("contentUuids", "uuids", "contentUuid", "uuid"):
        value = payload.get(name)
        uuids += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    return texts, list(dict.fromkeys(uuids))


def parse_framework(payload: dict[str, Any]) -> Any:
    """Return the framework that a payload asks for; None for all."""
    for name in ("frameworkId", "framework", "frameworkCodeName"):
        if payload.get(name) is not None:
            return payload[name]
    return None


def assess(text: str, criterion: dict[str, Any]) -> tuple[str, str]:
    """Apply the rule: return the category and the rationale."""
    keywords = get_keywords(criterion)
    lowered = text.lower()
    found = [word for word in keywords if word in lowered]
    absent = [word for word in keywords if word not in found]
    if not found:
        return MISSING, f"Nothing was found on: {', '.join(absent)}."
    excerpt = _best_excerpt(text, found)
    if 2 * len(found) >= len(keywords):
        return SUFFICIENT, f'Regulated in: "{excerpt}"'
    return INSUFFICIENT, f'Only touched on in: "{excerpt}" Nothing was found on: {", ".join(absent)}.'


def _best_excerpt(text: str, found: list[str]) -> str:
    # A sentence or a line of a list; the first of equals, so that results are deterministic.
    sentences = [each.strip() for each in re.split(r"(?<=[.!?])\s+|\n+", text) if each.strip()]
    best = max(sentences, key=lambda sentence: sum(word in sentence.lower() for word in found), default="")
    return best if len(best) <= MAX_EXCERPT_CHARS else best[: MAX_EXCERPT_CHARS - 1] + "…"


class ResponseIds:
    """Issues the response ids that feedback refers to, and stores who owns them."""

    def __init__(self) -> None:
        self._next = itertools.count(FIRST_RESPONSE_ID)
        self.owners: dict[int, str] = {}

    def issue(self, subject: str) -> int:
        """Return a new id."""
        number = next(self._next)
        self.owners[number] = subject
        return number

    def forget(self, assessment: Assessment) -> None:
        """Drop the ids of a removed assessment."""
        for result in assessment.results:
            self.owners.pop(result["assessmentResponseId"], None)


async def get_application_info(request: web.Request) -> web.Response:
    """Return name and API version."""
    info = {"name": "compliance-emulator", "description": "A stand-in for the service", "apiVersion": "v1"}
    return json_response(get_context(request).state.shape_record(info))


async def list_frameworks(request: web.Request) -> web.Response:
    """List all frameworks with their criteria."""
    state = get_context(request).state
    listed = [public_framework(each) for each in state.catalog.frameworks]
    return json_response([state.shape_record(each, constant=True) for each in listed])


async def list_criteria(request: web.Request) -> web.Response:
    """List the criteria of one framework."""
    state = get_context(request).state
    framework = state.catalog.find(request.match_info["framework_id"])
    if framework is None:
        raise RequestError(404, f"No framework {request.match_info['framework_id']}")
    listed = [public_criterion(each) for each in framework["criteria"]]
    return json_response([state.shape_record(each, constant=True) for each in listed])


async def submit_feedback(request: web.Request) -> web.Response:
    """Validate and store an expert's feedback."""
    state = get_context(request).state
    body = await read_object(request)
    problems = _check_feedback(body)
    if problems:
        raise RequestError(400, f"Validation failed: {'; '.join(problems)}")
    response_id = body.get("assessmentResponseId")
    if response_id is not None and state.response_ids.owners.get(response_id) != request.headers[SUBJECT]:
        raise RequestError(404, f"No assessment response {response_id}")
    state.feedback.append({**body, "subject": request.headers[SUBJECT], "receivedAt": state.clock.now()})
    return web.Response()


def _check_feedback(body: dict[str, Any]) -> list[str]:
    problems = [
        f"{name}: a string is required"
        for name in ("expertId", "rationalFeedback")
        if not isinstance(body.get(name), str)
    ]
    number = body.get("assessmentResponseId")
    if number is not None and (type(number) is not int or not -(2**63) <= number < 2**63):
        problems.append("assessmentResponseId: an int64 number is expected")
    category = body.get("categoryFeedback")
    if category is not None and category not in CATEGORIES:
        problems.append(f"categoryFeedback: must be one of {', '.join(CATEGORIES)}")
    return problems


async def submit_assessment(request: web.Request) -> web.Response:
    """Accept any JSON object."""
    state = get_context(request).state
    payload = await read_object(request)
    assessment = Assessment(
        request.headers[SUBJECT], payload, state.clock.now(), size=len(json.dumps(payload))
    )
    state.assessments.add(assessment)
    state.prune()
    location = state.make_location(request, "get_assessment", assessment_id=assessment.uuid)
    record = assessment_record(state, assessment, "PENDING")
    return json_response(record, status=202, headers={"Location": location})


async def get_assessment(request: web.Request) -> web.Response:
    """Return the status; redirect to the results if completed."""
    state = get_context(request).state
    assessment = _find(request)
    assessment.polls += 1
    status = await _wait_for_status(request, assessment)
    if status == "COMPLETED":
        location = state.make_location(request, "get_assessment_results", assessment_id=assessment.uuid)
        return web.Response(status=303, headers={"Location": location})
    return json_response(assessment_record(state, assessment, status))


async def get_assessment_results(request: web.Request) -> web.Response:
    """Return category and rationale of each criterion."""
    state = get_context(request).state
    assessment = _find(request)
    status = await _wait_for_status(request, assessment)
    if status != "COMPLETED":
        raise RequestError(409, f"Assessment {assessment.uuid} has no results: it is {status}")
    summary = {each: sum(one["category"] == each for one in assessment.results) for each in CATEGORIES}
    body = {
        **assessment_record(state, assessment, status),
        "summary": summary,
        "results": [state.shape_record(result) for result in assessment.results],
    }
    return json_response(body)


async def cancel_assessment(request: web.Request) -> web.Response:
    """Cancel and delete an assessment."""
    get_context(request).state.assessments.remove(_find(request))
    return web.Response()


def assessment_record(state: State, assessment: Assessment, status: str) -> dict[str, Any]:
    """Return the record of an assessment."""
    record = {
        "uuid": assessment.uuid,
        "status": status,
        "error": assessment.error if status == "FAILED" else None,
        "createdAt": state.format_time(assessment.created),
        "completedAt": state.format_time(assessment.finished),
        "frameworkIds": assessment.framework_ids or None,
    }
    return state.shape_record(record)


def _find(request: web.Request) -> Assessment:
    state = get_context(request).state
    state.prune()
    identifier = request.match_info["assessment_id"]
    assessment = state.assessments.get(identifier)
    if assessment is None or assessment.subject != request.headers[SUBJECT]:
        raise RequestError(404, f"No assessment {identifier}")
    return assessment


async def _wait_for_status(request: web.Request, assessment: Assessment) -> str:
    state = get_context(request).state
    named = (state.find_job(each, assessment.subject) for each in parse_contents(assessment.payload)[1])
    await get_context(request).processor.wait_for_due([job for job in named if job is not None])
    return assessment_status(state, assessment)
