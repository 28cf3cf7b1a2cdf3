"""Frameworks, assessments, feedback and application info. The contract gives assessments no paths."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from airflow_provider.emulator.http.responses import (
    SUBJECT,
    RequestError,
    format_time,
    get_context,
    json_response,
    make_location,
    read_object,
    shape_record,
)
from airflow_provider.emulator.state.assessments import (
    CATEGORIES,
    Assessment,
    parse_contents,
    public_criterion,
    public_framework,
)

if TYPE_CHECKING:
    from airflow_provider.emulator.state import State


async def get_application_info(request: web.Request) -> web.Response:
    """Return name and API version."""
    info = {"name": "compliance-emulator", "description": "A stand-in for the service", "apiVersion": "v1"}
    return json_response(shape_record(get_context(request).state, info))


async def list_frameworks(request: web.Request) -> web.Response:
    """List all frameworks with their criteria."""
    state = get_context(request).state
    return json_response([shape_record(state, public_framework(each)) for each in state.catalogue.frameworks])


async def list_criteria(request: web.Request) -> web.Response:
    """List the criteria of one framework."""
    state = get_context(request).state
    framework = state.catalogue.find(request.match_info["framework_id"])
    if framework is None:
        raise RequestError(404, f"No framework {request.match_info['framework_id']}")
    return json_response([shape_record(state, public_criterion(each)) for each in framework["criteria"]])


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
    location = make_location(state, request, "get_assessment", assessment_id=assessment.uuid)
    record = assessment_record(state, assessment, "PENDING")
    return json_response(record, status=202, headers={"Location": location})


async def get_assessment(request: web.Request) -> web.Response:
    """Return the status; redirect to the results if completed."""
    state = get_context(request).state
    assessment = _find(request)
    assessment.polls += 1
    status = await _get_status(request, assessment)
    if status == "COMPLETED":
        location = make_location(state, request, "get_assessment_results", assessment_id=assessment.uuid)
        return web.Response(status=303, headers={"Location": location})
    return json_response(assessment_record(state, assessment, status))


async def get_assessment_results(request: web.Request) -> web.Response:
    """Return category and rationale of each criterion."""
    state = get_context(request).state
    assessment = _find(request)
    status = await _get_status(request, assessment)
    if status != "COMPLETED":
        raise RequestError(409, f"Assessment {assessment.uuid} has no results: it is {status}")
    summary = {each: sum(one["category"] == each for one in assessment.results) for each in CATEGORIES}
    body = {
        **assessment_record(state, assessment, status),
        "summary": summary,
        "results": [shape_record(state, result) for result in assessment.results],
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
        "createdAt": format_time(state, assessment.created),
        "completedAt": format_time(state, assessment.finished),
        "frameworkIds": assessment.framework_ids or None,
    }
    return shape_record(state, record)


def _find(request: web.Request) -> Assessment:
    identifier = request.match_info["assessment_id"]
    assessment = get_context(request).state.find_assessment(identifier, request.headers[SUBJECT])
    if assessment is None:
        raise RequestError(404, f"No assessment {identifier}")
    return assessment


async def _get_status(request: web.Request, assessment: Assessment) -> str:
    state = get_context(request).state
    named = (state.find_job(uuid, assessment.subject) for uuid in parse_contents(assessment.payload)[1])
    await get_context(request).processor.wait_for_due([job for job in named if job is not None])
    return state.assessment_status(assessment)
