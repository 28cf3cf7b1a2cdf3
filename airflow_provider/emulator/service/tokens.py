"""The endpoints of the identity provider."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_plus

from aiohttp import BasicAuth, web

from airflow_provider.emulator.service.http import FORM, json_response
from airflow_provider.emulator.service.identity import GrantError, jwks
from airflow_provider.emulator.service.state import get_state

NEEDED = {
    "password": ("username", "password"),
    "client_credentials": (),
    "refresh_token": ("refresh_token",),
}


async def issue_token(request: web.Request) -> web.Response:
    """Handle the grants that are known."""
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    try:
        return json_response(_grant(request, await _read_form(request)), headers=headers)
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


def _grant(request: web.Request, form: dict[str, str]) -> dict[str, Any]:
    state = get_state(request)
    settings = state.settings
    grant_type = form.get("grant_type")
    if not grant_type:
        raise GrantError(400, "invalid_request", "Missing form parameter: grant_type")
    if grant_type not in NEEDED:
        raise GrantError(400, "unsupported_grant_type", "Unsupported grant_type")
    client = () if "Authorization" in request.headers else ("client_id", "client_secret")
    for name in (*NEEDED[grant_type], *client):
        if not form.get(name):
            raise GrantError(400, "invalid_request", f"Missing form parameter: {name}")
    if _client_of(request, form) != (settings.client_id, settings.client_secret):
        raise GrantError(401, "invalid_client", "Invalid client or Invalid client credentials")
    if grant_type == "client_credentials":
        return state.identity.log_in_client(settings)
    if grant_type == "password":
        return state.identity.log_in(settings, form["username"], form["password"])
    return state.identity.renew(settings, form["refresh_token"])


def _client_of(request: web.Request, form: dict[str, str]) -> tuple[str, str]:
    """Read the client's id and secret: from HTTP Basic, where RFC 6749 quotes them, or from the form."""
    if header := request.headers.get("Authorization"):
        try:
            basic = BasicAuth.decode(header)
        except ValueError:
            return "", ""
        return unquote_plus(basic.login), unquote_plus(basic.password)
    return form["client_id"], form["client_secret"]
