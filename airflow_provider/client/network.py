"""What the environment says about the network, read the same way for both clients."""

from __future__ import annotations

import os
import ssl
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi

from airflow_provider.client.wire import Failure, FailureKind
from airflow_provider.exceptions import ComplianceConfigError, ComplianceError


def ca_file(verify: bool | str) -> str | None:
    """Return the file of trusted authorities, or None to trust anybody.

    :param verify: True, False, or the path of a CA file
    """
    if verify is False:
        return None
    path = verify if isinstance(verify, str) else next(filter(None, map(os.environ.get, _CA_VARIABLES)), None)
    if path is None:
        return certifi.where()
    if not os.path.isfile(path):  # noqa: PTH113 - a plain string is what both libraries take
        raise ComplianceConfigError(
            f"There is no CA file '{path}': check the extra 'verify', or REQUESTS_CA_BUNDLE."
        )
    return path


_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for `url`."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy and not proxy_bypass(parts.netloc.rpartition("@")[2]) else None


def failure(
    error: BaseException,
    not_connected: tuple[type[BaseException], ...],
    timed_out: tuple[type[BaseException], ...],
) -> Failure:
    """Say how far a request came that ended with a library's error; one of our own, wrapped by it, passes.

    :param error: what the library raised
    :param not_connected: the library's errors for a request that never left
    :param timed_out: the library's errors for an answer that did not come in time
    """
    chain = _chain(error)

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(link, kinds) for link in chain)

    for link in chain:
        if isinstance(link, ComplianceError):  # raised by the body while it was sent
            raise link
    if has(ssl.SSLError) and not has(ssl.SSLEOFError, ssl.SSLZeroReturnError):
        kind = FailureKind.TLS
    elif has(*not_connected):
        kind = FailureKind.NOT_CONNECTED
    elif has(*timed_out):
        kind = FailureKind.TIMED_OUT
    else:
        kind = FailureKind.BROKEN
    return Failure(kind, _reason(chain))


def _reason(chain: list[BaseException]) -> str:
    """Describe an error by its innermost OSError, else its type: never by a repr, which may show headers."""
    for link in chain:
        if isinstance(link, ssl.SSLError):
            return str(getattr(link, "verify_message", "") or link.reason or type(link).__name__)
        if isinstance(link, OSError) and link.strerror:
            return os.strerror(link.errno) if link.errno and link.errno > 0 else link.strerror
    return type(chain[-1]).__name__


def _chain(error: BaseException) -> list[BaseException]:
    """List an error and all that led to it, the innermost first."""
    seen: list[BaseException] = []
    todo: list[Any] = [error]
    while todo:
        link = todo.pop()
        if isinstance(link, BaseException) and link not in seen:
            seen.append(link)
            todo += [link.__context__, link.__cause__, getattr(link, "reason", None), *link.args]
    return seen[::-1]
