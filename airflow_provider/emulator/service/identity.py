"""The identity provider: accounts, tokens and their endpoint."""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from airflow_provider.emulator.service.http import FORM, RequestError, json_response
from airflow_provider.emulator.settings import Clock, Settings

SCOPE = "compliance"
ACCESS, REFRESH = "Bearer", "Refresh"
NEEDED = {"password": ("username", "password"), "refresh_token": ("refresh_token",)}


class GrantError(Exception):
    """A refused token request, with the fields of an OAuth error response."""

    def __init__(self, status: int, error: str, description: str) -> None:
        super().__init__(description)
        self.status, self.error, self.description = status, error, description


def _token_error(message: str, status: int = 401, error: str = "invalid_token") -> RequestError:
    details = f'Bearer realm="compliance", error="{error}", error_description="{message}"'
    return RequestError(status, message, {"WWW-Authenticate": details})


@dataclass
class Account:
    """A user of the partner."""

    username: str
    password: str
    subject: str
    scope: str


class Identity:
    """Issues tokens, and remembers them: one that it has not issued is not valid."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self.accounts: dict[str, Account] = {}
        self.add_account(settings.username, settings.password)
        self._issued: dict[str, dict[str, Any]] = {}

    def add_account(self, username: str, password: str, scope: str = f"profile email {SCOPE}") -> Account:
        """Add a user; the subject is derived from the name, so it is the same in each run."""
        subject = str(uuid.uuid5(uuid.NAMESPACE_URL, f"compliance-emulator:{username}"))
        self.accounts[username] = Account(username, password, subject, scope)
        return self.accounts[username]

    def log_in(self, settings: Settings, username: str, password: str) -> dict[str, Any]:
        """Handle the password grant."""
        account = self.accounts.get(username)
        if account is None or account.password != password:
            raise GrantError(401, "invalid_grant", "Invalid user credentials")
        return self._issue(settings, account, str(uuid.uuid4()))

    def renew(self, settings: Settings, refresh_token: str) -> dict[str, Any]:
        """Handle the refresh grant; each refresh token works once."""
        try:
            claims = self._verify(refresh_token, REFRESH)
        except RequestError as refused:
            raise GrantError(400, "invalid_grant", refused.message) from None
        del self._issued[refresh_token]
        return self._issue(settings, self.accounts[claims["preferred_username"]], claims["sid"])

    def verify_access(self, token: str) -> dict[str, Any]:
        """Return the claims of a valid access token."""
        claims = self._verify(token, ACCESS)
        if SCOPE not in claims["scope"].split():
            raise _token_error(f"The scope {SCOPE} is needed", 403, "insufficient_scope")
        return claims

    def expire_access(self) -> None:
        """Invalidate all access tokens; refresh tokens stay valid."""
        self._issued = {token: claims for token, claims in self._issued.items() if claims["typ"] == REFRESH}

    def revoke(self) -> None:
        """Invalidate all tokens."""
        self._issued.clear()

    def _verify(self, token: str, kind: str) -> dict[str, Any]:
        claims = self._issued.get(token)
        if claims is None or claims["typ"] != kind:
            raise _token_error("Invalid token")
        if claims["exp"] <= self._clock.now():
            raise _token_error("Token expired")
        return claims

    def _issue(self, settings: Settings, account: Account, session: str) -> dict[str, Any]:
        def token(kind: str, lifetime: float) -> str:
            # Whole seconds, as identity providers do, unless a test wants less than one.
            ends = int(now + lifetime) if lifetime >= 1 else now + lifetime
            claims = {
                "exp": ends,
                "iat": int(now),
                "jti": str(uuid.uuid4()),
                "typ": kind,
                "sub": account.subject,
                "azp": settings.client_id,
                "sid": session,
                "scope": account.scope,
                "preferred_username": account.username,
            }
            made = ".".join(
                (_encode({"alg": "HS256", "typ": "JWT"}), _encode(claims), secrets.token_urlsafe(32))
            )
            self._issued[made] = claims
            return made

        now = self._clock.now()
        return {
            "access_token": token(ACCESS, settings.access_lifetime),
            "expires_in": settings.access_lifetime,
            "refresh_expires_in": settings.refresh_lifetime,
            "refresh_token": token(REFRESH, settings.refresh_lifetime),
            "token_type": "Bearer",
            "not-before-policy": 0,
            "session_state": session,
            "scope": account.scope,
        }


def _encode(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


# -- the endpoint


async def grant(request: web.Request, identity: Identity, settings: Settings) -> web.Response:
    """Handle a token request."""
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    try:
        form = await _read_form(request, settings)
        if form["grant_type"] == "password":
            issued = identity.log_in(settings, form["username"], form["password"])
        else:
            issued = identity.renew(settings, form["refresh_token"])
        return json_response(issued, headers=headers)
    except GrantError as refused:
        body = {"error": refused.error, "error_description": refused.description}
        return json_response(body, status=refused.status, headers=headers)


async def _read_form(request: web.Request, settings: Settings) -> dict[str, str]:
    if request.content_type != FORM:
        raise GrantError(415, "invalid_request", f"Content-Type must be {FORM}")
    try:
        form = {name: str(value) for name, value in (await request.post()).items()}
    except (ValueError, LookupError):
        raise GrantError(400, "invalid_request", "The form is malformed") from None
    grant_type = form.get("grant_type", "")
    if grant_type and grant_type not in NEEDED:
        raise GrantError(400, "unsupported_grant_type", "Unsupported grant_type")
    for name in ("grant_type", *NEEDED.get(grant_type, ()), "client_id", "client_secret"):
        if not form.get(name):
            raise GrantError(400, "invalid_request", f"Missing form parameter: {name}")
    if (form["client_id"], form["client_secret"]) != (settings.client_id, settings.client_secret):
        raise GrantError(401, "invalid_client", "Invalid client or Invalid client credentials")
    return form
