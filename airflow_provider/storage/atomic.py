"""Atomic writes: a file appears under its name only when it is complete.

fsspec publishes a half-written file when it is closed, even by an exception or by the garbage collector, and
replaces an existing object with it. So nothing here is closed unless it is complete.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from airflow_provider.event_loop import in_thread
from airflow_provider.storage.locations import Location, error_text, storage_errors

log = logging.getLogger(__name__)

BLOCK_BYTES = 5 << 20  # the minimum size of a part on S3; the default of s3fs is ten times that
# Memory of a large upload of a file: parts in flight, times their size.
_UPLOAD_OPTIONS = {
    "s3": {"chunksize": 8 << 20, "max_concurrency": 2},
    "gs": {"chunksize": 8 << 20},
    "abfs": {"max_concurrency": 2},
}
EXISTS_CODES = frozenset({"PreconditionFailed", "412"})
CONFLICT_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted", "409"})
CONFLICT_DELAYS_SECONDS = (0.2, 1.0, 3.0)  # another writer is at it: wait until it is done
NO_LINK_ERRORS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class AtomicFile(Protocol):
    """A file in progress; end it with `commit` or `discard`."""

    def write(self, data: bytes | bytearray) -> Any:
        """Add bytes."""
        ...

    def commit(self) -> None:
        """Publish the file under its name, replacing an existing one."""
        ...

    def discard(self) -> None:
        """Remove what was written; also after a failed commit."""
        ...


def create(location: Location) -> AtomicFile:
    """Start an atomic file in any store."""
    if location.is_local:
        return _LocalFile(Path(location.path))
    if location.is_object_store:
        return _Upload(location.fs, location.path)
    return _RenamedFile(location.fs, location.path)


async def put(location: Location, data: bytes) -> None:
    """Write a small file atomically."""
    if not location.is_object_store or not location.fs.async_impl:
        await in_thread(put_sync, location, data)
        return
    with storage_errors(location):
        # One request, on the event loop of the storage library.
        call = location.fs._pipe_file(location.path, data)  # noqa: SLF001 - fsspec's naming of coroutines
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, location.fs.loop))


def put_sync(location: Location, data: bytes) -> None:
    """Write a small file atomically, without an event loop."""
    with writing(location) as write:
        write(data)


@contextmanager
def writing(location: Location) -> Iterator[Callable[[bytes], Any]]:
    """Write a large file atomically, piece by piece: it appears when the block ends without an error."""
    with storage_errors(location):
        file = create(location)

    def write(data: bytes) -> None:
        with storage_errors(location):
            file.write(data)

    try:
        yield write
        with storage_errors(location):
            file.commit()
    except BaseException:
        discard(file, location)
        raise


def discard(file: AtomicFile, location: Location) -> None:
    """Remove what was written; the error that led here says more than one about this."""
    try:
        file.discard()
    except Exception as error:  # the store is probably unreachable
        log.warning("Could not remove the incomplete '%s': %s", location, error_text(error))


def create_once(location: Location, content: bytes | Path) -> bool:
    """Write a file atomically unless there is one; return whether it was written.

    Of two writers at the same time one wins: by a link on a local disk, by a conditional request in an object
    store. Other stores have neither: there, of two writers at the very same moment the last one wins.

    :param content: bytes, or a local file with them
    """
    with storage_errors(location):
        if location.is_object_store:
            return _create_object(location, content)
        if not location.is_local and location.fs.exists(location.path):
            return False
        file = create(location)
        try:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open("rb") as source:
                    while data := source.read(BLOCK_BYTES):
                        file.write(data)
            if isinstance(file, _LocalFile):
                return file.commit_once()
            file.commit()
        finally:
            discard(file, location)
    return True


def _create_object(location: Location, content: bytes | Path) -> bool:
    fs, path = location.fs, location.path
    for delay in (*CONFLICT_DELAYS_SECONDS, None):
        fs.invalidate_cache()
        if fs.exists(path):  # for stores that ignore the condition
            return False
        try:
            if isinstance(content, bytes):
                fs.pipe_file(path, content, mode="create")
            else:
                fs.put_file(str(content), path, mode="create", **_UPLOAD_OPTIONS.get(location.store, {}))
        except Exception as error:
            codes = set(_error_codes(error))
            if isinstance(error, FileExistsError) or codes & EXISTS_CODES:
                return False
            if delay is None or not codes & CONFLICT_CODES:
                raise
            time.sleep(delay)
        else:
            return True
    raise AssertionError("unreachable")


def _error_codes(error: BaseException) -> Iterator[str]:
    """Yield the codes that S3 gave: s3fs knows only the answer of Amazon's own to a failed condition."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            yield str(response.get("Error", {}).get("Code"))
        cause = cause.__cause__ or cause.__context__


class _LocalFile:
    """A file on a disk: written under a temporary name, then renamed; synced to disk, like its name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _make_directory(path.parent)
        # A short name of its own: the file's name plus a suffix could be too long.
        self._temporary = path.parent / f".{secrets.token_hex(8)}.part"
        self._file = self._temporary.open("xb")
        self.write = self._file.write

    def commit(self) -> None:
        """Rename it to its name."""
        self._sync()
        self._temporary.replace(self._path)
        _sync_directory(self._path.parent)

    def commit_once(self) -> bool:
        """Link it to its name unless that is taken; return whether it was free. Discard it then."""
        self._sync()
        try:
            os.link(self._temporary, self._path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINK_ERRORS:
                raise
            if self._path.exists():  # such as a bucket that is mounted, which has no links
                return False
            self._temporary.replace(self._path)
        _sync_directory(self._path.parent)
        return True

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def _make_directory(folder: Path) -> None:
    """Create a directory and its parents, durably like the files in it."""
    if folder.is_dir():
        return
    _make_directory(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_directory(folder.parent)


def _sync_directory(folder: Path) -> None:
    """Flush the entries of a directory to disk, where the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Upload:
    """An upload to an object store: one request for a small object, multipart for a large one."""

    def __init__(self, fs: Any, path: str) -> None:
        self._file = fs.open(path, "wb", block_size=BLOCK_BYTES)
        self.write = self._file.write

    def commit(self) -> None:
        """Complete the upload."""
        self._file.close()

    def discard(self) -> None:
        """Abort the upload."""
        self._file.closed = True  # else the garbage collector would close, and so publish, it
        with suppress(FileNotFoundError):  # aborted already, such as by a lifecycle rule of the bucket
            self._file.discard()


class _RenamedFile:
    """A file in any other store: written under a temporary name, then renamed."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path
        folder = path.rpartition("/")[0]
        fs.makedirs(folder, exist_ok=True)
        self._temporary = f"{folder}/.{secrets.token_hex(8)}.part"
        self._file = fs.open(self._temporary, "wb")
        self.write = self._file.write

    def commit(self) -> None:
        """Rename it."""
        self._file.close()
        self._fs.mv(self._temporary, self._path)

    def discard(self) -> None:
        """Remove it."""
        with suppress(Exception):
            self._file.close()
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._temporary)
