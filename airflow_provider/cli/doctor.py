"""`doctor`: check a connection from the outside in, and say what to do where something is wrong."""

from __future__ import annotations

import argparse
import json
import platform
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_provider.cli.checks import (
    OK,
    PROBLEM,
    WARNING,
    Check,
    StopError,
    check_store,
    milliseconds,
    stopping,
)
from airflow_provider.cli.commands import FOUND, GOOD, Command, option, print_line

if TYPE_CHECKING:
    from airflow_provider.client.settings import Settings
    from airflow_provider.client.sync import ComplianceClient

MAX_SKEW_SECONDS = 30.0
MIN_CERTIFICATE_DAYS = 21
TIMEOUT_SECONDS = 15.0
UNKNOWN_ID = str(uuid.UUID(int=0))  # of no job
# What a state path is that can't be listed; a bucket that does not exist looks the same as an empty prefix.
NOT_THERE = {
    True: "does not exist yet; the first task creates it",
    False: "has no objects yet; whether its bucket exists is not tested",
}


def diagnose(
    conn_id: str, document: str = "", framework: str = "", record: str = "", store: str = ""
) -> Iterator[Check]:
    """Yield the lines, each after those that it needs; the last one may be a problem.

    :param document: send it through the service, too, assess it by `framework`, and `record` the answers
    :param store: a prefix that tasks are to write to
    """
    from airflow_provider.client.base import SharedState
    from airflow_provider.client.sync import ComplianceClient

    try:
        yield _check_versions()
        if store:
            yield check_store(store)
        conn = yield from _find_connection(conn_id)
        settings = yield from _parse_settings(conn)
        yield from _check_sharing(settings)
        yield from _check_state_path(settings)
        for title, url in (("token endpoint", settings.token_url), ("service", settings.base_url)):
            yield from _check_network(title, url, settings)
        quick = replace(settings, max_retries=0, timeout=min(settings.timeout, TIMEOUT_SECONDS))
        with ComplianceClient(quick, shared=SharedState(quick)) as client:
            yield from _log_in(client)
            yield from _check_endpoints(client)
        if document:
            from airflow_provider.cli.trial import try_document

            yield from try_document(settings, document, framework, record)
    except StopError as stop:
        yield stop.check


# -- the connection


def _check_versions() -> Check:
    from importlib.metadata import PackageNotFoundError, version

    from airflow_provider import __version__

    try:
        airflow = version("apache-airflow-core")
    except PackageNotFoundError:  # Airflow 2
        airflow = version("apache-airflow")
    python = platform.python_version()
    return Check("versions", OK, f"provider {__version__}, Airflow {airflow}, Python {python}")


def _find_connection(conn_id: str) -> Generator[Check, None, Any]:
    """Find a connection as tasks do, in the order of Airflow's secrets backends; return it."""
    from airflow.configuration import ensure_secrets_loaded

    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    places = {
        "EnvironmentVariablesBackend": f"the environment variable {variable}",
        "MetastoreBackend": "the database of Airflow",
    }
    failed: list[str] = []
    for backend in ensure_secrets_loaded():
        kind = type(backend).__name__
        try:
            conn = backend.get_connection(conn_id=conn_id)
        except Exception as error:  # any error of a backend: the next one may have it
            failed.append(f"{kind} failed with {type(error).__name__}")
            continue
        if conn is not None:
            note = f" ({'; '.join(failed)})" if failed else ""
            status = WARNING if failed else OK
            yield Check("connection", status, f"'{conn_id}' from {places.get(kind, kind)}{note}")
            return conn
    if failed:
        advice = "correct it there, or set"
        problem = f"no secrets backend can read the connection '{conn_id}' ({'; '.join(failed)})"
    else:
        advice, problem = "set", f"there is no connection '{conn_id}'"
    raise StopError(
        "connection",
        f"{problem}: {advice} {variable}, or add it in the Airflow UI or with `airflow connections add`",
    )


def _parse_settings(conn: Any) -> Generator[Check, None, Settings]:
    from airflow_provider.exceptions import ComplianceError
    from airflow_provider.hooks.connection import parse_settings, type_note
    from airflow_provider.provider_info import CONNECTION_FIELDS

    settings, problem = None, ""
    wrong_type = type_note(conn)
    try:
        settings = parse_settings(conn)
    except ComplianceError as error:
        problem = str(error)
    if wrong_type and problem.startswith(wrong_type):  # the type is the likely cause
        yield Check("connection type", PROBLEM, wrong_type)
    elif wrong_type:
        yield Check("connection type", WARNING, f"{wrong_type} It has all settings, so tasks can use it.")
    if unknown := sorted(set(conn.extra_dejson) - set(CONNECTION_FIELDS)):
        yield Check("extras", WARNING, f"unknown ones are ignored: {', '.join(unknown)}")
    if settings is None:
        raise StopError("settings", problem.removeprefix(wrong_type).strip())
    yield Check("settings", OK, f"{settings.account} at {settings.base_url}")
    return settings


def _check_sharing(settings: Settings) -> Iterator[Check]:
    from airflow_provider.hooks.token_file import check_encryption, private_directory, runtime_directory

    if not settings.share_tokens:
        return
    try:
        with private_directory(directory := runtime_directory()):
            check_encryption()
    except OSError as error:
        yield Check("shared tokens", WARNING, f"off, so each process logs in: {error}")
    else:
        yield Check("shared tokens", OK, f"by all processes of this user on this host, in {directory}")


def _check_state_path(settings: Settings) -> Iterator[Check]:
    from airflow_provider.cli.access import asking_airflow
    from airflow_provider.exceptions import ComplianceError, ComplianceInputError
    from airflow_provider.storage.locations import Location, storage_errors

    if not settings.state_path:
        return
    try:
        with asking_airflow():
            location = Location.to_write(settings.state_path)
            with storage_errors(location, "searched"):
                if location.fs.isfile(location.path.rstrip("/")):
                    raise ComplianceInputError(
                        f"{location} is a file: set the extra 'state_path' to a folder"
                    )
                said = NOT_THERE[location.is_local]
                with suppress(FileNotFoundError):
                    location.fs.ls(location.path)
                    said = "can be read"
    except ComplianceError as error:
        yield Check("state path", PROBLEM, str(error))
    else:
        yield Check("state path", OK, f"{location} {said}; that tasks may write there is not tested")


# -- the network


def _check_network(title: str, url: str, settings: Settings) -> Iterator[Check]:
    from airflow_provider.client.http.network import proxy_for, proxy_host

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
    with stopping(f"proxy to the {title}"):
        proxy = proxy_for(url)
    if proxy:
        yield Check(f"proxy to the {title}", OK, f"{proxy_host(proxy)}, from the environment")
        return  # which certificate the proxy lets through shows at the login
    name, started = f"network to the {title}", time.monotonic()
    try:
        with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection:
            yield Check(name, OK, f"{host}:{port} is reached in {milliseconds(started)}")
            if parts.scheme == "https":
                yield _check_certificate(f"certificate of the {title}", host, connection, settings)
    except socket.gaierror:
        advice = f"the name '{host}' can't be resolved: check the spelling, and the DNS of this machine"
        raise StopError(name, advice) from None
    except OSError as error:
        advice = "check host and port, firewalls, and whether HTTPS_PROXY has to be set"
        reason = error.strerror or type(error).__name__
        raise StopError(name, f"{host}:{port} can't be reached ({reason}): {advice}") from None


def _check_certificate(name: str, host: str, connection: socket.socket, settings: Settings) -> Check:
    from airflow_provider.client.http.network import ca_file, tls_context

    with stopping(name):
        trusted = ca_file(settings.verify)
    if trusted is None:
        return Check(name, WARNING, "not verified: set the extra 'verify' to true or a CA file")
    try:
        with stopping(name), tls_context(trusted).wrap_socket(connection, server_hostname=host) as secured:
            certificate: Any = secured.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        advice = "set the extra 'verify' to the file of the CA that signed it, or correct the host"
        raise StopError(name, f"{error.verify_message}: {advice}") from None
    except ssl.SSLError as error:
        advice = "is this the port of an https:// server?"
        raise StopError(name, f"TLS failed ({error.reason}): {advice}") from None
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
    days = (ends - _now()).days
    issuer = {key: value for pair in certificate.get("issuer", ()) for key, value in pair}
    by = issuer.get("commonName") or issuer.get("organizationName") or "an unnamed CA"
    status = OK if days >= MIN_CERTIFICATE_DAYS else WARNING
    return Check(name, status, f"signed by {by}, expires in {days} days, on {ends:%Y-%m-%d}")


# -- the service


def _log_in(client: ComplianceClient) -> Iterator[Check]:
    from airflow_provider.client.tokens import TokenCache

    started, call = time.monotonic(), next(TokenCache(client.settings).renew())
    with stopping("login"):
        keep = replace(call, parse=lambda response: (call.parse(response), response.headers))
        token, headers = client.run(keep)
    lifetime = "an unknown time" if token.expires_in is None else f"{token.expires_in:.0f} s"
    renewal = "with" if token.refresh_token.get_secret_value() else "without"
    message = f"in {milliseconds(started)}; the token is valid for {lifetime}, {renewal} a refresh token"
    yield Check("login", OK, message)
    with suppress(KeyError, ValueError, TypeError):  # no such header, or not a date
        yield _check_clock((_now() - parsedate_to_datetime(headers["date"])).total_seconds())


def _check_clock(skew: float) -> Check:
    if abs(skew) <= MAX_SKEW_SECONDS:
        return Check("clock", OK, "agrees with that of the token endpoint")
    direction = "ahead of" if skew > 0 else "behind"
    problem = f"this machine is {abs(skew):.0f} s {direction} the token endpoint"
    return Check("clock", WARNING, f"{problem}: synchronize it (NTP), or deadlines and ages are wrong")


def _check_endpoints(client: ComplianceClient) -> Iterator[Check]:
    frameworks, frameworks_status = _call("frameworks", lambda: f"{len(client.list_frameworks())} are listed")
    batch, batch_status = _call("batch status", lambda: _get_batch(client))
    # The contract defines these two paths: if there is neither, the others can't be right, either.
    if frameworks_status == 404 and batch_status in (404, 405):
        advice = "check the path of the base URL (host) of the connection"
        yield replace(frameworks, message=f"{advice}. {frameworks.message}")
        for name in ("application info", "assessments"):
            yield Check(name, WARNING, "not checked, because the path of the base URL is probably wrong")
        yield replace(batch, message=f"{advice}. {batch.message}")
        return
    if frameworks.message.startswith("0 "):
        advice = "none is listed, so nothing can be assessed: check the rights of the account"
        frameworks = replace(frameworks, status=WARNING, message=advice)
    yield frameworks
    path = client.settings.endpoints.application_info
    yield _call("application info", lambda: f"{len(client.get_application_info())} fields at {path}")[0]
    yield _call("assessments", lambda: _get_assessment(client))[0]
    yield _advise_batch(batch, batch_status, client.batch_size)


def _call(name: str, call: Callable[[], str]) -> tuple[Check, int | None]:
    """Make a call; return its line, and the status with which the service has refused it."""
    from airflow_provider.exceptions import ComplianceError

    started = time.monotonic()
    try:
        message = call()
    except ComplianceError as error:
        return Check(name, PROBLEM, str(error)), getattr(error, "status", None)
    return Check(name, OK, f"{message}, in {milliseconds(started)}"), None


def _get_assessment(client: ComplianceClient) -> str:
    from airflow_provider.exceptions import ComplianceNotFoundError

    path = client.settings.endpoints.assessment_status
    try:
        client.get_assessment(UNKNOWN_ID)
    except ComplianceNotFoundError:
        return f"{path} answers 404 to an unknown id, as it should; so would a wrong path"
    return f"{path} answers"


def _get_batch(client: ComplianceClient) -> str:
    from airflow_provider.client import endpoints

    size = client.batch_size
    client.run(endpoints.get_batch([str(uuid.UUID(int=number)) for number in range(size)]))
    return f"takes {size} jobs in one request"


def _advise_batch(check: Check, status: int | None, size: int) -> Check:
    from airflow_provider.client.batches import MALFORMED, TOO_LARGE

    if size <= 1 or status not in {MALFORMED, *TOO_LARGE}:
        return check
    advice = f"refused with {size} jobs, which tasks then halve: lower the extra 'batch_size'"
    return replace(check, status=WARNING, message=f"{advice}. {check.message}")


def _now() -> datetime:
    return datetime.now(UTC)


def run(options: argparse.Namespace) -> int:
    """Check the connection, and print a line per check."""
    import logging

    logging.disable(logging.WARNING)  # what they say is in the lines
    given = options.document, options.assess, options.record, options.store
    try:
        is_good = True
        for check in diagnose(options.conn_id, *given):
            is_good = is_good and check.status != PROBLEM
            if options.json:
                print_line(json.dumps(asdict(check)))
            else:
                print_line(f"{check.status:<8} {check.name:<30} {check.message}")
    finally:
        logging.disable(logging.NOTSET)
    return GOOD if is_good else FOUND


COMMAND = Command(
    "doctor",
    "Check a connection: network, TLS, login, clock, endpoints, state",
    "Check a connection step by step. Each line says OK, WARNING or PROBLEM, and what to do. Sends no "
    "document and changes nothing, except with --try and --store. Exit code 0: no problem; 1: a problem; 2: "
    "wrong usage.",
    (
        option("conn_id", nargs="?", default="compliance_default", help="default: compliance_default"),
        option(
            "--try", dest="document", default="", metavar="FILE", help="send this document through a night"
        ),
        option("--assess", default="", metavar="FRAMEWORK", help="assess the document by this framework"),
        option(
            "--record", default="", metavar="FILE", help="write the answers, without secrets, names and texts"
        ),
        option(
            "--store",
            default="",
            metavar="URI",
            help="list, write, read and remove an object below this prefix",
        ),
        option("--json", action="store_true", help="one JSON object per line"),
    ),
    run,
)
