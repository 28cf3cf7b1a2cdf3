"""Addresses in object storage, as Airflow opens them."""

from __future__ import annotations

from typing import Any

from airflow_provider.exceptions import ComplianceInputError

# What to install where Airflow does not know a kind of address.
_EXTRAS = {
    "s3": "amazon", "s3a": "amazon", "gs": "google", "gcs": "google", "abfs": "azure", "abfss": "azure",
}  # fmt: skip


def object_path(uri: str) -> Any:
    """Return Airflow's path of an address; where a library is missing, say what to install."""
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    try:
        path = ObjectStoragePath(uri)
        path.fs  # noqa: B018 only this fails where a store's library is missing
    except (ValueError, ImportError) as error:
        extra = _EXTRAS.get(uri.partition("://")[0].lower())
        hint = f" Install airflow-provider-compliance[{extra}]." if extra else ""
        raise ComplianceInputError(f"'{uri}' can't be used: {error}.{hint}") from None
    return path
