"""Responses: JSON records and errors, legal variations (quirks), and the responses of faults."""

from __future__ import annotations

import asyncio
import json
import posixpath
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn

from aiohttp import web

if TYPE_CHECKING:
    from multidict import CIMultiDict

    from airflow_provider.emulator.controls import Controls
    from airflow_provider.emulator.processing import Processor
    from airflow_provider.emulator.state import State
    from airflow_provider.emulator.state.faults import Fault
    from airflow_provider.emulator.state.jobs import Job

SUBJECT = "IDP_SUBJECT"  # the header in which the gateway passes on the partner


@dataclass
class Context:
    """What handlers need."""

    state: State
    processor: Processor
    controls: Controls


# A list that is emptied at the end: aiohttp caches applications for the life of the process.
CONTEXT: web.AppKey[list[Context]] = web.AppKey("context", list)


def get_context(request: web.Request) -> Context:
    """Return the context of the emulator."""
    return request.app[CONTEXT][0]


class RequestError(Exception):
    """A request that gets an error response."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def error_response(
    request: web.Request, status: int, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    """Return an error in the format of Spring Boot."""
    now = datetime.fromtimestamp(get_context(request).state.clock.now(), UTC)
    body = {
        "timestamp": now.isoformat(timespec="milliseconds"),
        "status": status,
        "error": HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else "Error",
        "message": message,
        "path": request.path,
    }
    return json_response(body, status=status, headers=headers)


def json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    # Python escapes a lone surrogate as JSON does.
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return web.Response(
        status=status, body=data, content_type="application/json", charset="utf-8", headers=headers
    )


def parse_object(data: bytes, charset: str | None) -> dict[str, Any]:
    """Parse a JSON object; a 400 otherwise."""
    try:
        value = json.loads(data.decode(charset or "utf-8"), parse_constant=_refuse_constant)
    except (ValueError, LookupError, RecursionError) as error:
        raise RequestError(400, f"JSON parse error: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(400, "JSON parse error: an object is expected")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


async def read_object(request: web.Request) -> dict[str, Any]:
    """Read a JSON object from a request body."""
    if request.content_type != "application/json":
        raise RequestError(
            415, f"Content-Type '{request.content_type}' is not supported, send application/json"
        )
    return parse_object(await request.read(), request.charset)


def job_record(state: State, job: Job, status: str | None = None) -> dict[str, Any]:
    """Return the record of a job."""
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


EXTRA_FIELDS: tuple[tuple[str, Any], ...] = (
    ("_links", {"self": {"href": "about:blank"}}),
    ("priority", 3),
    ("schemaVersion", "2026-02"),
    ("tags", []),
    ("tenant", None),
)


def format_time(state: State, seconds: float | None) -> str | None:
    """Format a time in one of the forms of RFC 3339."""
    if seconds is None:
        return None
    if state.settings.naive_times:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    millis = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    # All forms mean the same moment: a record must not change between responses.
    forms = (f"{millis}Z", f"{millis}000Z", f"{millis}000000Z", f"{millis}+00:00")
    return state.random.choice(forms) if state.settings.quirks else forms[0]


def shape_record(state: State, record: dict[str, Any]) -> dict[str, Any]:
    """Add undocumented fields, and omit some that are null."""
    if not state.settings.quirks:
        return record
    kept = {name: value for name, value in record.items() if value is not None or state.random.random() < 0.5}
    extras = state.random.sample(EXTRA_FIELDS, state.random.randint(0, 2))
    return {**kept, **dict(extras)}


def shape_list(state: State, records: list[Any]) -> list[Any]:
    """Shuffle a list without a defined order."""
    return state.random.sample(records, len(records)) if state.settings.quirks else records


def make_location(state: State, request: web.Request, operation: str, **parts: str) -> str:
    """Return a Location: absolute, or sometimes relative to the host or the request."""
    target = state.settings.get_path(operation).format(**parts)
    form = state.random.random() if state.settings.quirks else 1.0
    if form < 0.2:
        return posixpath.relpath(target, posixpath.dirname(request.path))
    if form < 0.4:
        return target
    return f"http://{request.host}{target}"


def mix_case(state: State, headers: CIMultiDict[str]) -> None:
    """Change the case of header names."""
    if not state.settings.quirks:
        return
    change = state.random.choice((str, str, str.lower, str.upper, str.swapcase))
    items = [(change(name), value) for name, value in headers.items()]
    headers.clear()
    headers.extend(items)


def choose_text_type(state: State, charset: str) -> str:
    """Return the content type of a text, with or without UTF-8."""
    named = f"text/plain;charset={charset.upper()}"
    if charset.lower() in ("utf-8", "utf8") and state.settings.quirks and state.random.random() < 0.3:
        return "text/plain"
    return named


HTML_PAGE = (
    "<!DOCTYPE html><html><head><title>Gateway</title></head>"
    "<body><h1>The page cannot be displayed</h1><p>Contact your administrator.</p></body></html>"
)
RESET_DELAY_SECONDS = 0.02  # for the first half to arrive before the reset


def fault_response(fault: Fault, request: web.Request) -> web.Response:
    """Return the response of a fault."""
    status = fault.status or 200
    headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
    if fault.html:
        return web.Response(status=status, text=HTML_PAGE, content_type="text/html", headers=headers)
    if fault.body is None:
        return error_response(request, status, "A planned fault", headers)
    text = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
    kind = fault.content_type or "application/json"
    return web.Response(status=status, text=text, content_type=kind, headers=headers)


async def send_partially(
    request: web.Request, response: web.StreamResponse, *, pause: float, then_reset: bool
) -> web.StreamResponse:
    """Send half of the body, then pause, then reset the connection or send the rest."""
    data = _get_body(response)
    halves = web.StreamResponse(status=response.status, headers=response.headers)
    # Even a response without a body must be able to break in the middle.
    halves.content_length = len(data) + (1 if then_reset and not data else 0)
    with suppress(ConnectionError):
        await halves.prepare(request)
        await halves.write(data[: len(data) // 2])
        await asyncio.sleep(pause or RESET_DELAY_SECONDS)
        if then_reset:
            reset_connection(request)
            return halves
        await halves.write(data[len(data) // 2 :])
        await halves.write_eof()
    return halves


async def send_slowly(
    request: web.Request, response: web.StreamResponse, *, pause: float
) -> web.StreamResponse:
    """Send the body byte by byte, with a pause after each, until the client disconnects."""
    data = _get_body(response)
    drops = web.StreamResponse(status=response.status, headers=response.headers)
    drops.content_length = len(data)
    with suppress(ConnectionError):
        await drops.prepare(request)
        for at in range(len(data)):
            await drops.write(data[at : at + 1])
            await asyncio.sleep(pause)
        await drops.write_eof()
    return drops


def _get_body(response: web.StreamResponse) -> bytes:
    body = response.body if isinstance(response, web.Response) else None
    return bytes(body) if isinstance(body, bytes | bytearray) else b""


def reset_connection(request: web.Request) -> None:
    """Send a real TCP reset."""
    transport = request.transport
    if transport is None:
        return
    with suppress(OSError):
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    transport.abort()
