"""The identity provider: accounts, sessions and signed tokens."""

from __future__ import annotations

import functools
import json
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_provider.emulator.service.http import RequestError
from airflow_provider.emulator.settings import Clock, Settings

SCOPE = "compliance"
KEY_ID = "emulator-1"
MAX_SESSIONS = 10_000
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
        self._verified: dict[str, dict[str, Any]] = {}  # claims of tokens with a valid signature
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
        """Handle the password grant."""
        account = self.accounts.get(username)
        if account is None or account.password != password:
            raise GrantError(401, "invalid_grant", "Invalid user credentials")
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

    def _verify(self, token: str, kind: str) -> dict[str, Any]:
        claims = self._verified.get(token) or self._decode(token)
        if claims.get("iss") != self.issuer or claims.get("typ") != kind:
            raise _token_error("Invalid token")
        if claims["exp"] <= self._clock.now():
            self._verified.pop(token, None)
            raise _token_error("Token expired")
        return claims

    def _decode(self, token: str) -> dict[str, Any]:
        """Check the signature of a token, once: that takes longer than most requests."""
        try:
            key = _key_set()[jwt.get_unverified_header(token)["kid"]]
            # Times are checked against the emulator's clock, which a test may have moved.
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=["RS256"],
                options={"verify_exp": False, "verify_iat": False, "verify_aud": False, "require": ["exp"]},
            )
        except (jwt.PyJWTError, KeyError, ValueError):
            raise _token_error("Invalid token signature") from None
        if len(self._verified) >= MAX_SESSIONS:
            self._verified.clear()
        self._verified[token] = claims
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
