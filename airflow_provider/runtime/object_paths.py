"""Paths in object storage: their schemes, and Airflow's path of a URI."""

from __future__ import annotations

import functools
import re
from typing import Any
from urllib.parse import unquote

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.redaction.addresses import redact

# The URI schemes of object stores, with the usual one of each store.
OBJECT_STORES = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs",
    "abfs": "abfs", "abfss": "abfs", "az": "abfs",
}  # fmt: skip
LOCAL_SCHEMES = frozenset({"file", "local"})
# The extra to install for each store.
EXTRAS = {"s3": "amazon", "gs": "google", "abfs": "azure"}


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
