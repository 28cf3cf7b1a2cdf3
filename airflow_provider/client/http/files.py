"""Files of any kind and store: read and written whole, with errors of ours that say what to do."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceReadError

CHUNK = 256 * 1024


def write_all(target: IO[bytes], data: bytes) -> int:
    """Write to a file of any kind, raw ones too, which may take only a part; return the byte count."""
    left = data
    while left:
        written: int | None = target.write(left)
        if written is None and not isinstance(target, io.RawIOBase):
            break  # such as paramiko's files: what they return says nothing
        if not written:
            raise BlockingIOError(errno.EAGAIN, "The file takes no more bytes: pass one that blocks")
        left = left[written:]
    return len(data)


class Source:
    """An open file whose errors, whatever library they are of, are ours; as much of one as zipfile needs."""

    def __init__(self, stream: IO[bytes], shown: str) -> None:
        self.stream = stream
        self.shown = shown
        self.end = 0  # as far as it is known

    def tell(self) -> int:
        """Return where it stands."""
        with explained(self.shown, self.stream):
            return self.stream.tell()

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Go somewhere else; some files do not say where they are then, so ask."""
        if position < (-self.end if whence == io.SEEK_END else 0):
            raise OSError(errno.EINVAL, "Before the start")  # zipfile looks there, and expects this
        with explained(self.shown, self.stream):
            self.stream.seek(position, whence)
            return self.stream.tell()

    def read(self, size: int = sys.maxsize) -> bytes:
        """Read so many bytes; fewer only at the end."""
        pieces: list[bytes] = []
        while size > 0:
            with explained(self.shown, self.stream):
                piece = self.stream.read(min(size, CHUNK))
            if isinstance(piece, str):
                raise ComplianceInputError(f"'{self.shown}' is open as text: open it with mode 'rb'.")
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


@contextmanager
def explained(shown: str, stream: IO[bytes] | None = None) -> Iterator[None]:
    """Turn whatever a file or the library of a store raises into an error of ours, which says what to do."""
    try:
        yield
    except ComplianceError:
        raise
    except Exception as error:
        raise _explain(error, shown, stream) from None


def _explain(error: Exception, shown: str, stream: IO[bytes] | None) -> ComplianceError:
    status, name = _status(error), type(error).__name__
    number = error.errno if isinstance(error, OSError) else None
    if getattr(stream, "closed", False) is True:
        return ComplianceInputError(f"'{shown}' is closed: pass it open.")
    lacks_seek = stream is not None and not (hasattr(stream, "seek") and hasattr(stream, "tell"))
    if lacks_seek or isinstance(error, io.UnsupportedOperation) or number == errno.ESPIPE:
        return ComplianceInputError(
            f"'{shown}' can't be read twice, so it could not be sent again: pass a path, or copy it."
        )
    if isinstance(error, FileNotFoundError | NotADirectoryError) or status == 404:
        return ComplianceInputError(f"There is no file '{shown}'.")
    if isinstance(error, IsADirectoryError):
        return ComplianceInputError(f"'{shown}' is a folder, not a file.")
    if isinstance(error, PermissionError):
        return ComplianceInputError(f"'{shown}' may not be read by this user: check who may read it.")
    if status in (401, 403) or "Credential" in name:
        return ComplianceInputError(
            f"'{shown}' may not be read: check the credentials for its store ({name})."
        )
    if number == errno.ELOOP:
        return ComplianceInputError(f"'{shown}' is a link that leads in a circle: pass the file itself.")
    if number == errno.ENAMETOOLONG:
        return ComplianceInputError(f"'{shown}' can't be a file, its name is too long: check the path.")
    if isinstance(error, ValueError) and stream is None:
        return ComplianceInputError(f"{shown!r} is no usable path: {error}.")
    # Not what the error says: a store's library may show a signed address.
    reason = error.strerror if isinstance(error, OSError) else f"{name}, status {status}" if status else None
    return ComplianceReadError(f"'{shown}' can't be read ({reason or name}): try again, and check its store.")


def _status(error: Exception) -> int | None:
    """Return the HTTP status in an error of botocore, gcsfs or Azure, if it has one."""
    answer = getattr(error, "response", None)
    metadata = answer.get("ResponseMetadata") if isinstance(answer, dict) else None
    known = (
        metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None,
        getattr(error, "status_code", None),
        getattr(error, "code", None),
    )
    return next((status for status in known if isinstance(status, int)), None)


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a local file to read; anything but a regular file is refused, because opening it could block."""
    _refuse_special(os.stat(path), path)  # noqa: PTH116 - a device may do something when it is opened
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_special(os.fstat(descriptor), path)  # it may have been replaced meanwhile
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_special(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "device")
    raise ComplianceInputError(f"'{path}' is a {kind}, not a file: pass the path of a file.")
