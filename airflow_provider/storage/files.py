"""Files that are there when they are whole, and not before.

fsspec publishes what was written so far when a file is closed, also by an exception or by the garbage
collector, and over an old object of the name. So nothing here is closed unless it is complete.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol

from airflow_provider.event_loop import in_thread
from airflow_provider.storage.errors import error_text, storage_errors
from airflow_provider.storage.locations import Location

log = logging.getLogger(__name__)

BLOCK_BYTES = 5 << 20  # the least that S3 takes as a part of an upload; the default of s3fs is ten times that
OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "az"})
_OPEN_FILES = Path("/proc/self/fd")
ABANDONED_SECONDS = 24 * 3600.0  # age of an unfinished upload that nobody completes any more


class AtomicFile(Protocol):
    """A file that is being written; end it with `commit` or `discard`."""

    def write(self, data: bytes | memoryview) -> Any:
        """Add bytes."""
        ...

    def commit(self) -> None:
        """Let the file appear under its name, in place of an older one."""
        ...

    def discard(self) -> None:
        """Leave nothing behind; also after a commit that failed."""
        ...


def create(location: Location) -> AtomicFile:
    """Begin a file in any store."""
    if location.protocol in ("file", "local"):
        return _LocalFile(Path(location.path))
    if location.protocol in OBJECT_STORES:
        return _Upload(location.fs, location.path)
    return _RenamedFile(location.fs, location.path)


async def put(location: Location, data: bytes) -> None:
    """Write a whole small file."""
    with storage_errors(location):
        if location.protocol in OBJECT_STORES and location.fs.async_impl:
            # One request, on the event loop of the store's own library.
            call = location.fs._pipe_file(location.path, data)  # noqa: SLF001 - fsspec's names of coroutines
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, location.fs.loop))
        else:
            await in_thread(put_sync, location, data)


def put_sync(location: Location, data: bytes) -> None:
    """Write a whole small file, without an event loop."""
    with storage_errors(location):
        file = create(location)
        try:
            file.write(data)
            file.commit()
        except BaseException:
            file.discard()
            raise


class _LocalFile:
    """A file without a name until it is whole, so that not even a killed process leaves one behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _make_folder(path.parent)
        # With a short name of its own: one as long as the file's plus something could be too long.
        self._name = path.parent / f".{secrets.token_hex(8)}.part"
        try:
            if not _OPEN_FILES.is_dir():
                raise OSError("A file without a name could not be given one.")
            descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
            self._is_nameless = True
        except (AttributeError, OSError):  # macOS, network file systems
            descriptor = os.open(self._name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            self._is_nameless = False
        self._file = os.fdopen(descriptor, "wb")
        self.write = self._file.write

    def commit(self) -> None:
        """Give it its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._is_nameless:
            try:
                self._link(self._path)
            except FileExistsError:
                self._link(self._name)  # only a rename takes the place of another file
            else:
                self._file.close()
                _sync_folder(self._path.parent)
                return
        self._file.close()
        self._name.replace(self._path)
        _sync_folder(self._path.parent)

    def _link(self, name: Path) -> None:
        folder = os.open(_OPEN_FILES, os.O_RDONLY)
        try:
            # Only with a folder does Python follow the link that stands for the open file.
            os.link(str(self._file.fileno()), name, src_dir_fd=folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self._file.close()
        self._name.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; each survives a power cut like what is written into it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk, too; not all file systems can, and some need not."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Upload:
    """An upload to an object store: one request for a small object, parts for a large one."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path
        self._file = fs.open(path, "wb", block_size=BLOCK_BYTES)
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
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
        self._file.closed = True  # else the garbage collector would close, and so publish it
        with suppress(FileNotFoundError):  # aborted by somebody else, such as a rule of the bucket
            self._file.discard()

    def _abort_abandoned(self) -> None:
        """Abort what a killed process has left in S3 long ago: its parts would cost money for ever.

        A young one may be of a process that is alive. The store's clock says how old one is, not ours.
        """
        if not hasattr(self._fs, "call_s3"):
            return
        bucket, key, _ = self._fs.split_path(self._path)
        try:
            found = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
            now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
            for upload in found.get("Uploads", []):
                begun: datetime = upload["Initiated"]
                if upload["Key"] == key and (now - begun).total_seconds() >= ABANDONED_SECONDS:
                    self._fs.abort_mpu(bucket, key, upload["UploadId"])
                    log.info("Aborted an upload of '%s' that was left unfinished at %s.", self._path, begun)
        except Exception as error:  # a service to the next bill, not to this task
            log.debug("Unfinished uploads of '%s' can't be listed: %s", self._path, error_text(error))


class _RenamedFile:
    """A file in any other store: written under another name, then renamed."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path
        folder = path.rpartition("/")[0]
        fs.makedirs(folder, exist_ok=True)
        self._name = f"{folder}/.{secrets.token_hex(8)}.part"
        self._file = fs.open(self._name, "wb")
        self.write = self._file.write

    def commit(self) -> None:
        """Rename it."""
        self._file.close()
        self._fs.mv(self._name, self._path)

    def discard(self) -> None:
        """Remove it."""
        with suppress(Exception):
            self._file.close()
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._name)
