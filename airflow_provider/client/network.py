"""What the environment says about the network, read the same way for both clients."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi

from airflow_provider.exceptions import ComplianceConfigError

E = TypeVar("E", bound=BaseException)


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


def root_cause(error: BaseException) -> str:
    """Describe an error by its innermost OSError, else its type: never by a repr, which may show headers."""
    for link in _chain(error):
        if isinstance(link, ssl.SSLError):
            return str(getattr(link, "verify_message", "") or link.reason or type(link).__name__)
        if isinstance(link, OSError) and link.strerror:
            return os.strerror(link.errno) if link.errno and link.errno > 0 else link.strerror
    return type(error).__name__


def is_tls_refusal(error: BaseException) -> bool:
    """Tell a refused certificate or handshake from a TLS connection that was cut."""
    cut = find(error, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    return cut is None and find(error, ssl.SSLError) is not None


def find(error: BaseException, *kinds: type[E]) -> E | None:
    """Find an error of one of these kinds in an error and all that led to it."""
    return next((link for link in _chain(error) if isinstance(link, kinds)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all that led to it, the innermost first."""
    seen: list[BaseException] = []
    todo = [error]
    while todo:
        link = todo.pop()
        if isinstance(link, BaseException) and link not in seen:
            seen.append(link)
            todo += [link.__context__, link.__cause__, getattr(link, "reason", None), *link.args]
    return reversed(seen)
