"""Proxies, CA certificates and error classification, the same for both clients."""

from __future__ import annotations

import os
import re
import ssl
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import certifi

from airflow_provider.client.http.bodies import BodyError
from airflow_provider.client.http.wire import Failure, FailureKind
from airflow_provider.exceptions import ComplianceConfigError, ComplianceError

OVERSIZED_HEAD = re.compile("[Gg]ot more than|Too many headers")  # the words of the libraries
WITHOUT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")  # reasons of OpenSSL


def ca_file(verify: bool | str) -> str | None:
    """Return the CA file or directory, or None to skip verification.

    :param verify: True, False, or the path of a CA file, or of a directory made by `openssl rehash`
    """
    if verify is False:
        return None
    path = verify if isinstance(verify, str) else next(filter(None, map(os.environ.get, _CA_VARIABLES)), None)
    if path is None:
        return certifi.where()
    try:
        tls_context(path)
    except FileNotFoundError:
        problem = f"There is no CA file or directory '{path}'"
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.strerror if isinstance(error, OSError) else None
        problem = f"'{path}' has no usable certificates ({reason or type(error).__name__})"
    else:
        return path
    raise ComplianceConfigError(f"{problem}: check the extra 'verify', or REQUESTS_CA_BUNDLE.")


_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


def tls_context(path: str) -> ssl.SSLContext:
    """Trust only the CA certificates of a file or directory; loaded once, until it changes.

    :param path: the result of `ca_file`
    """
    return _load_context(path, os.stat(path).st_mtime_ns)  # noqa: PTH116 - as below


@lru_cache(maxsize=8)
def _load_context(path: str, modified: int) -> ssl.SSLContext:
    if os.path.isdir(path):  # noqa: PTH112 - a plain string is what both libraries take
        return ssl.create_default_context(capath=path)
    return ssl.create_default_context(cafile=path)


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy that the environment sets for `url`."""
    from requests.utils import get_environ_proxies, select_proxy  # the core does without

    proxies = {name: proxy.strip() for name, proxy in get_environ_proxies(url).items() if proxy.strip()}
    proxy = select_proxy(url, proxies)
    if not proxy:
        return None
    variable = next(name for name in (urlsplit(url).scheme, "all") if name in proxies)
    proxy = proxy if "://" in proxy else f"http://{proxy.removeprefix('//')}"
    _check_proxy(proxy, f"{variable.upper()}_PROXY")
    return proxy


def proxy_host(proxy: str | None) -> str:
    """Return host and port of a proxy, without its credentials."""
    return (proxy or "").rpartition("@")[2].removeprefix("http://")


def _check_proxy(proxy: str, variable: str) -> None:
    """Refuse an unusable proxy; its URL may contain a password, so it is not shown."""
    try:
        parts = urlsplit(proxy)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_usable = is_usable and proxy.isprintable() and " " not in proxy
    except ValueError:
        is_usable = False
    if is_usable:
        return
    if proxy.lower().startswith("socks"):
        raise ComplianceConfigError(
            f"The environment variable {variable} names a SOCKS proxy, which is not supported: set HTTP_PROXY"
            " and HTTPS_PROXY to an HTTP proxy, or list the hosts that need no proxy in NO_PROXY."
        )
    raise ComplianceConfigError(
        f"The environment variable {variable} is not a valid proxy URL: use http://host:port."
    )


def classify_error(
    error: BaseException,
    not_connected: tuple[type[BaseException], ...],
    timed_out: tuple[type[BaseException], ...],
) -> Failure:
    """Classify an HTTP library's error; one of our own inside it is raised.

    :param error: the library's error
    :param not_connected: error types for a request that was never sent
    :param timed_out: error types for a timeout
    """
    chain = _chain(error)
    for link in chain:
        if isinstance(link, BodyError):
            return link.failure
        if isinstance(link, ComplianceError):
            # Raised by the body while it was sent; the frames in between hold the token.
            raise link.with_traceback(None) from None

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(link, kinds) for link in chain)

    if any(OVERSIZED_HEAD.search(str(link)) for link in chain):
        return Failure(FailureKind.TOO_LARGE, "its head")
    if has(ssl.SSLCertVerificationError):  # certificate or host name, so nothing was sent
        kind = FailureKind.TLS
    elif has(*not_connected):
        kind = FailureKind.NOT_CONNECTED
    elif has(*timed_out):
        kind = FailureKind.TIMED_OUT
    else:
        kind = FailureKind.BROKEN
    return Failure(kind, _reason(chain))


def _reason(chain: list[BaseException]) -> str:
    """Describe an error by its innermost OSError, or its type; a repr might show headers."""
    for link in chain:
        if isinstance(link, ssl.SSLError):
            if link.reason in WITHOUT_TLS:
                return "the server answers without TLS (is it http://?)"
            return str(getattr(link, "verify_message", "") or link.reason or type(link).__name__)
        if isinstance(link, OSError) and link.strerror:
            return os.strerror(link.errno) if link.errno and link.errno > 0 else link.strerror
    return type(chain[-1]).__name__


def _chain(error: BaseException) -> list[BaseException]:
    """List an error and its causes, innermost first.

    Without `__context__`, which may be an error that the caller was handling.
    """
    seen: list[BaseException] = []
    pending: list[Any] = [error]
    while pending:
        link = pending.pop()
        if isinstance(link, BaseException) and link not in seen:
            seen.append(link)
            pending += [link.__cause__, getattr(link, "reason", None), *link.args]
    return seen[::-1]
