"""Files to submit: how they are opened, and which version they have."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import IO, Any

from airflow_provider.exceptions import ComplianceInputError, FailureKind
from airflow_provider.storage.locations import READ_AHEAD_BYTES, Location, storage_errors
from airflow_provider.storage.names import printable, to_bytes

VERSION_KEYS = (
    "ETag", "etag", "content_md5", "md5Hash", "LastModified", "last_modified", "updated", "mtime"
)  # fmt: skip
# Version ids first, as Amazon, Azure and Google name them.
ETAG_KEYS = ("VersionId", "version_id", "generation", "ETag", "etag")


class SourceFile:
    """A file to submit, opened when it is its turn; remembers its version, and how much of it was read.

    :param max_bytes: how large it may be; any size if this is None
    :ivar version: fingerprint of the opened file
    :ivar etag: its version id at the store, or its ETag; None if the store has neither
    :ivar size: in bytes; None if nothing was read
    :ivar sha256: of all bytes that the last request read; empty if it did not read all of them
    """

    def __init__(self, source: str, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self.location = Location(source)
        self.version = ""
        self.etag: str | None = None
        self.size: int | None = None
        self.sha256 = ""

    @property
    def name(self) -> str:
        """Its file name for the service."""
        return to_bytes(PurePosixPath(self.location.path).name).decode("utf-8", "replace")

    def __str__(self) -> str:
        return str(self.location)

    def record_read(self, size: int, sha256: str) -> None:
        """Keep size and hash of a read."""
        self.size, self.sha256 = size, sha256

    def open(self, mode: str) -> IO[bytes]:
        """Open it; the client maps errors of its store."""
        fs, path = self.location.fs, self.location.path
        try:
            if self.location.is_local:
                _refuse_pipes(path)
            fs.invalidate_cache(path)  # a listing may be old by now, and has no version ids
            opened: IO[bytes] = fs.open(path, mode, block_size=READ_AHEAD_BYTES)
        except (FileNotFoundError, IsADirectoryError):
            if not fs.isdir(path):
                raise
            raise ComplianceInputError(
                f"'{self}' is a folder: to ingest all documents below it, end it with '/'."
            ) from None
        details = _opened_details(opened)
        self.version, self.etag = version_in(details), _etag_in(details)
        if self._max_bytes is not None:
            self._check_size(opened, self._max_bytes)
        return opened

    def _check_size(self, opened: IO[bytes], max_bytes: int) -> None:
        """Close and refuse a file that is too large."""
        size = opened.seek(0, os.SEEK_END)
        opened.seek(0)
        if size > max_bytes:
            opened.close()
            raise ComplianceInputError(f"'{self}' is larger than max_bytes={max_bytes:,} allows.").of_kind(
                FailureKind.TOO_LARGE
            )


def _refuse_pipes(path: str) -> None:
    """Refuse anything but files and folders: opening a pipe would block until it is written to."""
    mode = os.stat(path).st_mode  # noqa: PTH116 - works for paths that are not UTF-8
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ComplianceInputError(f"'{printable(path)}' is a pipe, a socket or a device, not a file.")


def _opened_details(opened: Any) -> Mapping[str, Any]:
    """Return the store's info about the opened file, which may be newer than the listed version."""
    details = getattr(opened, "details", None)  # an object that fsspec opened
    if isinstance(details, Mapping):
        return details
    try:
        status = os.fstat(opened.fileno())
    except (AttributeError, OSError, ValueError):
        return {}
    return {"size": status.st_size, "mtime": status.st_mtime}


def _etag_in(details: Mapping[str, Any]) -> str | None:
    """Return the version id of an object, else its ETag; the version `null` of S3 is none."""
    found = (str(details[key]).strip('"') for key in ETAG_KEYS if details.get(key))
    return next((item for item in found if item != "null"), None)


def fingerprint(source: str) -> str:
    """Identify the version of a file: by size and ETag or time, else by its bytes."""
    location = Location(source)
    with storage_errors(location, "checked"):
        info = location.fs.info(location.path)
        if version := version_in(info):
            return version
    return f"{info['size']}-{location.sha256()}"


def version_in(info: Mapping[str, Any]) -> str:
    """Identify the version of a file by its store's facts; empty if these are too few."""
    return next((f"{info['size']}-{info[key]}" for key in VERSION_KEYS if info.get(key)), "")
