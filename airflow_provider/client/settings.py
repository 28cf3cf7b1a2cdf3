"""Everything a client has to know before its first request, checked."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from airflow_provider.exceptions import ComplianceConfigError

MAX_TIMEOUT_SECONDS = 86_400  # seconds
RESPONSE_TIMEOUTS = 3  # timeouts in which the head of an answer must be there, and again its body

# How the Airflow connection calls a setting, where the names differ.
_LABELS = {"base_url": "host (the base URL)", "username": "login"}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Paths that the contract leaves open; each can be replaced in the connection's `endpoints` extra."""

    application_info: str = "/api/v1/info"
    assessment_submit: str = "/api/v1/assessments"
    assessment_status: str = "/api/v1/assessments/{assessment_id}/status"
    assessment_results: str = "/api/v1/assessments/{assessment_id}/results"
    assessment_cancel: str = "/api/v1/assessments/{assessment_id}"

    def __post_init__(self) -> None:
        for entry, default in _DEFAULT_PATHS.items():
            path = getattr(self, entry)
            if not isinstance(path, str) or not path.startswith("/") or not path.isprintable() or " " in path:
                raise ComplianceConfigError(
                    f"'{entry}' of the extra 'endpoints' is {path!r}: give a path that begins with '/', "
                    f"such as '{default}'."
                )
            if "{assessment_id}" in default and "{assessment_id}" not in path:
                raise ComplianceConfigError(
                    f"'{entry}' of the extra 'endpoints' is {path!r}: it must contain {{assessment_id}}, "
                    f"such as '{default}'."
                )

    @classmethod
    def parse(cls, paths: Any) -> Endpoints:
        """Take replaced paths from the parsed `endpoints` extra."""
        known = [entry.name for entry in fields(cls)]
        if not isinstance(paths, dict):
            raise ComplianceConfigError(
                f"The extra 'endpoints' must be a JSON object with any of {', '.join(known)}, "
                f"not {type(paths).__name__}."
            )
        if unknown := sorted(set(map(str, paths)) - set(known)):
            raise ComplianceConfigError(
                f"The extra 'endpoints' has unknown entries {', '.join(unknown)}; "
                f"known are {', '.join(known)}."
            )
        return cls(**paths)


_DEFAULT_PATHS: dict[str, str] = {entry.name: str(entry.default) for entry in fields(Endpoints)}


@dataclass(frozen=True)
class Settings:
    """Addresses, credentials and habits of one connection to the service.

    :param base_url: address of the service; a path prefix is allowed
    :param token_url: token endpoint of the identity provider
    :param username: the user's login name
    :param password: the user's password
    :param client_id: registered client identifier
    :param client_secret: secret of the client
    :param idp_subject: sent as IDP_SUBJECT where set; usually the gateway sets this header
    :param verify: check TLS certificates; or the path of a CA file
    :param timeout: seconds to wait for a connection, for progress of an upload, and between two parts of an
        answer; three times that for all of its head, for all of its body, and for 256 KB of a streamed text
    :param max_retries: how often a request is repeated after a passing fault
    :param retry_seconds: how long a request may be repeated, pauses included
    :param backoff: first pause in seconds before a repeat; doubles with each
    :param batch_size: most jobs in one batch status request
    :param endpoints: paths that the contract leaves open
    :param console_url: where a person looks at a job, with `{uuid}` in it; nothing is sent there
    :param allow_http: allow http:// to another host than this one
    :param name: where these settings come from, for messages
    """

    base_url: str
    token_url: str
    username: str
    password: SecretStr
    client_id: str
    client_secret: SecretStr
    idp_subject: str | None = None
    verify: bool | str = True
    timeout: float = 60.0
    max_retries: int = 5
    retry_seconds: float = 300.0
    backoff: float = 0.5
    batch_size: int = 100
    endpoints: Endpoints = field(default_factory=Endpoints)
    console_url: str | None = None
    allow_http: bool = False
    name: str = field(default="the client's settings", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", self.base_url.rstrip("/"))
        self._check_url("base_url")
        self._check_url("token_url")
        for setting in ("username", "password", "client_id", "client_secret"):
            value = getattr(self, setting)
            if not (value.get_secret_value() if isinstance(value, SecretStr) else value):
                raise self._wrong(setting, "is missing")
        if self.idp_subject is not None and not (
            self.idp_subject.isascii() and self.idp_subject.isprintable()
        ):
            raise self._wrong("idp_subject", "has characters that can't stand in a header")
        if (console := self.console_url) and not console.startswith(("https://", "http://")):
            raise self._wrong("console_url", "must be a web address such as https://example.com/jobs/{uuid}")
        if console and (not console.isprintable() or " " in console):
            raise self._wrong("console_url", "has blanks or control characters in it")
        if not 0 < self.timeout <= MAX_TIMEOUT_SECONDS:
            raise self._wrong("timeout", f"must be more than 0 and at most {MAX_TIMEOUT_SECONDS} seconds")
        if self.max_retries < 0:
            raise self._wrong("max_retries", "must be 0 or more")
        for setting in ("retry_seconds", "backoff"):
            if not 0 <= getattr(self, setting) < math.inf:
                raise self._wrong(setting, "must be 0 seconds or more")
        if self.batch_size < 1:
            raise self._wrong("batch_size", "must be 1 or more")

    @property
    def response_timeout(self) -> float:
        """How long the head of an answer may take, and again its body; of a stream, each piece."""
        return self.timeout * RESPONSE_TIMEOUTS

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return self.password.get_secret_value(), self.client_secret.get_secret_value()

    def _check_url(self, setting: str) -> None:
        url = getattr(self, setting)
        if not url:
            raise self._wrong(setting, "is missing")
        if not url.isprintable() or " " in url:
            raise self._wrong(setting, "has blanks or control characters in it")
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            host.encode("idna")
            parts.port  # noqa: B018 - reading it checks it
        except ValueError:
            raise self._wrong(setting, "is no web address") from None
        if parts.scheme not in ("http", "https") or not host:
            raise self._wrong(setting, f"must be a web address such as https://{setting[:5]}.example.com")
        if parts.username is not None or parts.password is not None:
            raise self._wrong(setting, "must not contain credentials: use login and password")
        if parts.fragment or (setting == "base_url" and parts.query):
            raise self._wrong(setting, "must not have a query or fragment")
        if parts.scheme == "http" and not self.allow_http and not is_loopback(host):
            raise self._wrong(
                setting,
                f"is http://, so credentials would travel to '{host}' unencrypted: use https://, "
                "or set the extra 'allow_http' to true if you know this network",
            )

    def _wrong(self, setting: str, why: str) -> ComplianceConfigError:
        return ComplianceConfigError(f"{_LABELS.get(setting, setting)} of {self.name} {why}.")


def is_loopback(host: str) -> bool:
    """Tell whether `host` is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
