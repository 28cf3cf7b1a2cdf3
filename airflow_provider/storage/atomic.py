"""Atomic writes: a file appears under its name only when it is complete.

fsspec publishes a half-written file when it is closed, even by an exception or by the garbage collector, and
replaces an existing object with it. So nothing here is closed unless it is complete.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol

from airflow_provider.event_loop import in_thread
from airflow_provider.storage.locations import Location, error_text, storage_errors

log = logging.getLogger(__name__)

BLOCK_BYTES = 5 << 20  # the minimum size of a part on S3; the default of s3fs is ten times that
OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "az"})
_PROC_FD = Path("/proc/self/fd")
ABANDONED_SECONDS = 24 * 3600.0  # age of an incomplete upload that is certainly abandoned


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
    if location.protocol in ("file", "local"):
        return _LocalFile(Path(location.path))
    if location.protocol in OBJECT_STORES:
        return _Upload(location.fs, location.path)
    return _RenamedFile(location.fs, location.path)


async def put(location: Location, data: bytes) -> None:
    """Write a small file atomically."""
    with storage_errors(location):
        if location.protocol in OBJECT_STORES and location.fs.async_impl:
            # One request, on the event loop of the storage library.
            call = location.fs._pipe_file(location.path, data)  # noqa: SLF001 - fsspec's naming of coroutines
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, location.fs.loop))
        else:
            await in_thread(put_sync, location, data)


def put_sync(location: Location, data: bytes) -> None:
    """Write a small file atomically, without an event loop."""
    with storage_errors(location):
        file = create(location)
        try:
            file.write(data)
            file.commit()
        except BaseException:
            file.discard()
            raise


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
        file.discard()
        raise


class _LocalFile:
    """A file without a name until commit, so that not even a killed process leaves one behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _make_directory(path.parent)
        # A short name of its own: the file's name plus a suffix could be too long.
        self._temporary = path.parent / f".{secrets.token_hex(8)}.part"
        try:
            if not _PROC_FD.is_dir():
                raise OSError("Unnamed files can't be linked.")
            descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
            self._is_unnamed = True
        except (AttributeError, OSError):  # macOS, network file systems
            descriptor = os.open(self._temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            self._is_unnamed = False
        self._file = os.fdopen(descriptor, "wb")
        self.write = self._file.write

    def commit(self) -> None:
        """Link or rename it to its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        needs_rename = not self._is_unnamed
        if self._is_unnamed:
            try:
                self._link(self._path)
            except FileExistsError:
                self._link(self._temporary)  # only a rename can replace a file
                needs_rename = True
        self._file.close()
        if needs_rename:
            self._temporary.replace(self._path)
        _sync_directory(self._path.parent)

    def _link(self, name: Path) -> None:
        folder = os.open(_PROC_FD, os.O_RDONLY)
        try:
            # Only with src_dir_fd does Python follow the symbolic link to the open file.
            os.link(str(self._file.fileno()), name, src_dir_fd=folder)
        finally:
            os.close(folder)

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
        self._fs = fs
        self._path = path
        self._file = fs.open(path, "wb", block_size=BLOCK_BYTES)
        self._size = 0

    def write(self, data: bytes | bytearray) -> None:
        """Add bytes."""
        if self._size < BLOCK_BYTES <= self._size + len(data):
            self._abort_abandoned()
        self._size += len(data)
        self._file.write(data)

    def commit(self) -> None:
        """Complete the upload."""
        self._file.close()

    def discard(self) -> None:
        """Abort the upload."""
        self._file.closed = True  # else the garbage collector would close, and so publish, it
        with suppress(FileNotFoundError):  # aborted already, such as by a lifecycle rule of the bucket
            self._file.discard()

    def _abort_abandoned(self) -> None:
        """Abort old uploads that killed processes left in S3: their parts would be billed forever.

        A recent one may belong to a live process. Ages are measured by the store's clock, not ours.
        """
        if not hasattr(self._fs, "call_s3"):
            return
        bucket, key, _ = self._fs.split_path(self._path)
        try:
            found = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
            now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
            for upload in found.get("Uploads", []):
                started: datetime = upload["Initiated"]
                if upload["Key"] == key and (now - started).total_seconds() >= ABANDONED_SECONDS:
                    self._fs.abort_mpu(bucket, key, upload["UploadId"])
                    log.info("Aborted an upload of '%s' that was abandoned at %s.", self._path, started)
        except Exception as error:  # best effort: it must not fail the task
            log.debug("Could not list incomplete uploads of '%s': %s", self._path, error_text(error))


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
