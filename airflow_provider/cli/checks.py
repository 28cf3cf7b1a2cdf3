"""The lines of `doctor`, how an error becomes one, and the line about a store."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

OK, WARNING, PROBLEM = "OK", "WARNING", "PROBLEM"


@dataclass(frozen=True)
class Check:
    """One line of the result."""

    name: str
    status: str
    message: str


class StopError(Exception):
    """A problem after which nothing more can be checked."""

    def __init__(self, name: str, message: object) -> None:
        super().__init__(message)
        self.check = Check(name, PROBLEM, str(message))


@contextmanager
def stopping(name: str) -> Iterator[None]:
    """Turn an error into the problem of a line."""
    from airflow_provider.exceptions import ComplianceError

    try:
        yield
    except ComplianceError as error:
        raise StopError(name, error) from None


def check_store(uri: str) -> Check:
    """List a prefix as tasks do, and write, read and remove an object there."""
    from airflow_provider.cli.access import asking_airflow
    from airflow_provider.exceptions import ComplianceError
    from airflow_provider.storage.atomic import put_sync
    from airflow_provider.storage.locations import Location

    content = uuid.uuid4().hex.encode()
    try:
        with asking_airflow():
            started = time.monotonic()
            location = Location.to_write(uri, "store")
            probe = location / f"_work/doctor-{content.decode()}"
            location.list_names()
            put_sync(probe, content)
            try:
                is_same = probe.read() == content
            finally:
                probe.remove()
    except ComplianceError as error:
        return Check("store", PROBLEM, str(error))
    if not is_same:
        return Check("store", PROBLEM, f"{probe} was written, but reads otherwise: is there a cache?")
    return Check("store", OK, f"{location}: listed, wrote, read and removed in {milliseconds(started)}")


def milliseconds(started: float) -> str:
    """Return how long ago that was on the monotonic clock, for people."""
    return f"{1000 * (time.monotonic() - started):.0f} ms"
