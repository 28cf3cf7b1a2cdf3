"""Assessments, on the default paths of the provider: the contract names the operations only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from airflow_provider.emulator.memory.assessments import CATEGORIES, Assessment, texts_named_in
from airflow_provider.emulator.wire.answers import (
    SUBJECT,
    RefusalError,
    context_of,
    json_answer,
    read_object,
)
from airflow_provider.emulator.wire.quirks import format_time, make_location, shape_record

if TYPE_CHECKING:
    from airflow_provider.emulator.memory.state import State


async def submit_assessment(request: web.Request) -> web.Response:
    """Take in any JSON object."""
    state = context_of(request).state
    payload = await read_object(request)
    assessment = Assessment(
        request.headers[SUBJECT], payload, state.clock.now(), size=len(json.dumps(payload))
    )
    state.assessments.add(assessment)
    state.prune()
    location = make_location(state, request, "get_assessment", assessment_id=assessment.uuid)
    record = assessment_record(state, assessment, "PENDING")
    return json_answer(record, status=202, headers={"Location": location})


async def get_assessment(request: web.Request) -> web.Response:
    """Tell how an assessment stands; a completed one redirects to its results."""
    state = context_of(request).state
    assessment = _find(request)
    assessment.looks += 1
    status = await _settled_status(request, assessment)
    if status == "COMPLETED":
        location = make_location(state, request, "get_assessment_results", assessment_id=assessment.uuid)
        return web.Response(status=303, headers={"Location": location})
    return json_answer(assessment_record(state, assessment, status))


async def get_assessment_results(request: web.Request) -> web.Response:
    """Return the judgement on each criterion."""
    state = context_of(request).state
    assessment = _find(request)
    status = await _settled_status(request, assessment)
    if status != "COMPLETED":
        raise RefusalError(409, f"Assessment {assessment.uuid} has no results: it is {status}")
    summary = {each: sum(one["category"] == each for one in assessment.results) for each in CATEGORIES}
    body = {
        **assessment_record(state, assessment, status),
        "summary": summary,
        "results": [shape_record(state, result) for result in assessment.results],
    }
    return json_answer(body)


async def cancel_assessment(request: web.Request) -> web.Response:
    """Cancel and delete an assessment."""
    context_of(request).state.assessments.remove(_find(request))
    return web.Response()


def assessment_record(state: State, assessment: Assessment, status: str) -> dict[str, Any]:
    """Return an assessment as the emulator shows it."""
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
    assessment = context_of(request).state.find_assessment(identifier, request.headers[SUBJECT])
    if assessment is None:
        raise RefusalError(404, f"No assessment {identifier}")
    return assessment


async def _settled_status(request: web.Request, assessment: Assessment) -> str:
    state = context_of(request).state
    named = (state.find_job(uuid, assessment.subject) for uuid in texts_named_in(assessment.payload)[1])
    await context_of(request).processor.settle([job for job in named if job is not None])
    return state.assessment_status(assessment)
