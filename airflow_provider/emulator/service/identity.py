"""The identity provider: accounts, sessions, signed tokens, the lock after wrong passwords, its endpoints."""

from __future__ import annotations

import functools
import json
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import jwt
from aiohttp import BasicAuth
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_provider.emulator.service.gateway import FORM, RequestError, get_context, json_response

if TYPE_CHECKING:
    from aiohttp import web

    from airflow_provider.emulator.service import Clock
    from airflow_provider.emulator.settings import Settings

SCOPE = "compliance"
KEY_ID = "emulator-1"
MAX_SESSIONS = 10_000
NEEDED = {
    "password": ("username", "password"),
    "client_credentials": (),
    "refresh_token": ("refresh_token",),
}


REFRESH_FIELDS = ("refresh_token", "refresh_expires_in", "session_state")


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
    failures: int = 0
    locked_until: float = 0.0


@functools.cache
def signing_key() -> rsa.RSAPrivateKey:
    """Return the key of this process; generating one is slow."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwks() -> dict[str, Any]:
    """Return the public keys that the gateway checks signatures with."""
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(signing_key().public_key()))
    return {"keys": [{**public, "kid": KEY_ID, "alg": "RS256", "use": "sig"}]}


@functools.cache
def _key_set() -> jwt.PyJWKSet:
    return jwt.PyJWKSet.from_dict(jwks())


class Identity:
    """Issues and verifies tokens."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self.issuer = ""
        self.epoch = 0
        self.start(settings)

    def start(self, settings: Settings) -> None:
        """Reset everything but the keys; all issued tokens become invalid."""
        self.accounts: dict[str, Account] = {}
        self.add_account(settings.username, settings.password)
        self.sessions: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self.issued: deque[dict[str, Any]] = deque(maxlen=200)
        self.issued_count = 0
        self.not_before = 0
        self.epoch += 1

    def add_account(self, username: str, password: str, scope: str = f"profile email {SCOPE}") -> Account:
        """Add a user; the subject is derived from the name, so it is the same in each run."""
        subject = str(uuid.uuid5(uuid.NAMESPACE_URL, f"compliance-emulator:{username}"))
        self.accounts[username] = Account(username, password, subject, scope)
        return self.accounts[username]

    def log_in(self, settings: Settings, username: str, password: str) -> dict[str, Any]:
        """Handle the password grant. A locked user gets the same error as a wrong password."""
        refusal = GrantError(401, "invalid_grant", "Invalid user credentials")
        account = self.accounts.get(username)
        if account is None or account.locked_until > self._clock.now():
            raise refusal
        if account.password != password:
            account.failures += 1
            if account.failures >= settings.lock_after:
                account.failures, account.locked_until = 0, self._clock.now() + settings.lock_seconds
            raise refusal
        account.failures = 0
        return self._issue(settings, account, str(uuid.uuid4()), "password")

    def log_in_client(self, settings: Settings) -> dict[str, Any]:
        """Handle the client credentials grant: the client's service account gets no refresh token."""
        name = f"service-account-{settings.client_id}"
        account = self.accounts.get(name) or self.add_account(name, "")
        issued = self._issue(settings, account, str(uuid.uuid4()), "client_credentials")
        return {name: value for name, value in issued.items() if name not in REFRESH_FIELDS}

    def renew(self, settings: Settings, refresh_token: str) -> dict[str, Any]:
        """Handle the refresh grant; each refresh token works once."""
        try:
            claims = self._verify(refresh_token, "Refresh")
        except RequestError as refused:
            raise GrantError(400, "invalid_grant", refused.message) from None
        username, current = self.sessions.get(claims["sid"], ("", ""))
        account = self.accounts.get(username)
        if account is None:
            raise GrantError(400, "invalid_grant", "Session not active")
        if claims["jti"] != current:
            raise GrantError(400, "invalid_grant", "Maximum allowed refresh token reuse exceeded")
        return self._issue(settings, account, claims["sid"], "refresh_token")

    def verify_access(self, token: str) -> dict[str, Any]:
        """Return the claims of a valid access token."""
        claims = self._verify(token, "Bearer")
        if claims.get("epoch") != self.epoch:
            raise _token_error("Token is not active")
        if SCOPE not in str(claims.get("scope")).split():
            raise _token_error(f"The scope {SCOPE} is needed", 403, "insufficient_scope")
        return claims

    def expire_access(self) -> None:
        """Invalidate all access tokens; refresh tokens stay valid."""
        self.epoch += 1

    def revoke(self) -> None:
        """Invalidate all tokens, as an administrator's 'not before' does."""
        self.epoch += 1
        self.sessions.clear()
        self.not_before = int(self._clock.now())

    def locked(self) -> list[str]:
        """Return the locked users."""
        return [name for name, account in self.accounts.items() if account.locked_until > self._clock.now()]

    def unlock(self) -> None:
        """Unlock all users."""
        for account in self.accounts.values():
            account.failures, account.locked_until = 0, 0.0

    def _verify(self, token: str, kind: str) -> dict[str, Any]:
        try:
            key = _key_set()[jwt.get_unverified_header(token)["kid"]]
            # Times are checked below against the emulator's clock, which a test may have moved.
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=["RS256"],
                options={"verify_exp": False, "verify_iat": False, "verify_aud": False, "require": ["exp"]},
            )
        except (jwt.PyJWTError, KeyError, ValueError):
            raise _token_error("Invalid token signature") from None
        if claims.get("iss") != self.issuer or claims.get("typ") != kind:
            raise _token_error("Invalid token")
        if claims["exp"] <= self._clock.now():
            raise _token_error("Token expired")
        return claims

    def _issue(self, settings: Settings, account: Account, session: str, grant: str) -> dict[str, Any]:
        now = self._clock.now()
        refresh_id = str(uuid.uuid4())
        common = {
            "iat": int(now),
            "iss": self.issuer,
            "sub": account.subject,
            "azp": settings.client_id,
            "sid": session,
            "scope": account.scope,
        }
        access = {
            **common,
            "exp": _expires_at(now, settings.access_lifetime),
            "jti": str(uuid.uuid4()),
            "typ": "Bearer",
            "preferred_username": account.username,
            "epoch": self.epoch,
        }
        refresh = {
            **common,
            "exp": _expires_at(now, settings.refresh_lifetime),
            "jti": refresh_id,
            "typ": "Refresh",
        }
        self.sessions[session] = (account.username, refresh_id)
        self.sessions.move_to_end(session)
        while len(self.sessions) > MAX_SESSIONS:
            self.sessions.popitem(last=False)
        self.issued_count += 1
        self.issued.append(
            {
                "time": now,
                "grant": grant,
                "user": account.username,
                "session": session,
                "expires": access["exp"],
            }
        )
        return {
            "access_token": _sign(access),
            "expires_in": _as_int(settings.access_lifetime),
            "refresh_expires_in": _as_int(settings.refresh_lifetime),
            "refresh_token": _sign(refresh),
            "token_type": "Bearer",
            "not-before-policy": self.not_before,
            "session_state": session,
            "scope": account.scope,
        }


def _sign(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, signing_key(), algorithm="RS256", headers={"kid": KEY_ID})


def _as_int(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


def _expires_at(now: float, lifetime: float) -> float:
    # Whole seconds, as identity providers do, unless a test wants less than one.
    return int(now + lifetime) if lifetime >= 1 else now + lifetime


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
    state = get_context(request).state
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
