"""Errors that no retry can mend end an Airflow task at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider.exceptions import ComplianceError

P = ParamSpec("P")
T = TypeVar("T")


def fail_without_retry(method: Callable[P, T]) -> Callable[P, T]:
    """Let every error of `method` that is not transient end the task without retries."""

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except ComplianceError as error:
            if error.transient or isinstance(error, AirflowFailException):
                raise
            raise as_non_retryable(error).with_traceback(error.__traceback__) from None

    return wrapped


def as_non_retryable(error: ComplianceError) -> ComplianceError:
    """Return the same error, but also an AirflowFailException, so that both kinds of `except` catch it."""
    plain: Any = type(error)
    kind = _non_retryable_twin(plain)
    twin: ComplianceError = kind.__new__(kind, *error.args)
    twin.__dict__.update(error.__dict__)
    return twin


@functools.cache
def _non_retryable_twin(kind: type[Any]) -> type[Any]:
    def as_plain(self: ComplianceError) -> tuple[Any, ...]:
        return kind, self.args, self.__dict__

    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": as_plain}
    return type(kind.__name__, (kind, AirflowFailException), members)
