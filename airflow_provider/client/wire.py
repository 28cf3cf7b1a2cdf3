"""What goes over the wire, without sending it: a call of the service, a request, and what came of it."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

from pydantic import SecretStr

from airflow_provider.client.http.messages import one_line
from airflow_provider.exceptions import ComplianceError, ComplianceProtocolError

T = TypeVar("T")
ERROR_BODY_BYTES = 64 * 1024  # bytes of an error answer that are read at most
RECORD_BYTES = 8 * 1024**2  # bytes of a good answer with one record, unpacked


def reveal(value: str | SecretStr) -> str:
    """Return a value as it has to be sent; only where it is sent, for tools show the locals of frames."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value


class Body(Protocol):
    """A request body of known length that can be read again from its start."""

    content_type: str
    length: int

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
    """One answer; the keys of `headers` are in lower case, `proxy` is host and port of what stood between."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    url: str = ""
    proxy: str = ""

    @property
    def content_type(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_html(self) -> bool:
        """Whether this is a page for people: the service has none."""
        return self.content_type in ("text/html", "application/xhtml+xml")

    @property
    def is_delimited(self) -> bool:
        """Whether a cut-off body would have been noticed: without a length and chunks, its end is any end."""
        return (
            "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower()
        )

    @property
    def location(self) -> str | None:
        """The path of the Location header, if there is one and it stays on the origin of the request."""
        if not (location := self.headers.get("location")):
            return None
        try:
            here, there = urlsplit(self.url), urlsplit(urljoin(self.url, location))
            same = (here.scheme, here.hostname, here.port) == (there.scheme, there.hostname, there.port)
        except ValueError:
            return None
        return there.path if same else None

    def json(self) -> Any:
        """Parse the body as JSON."""
        with suppress(ValueError, RecursionError):
            return json.loads(self.body)
        # Not inside of an except block: a JSONDecodeError holds the whole body, which may echo a secret.
        kind = one_line(self.content_type) or "no content type"
        raise ComplianceProtocolError(f"The answer from {self.url} is not JSON ({kind}).")


class FailureKind(enum.Enum):
    """How far a request came that got no whole answer."""

    NOT_CONNECTED = "could not connect"
    TLS = "TLS failed"
    TIMED_OUT = "no answer in time"
    BROKEN = "the connection broke"
    UNREADABLE = "the answer can't be decoded"
    TOO_LARGE = "the answer is too large"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that got no whole answer; `reason` is the transport's word, without headers or bodies."""

    kind: FailureKind
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} ({self.reason})" if self.reason else self.kind.value


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One operation of the service, as data.

    :param method: HTTP method
    :param path: path below the base URL, quoted; or the whole URL of a call that is not authorized
    :param returns: turns a good answer into the result
    :param json: JSON body
    :param form: form fields, sent URL-encoded
    :param body: any other body
    :param headers: more headers
    :param repeatable: doing it twice is the same as once, so a broken one may be sent again
    :param authorized: send the access token
    :param streamed: the body of a good answer is left to the caller
    :param limit: most bytes of a good answer, unpacked; None for any number
    :param returned: statuses besides 2xx that are a good answer
    :param takes_pages: an HTML page may be a good answer
    :param refusal: turns a 4xx answer into a more telling error, if it has one
    """

    method: str
    path: str
    parse: Callable[[HttpResponse], T]
    json: Any = None
    form: Mapping[str, str | SecretStr] | None = field(default=None, repr=False)
    body: bytes | Body | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    idempotent: bool = False
    authorized: bool = True
    stream: bool = False
    limit: int | None = RECORD_BYTES
    ok_statuses: frozenset[int] = frozenset()
    allow_html: bool = False
    map_error: Callable[[HttpResponse], ComplianceError | None] = field(default=lambda _: None, repr=False)
