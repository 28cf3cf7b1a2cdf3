"""What errors of storage libraries mean; without imports, for commands that need no client."""

from __future__ import annotations


def is_denied(error: BaseException) -> bool:
    """Return whether a store has refused credentials, or what they may do."""
    has_status = status_of(error) in (401, 403)
    return has_status or isinstance(error, PermissionError) or "Credential" in type(error).__name__


def is_missing(error: BaseException) -> bool:
    """Return whether a store does not have an object, or its bucket."""
    return isinstance(error, FileNotFoundError) or status_of(error) == 404


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of a botocore, gcsfs or Azure error, if any."""
    response = getattr(error, "response", None)
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    known = (
        metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None,
        getattr(error, "status_code", None),
        getattr(error, "code", None),
    )
    return next((status for status in known if isinstance(status, int)), None)
