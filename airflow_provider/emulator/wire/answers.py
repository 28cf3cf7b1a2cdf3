"""Answers that all handlers share: records, errors, bodies that must be JSON objects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn

from aiohttp import web

from airflow_provider.emulator.wire.quirks import format_time, shape_record

if TYPE_CHECKING:
    from airflow_provider.emulator.controls import Controls
    from airflow_provider.emulator.memory.jobs import Job
    from airflow_provider.emulator.memory.state import State
    from airflow_provider.emulator.processing import Processor

# The header in which the gateway hands on who the partner is.
SUBJECT = "IDP_SUBJECT"


@dataclass
class Context:
    """What the handlers work with."""

    state: State
    processor: Processor
    controls: Controls


# A box that is emptied in the end, because aiohttp keeps applications in a cache for the life of the process.
CONTEXT: web.AppKey[list[Context]] = web.AppKey("context", list)


def context_of(request: web.Request) -> Context:
    """Return what a handler works with."""
    return request.app[CONTEXT][0]


class RefusalError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def error_answer(
    request: web.Request, status: int, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    """Return an error as Spring Boot writes them."""
    now = datetime.fromtimestamp(context_of(request).state.clock.now(), UTC)
    body = {
        "timestamp": now.isoformat(timespec="milliseconds"),
        "status": status,
        "error": HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else "Error",
        "message": message,
        "path": request.path,
    }
    return json_answer(body, status=status, headers=headers)


def json_answer(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON body."""
    # For a lone surrogate in a name, Python's escape is the same as JSON's.
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return web.Response(
        status=status, body=data, content_type="application/json", charset="utf-8", headers=headers
    )


def parse_object(data: bytes, charset: str | None) -> dict[str, Any]:
    """Read a JSON object, or refuse."""
    try:
        value = json.loads(data.decode(charset or "utf-8"), parse_constant=_refuse_constant)
    except (ValueError, LookupError, RecursionError) as error:
        raise RefusalError(400, f"JSON parse error: {error}") from None
    if not isinstance(value, dict):
        raise RefusalError(400, "JSON parse error: an object is expected")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


async def read_object(request: web.Request) -> dict[str, Any]:
    """Read the body of a request that must be a JSON object."""
    if request.content_type != "application/json":
        raise RefusalError(
            415, f"Content-Type '{request.content_type}' is not supported, send application/json"
        )
    return parse_object(await request.read(), request.charset)


def job_record(state: State, job: Job, status: str | None = None) -> dict[str, Any]:
    """Return a job as the service shows it."""
    shown = status or state.status(job)
    record = {
        "uuid": job.uuid,
        "sourceType": job.source_type,
        "sourceUrl": job.source_url,
        "fileName": job.file_name,
        "status": shown,
        "error": job.error if shown == "FAILED" else None,
        "createdAt": format_time(state, job.created),
        "completedAt": format_time(state, job.finished if shown == "COMPLETED" else None),
        "fetchedAt": format_time(state, job.fetched),
    }
    return shape_record(state, record)
