"""What to ingest: addresses, files, patterns, folders and lists of these, as one list of documents."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import IO, Any, cast

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceReadError,
    ComplianceStorageError,
)
from airflow_provider.hooks.objects import STORES
from airflow_provider.ingest.listing import PATTERN, documents_below, exists, files_matching, own_path
from airflow_provider.params import as_list
from airflow_provider.storage.errors import error_text, storage_errors
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import to_bytes

LISTS = (".jsonl", ".ndjson", ".txt", ".lst")  # the service takes none of these as a document
SOURCE_KEYS = ("source", "url", "uri", "path", "file")
WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")
READ_AHEAD = 1 << 20
VERSION_KEYS = (
    "ETag", "etag", "content_md5", "md5Hash", "LastModified", "last_modified", "updated", "mtime"
)  # fmt: skip


def resolve(given: Any) -> list[str]:
    """Return all sources, in their order and each once.

    What stands for one document is returned as it is: whether it exists and can be read is found out later,
    one by one. What stands for many is an error if it can't be listed: nobody knows how many are missing.

    :param given: one or many of: a web address, a path or URI, a pattern, a folder (ends with `/`), a file
        with a list of these (`.jsonl`, `.ndjson`, `.txt`, `.lst`)
    """
    return list(dict.fromkeys(each for one in _items(given) for each in _expanded(one, is_listed=False)))


def _items(given: Any) -> Iterator[str]:
    if isinstance(given, str) and not given.strip():
        raise ComplianceInputError("There is no source: what should name it is blank.")
    for each in as_list(given, "source"):
        # The outputs of a mapped task that returns lists are a list of lists.
        for one in each if isinstance(each, list | tuple) else [each]:
            yield "" if one is None else str(one).strip()


def is_page(source: str) -> bool:
    """Tell a web address from a file."""
    return source.lower().startswith(("http://", "https://"))


def _expanded(source: str, *, is_listed: bool) -> list[str]:
    has_pattern, is_list = not PATTERN.isdisjoint(source), source.lower().endswith(LISTS)
    stands_for_many = has_pattern or is_list or source.endswith("/")
    if not stands_for_many or is_page(source) or WINDOWS_PATH.match(source):
        return [source]
    try:
        location = Location(source)
    except ComplianceInputError:
        return [source]
    if location.protocol not in STORES and not _is_store(location):
        return [source]  # such as a mistyped web address
    with storage_errors(location, "searched"):
        location.fs.invalidate_cache()
        if has_pattern and not exists(location):
            found = files_matching(location)
            # Without a star it is more likely a file that is missing, so nobody is silent about it.
            return found if found or "*" in source or source.endswith("/") else [source]
        if source.endswith("/"):
            return documents_below(location)
    if not is_list:
        return [source]
    if is_listed:
        raise ComplianceInputError(f"'{location}' is a list inside of a list: name it in sources itself.")
    return [each for line in _listed(location) for each in _expanded(line, is_listed=True)]


def _is_store(location: Location) -> bool:
    try:
        return location.fs is not None
    except ComplianceError:
        return False


def _listed(location: Location) -> list[str]:
    with storage_errors(location, "read"):
        try:
            content: bytes = location.fs.cat_file(location.path)
        except FileNotFoundError:
            raise ComplianceStorageError(
                f"The list '{location}' can't be read: there is no such file. Create it, or correct the path."
            ) from None
    as_json = location.path.lower().endswith((".jsonl", ".ndjson"))
    content = content.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in content:
        raise ComplianceInputError(f"The list '{location}' is not UTF-8: it has null bytes, as UTF-16 has.")
    try:
        # In a plain list, bytes that are not UTF-8 are the name of a file all the same.
        errors = "strict" if as_json else "surrogateescape"
        lines = [line.decode("utf-8", errors) for line in content.splitlines()]
    except UnicodeDecodeError as error:
        raise ComplianceInputError(f"The list '{location}' is not UTF-8: {error}.") from None
    if as_json:
        return [_entry(line, location, number) for number, line in enumerate(lines, 1) if line.strip()]
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _entry(line: str, location: Location, number: int) -> str:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ComplianceInputError(f"Line {number} of '{location}' is no JSON: {error}.") from None
    if isinstance(value, dict) and not value.keys().isdisjoint(SOURCE_KEYS):
        value = next((value[key] for key in SOURCE_KEYS if value.get(key)), "")
    if not isinstance(value, str):
        raise ComplianceInputError(
            f"Line {number} of '{location}' names no source: give a text, or an object with "
            f"{', '.join(SOURCE_KEYS)}."
        )
    return value if value.strip() else ""


class SourceFile:
    """A file to submit, opened when it is its turn, and read ahead by little."""

    def __init__(self, source: str) -> None:
        self.location = Location(source)

    @property
    def name(self) -> str:
        """Its file name, as the service is told."""
        return to_bytes(PurePosixPath(self.location.path).name).decode("utf-8", "replace")

    def __str__(self) -> str:
        return str(self.location)

    def open(self, mode: str) -> IO[bytes]:
        """Open it."""
        with storage_errors(self.location, "read"):
            try:
                if self.location.protocol in ("file", "local"):
                    _refuse_pipes(own_path(self.location))
                opened: Any = self.location.fs.open(self.location.path, mode, block_size=READ_AHEAD)
            except (FileNotFoundError, IsADirectoryError, ValueError) as error:
                unusable = error
            else:
                return cast("IO[bytes]", _Stream(opened, str(self)))
        raise unusable  # whoever opens a document knows what to say of that


def _refuse_pipes(path: str) -> None:
    """Refuse what is neither a file nor a folder: to open a pipe is to wait until somebody writes into it."""
    mode = os.stat(path).st_mode  # noqa: PTH116 - a path of bytes that are not UTF-8 is no problem here
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError("it is a pipe, a socket or a device, not a file")


class _Stream:
    """An open source; whatever its store raises while it is read is an error of that document."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream
        self._name = name

    def read(self, size: int = -1) -> bytes:
        """Read."""
        data: bytes = self._attempt(self._stream.read, size)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        """Move."""
        reached: int = self._attempt(self._stream.seek, position, whence)
        return reached

    def tell(self) -> int:
        """Say where it is."""
        return int(self._attempt(self._stream.tell))

    def close(self) -> None:
        """Close it; nothing is lost if that fails."""
        with suppress(Exception):
            self._stream.close()

    def __getattr__(self, name: str) -> Any:
        """Give what the store knows of the file, such as its version."""
        return getattr(self._stream, name)

    def _attempt(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:
            raise ComplianceReadError(f"'{self._name}' can't be read: {error_text(error)}.") from None


def fingerprint(source: str) -> str:
    """Tell a version of a file from others: by size and ETag or time, else by its bytes."""
    location = Location(source)
    with storage_errors(location, "checked"):
        info = location.fs.info(location.path)
        if version := version_in(info):
            return version
        digest = hashlib.sha256()
        with location.fs.open(location.path, "rb", block_size=READ_AHEAD) as file:
            while piece := file.read(READ_AHEAD):
                digest.update(piece)
    return f"{info['size']}-{digest.hexdigest()}"


def version_in(info: Mapping[str, Any]) -> str:
    """Tell a version of a file from others by what its store says of it; empty where that can't be told."""
    return next((f"{info['size']}-{info[key]}" for key in VERSION_KEYS if info.get(key)), "")
