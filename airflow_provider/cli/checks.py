"""The result of a check of `doctor`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from airflow_provider.exceptions import ComplianceError

OK, WARNING, PROBLEM = "OK", "WARNING", "PROBLEM"
UNKNOWN_ID = str(uuid.UUID(int=0))  # no job has it


@dataclass(frozen=True)
class Check:
    """One line of the result."""

    name: str
    status: str
    message: str


class StopError(Exception):
    """A problem after which nothing more can be checked."""


def check(
    name: str, action: Callable[[], str | tuple[str, str]], *, is_needed: bool = False, is_timed: bool = False
) -> Iterator[Check]:
    """Yield the line of a check; an error of the action is a problem.

    :param action: returns the message, or the status and the message; nothing if there is nothing to check
    :param is_needed: nothing more can be checked after a problem
    :param is_timed: say how long it took
    """
    started = time.monotonic()
    try:
        said = action()
        status, message = (OK, said) if isinstance(said, str) else said
    except (ComplianceError, StopError) as error:
        status, message, is_needed = PROBLEM, str(error), is_needed or isinstance(error, StopError)
    if is_timed and status == OK:
        message += f", in {1000 * (time.monotonic() - started):.0f} ms"
    if message:
        yield Check(name, status, message)
    if is_needed and status == PROBLEM:
        raise StopError
