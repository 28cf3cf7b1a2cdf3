"""Sources: URLs, files, patterns, folders and lists of these, as one list, and as files to submit."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import IO, Any

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceStorageError
from airflow_provider.ingest.listing import PATTERN, documents_below, exists, files_matching, own_path
from airflow_provider.params import as_list
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import to_lines
from airflow_provider.storage.layout import WORK_FOLDER
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.names import digest, printable, to_bytes

log = logging.getLogger(__name__)

SHARDS = f"{WORK_FOLDER}/shards"
LISTS = (".jsonl", ".ndjson", ".txt", ".lst")  # none of these is a document for the service
SOURCE_KEYS = ("source", "url", "uri", "path", "file")
WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")
READ_AHEAD_BYTES = 1 << 20
VERSION_KEYS = (
    "ETag", "etag", "content_md5", "md5Hash", "LastModified", "last_modified", "updated", "mtime"
)  # fmt: skip
# Version ids first, as Amazon, Azure and Google name them.
ETAG_KEYS = ("VersionId", "version_id", "generation", "ETag", "etag")


def chunk(items: Any, size: int) -> Any:
    """Split a list for `.expand()`: a list into lists, the result of a task into the result of another.

    :param items: a list, or the result of a task
    :param size: how many items a chunk has at most
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size!r}.")
    if hasattr(items, "operator"):  # the result of a task
        from airflow.providers.common.compat.sdk import task

        return task(task_id=f"chunk_{items.operator.task_id}")(_chunk)(items, size)
    return _chunk(items, size)


def _chunk(items: Any, size: int) -> list[list[Any]]:
    many = list(items)
    return [many[start : start + size] for start in range(0, len(many), size)]


def list_shards(sources: Any, destination: str, size: int) -> list[str]:
    """List all documents; write a list file for each shard, and return their URIs.

    A file is never changed: its name contains the digest of its lines.

    :param sources: as of `ComplianceIngestOperator`
    :param destination: of the night; the files go below `_work/`
    :param size: documents per shard
    """
    from airflow_provider.reports.page import plural  # not while a DAG is parsed

    folder = Location.to_write(destination) / SHARDS
    found = resolve(sources)
    if not found:
        raise ComplianceInputError(
            "There are no documents: `sources` lists nothing. Check the path, and whether it can be read."
        )
    uris = []
    for start in range(0, len(found), size):
        lines = to_lines({"source": source} for source in found[start : start + size])
        file = folder / f"{start // size:05}-{digest(lines.decode())}.jsonl"
        put_sync(file, lines)
        uris.append(file.uri)
    log.info("Listed %s in %s below '%s'.", plural(len(found)), plural(len(uris), "shard"), folder)
    return uris


def resolve(given: Any) -> list[str]:
    """Return all sources, in order and de-duplicated.

    A source of one document is returned as it is: whether it can be read shows when it is submitted. A source
    of many is an error if it can't be listed: the number of missing documents would be unknown.

    :param given: one or many of: a URL, a path or URI, a pattern, a folder (ends with `/`), a file with a
        list of these (`.jsonl`, `.ndjson`, `.txt`, `.lst`)
    """
    return list(dict.fromkeys(source for item in _items(given) for source in _expand(item, is_listed=False)))


def _items(given: Any) -> Iterator[str]:
    if isinstance(given, str) and not given.strip():
        raise ComplianceInputError(
            "There is no source: `sources` is blank. Set it to a URL, a path or a list of these."
        )
    for item in as_list(given, "source"):
        # The outputs of a mapped task that returns lists are a list of lists.
        for source in item if isinstance(item, list | tuple) else [item]:
            yield "" if source is None else str(source).strip()


def is_page(source: str) -> bool:
    """Return whether it is a web page, not a file."""
    return source.lower().startswith(("http://", "https://"))


def _expand(source: str, *, is_listed: bool) -> list[str]:
    has_pattern, is_list = not PATTERN.isdisjoint(source), source.lower().endswith(LISTS)
    is_many = has_pattern or is_list or source.endswith("/")
    if not is_many or is_page(source) or WINDOWS_PATH.match(source):
        return [source]
    try:
        location = Location(source)
    except ComplianceInputError:
        return [source]
    if not (location.is_local or location.is_object_store or _is_store(location)):
        return [source]  # such as a mistyped URL
    with storage_errors(location, "searched"):
        location.fs.invalidate_cache()
        if has_pattern and not exists(location):
            found = files_matching(location)
            # Without a star it is more likely a missing file, which must become a row.
            return found if found or "*" in source or source.endswith("/") else [source]
        if source.endswith("/"):
            return documents_below(location)
    if not is_list:
        return [source]
    if is_listed:
        raise ComplianceInputError(f"'{location}' is a list in a list: add it to `sources` itself.")
    return [found for line in _listed(location) for found in _expand(line, is_listed=True)]


def _is_store(location: Location) -> bool:
    try:
        return location.fs is not None
    except ComplianceError:
        return False


def _listed(location: Location) -> list[str]:
    if (content := location.read()) is None:
        raise ComplianceStorageError(
            f"The list '{location}' can't be read: there is no such file. Create it or correct the path."
        )
    as_json = location.path.lower().endswith((".jsonl", ".ndjson"))
    content = content.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in content:
        raise ComplianceInputError(
            f"The list '{location}' is not UTF-8: it has null bytes, like UTF-16. Save it as UTF-8."
        )
    try:
        # In a plain list, bytes that are not UTF-8 may be a file name.
        errors = "strict" if as_json else "surrogateescape"
        lines = [line.decode("utf-8", errors) for line in content.splitlines()]
    except UnicodeDecodeError as error:
        raise ComplianceInputError(
            f"The list '{location}' is not UTF-8: {error}. Save it as UTF-8."
        ) from None
    if as_json:
        return [_entry(line, location, number) for number, line in enumerate(lines, 1) if line.strip()]
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _entry(line: str, location: Location, number: int) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ComplianceInputError(f"Line {number} of '{location}' is not valid JSON: {error}.") from None
    if isinstance(value, dict) and not value.keys().isdisjoint(SOURCE_KEYS):
        value = next((value[key] for key in SOURCE_KEYS if value.get(key)), "")
    if not isinstance(value, str):
        raise ComplianceInputError(
            f"Line {number} of '{location}' has no source: write a string, or an object with one of "
            f"{', '.join(SOURCE_KEYS)}."
        )
    return value if value.strip() else ""


class SourceFile:
    """A file to submit, opened when it is its turn; remembers what was opened, and what was read of it.

    :ivar version: fingerprint of what was opened
    :ivar etag: its version id at the store, or its ETag; None if the store has neither
    :ivar size: in bytes; None if nothing was read
    :ivar sha256: of all bytes that the last request has read; empty if it did not read all of them
    """

    def __init__(self, source: str) -> None:
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
        """Keep what a request has read."""
        self.size, self.sha256 = size, sha256

    def open(self, mode: str) -> IO[bytes]:
        """Open it; the client maps errors of its store."""
        fs, path = self.location.fs, self.location.path
        try:
            if self.location.is_local:
                _refuse_pipes(own_path(self.location))
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
        return opened


def _refuse_pipes(path: str) -> None:
    """Refuse what is neither a file nor a folder: opening a pipe would block until it is written to."""
    mode = os.stat(path).st_mode  # noqa: PTH116 - works for paths that are not UTF-8
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ComplianceInputError(f"'{printable(path)}' is a pipe, a socket or a device, not a file.")


def _opened_details(opened: Any) -> Mapping[str, Any]:
    """Return what a store says about what was opened, which may be newer than what it has listed."""
    details = getattr(opened, "details", None)  # of an object that fsspec has opened
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
    """Identify the version of a file by what its store says of it; empty where it says too little."""
    return next((f"{info['size']}-{info[key]}" for key in VERSION_KEYS if info.get(key)), "")
