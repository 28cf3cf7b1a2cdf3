"""The meaning of errors of storage libraries; without imports, for commands that need no client."""

from __future__ import annotations


def is_denied(error: BaseException, status: int | None) -> bool:
    """Return whether a store refused the credentials, or denied them access."""
    return status in (401, 403) or isinstance(error, PermissionError) or "Credential" in type(error).__name__


def is_missing(error: BaseException, status: int | None) -> bool:
    """Return whether a store does not have an object, or its bucket."""
    return status == 404 or isinstance(error, FileNotFoundError)


def library_status(error: BaseException) -> int | None:
    """Return the HTTP status of a gcsfs or Azure error, if any.

    Not of a botocore error: s3fs translates final errors; others may come from a proxy or a quota.
    """
    known = (getattr(error, "status_code", None), getattr(error, "code", None))
    return next((status for status in known if isinstance(status, int)), None)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error of any library, if any."""
    response = getattr(error, "response", None)
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    status = metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None
    return status if isinstance(status, int) else library_status(error)
