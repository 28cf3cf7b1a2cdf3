"""The web application: the service, the controls under `/_emulator/`, and the page at `/`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from aiohttp import web

from airflow_provider.emulator.http import assessments, content
from airflow_provider.emulator.http.gateway import finish_headers, gateway, issue_token, show_keys
from airflow_provider.emulator.http.responses import (
    CONTEXT,
    Context,
    RequestError,
    get_context,
    json_response,
    parse_object,
)
from airflow_provider.emulator.processing import Processor
from airflow_provider.emulator.settings import JWKS, JWKS_PATH, LOGIN, OPERATIONS, TOKEN_PATH

if TYPE_CHECKING:
    from airflow_provider.emulator.controls import Controls
    from airflow_provider.emulator.state import State

Handler = Callable[[web.Request], Awaitable[web.Response]]

# The page shows untrusted names and texts: it may run its own script only.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
PAGE_FILES = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}


async def show_page(request: web.Request) -> web.Response:
    """Serve the page, its script or its style."""
    name, kind = PAGE_FILES[request.match_info.get("file", "")]
    text = files("airflow_provider.emulator").joinpath("data", name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=kind, headers=PAGE_HEADERS)


def _control(name: str, *path_parts: str, body: bool = False) -> Handler:
    """Return a handler that calls a control with the path parameters and the fields of the body."""

    async def handle(request: web.Request) -> web.Response:
        method = getattr(get_context(request).controls, name)
        args = [request.match_info[part] for part in path_parts]
        fields = await _read(request) if body else dict(_parse_query(request))
        try:
            inspect.signature(method).bind(*args, **fields)
            answer = method(*args, **fields)
        except (TypeError, ValueError, LookupError) as error:
            unknown = isinstance(error, KeyError)
            raise RequestError(404 if unknown else 400, str(error.args[0] if error.args else error)) from None
        return json_response({"ok": True} if answer is None else answer)

    return handle


async def _read(request: web.Request) -> dict[str, Any]:
    # Only JSON, even for an empty body: a form on another site must not change anything (CSRF).
    if request.content_type != "application/json":
        raise RequestError(415, "Send application/json")
    data = await request.read()
    return parse_object(data, request.charset) if data else {}


def _parse_query(request: web.Request) -> dict[str, int]:
    try:
        return {name: int(value) for name, value in request.query.items()}
    except ValueError:
        raise RequestError(400, "A number is expected") from None


async def _clear_fault(request: web.Request) -> web.Response:
    wanted = request.match_info.get("fault_id")
    cleared = get_context(request).controls.clear_faults(None if wanted is None else int(wanted))
    return json_response({"cleared": cleared})


async def _show_text(request: web.Request) -> web.Response:
    try:
        text = get_context(request).controls.text(request.match_info["uuid"])
    except KeyError as error:
        raise RequestError(404, str(error.args[0])) from None
    # Plain text that a browser does not render as a page.
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    return web.Response(text=text, content_type="text/plain", headers=headers)


def _route(method: str, path: str, handler: Handler) -> web.RouteDef:
    return web.route(method, f"/_emulator/{path}", handler)


ROUTES = [
    web.get("/", show_page, allow_head=False),
    _route("GET", r"{file:page\.(?:js|css)}", show_page),
    _route("GET", "overview", _control("overview")),
    _route("GET", "connection", _control("connection")),
    _route("GET", "counters", _control("counters")),
    _route("GET", "requests", _control("requests")),
    _route("GET", "settings", _control("settings")),
    _route("PATCH", "settings", _control("configure", body=True)),
    _route("POST", "reset", _control("reset", body=True)),
    _route("POST", "advance", _control("advance", body=True)),
    _route("GET", "faults", _control("faults")),
    _route("POST", "faults", _control("fail", body=True)),
    _route("DELETE", "faults", _clear_fault),
    _route("DELETE", r"faults/{fault_id:\d+}", _clear_fault),
    _route("GET", "jobs", _control("jobs")),
    _route("POST", "jobs", _control("add_job", body=True)),
    _route("POST", "jobs/fail", _control("fail_jobs", body=True)),
    _route("POST", "jobs/finish", _control("finish_jobs", body=True)),
    _route("GET", "jobs/{uuid}", _control("job", "uuid")),
    _route("PATCH", "jobs/{uuid}", _control("set_job", "uuid", body=True)),
    _route("DELETE", "jobs/{uuid}", _control("remove_job", "uuid")),
    _route("GET", "jobs/{uuid}/text", _show_text),
    _route("GET", "tokens", _control("tokens")),
    _route("POST", "tokens/expire", _control("expire_tokens", body=True)),
    _route("POST", "tokens/revoke", _control("revoke_tokens", body=True)),
    _route("POST", "users", _control("add_user", body=True)),
    _route("POST", "users/password", _control("change_password", body=True)),
    _route("POST", "users/unlock", _control("unlock_users", body=True)),
    _route("GET", "frameworks", _control("frameworks")),
    _route("PUT", "frameworks", _control("set_frameworks", body=True)),
    _route("GET", "assessments", _control("assessments")),
    _route("POST", "assessments", _control("add_assessment", body=True)),
    _route("PATCH", "assessments/{uuid}", _control("set_assessment", "uuid", body=True)),
    _route("DELETE", "assessments/{uuid}", _control("remove_assessment", "uuid")),
    _route("GET", "feedback", _control("feedback")),
]


MAX_BODY_BYTES = 64 * 2**20  # except uploads, which are streamed and have their own limit


def make_app(state: State, controls: Controls) -> web.Application:
    """Build the application for a state."""
    app = web.Application(middlewares=[gateway], client_max_size=MAX_BODY_BYTES)
    app[CONTEXT] = [Context(state, Processor(state), controls)]
    for name, (method, _) in OPERATIONS.items():
        module = next(each for each in (content, assessments) if hasattr(each, name))
        app.router.add_route(method, state.settings.get_path(name), getattr(module, name), name=name)
    app.router.add_route("POST", TOKEN_PATH, issue_token, name=LOGIN)
    app.router.add_route("GET", JWKS_PATH, show_keys, name=JWKS)
    app.add_routes(ROUTES)

    app.on_startup.append(resume_processing)
    app.on_cleanup.append(stop_processing)
    app.on_response_prepare.append(finish_headers)
    return app


async def resume_processing(app: web.Application) -> None:
    """Resume the jobs that a stop interrupted."""
    app[CONTEXT][0].processor.resume()


async def stop_processing(app: web.Application) -> None:
    """Stop processing and release the state."""
    await app[CONTEXT].pop().processor.close()
