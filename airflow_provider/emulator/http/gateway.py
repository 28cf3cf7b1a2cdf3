"""The API gateway and the token endpoint: counts and limits requests, checks tokens, applies faults."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web
from multidict import CIMultiDict

from airflow_provider.emulator.http.responses import (
    SUBJECT,
    RequestError,
    error_response,
    fault_response,
    get_context,
    json_response,
    mix_case,
    reset_connection,
    send_partially,
    send_slowly,
)
from airflow_provider.emulator.settings import LOGIN, OPERATIONS, OTHER, REFRESH_TOKEN
from airflow_provider.emulator.state.identity import GrantError, TokenError, jwks

if TYPE_CHECKING:
    from airflow_provider.emulator.state.faults import Fault

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
FORM = "application/x-www-form-urlencoded"
RESET = "reset"
SECRET = ("authorization", "cookie", "proxy-authorization")


@web.middleware
async def gateway(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run all checks that come before an operation."""
    if request.host.rsplit(":", 1)[0] not in LOOPBACK:
        # DNS rebinding: another site may resolve its name to this machine.
        return error_response(request, 421, "The emulator serves this machine only")
    if request.path == "/" or request.path.startswith("/_emulator"):
        return await _handle(request, handler)
    operation = await get_operation(request)
    counters = get_context(request).state.counters
    counters.begin()
    try:
        return await _serve(request, handler, operation)
    finally:
        counters.end()


async def get_operation(request: web.Request) -> str:
    """Return the name of the requested operation."""
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
        response = fault_response(fault, request)
    else:
        response = await _handle(request, handler)
    if fault.location is not None:
        response.headers["Location"] = fault.location
    if fault.reset == "after":
        return _reset(request, operation)
    if fault.drip:
        return await send_slowly(request, _count(request, operation, response), pause=fault.drip)
    if fault.reset == "middle" or fault.stall:
        if fault.reset:
            _count(request, operation, response, RESET)
        else:
            _count(request, operation, response)
        return await send_partially(request, response, pause=fault.stall, then_reset=bool(fault.reset))
    return _count(request, operation, response)


def _authenticate(request: web.Request) -> web.Request:
    """Return the request with the IDP_SUBJECT of the token, whatever the client sent."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if not token or scheme.lower() != "bearer":
        challenge = {"WWW-Authenticate": 'Bearer realm="compliance"'}
        raise RequestError(401, "Full authentication is required", challenge)
    try:
        claims = get_context(request).state.identity.verify_access(token.strip())
    except TokenError as refused:
        details = f'Bearer realm="compliance", error="{refused.error}", error_description="{refused}"'
        raise RequestError(refused.status, str(refused), {"WWW-Authenticate": details}) from None
    headers = CIMultiDict(request.headers)
    headers[SUBJECT] = claims["sub"]
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


def _reset(request: web.Request, operation: str) -> web.Response:
    _count(request, operation, web.Response(), RESET)
    reset_connection(request)
    # Not received: the connection is reset.
    return web.Response()


async def finish_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Apply quirks to the headers of a response just before it is sent."""
    name = request.match_info.route.name or OTHER
    if name in OPERATIONS or name == LOGIN:
        mix_case(get_context(request).state, response.headers)


NEEDED = {
    "password": ("username", "password", "client_id", "client_secret"),
    "refresh_token": ("client_id", "client_secret", "refresh_token"),
}


async def issue_token(request: web.Request) -> web.Response:
    """Handle the password and the refresh grant."""
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    try:
        form = await _read_form(request)
        return json_response(_grant(request, form), headers=headers)
    except GrantError as refused:
        body = {"error": refused.error, "error_description": refused.description}
        return json_response(body, status=refused.status, headers=headers)


async def show_keys(request: web.Request) -> web.Response:
    """Return the public keys."""
    return json_response(jwks())


async def _read_form(request: web.Request) -> dict[str, str]:
    if request.content_type != FORM:
        raise GrantError(415, "invalid_request", f"Content-Type must be {FORM}")
    try:
        fields = await request.post()
    except (ValueError, LookupError):
        raise GrantError(400, "invalid_request", "The form is malformed") from None
    form = {name: value for name, value in fields.items() if isinstance(value, str)}
    if len(form) < len(fields):
        raise GrantError(400, "invalid_request", "duplicated parameter")
    return form


def _grant(request: web.Request, form: dict[str, str]) -> dict[str, object]:
    state = get_context(request).state
    settings = state.settings
    grant_type = form.get("grant_type")
    if not grant_type:
        raise GrantError(400, "invalid_request", "Missing form parameter: grant_type")
    if grant_type not in NEEDED:
        raise GrantError(400, "unsupported_grant_type", "Unsupported grant_type")
    for name in NEEDED[grant_type]:
        if not form.get(name):
            raise GrantError(400, "invalid_request", f"Missing form parameter: {name}")
    if (form["client_id"], form["client_secret"]) != (settings.client_id, settings.client_secret):
        raise GrantError(401, "invalid_client", "Invalid client or Invalid client credentials")
    if grant_type == "password":
        return state.identity.log_in(settings, form["username"], form["password"])
    return state.identity.renew(settings, form["refresh_token"])
