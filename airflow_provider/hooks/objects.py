"""Object storage through Airflow's ObjectStoragePath."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError

# The extra to install for each URI scheme.
_EXTRAS = {
    "s3": "amazon", "s3a": "amazon", "gs": "google", "gcs": "google", "abfs": "azure", "abfss": "azure",
}  # fmt: skip
STORES = frozenset({"file", "local", *_EXTRAS})

_SECRETS = re.compile(
    r"""(?ix) (
        \b (?: sig | signature | sharedaccesssignature | x-(?:amz|goog)-[a-z-]+ | awsaccesskeyid | accountkey
            | (?:access|api|account)_key | [a-z_-]*(?:token|password|passwd|secret|credential)[a-z_-]* )
        (?: \s*=\s*["']? | %3d | ["']\s*:\s*["'] )
        | \b authorization ["']? \s* [:=] \s* ["']? (?: (?:bearer|basic|sharedkey|aws4-hmac-sha256) \s+ )?
    )
    [^&\s'",;<>]+"""
)
_LOGINS = re.compile(r"(?<=://)([^/\s?#@:'\"]*):[^/\s?#@'\"]+@")


def mask_secrets(text: str) -> str:
    """Mask signatures, keys, tokens and passwords in a store's error or a URI."""
    return _LOGINS.sub(r"\1:***@", _SECRETS.sub(r"\1***", text))


def object_path(uri: str) -> Any:
    """Return Airflow's path of a URI; if a library is missing, say what to install."""
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    conn_id = re.match("[^/]*://([^/]+)@", uri)
    with _map_setup_errors(uri, conn_id and conn_id[1]):
        path = ObjectStoragePath(uri)
        path.fs  # noqa: B018 - only this fails if the storage library is missing
    return path


def file_system(protocol: str, conn_id: str | None, uri: str) -> Any:
    """Return the file system of a URI, whatever characters its path has.

    :param uri: the whole URI, for the error
    """
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    with _map_setup_errors(uri, conn_id):
        return ObjectStoragePath(f"{protocol}://{f'{conn_id}@' if conn_id else ''}any/").fs


@functools.cache  # what exists: later calls may come from other threads, which can't ask Airflow
def _check_exists(conn_id: str) -> None:
    from airflow.providers.common.compat.sdk import BaseHook

    BaseHook.get_connection(conn_id)


@contextmanager
def _map_setup_errors(uri: str, conn_id: str | None) -> Iterator[None]:
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    try:
        if conn_id:
            _check_exists(conn_id)  # else Amazon's provider would go on without credentials
        yield
    except AirflowNotFoundException as error:
        problem = f"connection {conn_id} does not exist" if conn_id else error
        raise ComplianceInputError(
            mask_secrets(f"'{uri}' can't be used: {problem}. Create it in Airflow, or correct the URI.")
        ) from None
    except (ValueError, ImportError) as error:
        extra = _EXTRAS.get(uri.partition("://")[0].lower())
        hint = f" Install airflow-provider-compliance[{extra}]." if extra else ""
        raise ComplianceInputError(mask_secrets(f"'{uri}' can't be used: {error}.{hint}")) from None
    except Exception as error:  # such as a secrets backend that does not respond
        raise ComplianceStorageError(
            mask_secrets(f"'{uri}' can't be used: {type(error).__name__}: {error}.")
        ) from None
