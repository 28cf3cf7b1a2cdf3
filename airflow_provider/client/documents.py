"""A document to upload: opened once, looked at before anything is sent, and read as often as needed."""

from __future__ import annotations

import errno
import io
import os
import secrets
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol, TypeAlias, runtime_checkable

from airflow_provider.exceptions import ComplianceInputError, ComplianceReadError

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
CHUNK = 256 * 1024


@runtime_checkable
class StoredFile(Protocol):
    """A path that opens itself, such as Airflow's ObjectStoragePath."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        ...

    def open(self, mode: str) -> IO[bytes]:
        """Open the file."""
        ...


FileSource: TypeAlias = str | os.PathLike[str] | StoredFile | IO[bytes]


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


class Document:
    """An open PDF or DOCX document as a multipart form with the one part `file`; close it after use.

    :param file: a path, a path that opens itself, or an open, seekable binary file (read from where it
        stands, and left open)
    :param file_name: name to tell the service; by default the file's own
    """

    def __init__(self, file: FileSource, file_name: str | None = None) -> None:
        self._stream, own_name, self._is_ours = _open(file)
        try:
            self._start, self.size = _measure(self._stream, own_name)
            self.media_type = _media_type(self._stream, self._start, own_name)
            self.name = _safe_name(file_name or own_name) or (
                "document.pdf" if self.media_type == PDF else "document.docx"
            )
        except BaseException:
            self.close()
            raise
        boundary = secrets.token_hex(16)
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{self.name}"\r\n'
            f"Content-Type: {self.media_type}\r\n\r\n"
        ).encode()
        self._tail = f"\r\n--{boundary}--\r\n".encode()
        self.length = len(self._head) + self.size + len(self._tail)

    def chunks(self) -> Iterator[bytes]:
        """Read the whole form once, from its start; a file that changes its size meanwhile is an error."""
        yield self._head
        position, end = self._start, self._start + self.size
        while position < end:
            chunk = self._read(position, min(CHUNK, end - position))
            position += len(chunk)
            yield chunk
        yield self._tail

    def _read(self, position: int, size: int) -> bytes:
        try:
            self._stream.seek(position)
            chunk = self._stream.read(size)
        except OSError as error:
            raise ComplianceReadError(
                f"'{self.name}' can't be read: {error.strerror or type(error).__name__}."
            ) from None
        if not chunk:
            raise ComplianceReadError(f"'{self.name}' became shorter while it was sent.")
        return chunk

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._is_ours:
            self._stream.close()

    def __enter__(self) -> Document:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(file: FileSource) -> tuple[IO[bytes], str, bool]:
    """Return the open file, its name, and whether it is ours to close."""
    if isinstance(file, str | os.PathLike) and not isinstance(file, StoredFile):
        file = Path(file)
    if not isinstance(file, StoredFile):
        if not hasattr(file, "read"):
            raise ComplianceInputError(
                f"{file!r} is no file: pass a path, a storage URI or an open binary file."
            )
        name = getattr(file, "name", "")
        return file, name if isinstance(name, str) else "", False
    try:
        return file.open("rb"), file.name, True
    except FileNotFoundError:
        raise ComplianceInputError(f"There is no file '{file}'.") from None
    except IsADirectoryError:
        raise ComplianceInputError(f"'{file}' is a folder, not a file.") from None
    except PermissionError:
        raise ComplianceInputError(f"'{file}' may not be read by this user.") from None
    except ValueError as error:
        raise ComplianceInputError(f"{str(file)!r} is no usable path: {error}.") from None


def _measure(stream: IO[bytes], name: str) -> tuple[int, int]:
    if isinstance(stream, io.TextIOBase):
        raise ComplianceInputError(f"'{name}' is open as text: open it with mode 'rb'.")
    try:
        start = stream.tell()
        size = stream.seek(0, io.SEEK_END) - start
    except (OSError, AttributeError):
        raise ComplianceInputError(
            f"'{name}' can't be read twice, so it could not be sent again: pass a path, or copy it to a file."
        ) from None
    if not size:
        raise ComplianceInputError(f"'{name}' is empty.")
    return start, size


def _media_type(stream: IO[bytes], start: int, name: str) -> str:
    """Tell PDF from DOCX by their bytes, whatever the name says."""
    stream.seek(start)
    head = stream.read(1024)
    if b"%PDF-" in head:
        return PDF
    if head.startswith(b"PK\x03\x04"):
        stream.seek(start)
        try:
            with zipfile.ZipFile(stream) as archive:
                if any(member.startswith("word/") for member in archive.namelist()):
                    return DOCX
        except (zipfile.BadZipFile, ValueError, NotImplementedError):
            raise ComplianceInputError(f"'{name}' looks like DOCX, but is broken or cut off.") from None
    raise ComplianceInputError(f"'{name}' is neither PDF nor DOCX: the service takes nothing else.")


def _safe_name(name: str) -> str:
    """Keep the last part of a name, fit for a header: quotes are percent-encoded, as browsers do."""
    name = name.replace("\\", "/").rpartition("/")[2]
    name = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(letter for letter in name if letter.isprintable())
