"""The operations on frameworks, assessments and feedback."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from airflow_provider.emulator.service.catalog import (
    RESULT_CATEGORIES,
    find_framework,
    public_criterion,
    public_framework,
)
from airflow_provider.emulator.service.http import SUBJECT, RequestError, json_response, read_object
from airflow_provider.emulator.service.jobs import Assessment
from airflow_provider.emulator.service.processing import accept, find_completed
from airflow_provider.emulator.service.state import get_state


async def get_application_info(request: web.Request) -> web.Response:
    """Return name and API version."""
    info = {"name": "compliance-emulator", "description": "A stand-in for the service", "apiVersion": "v1"}
    return json_response(get_state(request).shape_record(info))


async def list_frameworks(request: web.Request) -> web.Response:
    """List all frameworks with their criteria."""
    state = get_state(request)
    listed = [public_framework(framework) for framework in state.frameworks]
    return json_response([state.shape_record(record, constant=True) for record in listed])


async def list_criteria(request: web.Request) -> web.Response:
    """List the criteria of one framework."""
    state = get_state(request)
    framework = find_framework(state.frameworks, request.match_info["framework_id"])
    if framework is None:
        raise RequestError(404, f"No framework {request.match_info['framework_id']}")
    listed = [public_criterion(criterion) for criterion in framework["criteria"]]
    return json_response([state.shape_record(record, constant=True) for record in listed])


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
    return accept(request, state.add_assessment(request.headers[SUBJECT], payload))


async def get_assessment_results(request: web.Request) -> web.Response:
    """Return category and rationale of each criterion."""
    state = get_state(request)
    assessment = await find_completed(request, Assessment)
    summary = {
        category: sum(one["category"] == category for one in assessment.results)
        for category in RESULT_CATEGORIES
    }
    body = {
        **state.record(assessment, "COMPLETED"),
        "summary": summary,
        "results": [state.shape_record(result) for result in assessment.results],
    }
    return json_response(body)
