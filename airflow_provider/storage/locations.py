"""Locations in object storage, and the meaning of the errors of their stores."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC, EROFS
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from airflow_provider.client.http.stores import is_denied, is_missing, library_status
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceStorageDeniedError,
    ComplianceStorageError,
)
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import one_line, redact_text, sanitize
from airflow_provider.runtime.object_paths import LOCAL_SCHEMES, OBJECT_STORES, object_path
from airflow_provider.runtime.params import as_json, optional, parse_value, required
from airflow_provider.storage.names import printable

log = logging.getLogger(__name__)

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
READ_AHEAD_BYTES = 1 << 20
MAX_JSON_BYTES = 16 << 20  # for a small object
READS_IN_FLIGHT = 32
FULL = "Free space or choose another destination"
ADVICE = {ENOSPC: FULL, EDQUOT: FULL, EROFS: "Make it writable or choose another destination"}


class Location:
    """A URI in a store that Airflow supports, such as `s3://conn_id@bucket/key`, or a local path.

    Parts are joined as text: in object keys, unlike paths, `..` and `//` have no meaning.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        scheme, separator, rest = uri.partition("://")
        self.protocol = scheme.lower() if separator and scheme.lower() not in LOCAL_SCHEMES else "file"
        if not separator:
            rest = uri
        authority, slash, path = rest.partition("/")
        conn_id, at, bucket = authority.rpartition("@")
        self.conn_id = conn_id if at else None
        self.container = bucket
        self.key = path
        self.path = f"{bucket}{slash}{path}"  # in the file system
        if not self.path.replace("/", "").strip() or (self.protocol != "file" and not bucket.strip()):
            raise ComplianceInputError(f"'{self}' is not a valid location: use s3://conn_id@bucket/prefix/.")
        if self.is_local and self.path.startswith("~/"):
            self.path = str(Path.home()) + self.path[1:]  # as fsspec does

    @classmethod
    def to_write(cls, uri: Any, what: str = "destination") -> Location:
        """Parse the URI of a destination, which is written to XComs and lineage; in the task's own thread.

        Empty names are left out, as in `nights//dt=2026-03-01/`: templates make them of a root with a slash.

        :param what: the parameter, for errors
        """
        location = cls(re.sub("(?<![:/])/{2,}", "/", str(required(uri, what))))
        if location.uri != printable(location.uri):
            raise ComplianceInputError(f"The {what} '{location}' is not valid UTF-8: choose another one.")
        _ = location.fs  # asks Airflow for the connection
        location.check_absolute(what)
        return location

    def check_absolute(self, what: str) -> None:
        """Raise if a path depends on the worker's current folder."""
        if self.is_local and not self.path.startswith("/"):
            raise ComplianceInputError(
                f"The {what} '{self}' depends on the worker's current folder: use an absolute path, such "
                "as file:///data/texts/."
            )

    @property
    def container_advice(self) -> str:
        """A hint for a missing bucket or container."""
        advice = f"Create the bucket or container '{self.container}', or correct the URI."
        if self.conn_id:
            return advice
        return f"{advice} The URI names no connection: {self.protocol}://conn_id@… uses one of Airflow."

    @property
    def store(self) -> str:
        """The kind of store: "file", "s3", "gs", "abfs", else the scheme."""
        return OBJECT_STORES.get(self.protocol, self.protocol)

    @property
    def is_local(self) -> bool:
        """Whether this is on a disk, which other workers may not see."""
        return self.protocol == "file"

    @property
    def is_object_store(self) -> bool:
        """Whether a write is one request that publishes the whole object, without folders and renames."""
        return self.protocol in OBJECT_STORES

    @property
    def is_prefix(self) -> bool:
        """Whether this is a prefix of objects, not an object."""
        return self.path.endswith("/") or (self.protocol != "file" and not self.key)

    @property
    def address(self) -> str:
        """The URI without the Airflow connection, as in lineage."""
        return f"{self.protocol}://{self.path}"

    @cached_property
    def fs(self) -> Any:
        """The file system; it gets the Airflow connection, so use it in the task's own thread first."""
        # Not by the whole URI: ObjectStoragePath does not take every character of a key.
        connection = f"{self.conn_id}@" if self.conn_id else ""
        return object_path(f"{self.protocol}://{connection}any/", name=str(self)).fs

    def size(self) -> int | None:
        """Return the size of the object, or None if it does not exist."""
        with storage_errors(self, "checked"):
            try:
                info = self.fs.info(self.path)
            except FileNotFoundError:
                return None
        return int(info["size"]) if info["type"] == "file" else None

    def read(self) -> bytes | None:
        """Return the content of a small object, or None if it does not exist."""
        with storage_errors(self, "read"):
            try:
                content: bytes = self.fs.cat_file(self.path, **one_request(self.fs))
            except FileNotFoundError:
                return None
        return content

    def read_json(self, default: Any = None) -> Any:
        """Return the JSON object in a small object; the default if it is missing or damaged."""
        with storage_errors(self, "read"):
            self.fs.invalidate_cache(self.path)  # another process may write it after it was listed
            try:  # without asking for its size before
                content = self.fs.cat_file(self.path, start=0, end=MAX_JSON_BYTES + 1)
            except FileNotFoundError:
                return default
            except Exception:
                if self.size() != 0:
                    raise
                content = b""  # stores refuse a range of an empty object
        if len(content) <= MAX_JSON_BYTES and isinstance(value := parse_json(content), dict):
            return value
        log.warning("Ignored '%s': it is damaged, or not a small JSON object.", self)
        return default

    def sha256(self) -> str | None:
        """Return the SHA-256 of the object, read in constant memory; None if it does not exist."""
        digest = hashlib.sha256()
        if (file := self.open()) is None:
            return None
        with storage_errors(self, "read"), file:
            while piece := file.read(READ_AHEAD_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def open(self) -> Any:
        """Open the object to read it; return None if it does not exist."""
        with storage_errors(self, "read"):
            try:
                return self.fs.open(self.path, "rb", block_size=READ_AHEAD_BYTES)
            except FileNotFoundError:
                return None

    def remove(self) -> None:
        """Remove the object, if it exists."""
        with storage_errors(self, "cleaned up"), suppress(FileNotFoundError):
            self.fs.rm_file(self.path)

    def list_names(self, kind: str = "") -> list[str]:
        """Return the current names directly below this prefix, in order.

        :param kind: only `directory` or `file`, as fsspec calls them
        """
        path = self.path.rstrip("/")
        with storage_errors(self, "searched"):
            self.fs.invalidate_cache(path)
            try:
                found = self.fs.ls(path, detail=bool(kind))
            except FileNotFoundError:
                return []
        names = [info["name"] for info in found if info["type"] == kind] if kind else found
        return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

    def __truediv__(self, name: str) -> Location:
        inner = Location(self.uri.rstrip("/") + "/" + name)
        inner.fs = self.fs
        return inner

    def __str__(self) -> str:
        return one_line(redact(self.uri))


def one_request(fs: Any) -> dict[str, int]:
    """Return the options of `cat_file` for a small object: s3fs would ask for its size before."""
    read = getattr(fs, "_cat_file", None)  # fsspec's names of coroutines
    return {"max_concurrency": 1} if read and "max_concurrency" in inspect.signature(read).parameters else {}


def read_objects(folder: Location, paths: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
    """Read many small objects of one store, some at a time, in order; None for a missing object.

    Blocks. Only one group of objects is in memory.

    :param folder: named in errors
    """
    fs, options = folder.fs, one_request(folder.fs)

    def read(path: str) -> tuple[str, bytes | None]:
        try:
            return path, fs.cat_file(path, **options)
        except (FileNotFoundError, IsADirectoryError):
            return path, None

    # Threads gain nothing on a disk.
    with storage_errors(folder, "read"), ThreadPoolExecutor(READS_IN_FLIGHT) as readers:
        for start in range(0, len(paths), READS_IN_FLIGHT):
            group = paths[start : start + READS_IN_FLIGHT]
            yield from readers.map(read, group) if fs.async_impl else map(read, group)


def parse_json(content: bytes) -> Any:
    """Return a JSON value; None if it is damaged."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


class StoreError(Exception):
    """A storage library's error and its causes with masked secrets; only used as the cause of one of ours."""


@contextmanager
def storage_errors(location: Location, action: Action = "written") -> Iterator[None]:
    """Map every error of a store to one of ours.

    :param action: a participle for the error
    """
    try:
        yield
    except ComplianceError:
        raise
    except Exception as error:
        mapped = _map_error(error, location, action)
        texts = (f"{type(cause).__name__}: {one_line(redact_text(str(cause)))}" for cause in causes(error))
        masked = StoreError(", caused by ".join(texts)).with_traceback(error.__traceback__)
        try:
            raise mapped from masked
        finally:
            mapped.__context__ = None  # else it would still lead to the unmasked error


def error_text(error: BaseException) -> str:
    """Return the text of a store's error on one line, without secrets."""
    return sanitize(error, _MAX_TEXT_CHARS) or type(error).__name__


def _map_error(error: Exception, location: Location, action: Action) -> ComplianceError:
    problem = f"'{location}' can't be {action}: {error_text(error).removesuffix('.')}."
    is_local, permission = location.is_local, _PERMISSIONS[action]
    for cause in causes(error):
        status = library_status(cause)
        if is_denied(cause, status):
            if is_local:
                advice = f"Check that the worker may {permission}."
            elif location.conn_id:
                connection = f"the connection '{location.conn_id}'"
                advice = f"Check the credentials of {connection}, and that it may {permission}."
            else:
                advice = (
                    f"Check that the environment of the worker has credentials that may {permission}, or add "
                    f"a connection to the URI: {location.protocol}://conn_id@…."
                )
        elif is_missing(cause, status):
            advice = "Correct the path." if is_local else location.container_advice
        elif isinstance(cause, IsADirectoryError | NotADirectoryError | FileExistsError):
            advice = "Choose a path that is not taken by another file or folder."
        elif type(cause).__name__ == "ParamValidationError":
            advice = "Correct the URI."
        else:
            continue
        return ComplianceStorageDeniedError(f"{problem} {advice}")
    known = (ADVICE.get(getattr(cause, "errno", None) or 0) for cause in causes(error))
    advice = next(filter(None, known), "Check that the store is reachable")
    return ComplianceStorageError(f"{problem} {advice}, then retry.")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Iterate over an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def as_json_or_file(given: Any, what: str) -> Any:
    """Return JSON from a value, a string, or the URI of a file in object storage.

    :param what: a noun for the error
    """
    value = optional(given)
    if not isinstance(value, str) or value.startswith(("{", "[")):
        return as_json(value, what)
    location = Location(value)
    if (content := location.read()) is None:
        raise ComplianceInputError(f"'{location}' can't be read: it does not exist. Correct the URI.")
    return parse_value(content.decode(errors="replace"), f"{what} (in '{location}')")
