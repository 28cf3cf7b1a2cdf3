"""`doctor`: check a connection from the outside in, and say what to do where something is wrong."""

from __future__ import annotations

import argparse
import json
import platform
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from airflow_provider.cli.commands import FOUND, GOOD, Command, option, print_line

if TYPE_CHECKING:
    from airflow_provider.client.http.wire import Call, HttpResponse
    from airflow_provider.client.models import Framework
    from airflow_provider.client.settings import Settings
    from airflow_provider.client.sync import ComplianceClient
    from airflow_provider.exceptions import ComplianceError

T = TypeVar("T")

OK, WARNING, PROBLEM = "OK", "WARNING", "PROBLEM"
MAX_SKEW_SECONDS = 30.0
MIN_CERTIFICATE_DAYS = 21
TIMEOUT_SECONDS = 15.0
NOBODY = str(uuid.UUID(int=0))  # an id that no job has
DATABASE = "MetastoreBackend"
ENVIRONMENT = "EnvironmentVariablesBackend"


@dataclass(frozen=True)
class Check:
    """One line of the result."""

    name: str
    status: str
    message: str


class _StopError(Exception):
    """What follows can't be checked; has the last lines."""


class Doctor:
    """Checks one connection, each step after those that it needs."""

    def __init__(self, conn_id: str) -> None:
        self._conn_id = conn_id
        self._responses: list[HttpResponse] = []
        self._failed: dict[str, ComplianceError] = {}  # by the name of the check

    def run(self) -> Iterator[Check]:
        """Yield the lines; the last one is a problem if nothing more can be checked."""
        from airflow_provider.client.base import SharedState
        from airflow_provider.client.sync import ComplianceClient

        yield self._check_versions()
        try:
            conn, check = find_connection(self._conn_id)
            yield check
            settings, checks = self._parse(conn)
            yield from checks
            yield from self._check_sharing(settings)
            yield from self._check_state(settings)
            for title, url in (("token endpoint", settings.token_url), ("service", settings.base_url)):
                yield from self._check_network(title, url, settings)
            quick = replace(settings, max_retries=0, timeout=min(settings.timeout, TIMEOUT_SECONDS))
            with ComplianceClient(quick, shared=SharedState(quick)) as client:
                yield self._log_in(client)
                yield from self._check_clock()
                yield from self._check_endpoints(client)
        except _StopError as stop:
            yield from stop.args

    def _check_versions(self) -> Check:
        from importlib.metadata import version

        from airflow_provider import __version__

        airflow = version("apache-airflow-core" if _is_installed("apache-airflow-core") else "apache-airflow")
        return Check(
            "versions", OK, f"provider {__version__}, Airflow {airflow}, Python {platform.python_version()}"
        )

    def _parse(self, conn: Any) -> tuple[Settings, list[Check]]:
        from airflow_provider.exceptions import ComplianceError
        from airflow_provider.hooks.connection import parse_settings, port_note, type_note
        from airflow_provider.provider_info import CONNECTION_FIELDS

        checks = []
        wrong_type = type_note(conn)
        if wrong_type:
            checks.append(
                Check("connection type", WARNING, f"{wrong_type} It has all settings, so tasks can use it.")
            )
        if unknown := sorted(set(conn.extra_dejson) - set(CONNECTION_FIELDS)):
            checks.append(Check("extras", WARNING, f"unknown ones are ignored: {', '.join(unknown)}"))
        if note := port_note(conn):
            checks.append(Check("port", WARNING, note))
        try:
            settings = parse_settings(conn)
        except ComplianceError as error:
            message = str(error).removeprefix(wrong_type).strip()
            if message != str(error):  # settings are missing, and the type is the likely cause
                checks[0] = Check("connection type", PROBLEM, wrong_type)
            raise _StopError(*checks, Check("settings", PROBLEM, message)) from None
        checks.append(Check("settings", OK, f"{settings.account} at {settings.base_url}"))
        return settings, checks

    @staticmethod
    def _check_sharing(settings: Settings) -> Iterator[Check]:
        from airflow_provider.hooks.runtime_directory import create_runtime_directory

        if not settings.share_tokens:
            return
        try:
            directory = create_runtime_directory()
            from airflow_provider.hooks.token_file import can_encrypt
        except (OSError, ImportError) as error:
            yield Check("shared tokens", WARNING, f"off, so each process logs in: {error}")
            return
        if can_encrypt():
            yield Check("shared tokens", OK, f"by all processes of this user on this host, in {directory}")
        else:
            problem = "the package cryptography is missing, or OpenSSL has no scrypt"
            yield Check("shared tokens", WARNING, f"off, so each process logs in: {problem}")

    @staticmethod
    def _check_state(settings: Settings) -> Iterator[Check]:
        from airflow_provider.cli.access import asking_airflow, naming_schemes
        from airflow_provider.exceptions import ComplianceError
        from airflow_provider.storage.locations import Location, storage_errors

        if not settings.state_path:
            return
        is_found = False
        try:
            with asking_airflow(), naming_schemes(settings.state_path):
                location = Location.to_write(settings.state_path)
                with storage_errors(location, "searched"), suppress(FileNotFoundError):
                    location.fs.ls(location.path)
                    is_found = True
        except ComplianceError as error:
            yield Check("state path", PROBLEM, str(error))
            return
        if is_found:
            found = "can be read"
        elif location.is_local:
            found = "does not exist yet; the first task creates it"
        else:  # a bucket that does not exist looks the same as an empty prefix
            found = "has no objects yet; whether its bucket exists is not tested"
        yield Check("state path", OK, f"{location} {found}; that tasks may write there is not tested")

    # -- the network

    def _check_network(self, title: str, url: str, settings: Settings) -> Iterator[Check]:
        from airflow_provider.client.http.network import proxy_for, proxy_host
        from airflow_provider.exceptions import ComplianceError

        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
        try:
            proxy = proxy_for(url)
        except ComplianceError as error:
            raise _StopError(Check(f"proxy to the {title}", PROBLEM, str(error))) from None
        if proxy:
            yield Check(f"proxy to the {title}", OK, f"{proxy_host(proxy)}, from the environment")
            return  # which certificate the proxy lets through shows when somebody logs in
        started = time.monotonic()
        try:
            with socket.create_connection((host, port), TIMEOUT_SECONDS) as connection:
                took = _milliseconds(started)
                yield Check(f"network to the {title}", OK, f"{host}:{port} is reached in {took}")
                if parts.scheme == "https":
                    yield self._check_certificate(title, host, connection, settings)
        except socket.gaierror:
            raise _StopError(
                Check(
                    f"network to the {title}",
                    PROBLEM,
                    f"the name '{host}' can't be resolved: check the spelling, and the DNS of this machine",
                )
            ) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise _StopError(
                Check(
                    f"network to the {title}",
                    PROBLEM,
                    f"{host}:{port} can't be reached ({reason}): check host and port, firewalls, and whether "
                    "HTTPS_PROXY has to be set",
                )
            ) from None

    def _check_certificate(
        self, title: str, host: str, connection: socket.socket, settings: Settings
    ) -> Check:
        from airflow_provider.client.http.network import ca_file, tls_context
        from airflow_provider.exceptions import ComplianceError

        name = f"certificate of the {title}"
        try:
            trusted = ca_file(settings.verify)
            if trusted is None:
                return Check(name, WARNING, "not verified: set the extra 'verify' to true or a CA file")
            with tls_context(trusted).wrap_socket(connection, server_hostname=host) as secured:
                certificate: Any = secured.getpeercert() or {}
        except ComplianceError as error:
            raise _StopError(Check(name, PROBLEM, str(error))) from None
        except ssl.SSLCertVerificationError as error:
            raise _StopError(
                Check(
                    name,
                    PROBLEM,
                    f"{error.verify_message}: set the extra 'verify' to the file of the CA that signed it, "
                    "or correct the host",
                )
            ) from None
        except ssl.SSLError as error:
            raise _StopError(
                Check(name, PROBLEM, f"TLS failed ({error.reason}): is this the port of an https:// server?")
            ) from None
        ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
        days = (ends - _now()).days
        issuer = {key: value for pair in certificate.get("issuer", ()) for key, value in pair}
        by = issuer.get("commonName") or issuer.get("organizationName") or "an unnamed CA"
        status = OK if days >= MIN_CERTIFICATE_DAYS else WARNING
        return Check(name, status, f"signed by {by}, expires in {days} days, on {ends:%Y-%m-%d}")

    # -- the service

    def _log_in(self, client: ComplianceClient) -> Check:
        from airflow_provider.client.auth.tokens import TokenCache
        from airflow_provider.exceptions import ComplianceError

        started = time.monotonic()
        flow = TokenCache(client.settings).renew()
        try:
            response = client.run(self._recorded(next(flow)))
        except ComplianceError as error:
            raise _StopError(Check("login", PROBLEM, str(error))) from None
        lifetime = "an unknown time" if response.expires_in is None else f"{response.expires_in:.0f} s"
        renewal = "with" if response.refresh_token.get_secret_value() else "without"
        return Check(
            "login",
            OK,
            f"in {_milliseconds(started)}; the token is valid for {lifetime}, {renewal} a refresh token",
        )

    def _recorded(self, call: Call[T]) -> Call[T]:
        def parse(response: HttpResponse) -> T:
            self._responses.append(response)
            return call.parse(response)

        return replace(call, parse=parse)

    def _check_clock(self) -> Iterator[Check]:
        try:
            there = parsedate_to_datetime(self._responses[-1].headers["date"])
            skew = (_now() - there).total_seconds()
        except (KeyError, ValueError, TypeError):
            return  # no such header, or no such date
        if abs(skew) <= MAX_SKEW_SECONDS:
            yield Check("clock", OK, "agrees with that of the token endpoint")
        else:
            direction = "ahead of" if skew > 0 else "behind"
            yield Check(
                "clock",
                WARNING,
                f"this machine is {abs(skew):.0f} s {direction} the token endpoint: synchronize it (NTP), or "
                "deadlines and max_age are wrong",
            )

    def _check_endpoints(self, client: ComplianceClient) -> Iterator[Check]:
        frameworks = self._check_frameworks(client)
        batch = self._check_batch(client)
        # The contract defines these two paths: if there is neither, the others can't be right, either.
        if self._status("frameworks") == 404 and self._status("batch status") in (404, 405):
            advice = "check the path of the base URL (host) of the connection"
            yield Check("frameworks", PROBLEM, f"{advice}. {self._failed['frameworks']}")
            for name in ("application info", "assessments"):
                yield Check(name, WARNING, "not checked, because the path of the base URL is probably wrong")
            yield Check("batch status", PROBLEM, f"{advice}. {self._failed['batch status']}")
            return
        yield frameworks
        yield self._check_info(client)
        yield self._check_assessments(client)
        yield batch

    def _status(self, name: str) -> int | None:
        """Return with which status the service has refused a call, if it has."""
        return getattr(self._failed.get(name), "status", None)

    def _time(
        self, name: str, call: Callable[[], str], advice: str = "", advised: Collection[int] = ()
    ) -> Check:
        """Make a call; where it is refused with a status for which there is an advice, that is a warning."""
        from airflow_provider.exceptions import ComplianceError

        started = time.monotonic()
        try:
            message = call()
        except ComplianceError as error:
            self._failed[name] = error
            if advice and self._status(name) in advised:
                return Check(name, WARNING, f"{advice}. {error}")
            return Check(name, PROBLEM, str(error))
        return Check(name, OK, f"{message}, in {_milliseconds(started)}")

    def _check_frameworks(self, client: ComplianceClient) -> Check:
        found: list[Framework] = []

        def ask() -> str:
            found.extend(client.list_frameworks())
            return f"{len(found)} are listed"

        check = self._time("frameworks", ask)
        if found or check.status != OK:
            return check
        advice = "none is listed, so nothing can be assessed: check the rights of the account"
        return replace(check, status=WARNING, message=advice)

    def _check_info(self, client: ComplianceClient) -> Check:
        path = client.settings.endpoints.application_info
        return self._time(
            "application info", lambda: f"{len(client.get_application_info())} fields at {path}"
        )

    def _check_assessments(self, client: ComplianceClient) -> Check:
        from airflow_provider.exceptions import ComplianceNotFoundError

        path = client.settings.endpoints.assessment_status

        def ask() -> str:
            try:
                client.get_assessment(NOBODY)
            except ComplianceNotFoundError:
                return f"{path} answers 404 to an unknown id, as it should; so would a wrong path"
            return f"{path} answers"

        return self._time("assessments", ask)

    def _check_batch(self, client: ComplianceClient) -> Check:
        from airflow_provider.client import endpoints
        from airflow_provider.client.batches import MALFORMED, TOO_LARGE

        size = client.batch_size  # with which tasks begin
        ids = [str(uuid.UUID(int=number)) for number in range(size)]

        def ask() -> str:
            client.run(endpoints.get_batch(ids))
            return f"takes {size} jobs in one request"

        advice = f"refused with {size} jobs, which tasks then halve: lower the extra 'batch_size'"
        return self._time("batch status", ask, advice if size > 1 else "", {MALFORMED, *TOO_LARGE})


def find_connection(conn_id: str) -> tuple[Any, Check]:
    """Return a connection, and where Airflow finds it; as tasks do, in the order of its secrets backends."""
    from airflow.configuration import ensure_secrets_loaded

    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    failed: list[str] = []
    for backend in ensure_secrets_loaded():
        kind = type(backend).__name__
        try:
            conn = backend.get_connection(conn_id=conn_id)
        except Exception as error:  # whatever a backend raises: the next one may have it
            failed.append(f"{kind} failed with {type(error).__name__}")
            continue
        if conn is not None:
            place = {
                ENVIRONMENT: f"the environment variable {variable}",
                DATABASE: "the database of Airflow",
            }
            note = f" ({'; '.join(failed)})" if failed else ""
            status = WARNING if failed else OK
            return conn, Check("connection", status, f"'{conn_id}' from {place.get(kind, kind)}{note}")
    note = f" {'; '.join(failed)}." if failed else ""
    raise _StopError(
        Check(
            "connection",
            PROBLEM,
            f"there is no connection '{conn_id}': set {variable}, or add it in the Airflow UI or with "
            f"`airflow connections add`.{note}",
        )
    )


def _is_installed(distribution: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _now() -> datetime:
    return datetime.now(UTC)


def _milliseconds(started: float) -> str:
    return f"{1000 * (time.monotonic() - started):.0f} ms"


def run(options: argparse.Namespace) -> int:
    """Check the connection, and print a line per check."""
    import logging

    logging.disable(logging.WARNING)  # what they say is in the lines
    try:
        is_good = True
        for check in Doctor(options.conn_id).run():
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
    "document and changes nothing. Exit code 0: no problem; 1: a problem; 2: wrong usage.",
    (
        option("conn_id", nargs="?", default="compliance_default", help="default: compliance_default"),
        option("--json", action="store_true", help="one JSON object per line"),
    ),
    run,
)
