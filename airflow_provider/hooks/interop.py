"""Interoperation with Airflow: errors that fail a task without retries, and object storage."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceStorageError
from airflow_provider.text import redact

P = ParamSpec("P")
T = TypeVar("T")

# The URI schemes of object stores, with the usual one of each store.
OBJECT_STORES = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs",
    "abfs": "abfs", "abfss": "abfs", "az": "abfs",
}  # fmt: skip
LOCAL_SCHEMES = frozenset({"file", "local"})
# The extra to install for each store.
EXTRAS = {"s3": "amazon", "gs": "google", "abfs": "azure"}


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
    """Return the same error as an AirflowFailException, too, so that both `except` clauses catch it."""
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


def object_path(uri: str, name: str = "") -> Any:
    """Return Airflow's path of a URI; if a library or a connection is missing, say what to do.

    :param name: how to name it in an error, if not by the URI
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, ObjectStoragePath

    found = re.match("[^/]*://([^/]+)@", uri)
    conn_id = found[1] if found else ""
    problem = f"'{redact(name or uri)}' can't be used"
    if ":" in unquote(conn_id):  # never looked up: a secrets backend would log it
        raise ComplianceInputError(
            f"{problem}: the part before the @ is a login, not the id of an Airflow connection. Create a "
            "connection in Airflow, and use its id."
        )
    try:
        if conn_id:
            _check_connection(conn_id)  # else Amazon's provider would go on without credentials
        path = ObjectStoragePath(uri)
        path.fs  # noqa: B018 - only this fails if the storage library is missing
    except AirflowNotFoundException as error:
        missing = f"connection {conn_id} does not exist" if conn_id else error
        raise ComplianceInputError(
            f"{problem}: {missing}. Create it in Airflow, or correct the URI."
        ) from None
    except (ValueError, ImportError) as error:
        extra = EXTRAS.get(OBJECT_STORES.get(uri.partition("://")[0].lower(), ""))
        hint = f" Install airflow-provider-compliance[{extra}], with Airflow's constraints." if extra else ""
        raise ComplianceInputError(f"{problem}: {error}.{hint}") from None
    except Exception as error:  # such as a secrets backend that does not respond
        raise ComplianceStorageError(f"{problem}: {type(error).__name__}: {error}.") from None
    return path


@functools.cache  # what exists: later calls may come from other threads, which can't ask Airflow
def _check_connection(conn_id: str) -> None:
    from airflow.providers.common.compat.sdk import BaseHook

    BaseHook.get_connection(conn_id)
