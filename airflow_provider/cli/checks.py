"""The lines of `doctor`, and how an error becomes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

OK, WARNING, PROBLEM = "OK", "WARNING", "PROBLEM"


@dataclass(frozen=True)
class Check:
    """One line of the result."""

    name: str
    status: str
    message: str


class StopError(Exception):
    """A problem after which nothing more can be checked.

    :param check: its line
    """

    def __init__(self, check: Check) -> None:
        super().__init__(check.message)
        self.check = check

    @classmethod
    def at(cls, name: str, message: object) -> Self:
        """Return the problem of a line."""
        return cls(Check(name, PROBLEM, str(message)))


@contextmanager
def stopping(name: str) -> Iterator[None]:
    """Turn an error into the problem of a line."""
    from airflow_provider.exceptions import ComplianceError

    try:
        yield
    except ComplianceError as error:
        raise StopError.at(name, error) from None
