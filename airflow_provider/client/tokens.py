"""Access tokens: which one to use, when to renew it, and how. One state machine, without I/O."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from airflow_provider.client.http.messages import one_line
from airflow_provider.client.models import WireModel
from airflow_provider.client.responses import proxy_hint
from airflow_provider.client.settings import Settings
from airflow_provider.client.wire import Call, HttpResponse
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceConnectionError,
    ComplianceError,
    ComplianceProtocolError,
)

RENEW_BEFORE_SECONDS = 30.0  # seconds before a token's end; a fifth of its life where that is less
DEFAULT_LIFETIME_SECONDS = 60.0  # seconds, where the identity provider does not say
TOKEN_RESPONSE_BYTES = 1024**2  # bytes
# The codes of RFC 6749; anything may answer with a field of that name, such as "Not Found".
OAUTH_ERRORS = frozenset(
    {
        "access_denied",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)
REJECTION_CACHE_SECONDS = 300.0  # seconds in which a refused password is not tried again: accounts get locked


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A bearer token; it can't be printed."""

    secret: SecretStr
    renew_at: float = field(default=0.0, compare=False)

    @property
    def authorization(self) -> str:
        """The value of the Authorization header."""
        return f"Bearer {self.secret.get_secret_value()}"


@dataclass(frozen=True, slots=True)
class TokenSet:
    """An access token and the refresh token that came with it."""

    access: AccessToken
    refresh: SecretStr | None
    refresh_until: float


class TokenResponse(WireModel):
    """What the token endpoint answers; its names are in snake case on the wire."""

    access_token: SecretStr = SecretStr("")
    refresh_token: SecretStr = SecretStr("")
    token_type: str = "bearer"  # noqa: S105 - the type, no secret
    expires_in: float | None = None
    refresh_expires_in: float | None = None


class TokenCache:
    """The tokens of one login."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._tokens: TokenSet | None = None
        self._refusal: tuple[ComplianceAuthError, float] | None = None

    @property
    def latest(self) -> AccessToken | None:
        """The newest token, usable or not."""
        return self._tokens.access if self._tokens else None

    def get_usable(self, refused: AccessToken | None = None) -> AccessToken | None:
        """Return the token to use now; None says that it has to be renewed.

        :param refused: the token that the service has just refused
        """
        if self._refusal and self._clock() < self._refusal[1]:
            # An error that is raised again and again would gather the frames of all who met it.
            raise copy.copy(self._refusal[0])
        tokens = self._tokens
        # Not ==: a renewal may bring the same token again, and that must not cost a crowd one renewal each.
        if tokens is None or tokens.access is refused or self._clock() >= tokens.access.renew_at:
            return None
        return tokens.access

    def renew(self) -> Generator[Call[TokenResponse], TokenResponse, AccessToken]:
        """Renew with the refresh token, or log in with the password when that is gone or refused."""
        tokens, asked_at = self._tokens, self._clock()
        if tokens and tokens.refresh and asked_at < tokens.refresh_until:
            try:
                grant = self._grant("refresh_token", refresh_token=tokens.refresh)
                return self._keep((yield grant), asked_at, tokens.refresh)
            except ComplianceAuthError:
                self._tokens = None
        asked_at = self._clock()
        try:
            grant = self._grant(
                "password", username=self._settings.username, password=self._settings.password
            )
            return self._keep((yield grant), asked_at)
        except ComplianceAuthError as error:
            self._refusal = (copy.copy(error), self._clock() + REJECTION_CACHE_SECONDS)
            raise

    def _keep(
        self, answer: TokenResponse, asked_at: float, refresh_used: SecretStr | None = None
    ) -> AccessToken:
        life = DEFAULT_LIFETIME_SECONDS if answer.expires_in is None else max(answer.expires_in, 0.0)
        access = AccessToken(answer.access_token, asked_at + life - min(RENEW_BEFORE_SECONDS, life / 5))
        # Without a new refresh token the old one stays: not every identity provider rotates them.
        refresh = answer.refresh_token if answer.refresh_token.get_secret_value() else refresh_used
        # 0 says that a refresh token does not end by itself.
        until = asked_at + answer.refresh_expires_in if answer.refresh_expires_in else float("inf")
        self._tokens = TokenSet(access, refresh, until)
        self._refusal = None
        return access

    def _grant(self, grant_type: str, **form: str | SecretStr) -> Call[TokenResponse]:
        settings = self._settings
        form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        return Call(
            "POST",
            settings.token_url,
            form={"grant_type": grant_type, **form},
            parse=self._parse,
            map_error=self._explain,
            idempotent=True,
            authorized=False,
            limit=TOKEN_RESPONSE_BYTES,
        )

    def _parse(self, response: HttpResponse) -> TokenResponse:
        record = response.json()
        answer = TokenResponse.model_validate(
            record if isinstance(record, dict) else {}, by_name=True, by_alias=False
        )
        token = answer.access_token.get_secret_value()
        if not token:
            raise ComplianceProtocolError(
                f"The answer from {response.url} has no access_token: check the extra 'token_url' of "
                f"{self._settings.name}."
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ComplianceProtocolError(f"The access_token from {response.url} can't stand in a header.")
        if answer.token_type.lower() != "bearer":
            raise ComplianceProtocolError(f"The token from {response.url} is not a bearer token.")
        return answer

    def _explain(self, response: HttpResponse) -> ComplianceError:
        """Say whom the identity provider refused; only the fields of RFC 6749 are shown."""
        where = self._settings.name
        code, description = oauth_error(response)
        if code not in OAUTH_ERRORS and response.status not in (400, 401):
            return self._no_verdict(response)
        said = f"{code}: {description}" if description else code or f"status {response.status}"
        if code in ("invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"):
            return ComplianceAuthError(
                f"The identity provider refused client '{self._settings.client_id}' ({said}): check the "
                f"extras 'client_id' and 'client_secret' of {where}, and how the client is registered there."
            )
        also = "" if code == "invalid_grant" else ", and the extras 'client_id' and 'client_secret'"
        return ComplianceAuthError(
            f"The identity provider refused user '{self._settings.username}' ({said}): check login and "
            f"password{also} of {where}."
        )

    def _no_verdict(self, response: HttpResponse) -> ComplianceError:
        """Say that something else than a token endpoint answered; it may pass, and blames no credentials."""
        if response.status == 407:
            return ComplianceConnectionError(
                f"The token request of {self._settings.name} did not get through. {proxy_hint(response)}"
            )
        error = ComplianceConfigError(
            f"{response.url} answered {response.status} without an error of OAuth: it is no token endpoint, "
            f"or something before it refuses us. Check the extra 'token_url' of {self._settings.name}."
        )
        error.transient = True
        return error


def oauth_error(response: HttpResponse) -> tuple[str, str]:
    """Read `error` and `error_description` of RFC 6749, cut short and on one line."""
    try:
        record: Any = response.json()
    except ComplianceProtocolError:
        record = None
    if not isinstance(record, dict):
        return "", ""
    code, description = record.get("error"), record.get("error_description")
    return (
        one_line(code[:100]) if isinstance(code, str) else "",
        one_line(description[:200]) if isinstance(description, str) else "",
    )
