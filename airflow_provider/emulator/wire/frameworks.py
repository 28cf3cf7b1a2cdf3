"""Frameworks, application information and feedback."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from airflow_provider.emulator.memory.assessments import CATEGORIES
from airflow_provider.emulator.memory.catalogue import public_criterion, public_framework
from airflow_provider.emulator.wire.answers import SUBJECT, RefusalError, context_of, json_answer, read_object
from airflow_provider.emulator.wire.quirks import shape_record


async def get_application_info(request: web.Request) -> web.Response:
    """Say what this is."""
    info = {"name": "compliance-emulator", "description": "A stand-in for the service", "apiVersion": "v1"}
    return json_answer(shape_record(context_of(request).state, info))


async def list_frameworks(request: web.Request) -> web.Response:
    """List all frameworks with their criteria."""
    state = context_of(request).state
    return json_answer([shape_record(state, public_framework(each)) for each in state.catalogue.frameworks])


async def list_criteria(request: web.Request) -> web.Response:
    """List the criteria of one framework."""
    state = context_of(request).state
    framework = state.catalogue.find(request.match_info["framework_id"])
    if framework is None:
        raise RefusalError(404, f"No framework {request.match_info['framework_id']}")
    return json_answer([shape_record(state, public_criterion(each)) for each in framework["criteria"]])


async def submit_feedback(request: web.Request) -> web.Response:
    """Check and keep an expert's feedback."""
    state = context_of(request).state
    body = await read_object(request)
    problems = _check_feedback(body)
    if problems:
        raise RefusalError(400, f"Validation failed: {'; '.join(problems)}")
    response_id = body.get("assessmentResponseId")
    if response_id is not None and state.response_ids.owners.get(response_id) != request.headers[SUBJECT]:
        raise RefusalError(404, f"No assessment response {response_id}")
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
