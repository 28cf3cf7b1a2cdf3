"""What the environment says about the network, read the same way for both clients."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi

from airflow_provider.client.wire import Failure, FailureKind
from airflow_provider.exceptions import ComplianceConfigError, ComplianceError


def ca_file(verify: bool | str) -> str | None:
    """Return the file or folder of trusted authorities, or None to trust anybody.

    :param verify: True, False, or the path of a CA file, or of a folder as `openssl rehash` makes it
    """
    if verify is False:
        return None
    path = verify if isinstance(verify, str) else next(filter(None, map(os.environ.get, _CA_VARIABLES)), None)
    if path is None:
        return certifi.where()
    try:
        tls_context(path)
    except FileNotFoundError:
        problem = f"There is no CA file or folder '{path}'"
    except (OSError, ValueError) as error:  # an ssl.SSLError, for instance, which is an OSError
        reason = error.strerror if isinstance(error, OSError) else None
        problem = f"'{path}' has no usable certificates ({reason or type(error).__name__})"
    else:
        return path
    raise ComplianceConfigError(f"{problem}: check the extra 'verify', or REQUESTS_CA_BUNDLE.")


_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


def tls_context(path: str) -> ssl.SSLContext:
    """Trust the authorities of a file or folder, and nobody else.

    :param path: what `ca_file` has returned
    """
    if os.path.isdir(path):  # noqa: PTH112 - a plain string is what both libraries take
        return ssl.create_default_context(capath=path)
    return ssl.create_default_context(cafile=path)


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for `url`, with its scheme."""
    parts = urlsplit(url)
    proxies = getproxies()
    name = parts.scheme if proxies.get(parts.scheme) else "all"
    proxy = proxies.get(name, "").strip()
    if not proxy or _bypasses_proxy(parts, proxies.get("no", "")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy.removeprefix('//')}"
    _check_proxy(proxy, f"{name.upper()}_PROXY")
    return proxy


def _bypasses_proxy(parts: SplitResult, no_proxy: str) -> bool:
    """Tell whether NO_PROXY names the host; the standard library knows names and ports, but no ranges."""
    host = parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    names = [name.strip() for name in no_proxy.split(",")]
    if "*" in names:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(proxy_bypass(f"{host}:{port}"))
    return any(address in network for name in names for network in _networks(name, port))


def _networks(name: str, port: int | None) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Read an address or a range of NO_PROXY, with or without brackets and the port."""
    may_have_port = name.count(":") == 1 or "]:" in name
    for plain in (name, name.removesuffix(f":{port}") if may_have_port else name):
        with suppress(ValueError):
            yield ipaddress.ip_network(plain.replace("[", "").replace("]", ""), strict=False)


def _check_proxy(proxy: str, variable: str) -> None:
    """Refuse a proxy that the clients can't use; its address may hold a password, so it is not shown."""
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
            " and HTTPS_PROXY to an HTTP proxy, or name the hosts that need no proxy in NO_PROXY."
        )
    raise ComplianceConfigError(
        f"The environment variable {variable} is not the address of a proxy: give it as http://host:port."
    )


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
    """List an error and all that it is made of, the innermost first.

    Without `__context__`, which leads into what the caller was handling when it sent the request.
    """
    seen: list[BaseException] = []
    todo: list[Any] = [error]
    while todo:
        link = todo.pop()
        if isinstance(link, BaseException) and link not in seen:
            seen.append(link)
            todo += [link.__cause__, getattr(link, "reason", None), *link.args]
    return seen[::-1]
