"""The identity provider: accounts, sessions, signed tokens and their endpoints."""

from __future__ import annotations

import functools
import json
import uuid
from dataclasses import dataclass
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_provider.emulator.service.http import FORM, RequestError, json_response
from airflow_provider.emulator.settings import Clock, Settings

SCOPE = "compliance"
KEY_ID = "emulator-1"
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


@functools.cache
def signing_key() -> rsa.RSAPrivateKey:
    """Return the key of this process; generating one is slow."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@functools.cache
def jwks() -> dict[str, Any]:
    """Return the public keys that the gateway checks signatures with."""
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(signing_key().public_key()))
    return {"keys": [{**public, "kid": KEY_ID, "alg": "RS256", "use": "sig"}]}


@functools.lru_cache(maxsize=10_000)
def _decode(token: str) -> dict[str, Any]:
    """Check the signature of a token, once: that takes longer than most requests."""
    key = jwt.PyJWKSet.from_dict(jwks())[jwt.get_unverified_header(token)["kid"]]
    # Times are checked against the emulator's clock, which a test may have moved.
    options: Any = {"verify_exp": False, "verify_iat": False, "verify_aud": False, "require": ["exp"]}
    claims: dict[str, Any] = jwt.decode(token, key.key, algorithms=["RS256"], options=options)
    return claims


class Identity:
    """Issues and verifies tokens; those of another instance are not valid here."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self.accounts: dict[str, Account] = {}
        self.add_account(settings.username, settings.password)
        self.revoke()

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
            claims = self._verify(refresh_token, "Refresh")
        except RequestError as refused:
            raise GrantError(400, "invalid_grant", refused.message) from None
        username, current = self._sessions.get(claims["sid"], ("", ""))
        if username not in self.accounts:
            raise GrantError(400, "invalid_grant", "Session not active")
        if claims["jti"] != current:
            raise GrantError(400, "invalid_grant", "Maximum allowed refresh token reuse exceeded")
        return self._issue(settings, self.accounts[username], claims["sid"])

    def verify_access(self, token: str) -> dict[str, Any]:
        """Return the claims of a valid access token."""
        claims = self._verify(token, "Bearer")
        if claims["epoch"] != self._epoch:
            raise _token_error("Token is not active")
        if SCOPE not in claims["scope"].split():
            raise _token_error(f"The scope {SCOPE} is needed", 403, "insufficient_scope")
        return claims

    def expire_access(self) -> None:
        """Invalidate all access tokens; refresh tokens stay valid."""
        self._epoch = str(uuid.uuid4())

    def revoke(self) -> None:
        """Invalidate all tokens."""
        self.expire_access()
        self._sessions: dict[str, tuple[str, str]] = {}

    def _verify(self, token: str, kind: str) -> dict[str, Any]:
        try:
            claims = _decode(token)
        except (jwt.PyJWTError, KeyError, ValueError):
            raise _token_error("Invalid token signature") from None
        if claims["typ"] != kind:
            raise _token_error("Invalid token")
        if claims["exp"] <= self._clock.now():
            raise _token_error("Token expired")
        return claims

    def _issue(self, settings: Settings, account: Account, session: str) -> dict[str, Any]:
        now, refresh_id = self._clock.now(), str(uuid.uuid4())
        common = {
            "iat": int(now),
            "sub": account.subject,
            "azp": settings.client_id,
            "sid": session,
            "scope": account.scope,
        }
        access = {
            "exp": _expires_at(now, settings.access_lifetime),
            "jti": str(uuid.uuid4()),
            "typ": "Bearer",
            "preferred_username": account.username,
            "epoch": self._epoch,
        }
        refresh = {"exp": _expires_at(now, settings.refresh_lifetime), "jti": refresh_id, "typ": "Refresh"}
        self._sessions[session] = (account.username, refresh_id)
        return {
            "access_token": _sign({**common, **access}),
            "expires_in": settings.access_lifetime,
            "refresh_expires_in": settings.refresh_lifetime,
            "refresh_token": _sign({**common, **refresh}),
            "token_type": "Bearer",
            "not-before-policy": 0,
            "session_state": session,
            "scope": account.scope,
        }


def _sign(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, signing_key(), algorithm="RS256", headers={"kid": KEY_ID})


def _expires_at(now: float, lifetime: float) -> float:
    # Whole seconds, as identity providers do, unless a test wants less than one.
    return int(now + lifetime) if lifetime >= 1 else now + lifetime


# -- the endpoints


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
