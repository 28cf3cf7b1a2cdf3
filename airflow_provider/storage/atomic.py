"""Atomic writes: a file appears under its name only when it is complete.

fsspec publishes a half-written file when it is closed, even by an exception or by the garbage collector. So
content is complete before a store gets it: in memory, or in a file on this machine.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from weakref import WeakKeyDictionary

from airflow_provider.runtime.event_loop import in_thread
from airflow_provider.storage.locations import Location, causes, storage_errors
from airflow_provider.storage.names import add_mark

BLOCK_BYTES = 5 << 20  # the minimum size of a part on S3
# Memory of a large upload of a file: parts in flight, times their size.
_UPLOAD_OPTIONS = {
    "s3": {"chunksize": BLOCK_BYTES, "max_concurrency": 2},
    "gs": {"chunksize": BLOCK_BYTES},
    "abfs": {"max_concurrency": 2},
}
EXISTS_CODES = frozenset({"PreconditionFailed", "412"})
CONFLICT_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted", "409"})
CONFLICT_DELAYS_SECONDS = (0.2, 1.0, 3.0)  # another writer is at it: wait until it is done
NO_LINK_ERRORS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
MARK_CHARS = 12  # for the hash in a name
GZIP_FORMAT = 31  # for zlib, which writes neither name nor time: same content, same bytes

_refuses: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # whether a store refuses to create what exists

Content = bytes | Path
"""Bytes, or a file on this machine with them."""


class Draft:
    """Content in progress: in memory while it has one part, else in a file on this machine. Blocks.

    :param location: where it will be, for errors
    :param level: the compression level; None if it is not compressed
    :ivar size: in bytes so far; `sha256` is also the hash so far
    """

    def __init__(self, location: Location, level: int | None = None) -> None:
        self.size = 0
        self._file: IO[bytes] | None = None
        self._location = location
        self._compressor = None if level is None else zlib.compressobj(level, wbits=GZIP_FORMAT)
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The hash of its bytes."""
        return self._hash.hexdigest()

    def add(self, part: bytes | bytearray, *, is_last: bool = False) -> Content:
        """Add a part; return all parts."""
        data = bytes(part)
        if self._compressor:
            data = self._compressor.compress(data) + (self._compressor.flush() if is_last else b"")
        self._hash.update(data)
        self.size += len(data)
        if is_last and not self._file:
            return data
        with storage_errors(self._location):
            self._file = self._file or tempfile.NamedTemporaryFile()  # noqa: SIM115 - see `close`
            self._file.write(data)
            self._file.flush()
        return Path(self._file.name)

    def close(self) -> None:
        """Remove the local copy."""
        if self._file:
            self._file.close()

    def __del__(self) -> None:
        self.close()


async def put(location: Location, content: Content) -> None:
    """Write a file atomically, in a thread."""
    await in_thread(put_sync, location, content)


def put_sync(location: Location, content: Content, *, is_private: bool = False) -> None:
    """Write a file atomically, replacing an existing one.

    :param is_private: on a disk, only its owner may read it
    """
    with storage_errors(location):
        if location.is_object_store:
            _upload(location, content)
        else:
            _write(location, content, replace=True, is_private=is_private)


def create_once(location: Location, content: Content) -> bool:
    """Write a file atomically unless it exists; return whether it was written.

    Of two writers at the same time one wins: by a link on a local disk, by a conditional request in an object
    store. Other stores have neither: there, of two writers at the very same moment the last one wins.
    """
    with storage_errors(location):
        if location.is_object_store:
            return _create_object(location, content)
        return _write(location, content, replace=False)


def keep(location: Location, content: Content, sha256: str) -> Location:
    """Write a file that is never replaced, and return where it is.

    If the name is taken by other bytes, the file gets a name with its hash.
    """
    if create_once(location, content) or location.sha256() == sha256:
        return location
    marked = Location(add_mark(location.uri, sha256[:MARK_CHARS]))
    marked.fs = location.fs
    put_sync(marked, content)
    return marked


def _upload(location: Location, content: Content, **options: Any) -> None:
    if isinstance(content, bytes):
        location.fs.pipe_file(location.path, content, **options)
    else:
        options |= _UPLOAD_OPTIONS.get(location.store, {})
        location.fs.put_file(str(content), location.path, **options)


def _create_object(location: Location, content: Content) -> bool:
    fs, path = location.fs, location.path
    # Some stores know the condition, but not for uploads in parts.
    if not _refuses.get(fs) or not isinstance(content, bytes):
        fs.invalidate_cache()
        if fs.exists(path):
            return False
    is_created = _try_create(location, content)
    if is_created and fs not in _refuses and isinstance(content, bytes):
        # A store that ignores the condition creates the same object twice.
        _refuses[fs] = not _try_create(location, content)
    return is_created


def _try_create(location: Location, content: Content) -> bool:
    """Create an object on the condition that it does not exist; return whether it was created."""
    for delay in (*CONFLICT_DELAYS_SECONDS, None):
        try:
            _upload(location, content, mode="create")
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
    for cause in causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            yield str(response.get("Error", {}).get("Code"))


def _write(location: Location, content: Content, *, replace: bool, is_private: bool = False) -> bool:
    """Write a file under a temporary name, then give it its own; return False if that is taken."""
    folder = location.path.rpartition("/")[0]
    # A short name of its own: the file's name plus a suffix could be too long.
    part = f"{folder}/.{secrets.token_hex(8)}.part"
    if location.is_local:
        return _write_file(Path(location.path), Path(part), content, replace=replace, is_private=is_private)
    fs = location.fs
    if not replace and fs.exists(location.path):
        return False
    fs.makedirs(folder, exist_ok=True)
    try:
        with open_content(content) as source, fs.open(part, "wb") as file:
            shutil.copyfileobj(source, file)
        fs.mv(part, location.path)
    except BaseException:
        with suppress(Exception):  # the error that led here says more than one about this
            fs.rm_file(part)
        raise
    return True


def _write_file(path: Path, part: Path, content: Content, *, replace: bool, is_private: bool) -> bool:
    """Write a file to a disk; it is synced, like its name."""
    _make_directory(path.parent)
    try:
        with open_content(content) as source, part.open("xb") as file:
            if is_private:
                os.fchmod(file.fileno(), 0o600)
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            part.replace(path)
        elif not _link(part, path):
            return False
    finally:
        part.unlink(missing_ok=True)
    _sync_directory(path.parent)
    return True


def _link(part: Path, path: Path) -> bool:
    """Give a file its name unless that is taken; return whether it was free."""
    try:
        os.link(part, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINK_ERRORS:
            raise
        if path.exists():  # such as a bucket that is mounted, which has no links
            return False
        part.replace(path)
    return True


def open_content(content: Content) -> IO[bytes]:
    """Open content to read it."""
    return BytesIO(content) if isinstance(content, bytes) else content.open("rb")


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
