"""Access tokens: which one to use, when to renew it, and how, without I/O."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from pydantic import SecretStr

from airflow_provider.client.http.masking import one_line
from airflow_provider.client.models import WireModel
from airflow_provider.client.responses import proxy_hint, read_object
from airflow_provider.client.settings import Settings
from airflow_provider.client.wire import Call, HttpResponse
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceConnectionError,
    ComplianceError,
    ComplianceProtocolError,
)

RENEW_BEFORE_SECONDS = 30.0  # before expiry; a fifth of the lifetime, if that is less
DEFAULT_LIFETIME_SECONDS = 60.0  # if the identity provider does not say
TOKEN_RESPONSE_BYTES = 1024**2
# The codes of RFC 6749: other servers use a field of that name, too, as in "Not Found".
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
REJECTION_CACHE_SECONDS = 300.0  # a rejected password is not tried again: accounts get locked


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A bearer token; its repr is masked."""

    secret: SecretStr
    renew_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class TokenSet:
    """An access token and its refresh token."""

    access: AccessToken
    refresh: SecretStr | None
    refresh_until: float


class TokenResponse(WireModel):
    """Response of the token endpoint; its fields are snake case on the wire."""

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
        """Return the token to use now, or None if it has to be renewed.

        :param refused: the token that the service has just rejected
        """
        if self._refusal and self._clock() < self._refusal[1]:
            # A copy: an error that is raised repeatedly would collect the frames of all callers.
            raise copy.copy(self._refusal[0])
        tokens = self._tokens
        # Not ==: a renewal may return the same token, which must not make every caller renew it again.
        if tokens is None or tokens.access is refused or self._clock() >= tokens.access.renew_at:
            return None
        return tokens.access

    def renew(self) -> Generator[Call[TokenResponse], TokenResponse, AccessToken]:
        """Renew with the refresh token, or log in with the password if it is missing or rejected."""
        tokens, requested_at = self._tokens, self._clock()
        if tokens and tokens.refresh and requested_at < tokens.refresh_until:
            try:
                grant = self._grant("refresh_token", refresh_token=tokens.refresh)
                return self._store((yield grant), requested_at, tokens.refresh)
            except ComplianceAuthError:
                self._tokens = None
        requested_at = self._clock()
        try:
            grant = self._grant(
                "password", username=self._settings.username, password=self._settings.password
            )
            return self._store((yield grant), requested_at)
        except ComplianceAuthError as error:
            self._refusal = (copy.copy(error), self._clock() + REJECTION_CACHE_SECONDS)
            raise

    def _store(
        self, response: TokenResponse, requested_at: float, refresh_used: SecretStr | None = None
    ) -> AccessToken:
        lifetime = DEFAULT_LIFETIME_SECONDS if response.expires_in is None else max(response.expires_in, 0.0)
        access = AccessToken(
            response.access_token, requested_at + lifetime - min(RENEW_BEFORE_SECONDS, lifetime / 5)
        )
        # Without a new refresh token, keep the old one: not every identity provider rotates them.
        refresh = response.refresh_token if response.refresh_token.get_secret_value() else refresh_used
        # 0 means that a refresh token does not expire.
        until = requested_at + response.refresh_expires_in if response.refresh_expires_in else float("inf")
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
        parsed = TokenResponse.model_validate(
            record if isinstance(record, dict) else {}, by_name=True, by_alias=False
        )
        token = parsed.access_token.get_secret_value()
        if not token:
            problem = f"The response from {response.url} has no access_token"
        elif not token.isascii() or not token.isprintable() or " " in token:
            problem = (
                f"The access_token from {response.url} contains characters not allowed in an HTTP header"
            )
        elif parsed.token_type.lower() != "bearer":
            problem = f"The token from {response.url} is not a bearer token"
        else:
            return parsed
        raise ComplianceProtocolError(f"{problem}: check the extra 'token_url' of {self._settings.name}.")

    def _explain(self, response: HttpResponse) -> ComplianceError:
        """Explain what the identity provider refused; only the fields of RFC 6749 are shown."""
        where = self._settings.name
        code, description = _oauth_error(response)
        if code not in OAUTH_ERRORS and response.status not in (400, 401):
            return self._not_a_token_endpoint(response)
        reason = f"{code}: {description}" if description else code or f"status {response.status}"
        if code in ("invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"):
            return ComplianceAuthError(
                f"The identity provider refused client '{self._settings.client_id}' ({reason}): check the "
                f"extras 'client_id' and 'client_secret' of {where}, and how the client is registered there."
            )
        also = "" if code == "invalid_grant" else ", and the extras 'client_id' and 'client_secret'"
        return ComplianceAuthError(
            f"The identity provider refused user '{self._settings.username}' ({reason}): check login and "
            f"password{also} of {where}."
        )

    def _not_a_token_endpoint(self, response: HttpResponse) -> ComplianceError:
        """Make a transient error for a response that says nothing about the credentials."""
        if response.status == 407:
            return ComplianceConnectionError(
                f"The token request of {self._settings.name} did not get through. {proxy_hint(response)}"
            )
        error = ComplianceConfigError(
            f"{response.url} returned {response.status} without an OAuth error: it is not a token "
            f"endpoint, or something in front of it blocks the request. Check the extra 'token_url' "
            f"of {self._settings.name}."
        )
        error.transient = True
        return error


def _oauth_error(response: HttpResponse) -> tuple[str, str]:
    """Read `error` and `error_description` of RFC 6749, truncated and on one line."""
    record = read_object(response, strict=False)

    def field_text(name: str, length: int) -> str:
        return one_line(text[:length]) if isinstance(text := record.get(name), str) else ""

    return field_text("error", 100), field_text("error_description", 200)
