"""The operations on frameworks, assessments and feedback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from airflow_provider.emulator.extraction import ExtractionError, ExtractionResult
from airflow_provider.emulator.service.catalog import (
    RESULT_CATEGORIES,
    assess,
    find_framework,
    parse_contents,
    public_criterion,
    public_framework,
)
from airflow_provider.emulator.service.http import SUBJECT, RequestError, json_response, read_object
from airflow_provider.emulator.service.jobs import Assessment
from airflow_provider.emulator.service.processing import get_processor
from airflow_provider.emulator.service.state import State, get_state


def assessment_status(state: State, assessment: Assessment) -> str:
    """Return the current status; compute the results if they are due."""
    progress, now = state.settings.progress, state.clock.now()
    if assessment.outcome is None and assessment.is_due(progress, now):
        compute_results(state, assessment)
    return assessment.status(progress, now)


def compute_results(state: State, assessment: Assessment) -> None:
    """Apply the rule to the texts, or set the error."""
    try:
        results = list(_assess(state, assessment))
    except ExtractionError as error:
        assessment.outcome = ExtractionResult(error=str(error))
    else:
        assessment.outcome, assessment.results = ExtractionResult(), results


def _assess(state: State, assessment: Assessment) -> Iterator[dict[str, Any]]:
    payload = assessment.payload
    wanted = payload.get("frameworkId", payload.get("framework"))
    found = find_framework(state.frameworks, wanted)
    frameworks = state.frameworks if wanted is None else [found] if found else []
    if not frameworks:
        known = ", ".join(f"{each['id']} ({each.get('codeName')})" for each in state.frameworks)
        raise ExtractionError(f"Unknown framework {wanted!r}. Use one of: {known}.")
    texts, uuids = parse_contents(payload)
    for content_uuid in uuids:
        job = state.find_job(content_uuid, assessment.subject)
        status = state.status(job) if job else "unknown"
        if job is None or status != "COMPLETED":
            raise ExtractionError(f"The content {content_uuid} is {status}, it must be COMPLETED.")
        texts.append(job.text)
    assessment.framework_ids = [each["id"] for each in frameworks]
    for framework in frameworks:
        for criterion in framework["criteria"]:
            category, rationale = assess("\n".join(texts), criterion)
            yield {
                "assessmentResponseId": state.add_response_id(assessment.subject),
                "frameworkId": framework["id"],
                "criterion": criterion.get("codeName"),
                "criterionName": criterion.get("name"),
                "category": category,
                "rationale": rationale,
            }


async def get_application_info(request: web.Request) -> web.Response:
    """Return name and API version."""
    info = {"name": "compliance-emulator", "description": "A stand-in for the service", "apiVersion": "v1"}
    return json_response(get_state(request).shape_record(info))


async def list_frameworks(request: web.Request) -> web.Response:
    """List all frameworks with their criteria."""
    state = get_state(request)
    listed = [public_framework(each) for each in state.frameworks]
    return json_response([state.shape_record(each, constant=True) for each in listed])


async def list_criteria(request: web.Request) -> web.Response:
    """List the criteria of one framework."""
    state = get_state(request)
    framework = find_framework(state.frameworks, request.match_info["framework_id"])
    if framework is None:
        raise RequestError(404, f"No framework {request.match_info['framework_id']}")
    listed = [public_criterion(each) for each in framework["criteria"]]
    return json_response([state.shape_record(each, constant=True) for each in listed])


async def submit_feedback(request: web.Request) -> web.Response:
    """Validate and store an expert's feedback."""
    state = get_state(request)
    body = await read_object(request)
    problems = _check_feedback(body)
    if problems:
        raise RequestError(400, f"Validation failed: {'; '.join(problems)}")
    response_id = body.get("assessmentResponseId")
    if response_id is not None and state.response_owners.get(response_id) != request.headers[SUBJECT]:
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
    if category is not None and category not in RESULT_CATEGORIES:
        problems.append(f"categoryFeedback: must be one of {', '.join(RESULT_CATEGORIES)}")
    return problems


async def submit_assessment(request: web.Request) -> web.Response:
    """Accept any JSON object."""
    state = get_state(request)
    payload = await read_object(request)
    assessment = state.add_assessment(request.headers[SUBJECT], payload)
    location = state.make_location(request, "get_assessment", assessment_id=assessment.uuid)
    record = assessment_record(state, assessment, "PENDING")
    return json_response(record, status=202, headers={"Location": location})


async def get_assessment(request: web.Request) -> web.Response:
    """Return the status; redirect to the results if completed."""
    state = get_state(request)
    assessment = _find(request)
    assessment.polls += 1
    status = await _wait_for_status(request, assessment)
    if status == "COMPLETED" and state.dialect.redirects("get_assessment"):
        location = state.make_location(request, "get_assessment_results", assessment_id=assessment.uuid)
        return web.Response(status=303, headers={"Location": location})
    return json_response(assessment_record(state, assessment, status))


async def get_assessment_results(request: web.Request) -> web.Response:
    """Return category and rationale of each criterion."""
    state = get_state(request)
    assessment = _find(request)
    status = await _wait_for_status(request, assessment)
    if status != "COMPLETED":
        raise RequestError(409, f"Assessment {assessment.uuid} has no results: it is {status}")
    summary = {each: sum(one["category"] == each for one in assessment.results) for each in RESULT_CATEGORIES}
    body = {
        **assessment_record(state, assessment, status),
        "summary": summary,
        "results": [state.shape_record(result) for result in assessment.results],
    }
    return json_response(body)


async def cancel_assessment(request: web.Request) -> web.Response:
    """Cancel and delete an assessment."""
    del get_state(request).assessments[_find(request).uuid]
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
    state = get_state(request)
    identifier = request.match_info["assessment_id"]
    assessment = state.assessments.get(identifier)
    if assessment is None or assessment.subject != request.headers[SUBJECT]:
        raise RequestError(404, f"No assessment {identifier}")
    return assessment


async def _wait_for_status(request: web.Request, assessment: Assessment) -> str:
    state = get_state(request)
    named = (state.find_job(each, assessment.subject) for each in parse_contents(assessment.payload)[1])
    await get_processor(request).wait_for_due([job for job in named if job is not None])
    return assessment_status(state, assessment)
