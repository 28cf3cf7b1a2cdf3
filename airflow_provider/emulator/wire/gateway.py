"""The API gateway: counts, limits, checks tokens, and lets faults happen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web
from multidict import CIMultiDict

from airflow_provider.emulator.memory.identity import TokenError
from airflow_provider.emulator.operations import LOGIN, OPERATIONS, OTHER, REFRESH_TOKEN
from airflow_provider.emulator.wire.answers import SUBJECT, RefusalError, context_of, error_answer
from airflow_provider.emulator.wire.faulty import answer_of, reset_connection, send_in_drops, send_in_halves
from airflow_provider.emulator.wire.quirks import mix_case

if TYPE_CHECKING:
    from airflow_provider.emulator.memory.faults import Fault

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
FORM = "application/x-www-form-urlencoded"
RESET = "reset"
SECRET = ("authorization", "cookie", "proxy-authorization")


@web.middleware
async def gateway(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lead a request through everything that stands before an operation."""
    if request.host.rsplit(":", 1)[0] not in LOOPBACK:
        # A page of a foreign site may point its own name at this machine.
        return error_answer(request, 421, "The emulator serves this machine only")
    if request.path == "/" or request.path.startswith("/_emulator"):
        return await _refuse_politely(request, handler)
    operation = await operation_of(request)
    counters = context_of(request).state.counters
    counters.begin()
    try:
        return await _serve(request, handler, operation)
    finally:
        counters.end()


async def operation_of(request: web.Request) -> str:
    """Return the name of the operation that a request asks for."""
    name = request.match_info.route.name or OTHER
    if name != LOGIN:
        return name
    # What is wrong with a form is for the endpoint to say.
    with suppress(ValueError, LookupError, web.HTTPRequestEntityTooLarge):
        form = await request.post() if request.content_type == FORM else {}
        return REFRESH_TOKEN if form.get("grant_type") == "refresh_token" else LOGIN
    return LOGIN


async def _serve(request: web.Request, handler: Handler, operation: str) -> web.StreamResponse:
    state = context_of(request).state
    if state.settings.latency:
        await asyncio.sleep(state.settings.latency)
    limit = state.settings.concurrency
    if limit is not None and state.counters.in_flight > limit:
        refusal = error_answer(request, 429, f"More than {limit} requests at a time", {"Retry-After": "1"})
        return _count(request, operation, refusal)
    # The identity provider and unknown paths outside the API need no token.
    if operation in OPERATIONS or request.path.startswith(f"{state.settings.base_path}/api/"):
        try:
            request = _authenticate(request)
        except RefusalError as refused:
            answer = error_answer(request, refused.status, refused.message, refused.headers)
            return _count(request, operation, answer)
    fault = state.faults.take(operation)
    if fault is None:
        return _count(request, operation, await _refuse_politely(request, handler))
    return await _serve_with(fault, request, handler, operation)


async def _serve_with(
    fault: Fault, request: web.Request, handler: Handler, operation: str
) -> web.StreamResponse:
    if fault.delay:
        await asyncio.sleep(fault.delay)
    if fault.reset == "before":
        return _reset(request, operation)
    response: web.StreamResponse
    if fault.replaces_answer:
        if fault.done:
            await _refuse_politely(request, handler)
        response = answer_of(fault, request)
    else:
        response = await _refuse_politely(request, handler)
    if fault.location is not None:
        response.headers["Location"] = fault.location
    if fault.reset == "after":
        return _reset(request, operation)
    if fault.drip:
        return await send_in_drops(request, _count(request, operation, response), pause=fault.drip)
    if fault.reset == "middle" or fault.stall:
        if fault.reset:
            _count(request, operation, response, RESET)
        else:
            _count(request, operation, response)
        return await send_in_halves(request, response, pause=fault.stall, then_reset=bool(fault.reset))
    return _count(request, operation, response)


def _authenticate(request: web.Request) -> web.Request:
    """Return the request with the header IDP_SUBJECT as the token has it, whatever the client sent."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token or scheme.lower() != "bearer":
        challenge = {"WWW-Authenticate": 'Bearer realm="compliance"'}
        raise RefusalError(401, "Full authentication is required", challenge)
    try:
        claims = context_of(request).state.identity.judge_access(token.strip())
    except TokenError as refused:
        details = f'Bearer realm="compliance", error="{refused.error}", error_description="{refused}"'
        raise RefusalError(refused.status, str(refused), {"WWW-Authenticate": details}) from None
    headers = CIMultiDict(request.headers)
    headers[SUBJECT] = claims["sub"]
    return request.clone(headers=headers)


async def _refuse_politely(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusalError as refusal:
        return error_answer(request, refusal.status, refusal.message, refusal.headers)
    except web.HTTPMethodNotAllowed as error:
        message = f"Request method '{request.method}' is not supported"
        return error_answer(request, 405, message, {"Allow": error.headers["Allow"]})
    except web.HTTPRequestEntityTooLarge:
        return error_answer(request, 413, "The request is too large")
    except web.HTTPException as error:
        return error_answer(request, error.status, error.reason)
    except ConnectionResetError:  # nobody reads this answer: it is for the counters
        return error_answer(request, 400, "The client went away in the middle of its request")
    except Exception:
        log.exception("The emulator broke on %s %s", request.method, request.path)
        return error_answer(request, 500, "The emulator itself is at fault, see its log")


def _count(
    request: web.Request, operation: str, response: web.StreamResponse, answer: str | None = None
) -> web.StreamResponse:
    state = context_of(request).state
    seen: dict[str, Any] = {
        "time": state.clock.now(),
        "method": request.method,
        "path": request.path,
        "headers": {name: value for name, value in request.headers.items() if name.lower() not in SECRET},
        "authorized": "Authorization" in request.headers,
    }
    state.counters.answered(operation, answer or str(response.status), seen)
    return response


def _reset(request: web.Request, operation: str) -> web.Response:
    _count(request, operation, web.Response(), RESET)
    reset_connection(request)
    # Nobody gets this: the connection is gone.
    return web.Response()


async def finish_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Give the headers of an answer their last shape, just before they go out."""
    name = request.match_info.route.name or OTHER
    if name in OPERATIONS or name == LOGIN:
        mix_case(context_of(request).state, response.headers)
