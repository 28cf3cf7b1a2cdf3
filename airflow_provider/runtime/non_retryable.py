"""Errors that fail a task without retries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from airflow_provider.exceptions import ComplianceError

P = ParamSpec("P")
T = TypeVar("T")


def fail_without_retry(method: Callable[P, T]) -> Callable[P, T]:
    """Let every error of `method` that is not transient fail the task without retries."""

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except ComplianceError as error:
            from airflow.providers.common.compat.sdk import AirflowFailException

            if error.transient or isinstance(error, AirflowFailException):
                raise
            raise as_non_retryable(error).with_traceback(error.__traceback__) from None

    return wrapped


def as_non_retryable(error: ComplianceError) -> ComplianceError:
    """Return the error as an AirflowFailException as well, so that both `except` clauses catch it."""
    original: Any = type(error)
    kind = _non_retryable(original)
    result: ComplianceError = kind.__new__(kind, *error.args)
    result.__dict__.update(error.__dict__)
    return result


@functools.cache
def _non_retryable(kind: type[Any]) -> type[Any]:
    from airflow.providers.common.compat.sdk import AirflowFailException

    def reduce_to_original(self: ComplianceError) -> tuple[Any, ...]:
        return kind, self.args, self.__dict__

    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduce_to_original}
    return type(kind.__name__, (kind, AirflowFailException), members)
