"""A document to upload: opened once, looked at before anything is sent, and read as often as needed."""

from __future__ import annotations

import io
import os
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol, TypeAlias, cast, runtime_checkable

from airflow_provider.client.http.files import CHUNK, Source, explained, open_regular
from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceReadError

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


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


class Document:
    """An open PDF or DOCX document as a multipart form with the one part `file`; close it after use.

    :param file: a path, a path that opens itself, or an open, seekable binary file (read from where it
        stands, and left open)
    :param file_name: name to tell the service; by default the file's own
    """

    def __init__(self, file: FileSource, file_name: str | None = None) -> None:
        self._source, own_name, self._is_ours = _open(file)
        try:
            self._start, self.size = _measure(self._source)
            self.media_type = _media_type(self._source, self._start)
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
        self._source.seek(position)
        chunk = self._source.read(size)
        if len(chunk) < size:
            raise ComplianceReadError(f"'{self.name}' became shorter while it was sent: try again.")
        return chunk

    def close(self) -> None:
        """Close the file, if it was opened here; it was only read, so an error of that says nothing."""
        if self._is_ours:
            with suppress(Exception):
                self._source.stream.close()

    def __enter__(self) -> Document:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(file: FileSource) -> tuple[Source, str, bool]:
    """Return the open file, its name, and whether it is ours to close."""
    shown = str(file)
    if (local := _local_path(file)) is not None:
        with explained(shown):
            return Source(open_regular(local), shown), Path(local).name, True
    if isinstance(file, StoredFile):
        with explained(shown):
            return Source(file.open("rb"), shown), file.name, True
    if not hasattr(file, "read"):
        raise ComplianceInputError(f"{file!r} is no file: pass a path, a storage URI or an open binary file.")
    name = getattr(file, "name", "")
    name = name if isinstance(name, str) else ""
    return Source(cast("IO[bytes]", file), name or "document"), name, False


def _local_path(file: FileSource) -> str | os.PathLike[str] | None:
    """Return the path of a file of this machine; paths in stores may be PathLike, too."""
    protocol = getattr(file, "protocol", None)
    if protocol is not None:  # a path of fsspec, such as Airflow's ObjectStoragePath
        return getattr(file, "path", None) if protocol in ("", "file", "local") else None
    is_path = isinstance(file, str | Path) or (
        isinstance(file, os.PathLike) and not isinstance(file, StoredFile)
    )
    return cast("str | os.PathLike[str]", file) if is_path else None


def _measure(source: Source) -> tuple[int, int]:
    if isinstance(source.stream, io.TextIOBase):
        raise ComplianceInputError(f"'{source.shown}' is open as text: open it with mode 'rb'.")
    start = source.tell()
    source.end = source.seek(0, io.SEEK_END)
    if source.end <= start:
        raise ComplianceInputError(f"'{source.shown}' is empty.")
    return start, source.end - start


def _media_type(source: Source, start: int) -> str:
    """Tell PDF from DOCX by their bytes, whatever the name says."""
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
        except Exception:  # zipfile raises many kinds; what the file itself raises is ours already
            raise ComplianceInputError(
                f"'{source.shown}' looks like DOCX, but is broken or cut off."
            ) from None
    raise ComplianceInputError(f"'{source.shown}' is neither PDF nor DOCX: the service takes nothing else.")


def _safe_name(name: str) -> str:
    """Keep the last part of a name, fit for a header: quotes are percent-encoded, as browsers do."""
    name = name.replace("\\", "/").rpartition("/")[2]
    name = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(letter for letter in name if letter.isprintable())
