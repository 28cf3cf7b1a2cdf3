"""The controls over HTTP, as JSON under `/_emulator/`, and the page at `/`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from aiohttp import web

from airflow_provider.emulator.wire.answers import RefusalError, context_of, json_answer, parse_object

Handler = Callable[[web.Request], Awaitable[web.Response]]

# The page shows what strangers put into names and texts: it runs its own script and nothing else.
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
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=kind, headers=PAGE_HEADERS)


def _call(name: str, *path_parts: str, body: bool = False) -> Handler:
    """Return a handler that calls one control with the parts of the path and the fields of the body."""

    async def handle(request: web.Request) -> web.Response:
        method = getattr(context_of(request).controls, name)
        args = [request.match_info[part] for part in path_parts]
        fields = await _read(request) if body else dict(_numbers(request))
        try:
            inspect.signature(method).bind(*args, **fields)
            answer = method(*args, **fields)
        except (TypeError, ValueError, LookupError) as error:
            unknown = isinstance(error, KeyError)
            raise RefusalError(404 if unknown else 400, str(error.args[0] if error.args else error)) from None
        return json_answer({"ok": True} if answer is None else answer)

    return handle


async def _read(request: web.Request) -> dict[str, Any]:
    # Only JSON, also for an empty body: a form of a foreign page must not be able to change anything.
    if request.content_type != "application/json":
        raise RefusalError(415, "Send application/json")
    data = await request.read()
    return parse_object(data, request.charset) if data else {}


def _numbers(request: web.Request) -> dict[str, int]:
    try:
        return {name: int(value) for name, value in request.query.items()}
    except ValueError:
        raise RefusalError(400, "A number is expected") from None


async def _clear_fault(request: web.Request) -> web.Response:
    wanted = request.match_info.get("fault_id")
    cleared = context_of(request).controls.clear_faults(None if wanted is None else int(wanted))
    return json_answer({"cleared": cleared})


async def _show_text(request: web.Request) -> web.Response:
    try:
        text = context_of(request).controls.text(request.match_info["uuid"])
    except KeyError as error:
        raise RefusalError(404, str(error.args[0])) from None
    # Plain text that no browser takes for a page.
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    return web.Response(text=text, content_type="text/plain", headers=headers)


def _route(method: str, path: str, handler: Handler) -> web.RouteDef:
    return web.route(method, f"/_emulator/{path}", handler)


ROUTES = [
    web.get("/", show_page, allow_head=False),
    _route("GET", r"{file:page\.(?:js|css)}", show_page),
    _route("GET", "overview", _call("overview")),
    _route("GET", "connection", _call("connection")),
    _route("GET", "counters", _call("counters")),
    _route("GET", "requests", _call("requests")),
    _route("GET", "settings", _call("settings")),
    _route("PATCH", "settings", _call("configure", body=True)),
    _route("POST", "reset", _call("reset", body=True)),
    _route("POST", "advance", _call("advance", body=True)),
    _route("GET", "faults", _call("faults")),
    _route("POST", "faults", _call("fail", body=True)),
    _route("DELETE", "faults", _clear_fault),
    _route("DELETE", r"faults/{fault_id:\d+}", _clear_fault),
    _route("GET", "jobs", _call("jobs")),
    _route("POST", "jobs", _call("add_job", body=True)),
    _route("POST", "jobs/fail", _call("fail_jobs", body=True)),
    _route("POST", "jobs/finish", _call("finish_jobs", body=True)),
    _route("GET", "jobs/{uuid}", _call("job", "uuid")),
    _route("PATCH", "jobs/{uuid}", _call("set_job", "uuid", body=True)),
    _route("DELETE", "jobs/{uuid}", _call("remove_job", "uuid")),
    _route("GET", "jobs/{uuid}/text", _show_text),
    _route("GET", "tokens", _call("tokens")),
    _route("POST", "tokens/expire", _call("expire_tokens", body=True)),
    _route("POST", "tokens/revoke", _call("revoke_tokens", body=True)),
    _route("POST", "users", _call("add_user", body=True)),
    _route("POST", "users/password", _call("change_password", body=True)),
    _route("POST", "users/unlock", _call("unlock_users", body=True)),
    _route("GET", "frameworks", _call("frameworks")),
    _route("PUT", "frameworks", _call("set_frameworks", body=True)),
    _route("GET", "assessments", _call("assessments")),
    _route("POST", "assessments", _call("add_assessment", body=True)),
    _route("PATCH", "assessments/{uuid}", _call("set_assessment", "uuid", body=True)),
    _route("DELETE", "assessments/{uuid}", _call("remove_assessment", "uuid")),
    _route("GET", "feedback", _call("feedback")),
]
