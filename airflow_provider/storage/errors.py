"""Map the errors of object stores to errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceStorageDeniedError,
    ComplianceStorageError,
)
from airflow_provider.hooks.interop import mask_secrets
from airflow_provider.storage.names import printable

if TYPE_CHECKING:
    from airflow_provider.storage.locations import Location

Action = Literal["written", "read", "checked", "searched", "cleaned up"]

# The permission that each action needs.
_PERMISSIONS: dict[Action, str] = {
    "written": "write there",
    "read": "read there",
    "checked": "read there",
    "searched": "list what is there",
    "cleaned up": "delete there",
}
_MAX_TEXT_CHARS = 300


class StoreError(Exception):
    """A storage library's error with masked secrets; only used as the cause of one of ours."""


@contextmanager
def storage_errors(location: Location, action: Action = "written") -> Iterator[None]:
    """Map whatever a store raises to an error of ours.

    :param action: what is done with the location
    """
    try:
        yield
    except ComplianceError:
        raise
    except Exception as error:
        mapped = _map_error(error, location, action)
        try:
            raise mapped from _masked(error)
        except ComplianceError:
            mapped.__context__ = None  # else it would still lead to the unmasked error
            raise


def _masked(error: BaseException) -> BaseException:
    """Return an error, or a stand-in with the same causes if any of them would show a secret."""
    chain = list(_causes(error))
    if all(_sanitize(text) == text for each in chain for text in (str(each), repr(each))):
        return error
    stand_in: StoreError | None = None
    for each in reversed(chain):
        cause, stand_in = stand_in, StoreError(f"{type(each).__name__}: {_sanitize(str(each))}")
        stand_in.__traceback__, stand_in.__cause__ = each.__traceback__, cause
    return stand_in or error


def error_text(error: BaseException) -> str:
    """Return the text of a store's error on one line, without secrets."""
    return _sanitize(" ".join(str(error).split()) or type(error).__name__)[:_MAX_TEXT_CHARS]


def _sanitize(text: str) -> str:
    return printable(mask_secrets(text))


def _map_error(error: Exception, location: Location, action: Action) -> ComplianceError:
    problem = mask_secrets(f"'{location}' can't be {action}: ") + error_text(error).removesuffix(".") + "."
    is_local, permission = location.protocol == "file", _PERMISSIONS[action]
    for cause in _causes(error):
        status = getattr(cause, "status_code", None) or getattr(cause, "code", None)
        kind = type(cause).__name__
        if isinstance(cause, PermissionError) or status in (401, 403) or "Credential" in kind:
            if is_local:
                advice = f"Check that the worker may {permission}."
            elif location.conn_id:
                advice = (
                    f"Check that the connection '{location.conn_id}' exists and has credentials that may "
                    f"{permission}."
                )
            else:
                advice = (
                    f"Check that the environment of the worker has credentials that may {permission}, or add "
                    f"a connection to the URI: {location.protocol}://conn_id@…."
                )
        elif isinstance(cause, FileNotFoundError) or status == 404:
            container = f"Create the bucket or container '{location.container}', or correct the URI."
            advice = "Correct the path." if is_local else container
        elif isinstance(cause, IsADirectoryError | NotADirectoryError | FileExistsError):
            advice = "Choose a path that is not taken by another file or folder."
        elif kind == "ParamValidationError":
            advice = "Correct the URI."
        else:
            continue
        return ComplianceStorageDeniedError(f"{problem} {advice}")
    return ComplianceStorageError(f"{problem} Check that the store is reachable, then retry.")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
