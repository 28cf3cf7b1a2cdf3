"""Calls, requests, responses, failures and observations as data, without I/O."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from pydantic import SecretStr

from airflow_provider.exceptions import ComplianceError, ComplianceProtocolError
from airflow_provider.redaction.text import one_line, sanitize

T = TypeVar("T")
_STATUSES = frozenset(map(int, HTTPStatus))
PORTS = {"http": 80, "https": 443}
ERROR_BODY_BYTES = 64 * 1024  # most bytes read of an error response
RECORD_BYTES = 8 * 1024**2  # most bytes of a response with one record, decompressed


def reveal(value: str | SecretStr) -> str:
    """Unmask a secret; only where it is sent, because error tools show local variables."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def normalize_url(url: str) -> str:
    """Return a valid URL in one spelling: an ASCII host in lower case, no default port, a quoted path."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host.isascii():
        import idna  # used by requests and aiohttp

        host = idna.encode(host, uts46=True).decode()
    netloc = f"[{host}]" if ":" in host else host
    if parts.port not in (None, PORTS.get(parts.scheme)):
        netloc += f":{parts.port}"
    return f"{parts.scheme}://{netloc}{normalize_path(parts._replace(scheme='', netloc='').geturl())}"


def normalize_path(path: str) -> str:
    """Return a path and query as they are sent: quoted, without dot segments.

    It is what requests makes of a path, and aiohttp must not.
    """
    path = quote(re.sub("%(?![0-9A-Fa-f]{2})", "%25", path), safe="/%?&=:;@!$'()*+,~")
    path = re.sub("%[0-9A-Fa-f]{2}", lambda match: quote(unquote_to_bytes(match[0]), safe=""), path)
    if "/." not in path or path.startswith("//"):
        return path
    return urljoin("http://host", path).removeprefix("http://host")


class Body(Protocol):
    """A request body of known length that can be read again."""

    content_type: str
    length: int
    content: bytes | None  # all of it, if it is small
    thread: Any  # a DaemonThread, which reads it

    def chunks(self) -> Iterator[bytes]:
        """Read the whole body once, from its start."""
        ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, ready to send."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | Body | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One response; header names are lower case.

    :param proxy: host and port of the proxy, if any
    :param stream: the chunks of a body that is left to the caller, sync or async
    :param close: closes the response of such a body
    :param convert: maps its JSON to the API specification
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    url: str = ""
    proxy: str = ""
    stream: Any = field(default=None, repr=False, compare=False)
    close: Callable[[], object] = field(default=lambda: None, repr=False, compare=False)
    convert: Callable[[Any], Any] = field(default=lambda value: value, repr=False, compare=False)

    @property
    def label(self) -> str:
        """The status as metrics name it: any number that HTTP does not define is `other`."""
        return str(self.status) if self.status in _STATUSES else "other"

    @property
    def content_type(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_html(self) -> bool:
        """Whether this is an HTML page; the service itself sends none."""
        return self.content_type in ("text/html", "application/xhtml+xml")

    @property
    def is_delimited(self) -> bool:
        """Whether a truncated body would be detected: only with a length, or in chunks."""
        has_length = self.headers.get("content-length", "").strip().isdecimal()
        return has_length or "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def location(self) -> str | None:
        """The path of the Location header, if it is on the origin of the request."""
        if not (location := self.headers.get("location")):
            return None
        try:
            urls = urlsplit(self.url), urlsplit(urljoin(self.url, location))
            here, there = ((url.scheme, url.hostname, url.port or PORTS.get(url.scheme)) for url in urls)
        except ValueError:
            return None
        return urls[1].path if here == there else None

    @property
    def target(self) -> str:
        """The Location as messages show it: without its query, which may contain a token."""
        return sanitize(re.split("[?#]", self.headers.get("location", ""), maxsplit=1)[0], 200)

    @property
    def as_sent(self) -> HttpResponse:
        """The same with JSON that is not converted."""
        return replace(self, convert=lambda value: value)

    def json(self) -> Any:
        """Parse the body as JSON."""
        with suppress(ValueError, RecursionError):
            return self.convert(json.loads(self.body))
        # Outside the except block: a JSONDecodeError holds the whole body, which may echo a secret.
        kind = one_line(self.content_type) or "no content type"
        raise ComplianceProtocolError(f"The response from {self.url} is not JSON ({kind}).")


class FailureKind(enum.Enum):
    """How a request without a complete response failed."""

    NOT_CONNECTED = "could not connect"
    TLS = "TLS failed"
    TIMED_OUT = "timed out waiting for a response"
    BROKEN = "the connection broke"
    UNREADABLE = "the response can't be decoded"
    TOO_LARGE = "the response is too large"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without a complete response; `reason` never contains headers or bodies."""

    kind: FailureKind
    reason: str = ""

    @property
    def label(self) -> str:
        """Shown by metrics in place of a status."""
        return self.kind.name.lower()

    def __str__(self) -> str:
        return f"{self.kind.value} ({self.reason})" if self.reason else self.kind.value


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One operation of the service, as data.

    :param method: HTTP method
    :param path: path below the base URL, quoted; or the whole URL of a call that is not authorized
    :param endpoint: the entry of `Endpoints` that is its path; `path` is then the id in it
    :param parse: turns a successful response into the result
    :param json: JSON body
    :param form: form fields, sent URL-encoded
    :param body: any other body
    :param headers: additional headers
    :param basic_auth: user and password for HTTP Basic
    :param idempotent: may be retried after any failure
    :param authorized: send the access token
    :param stream: leave the body of a successful response to the caller
    :param limit: maximum bytes of a successful response, decompressed; None for no limit
    :param ok_statuses: statuses besides 2xx that count as success
    :param allow_html: accept an HTML page
    :param map_error: turns a 4xx response into a more specific error, or None
    :param operation: its name in metrics
    """

    method: str
    path: str
    parse: Callable[[HttpResponse], T]
    json: Any = None
    form: Mapping[str, str | SecretStr] | None = field(default=None, repr=False)
    body: bytes | Body | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    basic_auth: tuple[str, SecretStr] | None = field(default=None, repr=False)
    idempotent: bool = False
    authorized: bool = True
    stream: bool = False
    limit: int | None = RECORD_BYTES
    ok_statuses: frozenset[int] = frozenset()
    allow_html: bool = False
    map_error: Callable[[HttpResponse], ComplianceError | None] = field(default=lambda _: None, repr=False)
    endpoint: str = ""
    operation: str = "request"


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LocalIO:
    """Call a function that reads or writes local files, and may hang."""

    function: Callable[[], Any]


Step: TypeAlias = Call[Any] | Pause | LocalIO


@dataclass(frozen=True, slots=True)
class Observation:
    """A request, and what became of it; without its URL, body and response.

    :param operation: the name of the call, such as `get_status`
    :param status: the HTTP status, or the kind of failure, such as `timed_out`
    :param error: why it is retried or failed; None if it succeeded, or needs a new token only
    :param is_retried: it is sent again
    """

    operation: str
    status: str
    error: Exception | None = None
    is_retried: bool = False


Observer = Callable[[Observation], None]
"""Is called in the thread or event loop of the client; it must be fast, and must not raise."""
