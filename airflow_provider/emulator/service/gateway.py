"""The API gateway: counts and limits requests, checks tokens, injects faults."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web
from multidict import CIMultiDict

from airflow_provider.emulator.service.faults import Fault, take
from airflow_provider.emulator.service.http import FORM, SUBJECT, RequestError, error_response
from airflow_provider.emulator.service.state import get_state
from airflow_provider.emulator.settings import LOGIN, OPERATIONS, OTHER, REFRESH_TOKEN

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
RESET = "reset"
RESET_DELAY_SECONDS = 0.02  # for the first half to arrive before the reset
HTML_PAGE = (
    "<!DOCTYPE html><html><head><title>Gateway</title></head>"
    "<body><h1>The page cannot be displayed</h1><p>Contact your administrator.</p></body></html>"
)


@web.middleware
async def gateway(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run all checks that come before an operation."""
    if request.host.rsplit(":", 1)[0] not in LOOPBACK:
        # DNS rebinding: another site may resolve its name to this machine.
        return error_response(request, 421, "The emulator serves this machine only")
    if request.path == "/" or request.path.startswith("/_emulator"):
        return await _handle(request, handler)
    operation = await _get_operation(request)
    state = get_state(request)
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
    state = get_state(request)
    if state.settings.latency:
        await asyncio.sleep(state.settings.latency)
    limit = state.settings.concurrency
    if limit is not None and state.counters.in_flight > limit:
        refusal = error_response(request, 429, f"More than {limit} requests in flight", {"Retry-After": "1"})
        return _count(request, operation, refusal)
    # The identity provider and unknown paths outside the API need no token.
    if operation in OPERATIONS or request.path.startswith("/api/"):
        try:
            request = _authenticate(request)
        except RequestError as refused:
            answer = error_response(request, refused.status, refused.message, refused.headers)
            return _count(request, operation, answer)
    fault = take(state.faults, operation)
    if fault is None:
        response = state.dialect.speak(operation, await _handle(request, handler))
        return _count(request, operation, response)
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
        response = _fault_response(fault, request)
    else:
        response = await _handle(request, handler)
    if fault.reset == "after":
        return _reset(request, operation)
    then_reset = fault.reset == "middle"
    _count(request, operation, response, RESET if then_reset else None)
    if fault.stall or then_reset:
        return await _send_halves(fault, request, response, then_reset=then_reset)
    return response


def _authenticate(request: web.Request) -> web.Request:
    """Return the request with the IDP_SUBJECT of the token, not the one that the client sent."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token or scheme.lower() != "bearer":
        challenge = {"WWW-Authenticate": 'Bearer realm="compliance"'}
        raise RequestError(401, "Full authentication is required", challenge)
    headers = CIMultiDict(request.headers)
    headers[SUBJECT] = get_state(request).identity.verify_access(token.strip())["sub"]
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
    get_state(request).counters.record(operation, answer or str(response.status))
    return response


def _fault_response(fault: Fault, request: web.Request) -> web.Response:
    status = fault.status or 200
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    if fault.html:
        return web.Response(status=status, text=HTML_PAGE, content_type="text/html", headers=headers)
    if fault.body is None:
        return error_response(request, status, "A planned fault", headers)
    text = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
    return web.Response(status=status, text=text, content_type=fault.content_type, headers=headers)


async def _send_halves(
    fault: Fault, request: web.Request, response: web.StreamResponse, *, then_reset: bool
) -> web.StreamResponse:
    """Send the body in halves; pause between them, or reset the connection there."""
    body = response.body if isinstance(response, web.Response) else None
    data = bytes(body) if isinstance(body, bytes | bytearray) else b""
    half = len(data) // 2
    sent = web.StreamResponse(status=response.status, headers=response.headers)
    # Even a response without a body must be able to break in the middle.
    sent.content_length = len(data) or int(then_reset)
    with suppress(ConnectionError):  # the client may disconnect
        await sent.prepare(request)
        await sent.write(data[:half])
        await asyncio.sleep(fault.stall or RESET_DELAY_SECONDS)
        if then_reset:
            _reset_connection(request)
            return sent
        await sent.write(data[half:])
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
    state = get_state(request)
    name = request.match_info.route.name
    if state.settings.quirks and (name in OPERATIONS or name == LOGIN):
        change = state.random.choice((str, str, str.lower, str.upper, str.swapcase))
        items = [(change(header), value) for header, value in response.headers.items()]
        response.headers.clear()
        response.headers.extend(items)
