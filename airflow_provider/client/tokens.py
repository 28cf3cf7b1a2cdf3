"""Access tokens: which one to use, when and how to renew it, and what processes share of it, without I/O."""

from __future__ import annotations

import copy
import json
import logging
import random
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from pydantic import ConfigDict, SecretStr

from airflow_provider.client.http.wire import Call, HttpResponse, LocalIO, Pause, Step
from airflow_provider.client.models import WireModel
from airflow_provider.client.responses import oauth_error, proxy_hint
from airflow_provider.client.settings import CLIENT_CREDENTIALS, Settings
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceConnectionError,
    ComplianceError,
    ComplianceProtocolError,
    ComplianceServerError,
)

log = logging.getLogger(__name__)

LOGIN, REFRESH_TOKEN = "login", "refresh_token"  # names of the calls; the latter is also a grant type
RENEW_BEFORE_SECONDS = 30.0  # before expiry; a fifth of the lifetime, if that is less
DEFAULT_LIFETIME_SECONDS = 60.0  # if the identity provider does not say
TOKEN_RESPONSE_BYTES = 1024**2
# The codes of RFC 6749: other servers use a field of that name as well, as in "Not Found".
CLIENT_ERRORS = frozenset(
    {"invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}
)
OAUTH_ERRORS = CLIENT_ERRORS | {"access_denied", "invalid_grant", "invalid_request"}
OUTAGES = frozenset({"server_error", "temporarily_unavailable"})
REFUSAL_CACHE_SECONDS = 300.0  # a refused password is not tried again: accounts get locked
UNCONFIRMED_REFUSAL_SECONDS = 60.0  # for a refusal without an OAuth error, which a gateway may have sent
CROWD_SECONDS = 5.0  # a page in place of the token endpoint is for all who ask at the same time
ACCEPTED_SECONDS = 60.0  # after a good login, other processes need not take turns
# Longer than a login takes; a process that holds the lock for longer is stopped, or waits for a retry.
LOCK_TIMEOUT_SECONDS = 60.0
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 0.5
# A file system may hang; in a forked child, so may a lock inside OpenSSL. On a busy host it is just slow.
LOCAL_IO_SECONDS = 60.0
MAX_CLOCK_SKEW_SECONDS = 5.0  # for a snapshot from the future; beyond that, a clock was set back
_NAME = "{name}"  # in a snapshot, stands for the connection, which differs between processes


class TokenStoreError(Exception):
    """The store can't be used: each process has to log in by itself."""


class TokenStore(Protocol):
    """Keeps what processes share of one login: a refusal, and the tokens if the settings say so."""

    def try_lock(self) -> Any:
        """Return a lock with `release`, or None while another process has it; or raise `TokenStoreError`."""
        ...

    def load(self) -> SecretStr | None:
        """Return the last snapshot that was saved with the same credentials; None if it can't be read."""
        ...

    def save(self, snapshot: SecretStr) -> None:
        """Replace the snapshot; remove one that can't be replaced, so that no process uses it."""
        ...


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A bearer token; its repr is masked.

    :param secret: the token
    :param renew_at: when to renew it, in monotonic time
    :param is_adopted: another process obtained it, at an unknown time
    """

    secret: SecretStr
    renew_at: float = field(default=0.0, compare=False)
    is_adopted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class TokenSet:
    """An access token and its refresh token."""

    access: AccessToken
    refresh: SecretStr | None
    refresh_until: float


class TokenResponse(WireModel):
    """Response of the token endpoint; its fields are snake case on the wire."""

    model_config = ConfigDict(alias_generator=None)

    access_token: SecretStr = SecretStr("")
    refresh_token: SecretStr = SecretStr("")
    token_type: str = "bearer"  # noqa: S105 - the type, no secret
    expires_in: float | None = None
    refresh_expires_in: float | None = None


class TokenCache:
    """The tokens of one login.

    :param settings: the credentials
    :param clock: monotonic time
    :param wall_clock: the time that snapshots carry; it means the same after a reboot and in a container
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._clock, self._wall_clock = settings, clock, wall_clock
        self.shares_tokens = settings.share_tokens
        self._tokens: TokenSet | None = None
        self._refusal: tuple[ComplianceError, float] | None = None
        self._accepted_until = 0.0
        self.version = ""  # changes with everything that a snapshot contains
        self.is_shared = False  # other processes may have the refresh token

    @property
    def latest(self) -> AccessToken | None:
        """The newest token, usable or not."""
        return self._tokens.access if self._tokens else None

    @property
    def is_accepted(self) -> bool:
        """Whether another process has just logged in with the same credentials, and keeps its tokens."""
        return self._clock() < self._accepted_until

    def get_usable(self, refused: AccessToken | None = None) -> AccessToken | None:
        """Return the token to use now, or None if it has to be renewed.

        :param refused: the token that the service has just refused
        """
        if self._refusal and self._clock() < self._refusal[1]:
            # A copy: an error that is raised repeatedly would collect the frames of all callers.
            raise copy.copy(self._refusal[0])
        tokens = self._tokens
        # Not ==: a renewal may return the same token, which must not make every caller renew it again.
        if tokens is None or tokens.access is refused or self._clock() >= tokens.access.renew_at:
            return None
        return tokens.access

    def renew(self, *, may_refresh: bool = True) -> Generator[Any, Any, AccessToken]:
        """Renew with the refresh token, or log in if it is missing or refused.

        :param may_refresh: False if another process may be using the refresh token
        """
        token = (yield from self.refresh()) if may_refresh else None
        return token or (yield from self.log_in())

    def refresh(self) -> Generator[Any, Any, AccessToken | None]:
        """Renew with the refresh token; return None if it is missing or refused."""
        tokens, requested_at = self._tokens, self._clock()
        if not tokens or not tokens.refresh or requested_at >= tokens.refresh_until:
            return None
        try:
            response = yield self._grant(REFRESH_TOKEN, refresh_token=tokens.refresh)
        except ComplianceAuthError:
            self._tokens, self.version = None, uuid.uuid4().hex
            return None
        return self._store(response, requested_at, tokens.refresh)

    def log_in(self) -> Generator[Any, Any, AccessToken]:
        """Log in, and remember a refusal: the password is not sent again for a while."""
        requested_at, settings = self._clock(), self._settings
        user: dict[str, str | SecretStr] = {"username": settings.username, "password": settings.password}
        if settings.grant_type == CLIENT_CREDENTIALS:
            user = {}
        try:
            return self._store((yield self._grant(settings.grant_type, **user)), requested_at)
        except (ComplianceAuthError, ComplianceConfigError) as error:
            seconds = CROWD_SECONDS
            if isinstance(error, ComplianceAuthError):
                seconds = UNCONFIRMED_REFUSAL_SECONDS if error.transient else REFUSAL_CACHE_SECONDS
                self.version = uuid.uuid4().hex
            self._refusal = (copy.copy(error), self._clock() + seconds)
            raise

    def snapshot(self) -> SecretStr:
        """Return as JSON what other processes with the same credentials may know.

        That is whether these were refused, and the tokens only with `share_tokens`.
        """
        self.is_shared = self.shares_tokens
        now = self._wall_clock()
        offset = now - self._clock()
        record: dict[str, Any] = {"version": self.version, "saved_at": now}
        if (tokens := self._tokens) and self.is_shared:
            record |= {
                "access_token": tokens.access.secret.get_secret_value(),
                "renew_at": tokens.access.renew_at + offset,
                "refresh_token": tokens.refresh.get_secret_value() if tokens.refresh else None,
                "refresh_until": tokens.refresh_until + offset,
            }
        error, until = self._refusal or (None, 0.0)
        if isinstance(error, ComplianceAuthError) and self._clock() < until:
            message = str(error).replace(self._settings.name, _NAME)
            record |= {"refusal": message, "refused_until": until + offset, "transient": error.transient}
        return SecretStr(json.dumps(record))

    def adopt(self, snapshot: SecretStr | None) -> None:
        """Take over the tokens or the refusal of another process, unless they are already ours."""
        if snapshot is None:
            return
        now = self._wall_clock()
        offset = self._clock() - now
        tokens = refusal = None
        try:
            record = json.loads(snapshot.get_secret_value())
            # After a step of the clock its times mean nothing: renewing is safe.
            if record["version"] == self.version or record["saved_at"] > now + MAX_CLOCK_SKEW_SECONDS:
                return
            if "access_token" in record:
                secret, renew_at = SecretStr(record["access_token"]), record["renew_at"] + offset
                refresh = SecretStr(record["refresh_token"]) if record["refresh_token"] else None
                access = AccessToken(secret, renew_at, is_adopted=True)
                tokens = TokenSet(access, refresh, record["refresh_until"] + offset)
            if "refusal" in record and (left := record["refused_until"] - now) > 0:
                message = record["refusal"].replace(_NAME, self._settings.name)
                hint = f"Another process on this host was refused; the next attempt is in {left:.0f} s."
                refusal = ComplianceAuthError(f"{message} {hint}"), self._clock() + left
                refusal[0].transient = record["transient"]
        except (KeyError, TypeError, ValueError):
            return  # written by another version of this provider
        self._refusal, self.version = refusal, record["version"]
        if self.shares_tokens:
            self._tokens, self.is_shared = tokens, True
        elif "refusal" not in record:
            self._accepted_until = record["saved_at"] + offset + ACCEPTED_SECONDS

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
        self._refusal, self.version = None, uuid.uuid4().hex
        return access

    def _grant(self, grant_type: str, **form: str | SecretStr) -> Call[TokenResponse]:
        settings = self._settings
        basic_auth = None
        if settings.grant_type == CLIENT_CREDENTIALS:
            # The one way that RFC 6749 requires of identity providers.
            basic_auth = settings.client_id, settings.client_secret
        else:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        return Call(
            "POST",
            settings.token_url,
            form={"grant_type": grant_type, **form},
            basic_auth=basic_auth,
            parse=self._parse,
            map_error=self._explain,
            idempotent=True,
            authorized=False,
            limit=TOKEN_RESPONSE_BYTES,
            operation=REFRESH_TOKEN if grant_type == REFRESH_TOKEN else LOGIN,
        )

    def _parse(self, response: HttpResponse) -> TokenResponse:
        record = response.json()
        parsed = TokenResponse.model_validate(record if isinstance(record, dict) else {})
        token = parsed.access_token.get_secret_value()
        url = response.url
        if not token:
            problem = f"The response from {url} has no access_token"
        elif not token.isascii() or not token.isprintable() or " " in token:
            problem = f"The access_token from {url} contains characters not allowed in an HTTP header"
        elif parsed.token_type.lower() != "bearer":
            problem = f"The token from {url} is not a bearer token"
        else:
            return parsed
        raise ComplianceProtocolError(f"{problem}: check the extra 'token_url' of {self._settings.name}.")

    def _explain(self, response: HttpResponse) -> ComplianceError:
        """Explain a refusal of the identity provider; only the fields of RFC 6749 are shown."""
        where, status = self._settings.name, response.status
        code, description = oauth_error(response)
        if code in OUTAGES:
            return ComplianceServerError(f"{response.url} can't issue a token now ({code}).", status=status)
        is_certain = code in OAUTH_ERRORS or (status in (400, 401) and bool(code and description))
        # Some identity providers refuse without a word; a gateway that blocks requests sends a page.
        if not (is_certain or status in (400, 401) or (status == 403 and not response.body)):
            return self._not_a_token_endpoint(response)
        reason = f"{code}: {description}" if description else code or f"status {status}"
        client = "the extras 'client_id' and 'client_secret'"
        if self._settings.grant_type == CLIENT_CREDENTIALS or code in CLIENT_ERRORS:
            who = f"client '{self._settings.client_id}'"
            advice = f"{client} of {where}, and how the client is registered there"
        else:
            who = self._settings.account
            also = "" if code == "invalid_grant" else f", and {client}"
            advice = f"login and password{also} of {where}"
        error = ComplianceAuthError(f"The identity provider refused {who} ({reason}): check {advice}.")
        error.transient = not is_certain  # a gateway may have sent it
        return error

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


def renew_with_store(
    cache: TokenCache,
    store: TokenStore,
    refused: AccessToken | None,
    *,
    lock_timeout: float = LOCK_TIMEOUT_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    jitter: Callable[[], float] = random.random,
) -> Generator[Step, Any, AccessToken]:
    """Take over what another process saved, or renew under the lock.

    Without `share_tokens`, only logins take turns, until one was good: a wrong password is tried once.

    :param refused: the token that the service has just refused
    :param lock_timeout: seconds to wait for the lock, before a login without it
    """
    if not cache.shares_tokens and (token := (yield from cache.refresh())):
        return token
    # Spread: with a wrong password, all processes that waited would lock the account together.
    deadline = clock() + lock_timeout * (1 + jitter())
    pause = MIN_POLL_SECONDS
    while True:
        lock = None
        try:
            try:
                lock = yield LocalIO(store.try_lock)
                cache.adopt((yield LocalIO(store.load)))
            except TokenStoreError:
                return (yield from cache.renew(may_refresh=not cache.is_shared))
            if token := cache.get_usable(refused):
                return token
            if cache.is_accepted:
                break
            is_late = lock is None and clock() >= deadline
            if is_late:
                log.warning(
                    "Another process has been logging in for more than %.0f s: logging in without waiting "
                    "any longer.", lock_timeout,
                )  # fmt: skip
            if lock or is_late:
                return (yield from _renew_and_save(cache, store, may_refresh=lock is not None))
        finally:
            if lock:
                lock.release()
        yield Pause(pause * (0.5 + jitter() / 2))
        pause = min(2 * pause, MAX_POLL_SECONDS)
    return (yield from _renew_and_save(cache, store, may_refresh=False))


def _renew_and_save(
    cache: TokenCache, store: TokenStore, *, may_refresh: bool
) -> Generator[Step, Any, AccessToken]:
    before = cache.version
    try:
        token = yield from cache.renew(may_refresh=may_refresh)
    except ComplianceError:
        if cache.version != before:  # credentials were refused: no other process has to try them
            yield from _save(cache, store)
        raise
    yield from _save(cache, store)
    return token


def _save(cache: TokenCache, store: TokenStore) -> Generator[Step, Any, None]:
    with suppress(TokenStoreError):
        yield LocalIO(partial(store.save, cache.snapshot()))
