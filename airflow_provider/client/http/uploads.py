"""Documents to upload: read from any file or store, with time limits, as often as a request is sent."""

from __future__ import annotations

import contextvars
import errno
import hashlib
import io
import os
import secrets
import stat
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, ParamSpec, Protocol, TypeAlias, TypeGuard, TypeVar, cast, runtime_checkable

from airflow_provider.client.http.stores import is_denied, is_missing, status_of
from airflow_provider.client.http.wire import Body
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceReadError,
    FailureKind,
)

P = ParamSpec("P")
T = TypeVar("T")

CHUNK_BYTES = 256 * 1024
UPLOAD_CHUNK_BYTES = 1024**2
CLOSE_SECONDS = 1.0
PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
NOT_FILES = (NotADirectoryError, IsADirectoryError)
NOT_FILE_NUMBERS = (errno.ELOOP, errno.ENAMETOOLONG)
HTML_STARTS = (b"<!doctype html", b"<html")


@runtime_checkable
class StoredFile(Protocol):
    """A path with its own `open`, such as Airflow's ObjectStoragePath."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        ...

    def open(self, mode: str) -> IO[bytes]:
        """Open the file."""
        ...


FileSource: TypeAlias = str | os.PathLike[str] | StoredFile | IO[bytes]


class MultipartUpload:
    """A PDF or DOCX file as a multipart form with a single part `file`; close it unless it is in `content`.

    :param file: a path, a `StoredFile`, or an open, seekable binary file (read from its current position, and
        left open there); its `record_read(size, sha256)` is called before (with "") and after each read.
        A small one is read once, and at once
    :param file_name: the name sent to the service; by default the file's own
    :param thread: reads the file, for all requests that send it
    """

    def __init__(
        self, file: FileSource, file_name: str | None = None, thread: DaemonThread | None = None
    ) -> None:
        self.thread = thread or DaemonThread()
        self._source, own_name, self._owns_file = _open(file)
        self._record_read: Callable[[int, str], None] | None = getattr(file, "record_read", None)
        try:
            self._start, self.size = _measure(self._source)
            self.media_type = _media_type(self._source, self._start)
            self.name = _safe_name(file_name or own_name) or (
                "document.pdf" if self.media_type == PDF else "document.docx"
            )
            boundary = secrets.token_hex(16)
            self.content_type = f"multipart/form-data; boundary={boundary}"
            self._head = (
                f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{self.name}"\r\n'
                f"Content-Type: {self.media_type}\r\n\r\n"
            ).encode()
            self._tail = f"\r\n--{boundary}--\r\n".encode()
            self.length = len(self._head) + self.size + len(self._tail)
            self.content: bytes | None = None
            if self.length <= UPLOAD_CHUNK_BYTES:
                self.content = b"".join(self.chunks())
                self.close()
        except BaseException:
            self.close()
            raise

    def chunks(self) -> Iterator[bytes]:
        """Read the whole form once, from its start; a file that became shorter is an error."""
        digest = hashlib.sha256() if self._record_read else None
        if self._record_read:
            self._record_read(self.size, "")
        yield self._head
        end = self._start + self.size
        for position in range(self._start, end, UPLOAD_CHUNK_BYTES):
            size = min(UPLOAD_CHUNK_BYTES, end - position)
            self._source.seek(position)
            chunk = self._source.read(size)
            if len(chunk) < size:
                raise ComplianceReadError(f"'{self.name}' became shorter while it was sent: retry.")
            if digest:
                digest.update(chunk)
            yield chunk
        if self._record_read and digest:
            self._record_read(self.size, digest.hexdigest())
        yield self._tail

    def close(self) -> None:
        """Close the file if it was opened here, else rewind it; errors do not matter after reading."""
        with suppress(Exception):
            if self._owns_file:
                self._source.stream.close()
            else:
                self._source.seek(self._start)  # for a caller that submits it again after a refusal


def _open(file: FileSource) -> tuple[_Reader, str, bool]:
    """Return the open file, its name, and whether we have to close it."""
    label = str(file)
    if (local := _local_path(file)) is not None:
        with _map_read_errors(label):
            return _Reader(_open_regular(local), label), Path(local).name, True
    if isinstance(file, StoredFile):
        with _map_read_errors(label):
            return _Reader(file.open("rb"), label), file.name, True
    if not hasattr(file, "read"):
        raise ComplianceInputError(
            f"{file!r} is not a file: pass a path, a storage URI or an open binary file."
        )
    name = getattr(file, "name", "")
    name = name if isinstance(name, str) else ""
    return _Reader(cast("IO[bytes]", file), name or "document"), name, False


def _local_path(file: FileSource) -> str | os.PathLike[str] | None:
    """Return the path of a local file; paths in object stores may also be PathLike."""
    protocol = getattr(file, "protocol", None)
    if protocol is not None:  # an fsspec path, such as Airflow's ObjectStoragePath
        return getattr(file, "path", None) if protocol in ("", "file", "local") else None
    is_path = isinstance(file, str | Path) or (
        isinstance(file, os.PathLike) and not isinstance(file, StoredFile)
    )
    return cast("str | os.PathLike[str]", file) if is_path else None


def _measure(source: _Reader) -> tuple[int, int]:
    if isinstance(source.stream, io.TextIOBase):
        raise ComplianceInputError(f"'{source.label}' is open as text: open it with mode 'rb'.")
    start = source.tell()
    source.end = source.seek(0, io.SEEK_END)
    if source.end <= start:
        raise ComplianceInputError(f"'{source.label}' is empty: check the file.")
    return start, source.end - start


def _media_type(source: _Reader, start: int) -> str:
    """Detect PDF or DOCX by content, not by name."""
    source.seek(start)
    head = source.read(1024)
    if b"%PDF-" in head:
        return PDF
    if head.startswith(b"PK\x03\x04"):
        source.seek(start)
        try:
            with zipfile.ZipFile(cast("IO[bytes]", source)) as archive:
                if any(member.startswith("word/") for member in archive.namelist()):
                    return DOCX
        except ComplianceError:
            raise
        except Exception:  # zipfile raises many types; errors of the file itself are ours already
            raise ComplianceInputError(
                f"'{source.label}' looks like a DOCX, but is damaged or incomplete. Check the original."
            ) from None
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:14].lower().startswith(HTML_STARTS):
        raise ComplianceInputError(
            f"'{source.label}' is a web page: submit its URL instead, because the service accepts only PDF "
            "and DOCX as files."
        )
    raise ComplianceInputError(f"'{source.label}' is neither PDF nor DOCX: the service accepts nothing else.")


def _safe_name(name: str) -> str:
    """Return the last part of a name, safe for a header: quotes are percent-encoded, as browsers do."""
    name = name.replace("\\", "/").rpartition("/")[2]
    name = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(letter for letter in name if letter.isprintable())


def write_all(target: IO[bytes], data: bytes) -> int:
    """Write to any file, even a raw one that writes only a part at a time; return the byte count."""
    left = data
    while left:
        written: int | None = target.write(left)
        if written is None and not isinstance(target, io.RawIOBase):
            break  # such as paramiko's files, which return nothing
        if not written:
            raise BlockingIOError(errno.EAGAIN, "The file is non-blocking and full: pass a blocking one")
        left = left[written:]
    return len(data)


class _Reader:
    """An open file that raises only our errors; implements what zipfile needs."""

    def __init__(self, stream: IO[bytes], label: str) -> None:
        self.stream = stream
        self.label = label
        self.end = 0  # once it is known

    def tell(self) -> int:
        """Return the current position."""
        with _map_read_errors(self.label, self.stream):
            return self.stream.tell()

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Change the position; not every file returns it, so ask."""
        if position < (-self.end if whence == io.SEEK_END else 0):
            raise OSError(errno.EINVAL, "Before the start")  # zipfile tries that, and expects this
        with _map_read_errors(self.label, self.stream):
            self.stream.seek(position, whence)
            return self.stream.tell()

    def read(self, size: int = sys.maxsize) -> bytes:
        """Read exactly `size` bytes, fewer only at the end."""
        pieces: list[bytes] = []
        while size > 0:
            with _map_read_errors(self.label, self.stream):
                piece = self.stream.read(min(size, CHUNK_BYTES))
            if isinstance(piece, str):
                raise ComplianceInputError(f"'{self.label}' is open as text: open it with mode 'rb'.")
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


@contextmanager
def _map_read_errors(label: str, stream: IO[bytes] | None = None) -> Iterator[None]:
    """Map any error of a file or a storage library to ours, with advice."""
    try:
        yield
    except ComplianceError:
        raise
    except Exception as error:
        raise _map_read_error(error, label, stream) from None


def _map_read_error(error: Exception, label: str, stream: IO[bytes] | None) -> ComplianceError:
    status, name = status_of(error), type(error).__name__
    number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, None)
    if getattr(stream, "closed", False) is True:
        return ComplianceInputError(f"'{label}' is closed: pass it open.")
    lacks_seek = stream is not None and not (hasattr(stream, "seek") and hasattr(stream, "tell"))
    if lacks_seek or isinstance(error, io.UnsupportedOperation) or number == errno.ESPIPE:
        return ComplianceInputError(
            f"'{label}' can't be read twice, so it could not be sent again: pass a path, or copy it."
        )
    if is_denied(error, status):
        return ComplianceInputError(
            f"No permission to read '{label}' ({name}): check the permissions of the file, or the "
            "credentials for its store."
        ).of_kind(FailureKind.SOURCE_DENIED)
    is_invalid = isinstance(error, ValueError) and stream is None
    if is_invalid or isinstance(error, NOT_FILES) or number in NOT_FILE_NUMBERS or is_missing(error, status):
        missing = ComplianceInputError(f"There is no file {label!r} ({reason or name}): check the path.")
        return missing.of_kind(FailureKind.SOURCE_MISSING)
    # Not the error's text: a storage library may show a signed URL.
    reason = reason or (f"{name}, status {status}" if status else name)
    return ComplianceReadError(f"'{label}' can't be read ({reason}): retry, and check its store.")


def _open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a local file; refuse anything else: opening a pipe would block, a device may do anything."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - works for paths that are not UTF-8
        raise ComplianceInputError(f"'{path}' is not a regular file: pass the path of a file.")
    return open(path, "rb")  # noqa: PTH123 - likewise; closed by the upload


class DaemonThread:
    """Calls functions one after the other in a daemon thread: one that hangs does not delay the shutdown."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._work,), name="compliance-read", daemon=True)

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function after those before it; its future can't be cancelled."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def call() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:  # raised where it is awaited
                future.set_exception(error)

        self._calls.put(call)
        if not self._thread.ident:
            self._thread.start()
        return future

    def close(self) -> None:
        """End the thread after the calls that it has."""
        self._calls.put(None)

    def _work(self) -> None:
        while call := self._calls.get():
            call()
            del call  # and with it the references that it holds


def read_timeout_error(seconds: float) -> ComplianceReadError:
    """Make the error for a read that hangs."""
    return ComplianceReadError(f"Timed out after {seconds:g} s while reading the document: check its store.")


def fits_in_chunk(body: bytes | Body) -> TypeGuard[bytes]:
    """Return whether a body is small enough to be sent without streaming."""
    return isinstance(body, bytes) and len(body) <= UPLOAD_CHUNK_BYTES


def iter_chunks(body: bytes | Body) -> Iterator[bytes | Future[bytes]]:
    """Split a body into chunks, each with its own timeout; a document is read a chunk ahead."""
    if isinstance(body, bytes):
        yield from (body[at : at + UPLOAD_CHUNK_BYTES] for at in range(0, len(body), UPLOAD_CHUNK_BYTES))
        return
    chunks, left = body.chunks(), body.length
    ahead = body.thread.submit(next, chunks, b"")
    while left > 0:
        current, ahead = ahead, body.thread.submit(next, chunks, b"")
        yield current
        left -= len(current.result())
