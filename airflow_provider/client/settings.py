"""The validated settings of a client."""

from __future__ import annotations

import hashlib
import ipaddress
import math
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from airflow_provider.client.http.wire import normalize_path, normalize_url
from airflow_provider.client.profile import Profile
from airflow_provider.exceptions import ComplianceConfigError

MAX_TIMEOUT_SECONDS = 86_400  # seconds
RESPONSE_TIMEOUTS = 3  # timeouts for the head of a response, and again for its body

# Names of settings in the Airflow connection, where they differ.
_LABELS = {"base_url": "host (the base URL)", "username": "login"}

PASSWORD, CLIENT_CREDENTIALS = "password", "client_credentials"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Paths that the contract leaves open; each can be set in the connection's `endpoints` extra."""

    application_info: str = "/api/v1/info"
    assessment_submit: str = "/api/v1/assessments"
    assessment_status: str = "/api/v1/assessments/{assessment_id}/status"
    assessment_results: str = "/api/v1/assessments/{assessment_id}/results"
    assessment_cancel: str = "/api/v1/assessments/{assessment_id}"

    def __post_init__(self) -> None:
        for entry in fields(self):
            path, default = getattr(self, entry.name), str(entry.default)
            is_path = isinstance(path, str) and path.startswith("/") and path.isprintable()
            if not is_path or " " in path or ("{assessment_id}" in default and "{assessment_id}" not in path):
                raise ComplianceConfigError(
                    f"'{entry.name}' of the extra 'endpoints' is {path!r}: use a path such as '{default}'."
                )
            quoted = normalize_path(path).replace("%7Bassessment_id%7D", "{assessment_id}")
            object.__setattr__(self, entry.name, quoted)

    @classmethod
    def parse(cls, paths: Any) -> Endpoints:
        """Parse the `endpoints` extra."""
        known = {entry.name for entry in fields(cls)}
        if isinstance(paths, dict) and paths.keys() <= known:
            return cls(**paths)
        names = ", ".join(sorted(known))
        given = ", ".join(map(str, paths)) if isinstance(paths, dict) else type(paths).__name__
        raise ComplianceConfigError(
            f"The extra 'endpoints' must be a JSON object with any of {names}, not with {given}."
        )


@dataclass(frozen=True)
class Settings:
    """URLs, credentials, timeouts and retries of one connection to the service.

    :param base_url: base URL of the service; a path prefix is allowed
    :param token_url: token endpoint of the identity provider
    :param username: the user's login name; not used by the grant `client_credentials`
    :param password: the user's password; likewise
    :param client_id: registered client identifier
    :param client_secret: secret of the client
    :param grant_type: how to log in: with `password`, or with the `client_credentials` alone
    :param idp_subject: sent as IDP_SUBJECT where set; usually the gateway sets this header
    :param verify: verify TLS certificates; or the path of a CA file
    :param timeout: seconds to connect, to send 1 MB of an upload, and between two parts of a response;
        three times that for its whole head, for its whole body, and for 256 KB of a streamed text
    :param max_retries: how often a request is retried after a transient error
    :param retry_seconds: how long a request may be retried, pauses included
    :param backoff: seconds before the first retry; doubles with each
    :param batch_size: maximum number of jobs in one batch status request
    :param endpoints: paths that the contract leaves open
    :param profile: words and fields of the service that the contract does not have
    :param console_url: web page of a job, with the placeholder `{uuid}`; nothing is sent there
    :param assessment_console_url: likewise of an assessment, with `{assessment_id}`
    :param assessment_payload: JSON template of the payload of bulk assessments
    :param state_path: prefix in object storage for what tasks must remember; None is Airflow's own store
    :param share_tokens: share tokens with other processes of this host
    :param max_in_flight: maximum number of jobs of a bulk operator at the service; None is no limit
    :param allow_http: allow http:// to hosts other than localhost
    :param name: where these settings come from, for error messages
    """

    base_url: str
    token_url: str
    username: str
    password: SecretStr
    client_id: str
    client_secret: SecretStr
    grant_type: str = PASSWORD
    idp_subject: str | None = None
    verify: bool | str = True
    timeout: float = 60.0
    max_retries: int = 5
    retry_seconds: float = 300.0
    backoff: float = 0.5
    batch_size: int = 100
    endpoints: Endpoints = field(default_factory=Endpoints)
    profile: Profile = Profile()  # noqa: RUF009 frozen
    console_url: str | None = None
    assessment_console_url: str | None = None
    assessment_payload: str | None = None
    state_path: str | None = None
    share_tokens: bool = False
    max_in_flight: int | None = None
    allow_http: bool = False
    name: str = field(default="the client's settings", compare=False)

    def __post_init__(self) -> None:
        for setting in ("base_url", "token_url"):
            self._check_url(setting)
            object.__setattr__(self, setting, normalize_url(getattr(self, setting)))
        object.__setattr__(self, "base_url", self.base_url.rstrip("/"))
        if self.grant_type not in (PASSWORD, CLIENT_CREDENTIALS):
            raise self._invalid("grant_type", f"must be {PASSWORD} or {CLIENT_CREDENTIALS}")
        user = ("username", "password") if self.grant_type == PASSWORD else ()
        for setting in (*user, "client_id", "client_secret"):
            value = getattr(self, setting)
            if not (value.get_secret_value() if isinstance(value, SecretStr) else value):
                raise self._invalid(setting, "is missing")
        if self.idp_subject is not None and not (
            self.idp_subject.isascii()
            and self.idp_subject.isprintable()
            and self.idp_subject == self.idp_subject.strip()
        ):
            raise self._invalid(
                "idp_subject",
                "is not allowed in an HTTP header: use printable ASCII without blanks around it",
            )
        self._check_link("console_url", "https://example.com/jobs/{uuid}")
        self._check_link("assessment_console_url", "https://example.com/assessments/{assessment_id}")
        if not 0 < self.timeout <= MAX_TIMEOUT_SECONDS:
            raise self._invalid("timeout", f"must be more than 0 and at most {MAX_TIMEOUT_SECONDS} seconds")
        if self.max_retries < 0:
            raise self._invalid("max_retries", "must be 0 or more")
        for setting in ("retry_seconds", "backoff"):
            if not 0 <= getattr(self, setting) < math.inf:
                raise self._invalid(setting, "must be 0 seconds or more")
        if self.batch_size < 1:
            raise self._invalid("batch_size", "must be 1 or more")
        if self.max_in_flight is not None and self.max_in_flight < 1:
            raise self._invalid("max_in_flight", "must be 1 or more")

    @property
    def response_timeout(self) -> float:
        """Seconds for the head of a response, and again for its body; for each chunk of a stream."""
        return self.timeout * RESPONSE_TIMEOUTS

    @property
    def account(self) -> str:
        """Who logs in, for messages."""
        if self.grant_type == PASSWORD:
            return f"user '{self.username}'"
        return f"client '{self.client_id}'"

    @property
    def account_digest(self) -> str:
        """Identifies service and account: other accounts may have jobs with the same ids."""
        parts = self.base_url, self.grant_type, self.account, self.idp_subject
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown."""
        return self.password.get_secret_value(), self.client_secret.get_secret_value()

    def _check_link(self, setting: str, example: str) -> None:
        if not (link := getattr(self, setting)):
            return
        if not link.startswith(("https://", "http://")):
            raise self._invalid(setting, f"must be a URL such as {example}")
        if not link.isprintable() or " " in link:
            raise self._invalid(setting, "contains spaces or control characters")

    def _check_url(self, setting: str) -> None:
        url = getattr(self, setting)
        if not url:
            raise self._invalid(setting, "is missing")
        if not url.isprintable() or " " in url:
            raise self._invalid(setting, "contains spaces or control characters")
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            host.encode("idna")
            normalize_url(url)
        except ValueError:
            raise self._invalid(setting, "is not a valid URL") from None
        if parts.scheme not in ("http", "https") or not host:
            raise self._invalid(setting, f"must be a URL such as https://{setting[:5]}.example.com")
        if parts.username is not None or parts.password is not None:
            raise self._invalid(setting, "must not contain credentials: use login and password")
        if parts.fragment or (setting == "base_url" and parts.query):
            raise self._invalid(setting, "must not have a query or fragment")
        if parts.scheme == "http" and not self.allow_http and not is_loopback(host):
            raise self._invalid(
                setting,
                f"is http://, so credentials would travel to '{host}' unencrypted: use https://, "
                "or set the extra 'allow_http' to true if you know this network",
            )

    def _invalid(self, setting: str, problem: str) -> ComplianceConfigError:
        return ComplianceConfigError(f"{_LABELS.get(setting, setting)} of {self.name} {problem}.")


def is_loopback(host: str) -> bool:
    """Return whether `host` is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
