"""Access to stores and to Airflow's connections from a shell, by default with its own credentials."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider.cli.commands import print_note
from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageDeniedError
from airflow_provider.nights.evidence import verifier
from airflow_provider.runtime.object_paths import EXTRAS
from airflow_provider.storage.locations import Location, error_text
from airflow_provider.storage.names import NIGHTS

if TYPE_CHECKING:
    from airflow_provider.nights.reports.documents import DocumentTables

STDOUT, STDERR = 1, 2
# What tasks create below a root or a destination; a folder called _work may be anyone's.
OWN = re.compile(r"(.+)/(_evidence|_ingest|_assess|_nights|_work/(ingest|assess|state|deletes))(/.*)?")
PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"  # without it, Airflow 3 asks no database outside of its servers


def open_location(uri: str, *, use_connection: bool = False) -> Location:
    """Return a location, and say so where its connection is not used.

    A connection in an environment variable is used, as it needs no database. Any other one only if asked for.

    :param use_connection: get the connection as tasks do, from a secrets backend or the database
    """
    location = Location(as_uri(uri))
    conn_id = location.conn_id or ""
    if ":" in conn_id:
        raise ComplianceInputError(
            f"'{location}' contains a login: name an Airflow connection that has it, as in s3://conn_id@bucket/."
        )
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    if conn_id and (use_connection or os.environ.get(variable)):
        with asking_airflow():
            _ = location.fs  # asks Airflow for the connection
        return location
    if conn_id:
        print_note(
            f"Using the credentials of this environment instead of the connection '{conn_id}': to use that, "
            f"set {variable}, or add --use-connection."
        )
    plain = Location(f"{location.protocol}://{location.path}")
    plain.fs = _file_system(plain)
    return plain


def open_nights(options: argparse.Namespace) -> DocumentTables:
    """Return the tables of the nights that the options name."""
    from airflow_provider.nights.reports.documents import DocumentTables

    location = open_location(options.uri, use_connection=options.use_connection)
    return DocumentTables(_find_root(location, NIGHTS, verifier.NIGHTS))


def find_chain(uri: str) -> Location:
    """Return the root of the chain that a place belongs to: a record must not start a chain elsewhere."""
    return _find_root(Location.to_write(as_uri(uri), "root"), verifier.NIGHTS, NIGHTS)


def _find_root(location: Location, *folders: str) -> Location:
    """Return the nearest place, from a location upward, that has the first of these folders that is found."""
    for folder in folders:
        if root := find_above(location, folder):
            return root
    raise ComplianceInputError(
        f"There are no nights at '{location}': give the root of their destinations, such as s3://bucket/texts."
    )


def find_above(location: Location, folder: str) -> Location | None:
    """Return the nearest place, from a location upward, that has such a folder; None for a wrong path."""
    if location.is_local and not Path(location.path).exists():
        return None
    scheme, separator, path = location.uri.rstrip("/").partition("://")
    names = path.split("/")
    for count in range(len(names), 0, -1):
        if not any(names[:count]):
            continue
        place = Location(scheme + separator + "/".join(names[:count]))
        place.fs = location.fs
        with suppress(ComplianceStorageDeniedError):  # others may own the folders above
            if (place / folder).list_names():
                return place
    return None


def as_uri(path: str) -> str:
    """Return a path as a URI; or, for a URI that a task logged, its root or destination."""
    if not path.strip():
        raise ComplianceInputError("A path is empty: give a URI or a local path.")
    if ".." in path.split("/"):
        if "://" in path:
            raise ComplianceInputError(f"Write '{path}' without '..': a store has no folder above another.")
        path = str(Path(path).expanduser().resolve())
    if own := OWN.fullmatch(path):
        path = own[1]
    if "://" in path:
        return path
    end = "/" if path.endswith("/") else ""
    return f"file://{Path(path).expanduser().absolute()}{end}"


@contextmanager
def asking_airflow() -> Iterator[None]:
    """Let Airflow find connections in its database as well, and send warnings to stderr."""
    context, disabled = os.environ.get(PROCESS_CONTEXT), logging.root.manager.disable
    os.environ[PROCESS_CONTEXT] = "server"
    logging.disable(max(disabled, logging.INFO))
    sys.stdout.flush()
    saved = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)  # in the whole process: Airflow may have opened its log before
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, STDOUT)
        os.close(saved)
        logging.disable(disabled)
        if context is None:
            del os.environ[PROCESS_CONTEXT]
        else:
            os.environ[PROCESS_CONTEXT] = context


def _file_system(location: Location) -> object:
    import fsspec

    try:
        return fsspec.filesystem(location.protocol)
    except (ImportError, ValueError) as error:
        extra = EXTRAS.get(location.store)
        hint = f" Install airflow-provider-compliance[{extra}]." if extra else ""
        raise ComplianceInputError(f"'{location}' can't be used: {error_text(error)}.{hint}") from None
