"""Requests and responses in JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NoReturn

from aiohttp import web

SUBJECT = "IDP_SUBJECT"  # the header in which the gateway passes on the partner
FORM = "application/x-www-form-urlencoded"


class RequestError(Exception):
    """A request that gets an error response."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def error_response(
    request: web.Request, status: int, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    """Return an error in the format of Spring Boot."""
    body = {
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
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


async def read_object(request: web.Request, empty: bytes = b"") -> dict[str, Any]:
    """Read a JSON object from a request body; `empty` is what an empty body stands for."""
    if request.content_type != "application/json":
        raise RequestError(
            415, f"Content-Type '{request.content_type}' is not supported, send application/json"
        )
    try:
        data = await request.read() or empty
        value = json.loads(data.decode(request.charset or "utf-8"), parse_constant=_refuse_constant)
    except (ValueError, LookupError, RecursionError) as error:
        raise RequestError(400, f"JSON parse error: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(400, "JSON parse error: an object is expected")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
