"""Read the objects of the evidence, and find what is wrong with them: changed, missing, or not readable."""

from __future__ import annotations

import errno
import hashlib
import inspect
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import sleep
from typing import ParamSpec, TypeVar

from airflow_provider.exceptions import ComplianceError, ComplianceStorageDeniedError, ComplianceStorageError
from airflow_provider.storage.locations import Location, error_text, storage_errors

P = ParamSpec("P")
T = TypeVar("T")

BLOCK_BYTES = 1 << 18
RETRY_SECONDS = (1.0, 4.0)  # after an outage; the libraries of most stores have retried before
READ_AHEAD_BYTES = 1 << 22
# What the path itself is to blame for, not the store.
_INVALID_PATH = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EISDIR})


class ProblemKind(StrEnum):
    """What can be wrong with an object.

    CHANGED and MISSING are proven; INVALID is a record or a row that can't be checked; UNMATCHED is a hash
    that was given and is not that of the records; UNREADABLE and OUTSIDE objects may be as they were.
    """

    CHANGED = "changed"
    MISSING = "missing"
    INVALID = "invalid"
    UNMATCHED = "unmatched"
    UNREADABLE = "unreadable"
    OUTSIDE = "outside"


@dataclass(frozen=True)
class Problem:
    """Something that was found."""

    kind: ProblemKind
    text: str


@dataclass(frozen=True)
class Hashed:
    """An object that was read."""

    sha256: str
    size: int


class ProblemError(Exception):
    """An object has a problem; never leaves this package."""

    def __init__(self, kind: ProblemKind, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(kind, text)


def read_blocks(location: Location) -> Iterator[bytes]:
    """Read an object in constant memory; ProblemError if there is none, or it may not be read.

    ComplianceStorageError means that the store has failed, so nothing is known about the object.
    """
    blocks = _local_blocks(location) if location.is_local else _remote_blocks(location)
    try:
        yield from blocks
    except Exception as error:  # of the store's library
        raise _classify(error, location) from None


def _classify(error: Exception, location: Location) -> Exception:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ProblemError(ProblemKind.MISSING, f"{location} does not exist")
    is_path = location.is_local and getattr(error, "errno", None) in _INVALID_PATH
    if is_path or isinstance(error, IsADirectoryError | ValueError):
        return ProblemError(ProblemKind.MISSING, f"{location} is not an object: {error_text(error)}")
    try:
        with storage_errors(location, "read"):
            raise error
    except ComplianceStorageDeniedError as denied:
        return ProblemError(ProblemKind.UNREADABLE, str(denied))
    except ComplianceError as outage:
        return outage


def _local_blocks(location: Location) -> Iterator[bytes]:
    path = Path(location.path)
    # A pipe would block, and a device may have no end.
    if not stat.S_ISREG(path.stat().st_mode):
        raise IsADirectoryError(errno.EISDIR, "not a regular file")
    with path.open("rb", buffering=0) as file:
        while data := file.read(BLOCK_BYTES):
            yield data


def _remote_blocks(location: Location) -> Iterator[bytes]:
    fs, path = location.fs, location.path
    if location.store != "s3":
        with fs.open(path, "rb", block_size=READ_AHEAD_BYTES) as file:
            while data := file.read(BLOCK_BYTES):
                yield data
        return
    # One request for the whole object, by way of the disk. `open` needs two, and some servers send a checksum
    # of the whole object with a part of it.
    is_concurrent = "max_concurrency" in inspect.signature(fs._get_file).parameters  # noqa: SLF001 - fsspec's naming of coroutines
    with tempfile.NamedTemporaryFile(prefix="verify-") as copy:
        fs.get_file(path, copy.name, **({"max_concurrency": 1} if is_concurrent else {}))  # else in memory
        while data := copy.read(BLOCK_BYTES):
            yield data


def hash_object(location: Location, copy: Path | None = None) -> Hashed:
    """Return the SHA-256 of an object.

    :param copy: a local file to write, so that what is hashed is what is read later
    """
    digest, size = hashlib.sha256(), 0
    with copy.open("wb") if copy else nullcontext() as file:
        for data in read_blocks(location):
            digest.update(data)
            size += len(data)
            if file:
                file.write(data)
    return Hashed(digest.hexdigest(), size)


def read_small(location: Location, limit: int) -> bytes:
    """Read an object into memory, up to a limit."""
    found = bytearray()
    for data in read_blocks(location):
        found += data
        if len(found) > limit:
            raise ProblemError(ProblemKind.INVALID, f"{location} is larger than {limit:,} bytes")
    return bytes(found)


def retry_outages(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read again after an outage of the store; what is wrong with the object itself stays wrong."""
    for seconds in RETRY_SECONDS:
        try:
            return read(*args, **kwargs)
        except ComplianceStorageError:
            sleep(seconds)
    return read(*args, **kwargs)
