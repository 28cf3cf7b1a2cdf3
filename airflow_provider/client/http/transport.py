"""The session of the client on requests: a deadline for the whole response, no cookies, no redirects."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
import requests.adapters
import urllib3.connection
import urllib3.exceptions

from airflow_provider.client.settings import RESPONSE_TIMEOUTS


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline that can be extended; each read also has the socket's timeout."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        super().__init__()
        self._raw, self._sock = raw, sock
        self._timeout = sock.gettimeout() or 0.0
        self.extend_deadline(self._timeout * RESPONSE_TIMEOUTS)

    def extend_deadline(self, seconds: float) -> None:
        """Set the deadline this many seconds from now."""
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("The response took too long.")
        self._sock.settimeout(min(left, self._timeout))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _LineReader(io.BufferedReader):
    """Knows whether the connection ended where a line was expected."""

    is_at_end = False

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self.is_at_end = not line
        return line


class _Response(http.client.HTTPResponse):
    """A response with a deadline for its head; `reader` extends it for the body."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        buffered: Any = self.fp
        self.reader = _TimedReader(buffered.detach(), sock)
        self.fp = self._lines = _LineReader(self.reader)

    def begin(self) -> None:
        super().begin()
        if self._lines.is_at_end:  # which http.client takes for the end of the headers
            raise http.client.RemoteDisconnected("The connection ended within the headers.")

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            # http.client skips only 100, and treats other interim responses as final.
            version, status, reason = super()._read_status()  # type: ignore[misc] # typeshed leaves it out
            if not 101 < status < 200:
                return version, status, reason
            http.client.parse_headers(self.fp)


class _HttpConnection(urllib3.connection.HTTPConnection):
    response_class = _Response


class _HttpsConnection(urllib3.connection.HTTPSConnection):
    response_class = _Response

    def connect(self) -> None:
        try:
            super().connect()
        except TimeoutError as error:  # from a proxy or TLS: urllib3 would report a read timeout
            raise urllib3.exceptions.ConnectTimeoutError(self, "Timed out while connecting.") from error
        except ssl.SSLCertVerificationError:
            raise
        except OSError as error:  # from TLS: urllib3 would report a response that broke off
            raise urllib3.exceptions.NewConnectionError(self, "Could not connect.") from error


class _TimedAdapter(requests.adapters.HTTPAdapter):
    """Makes a session use these connections, with or without a proxy."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _HttpsConnection if pool.scheme == "https" else _HttpConnection
        return pool


class TimedSession(requests.Session):
    """A session that takes nothing from the environment."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self.mount(scheme, _TimedAdapter(pool_maxsize=32))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Ignore redirects, so that a malformed Location can't fail a request."""


def extend_deadline(response: requests.Response, seconds: float) -> None:
    """Set the deadline of a body this many seconds from now."""
    original: Any = response.raw._original_response  # noqa: SLF001 - urllib3 hides it
    original.reader.extend_deadline(seconds)
