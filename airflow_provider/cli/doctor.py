"""`doctor`: check a connection from the outside in, and say what to do where something is wrong."""

from __future__ import annotations

import argparse
import logging
import platform
import socket
import ssl
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import airflow
from airflow.configuration import ensure_secrets_loaded

import airflow_provider
from airflow_provider.cli.access import asking_airflow
from airflow_provider.cli.checks import OK, PROBLEM, UNKNOWN_ID, WARNING, Check, StopError, check
from airflow_provider.cli.commands import FOUND, GOOD, print_json, print_line
from airflow_provider.client import endpoints
from airflow_provider.client.base import SharedState
from airflow_provider.client.batches import MALFORMED, TOO_LARGE
from airflow_provider.client.http.network import ca_file, proxy_for, proxy_host, tls_context
from airflow_provider.client.http.wire import PORTS, HttpResponse
from airflow_provider.client.settings import Settings
from airflow_provider.client.sync import ComplianceClient
from airflow_provider.client.tokens import TokenCache
from airflow_provider.exceptions import (
    ComplianceConnectionError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceInputError,
    ComplianceNotFoundError,
    ComplianceTlsError,
)
from airflow_provider.hooks.connection import parse_settings, type_note
from airflow_provider.hooks.token_file import check_encryption, private_directory, runtime_directory
from airflow_provider.provider_info import CONNECTION_FIELDS
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.locations import Location, storage_errors

MAX_SKEW_SECONDS = 30.0
MIN_CERTIFICATE_DAYS = 21
TIMEOUT_SECONDS = 15.0


class Diagnosis:
    """The checks of a connection, each after the checks that it depends on.

    :param store: a prefix for tasks to write to
    """

    conn: Any
    settings: Settings
    client: ComplianceClient

    def __init__(self, conn_id: str, store: str = "") -> None:
        self._conn_id, self._store = conn_id, store

    def run(self) -> Iterator[Check]:
        """Yield the lines; the last one may be a problem, after which a StopError is raised."""
        yield from check("versions", _describe_versions)
        if self._store:
            yield from check("store", lambda: _try_store(self._store), is_timed=True)
        yield from check("connection", self._find_connection, is_needed=True)
        yield from self._check_settings()
        if self.settings.share_tokens:
            yield from check("shared tokens", _find_shared_tokens)
        if state_path := self.settings.state_path:
            yield from check("state path", lambda: _list_state(state_path))
        yield from self._check_network("token endpoint", self.settings.token_url)
        yield from self._check_network("service", self.settings.base_url)
        quick = replace(self.settings, max_retries=0, timeout=min(self.settings.timeout, TIMEOUT_SECONDS))
        with ComplianceClient(quick, shared=SharedState(quick)) as self.client:
            yield from self._check_login()
            yield from check("frameworks", self._list_frameworks, is_timed=True)
            info = self.client.get_application_info
            yield from check("application info", lambda: f"{len(info())} fields", is_timed=True)
            yield from check("assessments", self._get_assessment, is_timed=True)
            yield from check("batch status", self._try_batch, is_timed=True)

    # -- the connection

    def _find_connection(self) -> str | tuple[str, str]:
        """Find the connection as tasks do, in the order of Airflow's secrets backends."""
        variable = f"AIRFLOW_CONN_{self._conn_id.upper()}"
        places = {
            "EnvironmentVariablesBackend": f"the environment variable {variable}",
            "MetastoreBackend": "the database of Airflow",
        }
        failed: list[str] = []
        for backend in ensure_secrets_loaded():
            kind = type(backend).__name__
            try:
                self.conn = backend.get_connection(conn_id=self._conn_id)
            except Exception as error:  # any error of a backend: the next one may have it
                failed.append(f"{kind} failed with {type(error).__name__}")
                continue
            if self.conn is not None:
                message = f"'{self._conn_id}' from {places.get(kind, kind)}"
                return (WARNING, f"{message} ({'; '.join(failed)})") if failed else message
        problem = f"there is no connection '{self._conn_id}': set"
        if failed:
            problem = f"no secrets backend can read the connection '{self._conn_id}' ({'; '.join(failed)}): "
            problem += "correct it there, or set"
        raise ComplianceError(
            f"{problem} {variable}, or add it in the Airflow UI or with `airflow connections add`"
        )

    def _check_settings(self) -> Iterator[Check]:
        if unknown := sorted(set(self.conn.extra_dejson) - set(CONNECTION_FIELDS)):
            yield Check("extras", WARNING, f"unknown ones are ignored: {', '.join(unknown)}")
        yield from check("settings", self._parse_settings, is_needed=True)
        if wrong_type := type_note(self.conn):
            yield Check("connection type", WARNING, f"{wrong_type} It has all settings, so tasks can use it.")

    def _parse_settings(self) -> str:
        self.settings = parse_settings(self.conn)
        return f"{self.settings.account} at {self.settings.base_url}"

    # -- the network

    def _check_network(self, title: str, url: str) -> Iterator[Check]:
        parts = urlsplit(url)
        address = parts.hostname or "", parts.port or PORTS[parts.scheme]
        yield from check(f"proxy to the {title}", lambda: _describe_proxy(url), is_needed=True)
        if proxy_for(url):
            return  # which certificate the proxy lets through shows at the login
        yield from check(f"network to the {title}", lambda: _reach(*address), is_needed=True, is_timed=True)
        if parts.scheme == "https":
            name = f"certificate of the {title}"
            yield from check(name, lambda: self._get_certificate(*address), is_needed=True)

    def _get_certificate(self, host: str, port: int) -> str | tuple[str, str]:
        trusted = ca_file(self.settings.verify)
        if trusted is None:
            return WARNING, "not verified: set the extra 'verify' to true or a CA file"
        try:
            with (
                socket.create_connection((host, port), TIMEOUT_SECONDS) as connection,
                tls_context(trusted).wrap_socket(connection, server_hostname=host) as secured,
            ):
                certificate: Any = secured.getpeercert() or {}
        except ssl.SSLCertVerificationError as error:
            advice = "set the extra 'verify' to the file of the CA that signed it, or correct the host"
            raise ComplianceTlsError(f"{error.verify_message}: {advice}") from None
        except OSError as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            advice = "is this the port of an https:// server?"
            raise ComplianceTlsError(f"TLS failed ({reason}): {advice}") from None
        ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
        days = (ends - _now()).days
        issuer = {key: value for pair in certificate.get("issuer", ()) for key, value in pair}
        by = issuer.get("commonName") or issuer.get("organizationName") or "an unnamed CA"
        status = OK if days >= MIN_CERTIFICATE_DAYS else WARNING
        return status, f"signed by {by}, expires in {days} days, on {ends:%Y-%m-%d}"

    # -- the service

    def _check_login(self) -> Iterator[Check]:
        call = next(TokenCache(self.settings).renew())
        headers: dict[str, str] = {}

        def parse(response: HttpResponse) -> Any:
            headers.update(response.headers)
            return call.parse(response)

        def log_in() -> str:
            token = self.client.run(replace(call, parse=parse))
            lifetime = "an unknown time" if token.expires_in is None else f"{token.expires_in:.0f} s"
            renewal = "with" if token.refresh_token.get_secret_value() else "without"
            return f"the token is valid for {lifetime}, {renewal} a refresh token"

        yield from check("login", log_in, is_needed=True, is_timed=True)
        with suppress(KeyError, ValueError, TypeError):  # no such header, or not a date
            yield _check_clock((_now() - parsedate_to_datetime(headers["date"])).total_seconds())

    def _list_frameworks(self) -> str | tuple[str, str]:
        try:
            count = len(self.client.list_frameworks())
        except ComplianceNotFoundError as error:
            self._check_base_url(error)
            raise
        if not count:
            return WARNING, "none is listed, so nothing can be assessed: check the rights of the account"
        return f"{count} are listed"

    def _check_base_url(self, refused: ComplianceError) -> None:
        """Stop if the service has neither of the paths that the contract defines: no other can be right."""
        try:
            self._get_batch()
        except ComplianceHttpError as error:
            if error.status in (404, 405):
                advice = "check the path of the base URL (host) of the connection"
                raise StopError(f"{advice}. {refused}") from None

    def _get_assessment(self) -> str:
        path = self.client.settings.endpoints.assessment_status
        try:
            self.client.get_assessment(UNKNOWN_ID)
        except ComplianceNotFoundError:
            return f"{path} answers 404 to an unknown id, as it should; so would a wrong path"
        return f"{path} answers"

    def _try_batch(self) -> str | tuple[str, str]:
        size = self.client.batch_size
        try:
            self._get_batch()
        except ComplianceHttpError as error:
            if size <= 1 or error.status not in {MALFORMED, *TOO_LARGE}:
                raise
            advice = f"refused with {size} jobs, which tasks then halve: lower the extra 'batch_size'"
            return WARNING, f"{advice}. {error}"
        return f"takes {size} jobs in one request"

    def _get_batch(self) -> None:
        """Ask for as many jobs as tasks do."""
        ids = [str(uuid.UUID(int=number)) for number in range(self.client.batch_size)]
        self.client.run(endpoints.get_batch(ids))


def _describe_versions() -> str:
    python = platform.python_version()
    return f"provider {airflow_provider.__version__}, Airflow {airflow.__version__}, Python {python}"


def _try_store(uri: str) -> str | tuple[str, str]:
    """List a prefix as tasks do, and write, read and remove an object there."""
    content = uuid.uuid4().hex.encode()
    with asking_airflow():
        location = Location.to_write(uri, "store")
        probe = location / f"_work/doctor-{content.decode()}"
        location.list_names()
        put_sync(probe, content)
        try:
            is_same = probe.read() == content
        finally:
            probe.remove()
    if not is_same:
        return PROBLEM, f"{probe} was written, but reads otherwise: is there a cache?"
    return f"{location}: listed, wrote, read and removed"


def _find_shared_tokens() -> str | tuple[str, str]:
    try:
        with private_directory(directory := runtime_directory()):
            check_encryption()
    except OSError as error:
        return WARNING, f"off, so each process logs in: {error}"
    return f"by all processes of this user on this host, in {directory}"


def _list_state(state_path: str) -> str:
    with asking_airflow(), storage_errors(location := Location.to_write(state_path), "searched"):
        if location.fs.isfile(location.path.rstrip("/")):
            raise ComplianceInputError(f"{location} is a file: set the extra 'state_path' to a folder")
        said = "can be read"
        try:
            location.fs.ls(location.path)
        except FileNotFoundError:  # a bucket that does not exist looks the same as an empty prefix
            said = "has no objects yet; whether its bucket exists is not tested"
            if location.is_local:
                said = "does not exist yet; the first task creates it"
    return f"{location} {said}; that tasks may write there is not tested"


def _describe_proxy(url: str) -> str:
    proxy = proxy_for(url)
    return f"{proxy_host(proxy)}, from the environment" if proxy else ""


def _reach(host: str, port: int) -> str:
    try:
        socket.create_connection((host, port), TIMEOUT_SECONDS).close()
    except socket.gaierror:
        advice = "check the spelling, and the DNS of this machine"
        raise ComplianceConnectionError(f"the name '{host}' can't be resolved: {advice}") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        advice = "check host and port, firewalls, and whether HTTPS_PROXY has to be set"
        raise ComplianceConnectionError(f"{host}:{port} can't be reached ({reason}): {advice}") from None
    return f"{host}:{port} is reached"


def _check_clock(skew: float) -> Check:
    if abs(skew) <= MAX_SKEW_SECONDS:
        return Check("clock", OK, "agrees with the token endpoint")
    direction = "ahead of" if skew > 0 else "behind"
    problem = f"this machine is {abs(skew):.0f} s {direction} the token endpoint"
    return Check("clock", WARNING, f"{problem}: synchronize it (NTP), or deadlines and ages are wrong")


def _now() -> datetime:
    return datetime.now(UTC)


def diagnose(options: argparse.Namespace) -> Iterator[Check]:
    """Yield the lines that the options ask for, up to a problem after which nothing more can be checked."""
    from airflow_provider.cli.trial import try_document

    diagnosis = Diagnosis(options.conn_id, options.store)
    with suppress(StopError):
        yield from diagnosis.run()
        if options.document:
            yield from try_document(diagnosis.settings, options.document, options.assess, options.record)


def run(options: argparse.Namespace) -> int:
    """Check the connection, and print a line per check."""
    logging.disable(logging.WARNING)  # the lines say it
    code = GOOD
    try:
        for line in diagnose(options):
            code = FOUND if line.status == PROBLEM else code
            if options.json:
                print_json(asdict(line))
            else:
                print_line(f"{line.status:<8} {line.name:<30} {line.message}")
    finally:
        logging.disable(logging.NOTSET)
    return code
