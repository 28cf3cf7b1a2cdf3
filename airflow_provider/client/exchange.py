"""One call in flight: the next request, what its outcome means, and when to retry. All decisions are here."""

from __future__ import annotations

import json
import logging
import math
import random
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Generic, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

from airflow_provider import __version__
from airflow_provider.client.http.bodies import ACCEPT_ENCODING
from airflow_provider.client.http.wire import (
    Call,
    Failure,
    FailureKind,
    HttpRequest,
    HttpResponse,
    Observation,
    Observer,
    reveal,
)
from airflow_provider.client.models import mask_reasons
from airflow_provider.client.responses import (
    body_excerpt,
    error_message,
    proxy_hint,
    reason_phrase,
    retry_after,
)
from airflow_provider.client.settings import Settings
from airflow_provider.client.tokens import AccessToken
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConnectionError,
    ComplianceError,
    ComplianceNotFoundError,
    ComplianceProtocolError,
    ComplianceRefusedError,
    ComplianceServerError,
    ComplianceThrottledError,
    ComplianceTlsError,
    ComplianceUncertainError,
)
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import mask

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 30.0
MAX_PAUSE_SECONDS = 3600.0  # for a Retry-After; the service is asked again after that
LOG_SECONDS = 10.0  # for which the same retry of other calls is not news
USER_AGENT = f"airflow-provider-compliance/{__version__}"


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The call is done; `value` is its result."""

    value: T


@dataclass(frozen=True, slots=True)
class Retry:
    """The call must be sent again, after `Exchange.delay()`.

    :param error: why; None if only the token has to be renewed
    """

    error: ComplianceError | None = field(default=None, compare=False)


@dataclass(slots=True)
class ThrottlePause:
    """Until when a server asked not to be called, and whether that was logged; shared by all its clients.

    :ivar logged: retries that were logged, and when: in an outage, many calls have the same to say
    """

    until: float = 0.0
    count: int = 0
    logged: dict[tuple[str, int], float] = field(default_factory=dict)

    def extend(self, until: float) -> None:
        """Extend the pause, never shorten it, and count the throttling."""
        self.count += 1
        self.until = max(self.until, until)

    def is_news(self, why: str, retry: int, now: float) -> bool:
        """Return whether no other call was retried as often, and for the same reason, a moment ago."""
        is_news = now >= self.logged.get((why, retry), -math.inf) + LOG_SECONDS
        if is_news:
            self.logged = {key: at for key, at in self.logged.items() if at + LOG_SECONDS > now}
            self.logged[why, retry] = now
        return is_news


@dataclass(slots=True)
class Exchange(Generic[T]):
    """One call in flight.

    :param call: the call
    :param settings: URLs, timeouts and retry limits
    :param pause: the throttle pause shared with other calls to the same server
    :param has_worked: an authorized call succeeded before, so these credentials are good
    :param observer: is told of every outcome
    :param clock: monotonic time
    :param jitter: random numbers in [0, 1)
    """

    call: Call[T]
    settings: Settings
    pause: ThrottlePause
    has_worked: bool = False
    observer: Observer | None = None
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    refused_token: AccessToken | None = field(default=None, init=False)
    _token: AccessToken | None = field(default=None, init=False)
    _retries: int = field(default=0, init=False)
    _was_adopted: bool = field(default=False, init=False)
    _not_before: float = field(default=0.0, init=False)
    _deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self._deadline = self.clock() + self.settings.retry_seconds

    def delay(self) -> float:
        """Return the seconds to wait before the next request: our backoff, or the shared pause."""
        now, start = self.clock(), self._not_before
        if (paused := self.pause.until - now) > 0:
            if self.pause.until > self._deadline:
                raise ComplianceThrottledError(
                    f"{self._name} was not sent: the service asked to wait another {paused:.0f} s. "
                    "Retry later.",
                    status=HTTPStatus.TOO_MANY_REQUESTS,
                    retry_after=paused,
                )
            # Spread the waiters, so that they do not all return at the same moment.
            start = max(start, self.pause.until + self.jitter() * min(1.0, paused))
        return max(0.0, start - now)

    def next_request(self, token: AccessToken | None) -> HttpRequest:
        """Build the request; `token` is None unless the call is authorized."""
        call, self._token = self.call, token
        headers = {
            "Accept": "application/json, text/plain;q=0.9",
            "User-Agent": USER_AGENT,
            **call.headers,
            "Accept-Encoding": ACCEPT_ENCODING,
        }
        body = call.body
        if call.json is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(call.json).encode()
        elif call.form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = urlencode({name: reveal(value) for name, value in call.form.items()}).encode()
        elif body is not None and not isinstance(body, bytes):
            headers["Content-Type"] = body.content_type
            body = body.content or body
        if body is not None:
            headers["Content-Length"] = str(len(body) if isinstance(body, bytes) else body.length)
        if call.basic_auth:
            # Quoted, as RFC 6749 has it for clients: a colon would end the user.
            user, password = (quote_plus(reveal(part)) for part in call.basic_auth)
            headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        if token:
            headers["Authorization"] = f"Bearer {reveal(token.secret)}"
            if self.settings.idp_subject:
                headers["IDP_SUBJECT"] = self.settings.idp_subject
        return HttpRequest(call.method, self.url, headers, body)

    @property
    def url(self) -> str:
        """The full URL of the call."""
        path = self.call.path
        if self.call.endpoint:
            template: str = getattr(self.settings.endpoints, self.call.endpoint)
            path = template.replace("{assessment_id}", path)
        return self.settings.base_url + path if self.call.authorized else path

    def evaluate(self, outcome: HttpResponse | Failure) -> Done[T] | Retry:
        """Turn the outcome of the last request into its result, a retry, or an error."""
        try:
            result = self._evaluate(outcome)
        except Exception as error:
            self._notify(outcome, error)
            raise
        if isinstance(result, Retry):
            self._notify(outcome, result.error, is_retried=True)
        else:
            self._notify(outcome)
        return result

    def _notify(
        self, outcome: HttpResponse | Failure, error: Exception | None = None, *, is_retried: bool = False
    ) -> None:
        if self.observer:
            self.observer(Observation(self.call.operation, outcome.label, error, is_retried))

    def _evaluate(self, outcome: HttpResponse | Failure) -> Done[T] | Retry:
        if isinstance(outcome, Failure):
            return self._after_failure(outcome)
        if self.settings.profile and self.call.authorized and self.call.operation != "request":
            outcome = replace(outcome, convert=partial(self.settings.profile.read, self.call.operation))
        if 200 <= outcome.status < 300 or outcome.status in self.call.ok_statuses:
            return self._after_success(outcome)
        response = self._without_secrets(outcome)
        status, wait = response.status, retry_after(response)
        match status:
            case 401 if self.call.authorized:
                return self._after_401(response)
            case 429:
                return self._after_throttling(response, wait)
            case 503 if wait is not None:
                return self._after_throttling(response, wait)
            case _ if status >= 500 or status == 408:
                return self._after_server_error(response)
            case _ if status < 400:
                return self._after_invalid_response(self._redirected(response))
        error = self.call.map_error(response) or self._refused(response)
        if not error.transient or isinstance(error, ComplianceAuthError):
            raise error  # a password is not sent again at once: accounts get locked
        return self._retry(f"{status} {reason_phrase(status)}", error)

    def stream_error(self, failure: Failure) -> ComplianceError:
        """Make the error for a body that broke off after part of it was passed on."""
        return self._connection_error(failure, "the response is incomplete")

    @property
    def _name(self) -> str:
        if self.call.authorized:
            return f"{self.call.method} {redact(self.url)}"
        # Airflow masks the whole token URL in its logs because it contains "token", but not its host.
        return f"The token request to {urlsplit(self.url).netloc}"

    @property
    def _url_setting(self) -> str:
        setting = "the base URL (with port)" if self.call.authorized else "the extra 'token_url'"
        return f"{setting} of {self.settings.name}"

    def _after_success(self, response: HttpResponse) -> Done[T] | Retry:
        with suppress(ComplianceProtocolError):
            return Done(mask_reasons(self._parse(response), self._secrets))
        # That error and its frames quote the response: get them from one without our secrets.
        try:
            return Done(self._parse(self._without_secrets(response)))
        except ComplianceProtocolError as error:
            if not error.transient:
                raise
            return self._after_invalid_response(error, may_be_truncated=not response.is_delimited)

    def _parse(self, response: HttpResponse) -> T:
        if response.is_html and response.status < 300 and not self.call.allow_html:
            raise ComplianceProtocolError(
                f"{response.url} returned an HTML page: that is a proxy or a login page, not the "
                f"service. Check {self._url_setting}."
            )
        return self.call.parse(response)

    def _after_invalid_response(
        self, error: ComplianceProtocolError, *, may_be_truncated: bool = False
    ) -> Retry:
        """Handle a response that the service itself would not send: a page, a redirect, a malformed body."""
        if not self.call.idempotent:
            raise self._uncertain(str(error).removeprefix(f"{self._name} ").removesuffix("."))
        # A response in place of the token endpoint's says nothing about our credentials.
        if may_be_truncated or not self.call.authorized:
            return self._retry("an invalid response", error)
        raise error

    def _after_failure(self, failure: Failure) -> Retry:
        if failure.kind is FailureKind.TLS:
            raise ComplianceTlsError(
                f"{self._name}: {failure}. Check {self._url_setting}, and the extra 'verify' (the "
                "path of a CA file, if the server's certificate is signed by your own CA)."
            )
        if failure.kind is not FailureKind.NOT_CONNECTED and not self.call.idempotent:
            raise self._uncertain(str(failure))
        error = self._connection_error(failure)
        if failure.kind is FailureKind.TOO_LARGE:
            raise error  # a retry would only download as much again
        return self._retry(str(failure), error)

    def _after_401(self, response: HttpResponse) -> Retry:
        is_first = self.refused_token is None
        # A token of another process may be as old as the refused one; the one after that is fresh.
        may_be_stale = self._token is not None and self._token.is_adopted and not self._was_adopted
        if is_first or may_be_stale:
            self._was_adopted, self.refused_token = not is_first, self._token
            return Retry()
        error = ComplianceAuthError(
            f"{self._name} was refused with a fresh token (401{error_message(response)}): "
            f"{self.settings.account} of {self.settings.name} may lack a role or scope, or the identity "
            "provider may be another than the service trusts."
        )
        error.has_fresh_token = True
        if not self.has_worked:
            raise error
        # A gateway with stale keys refuses good tokens for a while; it forwarded nothing.
        error.transient = True
        return self._retry("a fresh token was refused (401)", error)

    def _after_throttling(self, response: HttpResponse, wait: float | None) -> Retry:
        error = ComplianceThrottledError(
            f"{self._name} was throttled ({response.status}{error_message(response)}): "
            "reduce the request rate, or retry later.",
            status=response.status,
            body=body_excerpt(response),
            retry_after=wait,
        )
        return self._retry(f"throttled ({response.status})", error, wait)

    def _after_server_error(self, response: HttpResponse) -> Retry:
        why = f"{response.status} {reason_phrase(response.status)}{error_message(response)}"
        if not self.call.idempotent:
            raise self._uncertain(why)
        error = ComplianceServerError(
            f"{self._name} failed: {why}.", status=response.status, body=body_excerpt(response)
        )
        return self._retry(why, error, retry_after(response))

    def _retry(self, why: str, error: ComplianceError, wait: float | None = None) -> Retry:
        """Retry after `wait` (Retry-After) or our backoff; raise `error` if retries or time are exhausted."""
        if wait is None:
            backoff = min(MAX_BACKOFF_SECONDS, self.settings.backoff * 2 ** min(self._retries, 10))
            wait = backoff * (0.5 + self.jitter() / 2)
        self._not_before = self.clock() + wait
        if isinstance(error, ComplianceThrottledError):
            # Even if this call fails now: other calls must not be sent before the pause ends.
            self.pause.extend(self.clock() + min(wait, MAX_PAUSE_SECONDS))
        if self._retries >= self.settings.max_retries or self._not_before > self._deadline:
            raise error
        self._retries += 1
        level = logging.INFO if self.pause.is_news(why, self._retries, self.clock()) else logging.DEBUG
        log.log(
            level, "%s: %s; retrying in %.1f s (%s of %s).",
            self._name, why, wait, self._retries, self.settings.max_retries,
        )  # fmt: skip
        return Retry(error)

    def _connection_error(self, failure: Failure, detail: str = "") -> ComplianceError:
        is_invalid = failure.kind in (FailureKind.UNREADABLE, FailureKind.TOO_LARGE)
        kind = ComplianceProtocolError if is_invalid else ComplianceConnectionError
        outage = "the service or the network on the way to it is failing"
        advice = f"Check that {self._url_setting} is correct and reachable; if it worked before, {outage}."
        if self.has_worked:
            advice = f"It worked before: {outage}."
        return kind(f"{self._name}: {failure}{', ' * bool(detail)}{detail}. {advice}")

    def _uncertain(self, why: str) -> ComplianceUncertainError:
        return ComplianceUncertainError(
            f"{self._name}: {why}. The service may or may not have accepted it, so it was not retried: "
            "check there before you submit it again."
        )

    def _redirected(self, response: HttpResponse) -> ComplianceProtocolError:
        if response.status < 200:
            return ComplianceProtocolError(f"{self._name} got only an interim response ({response.status}).")
        return ComplianceProtocolError(
            f"{self._name} was redirected ({response.status}) to {response.target!r}. "
            f"Redirects are never followed: check {self._url_setting}."
        )

    def _refused(self, response: HttpResponse) -> ComplianceError:
        kind = ComplianceNotFoundError if response.status in (404, 410) else ComplianceRefusedError
        hint = {
            403: f" The {self.settings.account} may lack a role or scope.",
            407: f" {proxy_hint(response)}",
        }.get(response.status, "")
        return kind(
            f"{self._name} was refused: {response.status} {reason_phrase(response.status)}"
            f"{error_message(response)}.{hint}",
            status=response.status,
            body=body_excerpt(response),
        )

    def _secrets(self) -> list[str]:
        secrets = [*self.settings.secrets, reveal((self.call.form or {}).get("refresh_token", ""))]
        return [*secrets, reveal(self._token.secret)] if self._token else secrets

    def _without_secrets(self, response: HttpResponse) -> HttpResponse:
        """Mask our secrets, which a gateway may echo."""
        secrets = self._secrets()
        text = mask(response.body.decode("utf-8", "surrogateescape"), secrets)
        headers = {name: mask(value, secrets) for name, value in response.headers.items()}
        return replace(response, headers=headers, body=text.encode("utf-8", "surrogateescape"))
