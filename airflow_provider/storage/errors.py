"""What stores say when something goes wrong, as errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceStorageDeniedError,
    ComplianceStorageError,
)
from airflow_provider.hooks.objects import mask_secrets
from airflow_provider.storage.names import printable

if TYPE_CHECKING:
    from airflow_provider.storage.locations import Location

Doing = Literal["written", "read", "looked at", "searched", "tidied up"]

# What one must be allowed to do for that.
_RIGHTS: dict[Doing, str] = {
    "written": "write there",
    "read": "read there",
    "looked at": "read there",
    "searched": "list what is there",
    "tidied up": "delete there",
}
_SHOWN = 300


class StoreError(Exception):
    """What a store's library raised, without secrets; only ever the cause of an error of ours."""


@contextmanager
def storage_errors(location: Location, doing: Doing = "written") -> Iterator[None]:
    """Turn whatever a store raises into an error of ours.

    :param doing: what can't be done with the location
    """
    try:
        yield
    except ComplianceError:
        raise
    except Exception as error:
        explained = _explained(error, location, doing)
        try:
            raise explained from _presentable(error)
        except ComplianceError:
            explained.__context__ = None  # else it would still lead to what was just masked
            raise


def _presentable(error: BaseException) -> BaseException:
    """Return an error as it is, or a stand-in for it if it or what led to it would show a secret."""
    chain = list(_causes(error))
    if all(_shown(text) == text for each in chain for text in (str(each), repr(each))):
        return error
    stand_in: StoreError | None = None
    for each in reversed(chain):
        cause, stand_in = stand_in, StoreError(f"{type(each).__name__}: {_shown(str(each))}")
        stand_in.__traceback__, stand_in.__cause__ = each.__traceback__, cause
    return stand_in or error


def error_text(error: BaseException) -> str:
    """Return what a store's error says, in one line, without secrets."""
    return _shown(" ".join(str(error).split()) or type(error).__name__)[:_SHOWN]


def _shown(text: str) -> str:
    return printable(mask_secrets(text))


def _explained(error: Exception, location: Location, doing: Doing) -> ComplianceError:
    said = error_text(error)
    said = said if said.endswith(".") else f"{said}."
    problem = mask_secrets(f"'{location}' can't be {doing}: ") + said
    for cause in _causes(error):
        status = getattr(cause, "status_code", None) or getattr(cause, "code", None)
        kind = type(cause).__name__
        if isinstance(cause, PermissionError) or status in (401, 403) or "Credential" in kind:
            who = (
                f"connection '{location.conn_id}' exists and"
                if location.conn_id
                else "environment of the worker"
            )
            hint = "" if location.conn_id else f", or name a connection: {location.protocol}://conn_id@…"
            return ComplianceStorageDeniedError(
                f"{problem} Check that the {who} has credentials, and that they may {_RIGHTS[doing]}{hint}."
                if location.protocol != "file"
                else f"{problem} Check who may {_RIGHTS[doing]}."
            )
        if isinstance(cause, FileNotFoundError) or status == 404:
            return ComplianceStorageDeniedError(
                f"{problem} Create the bucket or container '{location.container}', or correct the address."
                if location.protocol != "file"
                else f"{problem} Correct the path."
            )
        if isinstance(cause, IsADirectoryError | NotADirectoryError | FileExistsError):
            return ComplianceStorageDeniedError(f"{problem} Choose a path where no other file or folder is.")
        if kind == "ParamValidationError":
            return ComplianceStorageDeniedError(f"{problem} Correct the address.")
    return ComplianceStorageError(f"{problem} If the store was only out of reach, a retry mends it.")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
