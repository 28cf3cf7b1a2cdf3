"""Connections for requests whose answers end in time, whatever the server does."""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
from typing import Any

import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.exceptions

from airflow_provider.client.settings import RESPONSE_TIMEOUTS


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a moment that can be moved; each read also has the socket's own timeout."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        super().__init__()
        self._raw, self._sock = raw, sock
        self._timeout = sock.gettimeout() or math.inf
        self.allow(self._timeout * RESPONSE_TIMEOUTS)

    def allow(self, seconds: float) -> None:
        """Read that long from now on."""
        self._until = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("The answer took too long.")
        if (timeout := min(left, self._timeout)) < math.inf:
            self._sock.settimeout(timeout)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer with a limit of time for its head; `reader` can be given more for its body."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        buffered: Any = self.fp
        self.reader = _TimedReader(buffered.detach(), sock)
        self.fp = io.BufferedReader(self.reader)

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            # http.client skips 100 itself, and takes all other interim answers for final.
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
        except TimeoutError as error:  # of a proxy, or of TLS: urllib3 takes it for a late answer
            raise urllib3.exceptions.ConnectTimeoutError(self, "Could not connect in time.") from error


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


class TimedAdapter(requests.adapters.HTTPAdapter):
    """What a session of requests is given to use these connections, with a proxy or without."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools of direct connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Make the pools of connections by way of a proxy; those for SOCKS are not ours."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = _POOLS
        return manager


def allow(response: requests.Response, seconds: float) -> None:
    """Let the body of an answer be read that long from now on."""
    reader = getattr(response.raw._original_response, "reader", None)  # noqa: SLF001 - urllib3 hides it
    if reader is not None:
        reader.allow(seconds)
