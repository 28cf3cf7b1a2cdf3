"""The API gateway: counts and limits requests, checks tokens, injects faults; JSON requests and responses."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import socket
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from aiohttp import web
from multidict import CIMultiDict

from airflow_provider.emulator.settings import LOGIN, NAMES, OPERATIONS, OTHER, REFRESH_TOKEN

if TYPE_CHECKING:
    from airflow_provider.emulator.extraction import Processor
    from airflow_provider.emulator.service import State
    from airflow_provider.emulator.service.controls import Controls

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)
SUBJECT = "IDP_SUBJECT"  # the header in which the gateway passes on the partner
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
FORM = "application/x-www-form-urlencoded"
RESET = "reset"
RESETS = (None, "before", "after", "middle")
RESET_DELAY_SECONDS = 0.02  # for the first half to arrive before the reset
SECRET = ("authorization", "cookie", "proxy-authorization")
HTML_PAGE = (
    "<!DOCTYPE html><html><head><title>Gateway</title></head>"
    "<body><h1>The page cannot be displayed</h1><p>Contact your administrator.</p></body></html>"
)


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


@dataclass(eq=False, kw_only=True)
class Planned:
    """What is planned for the next calls or jobs; `remaining` is None if it lasts until it is cleared."""

    remaining: int | None = 1
    skip: int = 0
    hits: int = 0
    id: int = 0

    def __post_init__(self) -> None:
        if self.remaining is not None and self.remaining < 1:
            raise ValueError("times must be at least 1, or None for always.")
        if self.skip < 0:
            raise ValueError("skip must not be negative.")


@dataclass(eq=False)
class Fault(Planned):
    """A fault of the next calls of an operation."""

    operation: str
    status: int | None = None
    retry_after: str | None = None
    reset: str | None = None
    delay: float = 0.0
    stall: float = 0.0
    drip: float = 0.0
    html: bool = False
    body: Any = None
    content_type: str | None = None
    location: str | None = None
    done: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(fnmatchcase(name, self.operation) for name in NAMES):
            raise ValueError(f"Unknown operation {self.operation!r}. Use one of: {', '.join(NAMES)}.")
        if self.reset not in RESETS:
            raise ValueError(f"reset must be before, after or middle, not {self.reset!r}.")
        if self.status is not None and not 200 <= self.status <= 599:
            raise ValueError(f"status must be from 200 to 599, not {self.status}.")
        if min(self.delay, self.stall, self.drip) < 0:
            raise ValueError("delay, stall and drip must not be negative.")
        if not any((self.replaces_response, self.reset, self.delay, self.stall, self.drip, self.location)):
            raise ValueError("Say what goes wrong: status, reset, delay, stall, drip, html, body, location.")

    @property
    def replaces_response(self) -> bool:
        """Whether the fault's own response is sent instead of the operation's."""
        return self.status is not None or self.html or self.body is not None


P = TypeVar("P", bound=Planned)


class Plan(Generic[P]):
    """Planned faults or failures, first in, first out.

    :param get_pattern: returns the pattern of the names that an item applies to
    """

    def __init__(self, get_pattern: Callable[[P], str]) -> None:
        self._get_pattern = get_pattern
        self._ids = itertools.count(1)
        self.items: list[P] = []

    def add(self, item: P) -> int:
        """Add an item; return its id."""
        item.id = next(self._ids)
        self.items.append(item)
        return item.id

    def take(self, name: str) -> P | None:
        """Return the item that applies to this call or job, and count it."""
        for item in self.items:
            if not fnmatchcase(name, self._get_pattern(item)):
                continue
            if item.skip:
                item.skip -= 1
                continue
            item.hits += 1
            if item.remaining is not None:
                item.remaining -= 1
                if not item.remaining:
                    self.items.remove(item)
            return item
        return None

    def clear(self, item_id: int | None = None) -> int:
        """Clear one item or all; return how many."""
        kept = [item for item in self.items if item_id is not None and item.id != item_id]
        cleared = len(self.items) - len(kept)
        self.items = kept
        return cleared

    def describe(self) -> list[dict[str, Any]]:
        """Return the items as JSON."""
        return [asdict(item) for item in self.items]


class Counters:
    """Calls per operation and status; `reset` stands for a connection reset."""

    def __init__(self, in_flight: int = 0) -> None:
        self.answers: dict[str, Counter[str]] = {}
        self.in_flight = self.max_in_flight = in_flight
        self.jobs_submitted = 0
        self.requests: deque[dict[str, Any]] = deque(maxlen=500)

    def begin(self) -> None:
        """Count the start of a request."""
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def record(self, operation: str, answer: str, request: dict[str, Any]) -> None:
        """Count a response just before it is sent."""
        self.answers.setdefault(operation, Counter())[answer] += 1
        self.requests.append({**request, "operation": operation, "answer": answer})

    def count(self, operation: str | None = None, answer: int | str | None = None) -> int:
        """Return the number of calls, of one operation or all, with one status or any."""
        if operation is not None and operation not in NAMES:
            raise ValueError(f"Unknown operation {operation!r}. Use one of: {', '.join(NAMES)}.")
        kinds = self.answers.values() if operation is None else [self.answers.get(operation, Counter())]
        return sum(kind.total() if answer is None else kind[str(answer)] for kind in kinds)

    def describe(self) -> dict[str, Any]:
        """Return all counters as JSON."""
        return {
            "total": self.count(),
            "operations": {name: dict(sorted(kinds.items())) for name, kinds in sorted(self.answers.items())},
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "logins": self.count("login", 200),
            "refreshes": self.count("refresh_token", 200),
            "jobs_submitted": self.jobs_submitted,
        }


@web.middleware
async def gateway(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run all checks that come before an operation."""
    if request.host.rsplit(":", 1)[0] not in LOOPBACK:
        # DNS rebinding: another site may resolve its name to this machine.
        return error_response(request, 421, "The emulator serves this machine only")
    if request.path == "/" or request.path.startswith("/_emulator"):
        return await _handle(request, handler)
    operation = await _get_operation(request)
    state = get_context(request).state
    state.counters.begin()
    try:
        return await _serve(request, handler, operation)
    finally:
        state.counters.in_flight -= 1


async def _get_operation(request: web.Request) -> str:
    name = request.match_info.route.name or OTHER
    if name != LOGIN:
        return name
    # An invalid form is reported by the endpoint.
    with suppress(ValueError, LookupError, web.HTTPRequestEntityTooLarge):
        form = await request.post() if request.content_type == FORM else {}
        return REFRESH_TOKEN if form.get("grant_type") == "refresh_token" else LOGIN
    return LOGIN


async def _serve(request: web.Request, handler: Handler, operation: str) -> web.StreamResponse:
    state = get_context(request).state
    if state.settings.latency:
        await asyncio.sleep(state.settings.latency)
    limit = state.settings.concurrency
    if limit is not None and state.counters.in_flight > limit:
        refusal = error_response(request, 429, f"More than {limit} requests in flight", {"Retry-After": "1"})
        return _count(request, operation, refusal)
    # The identity provider and unknown paths outside the API need no token.
    if operation in OPERATIONS or request.path.startswith(f"{state.settings.base_path}/api/"):
        try:
            request = _authenticate(request)
        except RequestError as refused:
            answer = error_response(request, refused.status, refused.message, refused.headers)
            return _count(request, operation, answer)
    fault = state.faults.take(operation)
    if fault is None:
        return _count(request, operation, await _handle(request, handler))
    return await _serve_with(fault, request, handler, operation)


async def _serve_with(
    fault: Fault, request: web.Request, handler: Handler, operation: str
) -> web.StreamResponse:
    if fault.delay:
        await asyncio.sleep(fault.delay)
    if fault.reset == "before":
        return _reset(request, operation)
    response: web.StreamResponse
    if fault.replaces_response:
        if fault.done:
            await _handle(request, handler)
        response = _fault_response(fault, request)
    else:
        response = await _handle(request, handler)
    if fault.location is not None:
        response.headers["Location"] = fault.location
    if fault.reset == "after":
        return _reset(request, operation)
    then_reset = fault.reset == "middle" and not fault.drip
    _count(request, operation, response, RESET if then_reset else None)
    if fault.drip or fault.stall or then_reset:
        return await _send_in_parts(fault, request, response, then_reset=then_reset)
    return response


def _authenticate(request: web.Request) -> web.Request:
    """Return the request with the IDP_SUBJECT of the token, whatever the client sent."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token or scheme.lower() != "bearer":
        challenge = {"WWW-Authenticate": 'Bearer realm="compliance"'}
        raise RequestError(401, "Full authentication is required", challenge)
    headers = CIMultiDict(request.headers)
    headers[SUBJECT] = get_context(request).state.identity.verify_access(token.strip())["sub"]
    return request.clone(headers=headers)


async def _handle(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as refusal:
        return error_response(request, refusal.status, refusal.message, refusal.headers)
    except web.HTTPMethodNotAllowed as error:
        message = f"Request method '{request.method}' is not supported"
        return error_response(request, 405, message, {"Allow": error.headers["Allow"]})
    except web.HTTPRequestEntityTooLarge:
        return error_response(request, 413, "The request is too large")
    except web.HTTPException as error:
        return error_response(request, error.status, error.reason)
    except ConnectionResetError:  # for the counters: the client is gone
        return error_response(request, 400, "The client disconnected during its request")
    except Exception:
        log.exception("The emulator failed on %s %s", request.method, request.path)
        return error_response(request, 500, "Internal error of the emulator: see its log")


def _count(
    request: web.Request, operation: str, response: web.StreamResponse, answer: str | None = None
) -> web.StreamResponse:
    state = get_context(request).state
    seen: dict[str, Any] = {
        "time": state.clock.now(),
        "method": request.method,
        "path": request.path,
        "headers": {name: value for name, value in request.headers.items() if name.lower() not in SECRET},
        "authorized": "Authorization" in request.headers,
    }
    state.counters.record(operation, answer or str(response.status), seen)
    return response


def _fault_response(fault: Fault, request: web.Request) -> web.Response:
    status = fault.status or 200
    headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
    if fault.html:
        return web.Response(status=status, text=HTML_PAGE, content_type="text/html", headers=headers)
    if fault.body is None:
        return error_response(request, status, "A planned fault", headers)
    text = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
    kind = fault.content_type or "application/json"
    return web.Response(status=status, text=text, content_type=kind, headers=headers)


async def _send_in_parts(
    fault: Fault, request: web.Request, response: web.StreamResponse, *, then_reset: bool
) -> web.StreamResponse:
    """Send the body byte by byte, or in halves; pause between the parts, or reset the connection there."""
    body = response.body if isinstance(response, web.Response) else None
    data = bytes(body) if isinstance(body, bytes | bytearray) else b""
    half = len(data) // 2
    parts = [data[at : at + 1] for at in range(len(data))] if fault.drip else [data[:half], data[half:]]
    sent = web.StreamResponse(status=response.status, headers=response.headers)
    # Even a response without a body must be able to break in the middle.
    sent.content_length = len(data) or int(then_reset)
    with suppress(ConnectionError):  # the client may disconnect
        await sent.prepare(request)
        for number, part in enumerate(parts):
            if number:
                await asyncio.sleep(fault.drip or fault.stall or RESET_DELAY_SECONDS)
            if number and then_reset:
                _reset_connection(request)
                return sent
            await sent.write(part)
        await sent.write_eof()
    return sent


def _reset(request: web.Request, operation: str) -> web.Response:
    _count(request, operation, web.Response(), RESET)
    _reset_connection(request)
    # Not received: the connection is reset.
    return web.Response()


def _reset_connection(request: web.Request) -> None:
    """Send a real TCP reset."""
    transport = request.transport
    if transport is None:
        return
    with suppress(OSError):
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    transport.abort()


async def finish_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Change the case of header names just before a response is sent: one of the quirks."""
    state = get_context(request).state
    name = request.match_info.route.name
    if state.settings.quirks and (name in OPERATIONS or name == LOGIN):
        change = state.random.choice((str, str, str.lower, str.upper, str.swapcase))
        items = [(change(header), value) for header, value in response.headers.items()]
        response.headers.clear()
        response.headers.extend(items)
