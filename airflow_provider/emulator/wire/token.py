"""The token endpoint and the public keys of the identity provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider.emulator.memory.identity import GrantError, jwks
from airflow_provider.emulator.wire.answers import context_of, json_answer
from airflow_provider.emulator.wire.gateway import FORM

if TYPE_CHECKING:
    from aiohttp import web

NEEDED = {
    "password": ("username", "password", "client_id", "client_secret"),
    "refresh_token": ("client_id", "client_secret", "refresh_token"),
}


async def issue_token(request: web.Request) -> web.Response:
    """Answer the password and the refresh grant."""
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    try:
        form = await _read_form(request)
        return json_answer(_grant(request, form), headers=headers)
    except GrantError as refused:
        body = {"error": refused.error, "error_description": refused.description}
        return json_answer(body, status=refused.status, headers=headers)


async def show_keys(request: web.Request) -> web.Response:
    """Answer with the keys that signatures are checked with."""
    return json_answer(jwks())


async def _read_form(request: web.Request) -> dict[str, str]:
    if request.content_type != FORM:
        raise GrantError(415, "invalid_request", f"Content-Type must be {FORM}")
    try:
        fields = await request.post()
    except (ValueError, LookupError):
        raise GrantError(400, "invalid_request", "The form is not readable") from None
    form = {name: value for name, value in fields.items() if isinstance(value, str)}
    if len(form) < len(fields):
        raise GrantError(400, "invalid_request", "duplicated parameter")
    return form


def _grant(request: web.Request, form: dict[str, str]) -> dict[str, object]:
    state = context_of(request).state
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
