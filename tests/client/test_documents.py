"""Documents are looked at before they are sent, and read as often as needed."""

from __future__ import annotations

import io
import os
import traceback
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_provider.client.http.uploads import DOCX, PDF, DaemonThread, MultipartUpload
from airflow_provider.exceptions import ComplianceInputError, ComplianceReadError
from tests.support import values


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (values.PDF, PDF),
        (b"\n" * 500 + values.PDF, PDF),
        (values.docx(), DOCX),
        (values.docx("word/document2.xml"), DOCX),
    ],
)
def test_the_type_is_told_by_the_bytes(content: bytes, media_type: str) -> None:
    with closing(MultipartUpload(io.BytesIO(content))) as document:
        assert document.media_type == media_type
        assert sum(map(len, document.chunks())) == document.length


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (5, "is not a file"),
        (None, "is not a file"),
        (io.StringIO("%PDF-"), "open as text"),
        ("no/such/file.pdf", "There is no file 'no/such/file.pdf'"),
        ("a\0b", "There is no file"),
        (".", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("setup.cfg/" * 2, "There is no file"),
        (f"{__file__}/x.pdf", "There is no file"),
        ("x" * 300, "There is no file"),
        (b"x.pdf", "is not a file"),
    ],
)
def test_other_things_than_files_are_refused(file: Any, message: str) -> None:
    with pytest.raises(ComplianceInputError, match=message):
        MultipartUpload(file)


def test_links_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.symlink_to(path)
    with pytest.raises(ComplianceInputError, match=r"There is no file .*x\.pdf'"):
        MultipartUpload(path)


class Stored:
    """A path like Airflow's ObjectStoragePath of a local file."""

    protocol = "file"

    def __init__(self, path: Path) -> None:
        self.path, self.name = str(path), path.name

    def __str__(self) -> str:
        return f"file://{self.path}"

    def open(self, mode: str) -> Any:
        return Path(self.path).open(mode)


@pytest.mark.parametrize("kind", [Path, str, Stored])
def test_pipe_is_refused_at_once(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "x.pdf"
    os.mkfifo(path)
    thread = DaemonThread()  # opening a pipe would block
    error = thread.submit(MultipartUpload, kind(path)).exception(60)
    thread.close()
    assert isinstance(error, ComplianceInputError)
    assert "x.pdf' is not a regular file" in str(error)


@pytest.mark.parametrize("closed", ["before", "while it is sent"])
def test_a_closed_file_is_refused(closed: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(values.PDF)
    file = path.open("rb")
    if closed == "before":
        file.close()
        with pytest.raises(ComplianceInputError, match=r"x\.pdf' is closed: pass it open"):
            MultipartUpload(file)
        return
    document = MultipartUpload(file)
    file.close()
    with pytest.raises(ComplianceInputError, match=r"x\.pdf' is closed"):
        list(document.chunks())


class Silent(io.BytesIO):
    """Its seek returns nothing."""

    def seek(self, *args: Any) -> Any:
        super().seek(*args)


class Slow(io.BytesIO):
    """It is read in small pieces."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 3))


class Unclosed(io.BytesIO):
    """It can't be closed."""

    def close(self) -> None:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("kind", [Silent, Slow, Unclosed])
def test_unusual_file_is_read_whole(kind: type[io.BytesIO]) -> None:
    content = values.docx()
    stored = Store("", OSError())
    stored.open = lambda _: kind(content)  # type: ignore[method-assign]  # this file instead
    with closing(MultipartUpload(cast("Any", stored))) as document:
        assert content in (document.content or b"")


@pytest.mark.parametrize("length", [4, 21, 22, 30, 41, 42, 100])
def test_a_docx_that_is_cut_off_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "x.docx"
    path.write_bytes(values.docx()[:length])
    for file in (path, io.BytesIO(path.read_bytes())):
        with pytest.raises(ComplianceInputError, match="damaged or incomplete"):
            MultipartUpload(file)


def test_a_file_without_seek_is_refused() -> None:
    class Reader:
        def read(self, _: int) -> bytes:
            return values.PDF

    with pytest.raises(ComplianceInputError, match="can't be read twice"):
        MultipartUpload(cast("Any", Reader()))


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\docs\\report.pdf", "report.pdf"),
        ('a"b\r\nX: y', "a%22b%0D%0AX: y"),
        ("a\x00\x07b", "ab"),
        ("a\ud800b", "ab"),
        ("folder/", "document.pdf"),
        (None, "document.pdf"),
    ],
)
def test_the_name_is_fit_for_a_header(given: str | None, sent: str) -> None:
    assert MultipartUpload(io.BytesIO(values.PDF), given).name == sent


def test_an_open_file_stays_open_and_a_path_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(values.PDF)
    with path.open("rb") as file:
        MultipartUpload(file).close()
        assert not file.closed
    with closing(MultipartUpload(path)) as document:
        stream = document._source.stream
    assert stream.closed


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(b"")
    with pytest.raises(ComplianceInputError):  # a file that stays open would be a ResourceWarning
        MultipartUpload(path)


def test_a_file_that_shrinks_while_it_is_sent_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(values.PDF * 50_000)
    with closing(MultipartUpload(path)) as document:
        chunks = document.chunks()
        next(chunks)
        path.write_bytes(values.PDF)
        with pytest.raises(ComplianceReadError, match="became shorter"):
            list(chunks)


class ClientError(Exception):
    """Like botocore's: no OSError, with the answer in it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"An error occurred ({code}) https://store/x.pdf?X-Amz-Signature=s3cr3t")
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


class HttpError(Exception):
    """Like gcsfs's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code}")
        self.code = code


class HttpResponseError(Exception):
    """Like Azure's."""

    def __init__(self, status_code: int | None) -> None:
        super().__init__("Operation returned an invalid status https://store/x.pdf?sig=s3cr3t")
        self.status_code = status_code


class NoCredentialsError(Exception):
    """Like botocore's, and like google.auth's in kind."""


class Store:
    """A file in a store that fails at one step."""

    name = "x.pdf"

    def __init__(self, step: str, error: Exception, content: bytes = values.PDF) -> None:
        self.step, self.error, self.content = step, error, content

    def __str__(self) -> str:
        return "s3://bucket/x.pdf"

    def open(self, _: str) -> Any:
        self.fail_at("open")
        store = self

        class File(io.BytesIO):
            reads = 0

            def seek(self, *args: Any) -> int:
                store.fail_at("measure")
                return super().seek(*args)

            def read(self, size: int | None = -1, /) -> bytes:
                self.reads += 1
                store.fail_at("read" if self.reads == 1 else "later read")
                return super().read(size)

        return File(self.content)

    def fail_at(self, step: str) -> None:
        if step == self.step:
            raise self.error


FAULTS = [
    OSError(5, "Input/output error"),
    TimeoutError(),
    ClientError(503, "SlowDown"),
    HttpError(500),
    HttpResponseError(None),
    RuntimeError("Session is closed"),
    AttributeError("'NoneType' object has no attribute 'read'"),
    EOFError(),
    zipfile.BadZipFile("of the store, not of the document"),
]


@pytest.mark.parametrize("content", [values.PDF, values.docx()], ids=["pdf", "docx"])
@pytest.mark.parametrize("step", ["open", "measure", "read", "later read"])
@pytest.mark.parametrize("error", FAULTS, ids=[type(error).__name__ for error in FAULTS])
def test_a_store_that_fails_is_a_transient_error_at_every_step(
    step: str, error: Exception, content: bytes
) -> None:
    with pytest.raises(ComplianceReadError, match=r"x\.pdf' can't be read.*retry") as caught:
        list(MultipartUpload(cast("Any", Store(step, error, content))).chunks())
    assert caught.value.transient
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("step", ["open", "measure", "read", "later read"])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "No such file"), "There is no file 's3://bucket/x.pdf'"),
        (ClientError(404, "NoSuchKey"), "There is no file"),
        (HttpError(404), "There is no file"),
        (PermissionError(13, "Forbidden"), "No permission to read 's3://bucket/x.pdf'"),
        (ClientError(403, "AccessDenied"), "No permission to read .*credentials"),
        (HttpResponseError(401), "No permission to read .*credentials"),
        (NoCredentialsError(), "No permission to read .*credentials"),
    ],
)
def test_a_store_that_refuses_is_a_final_error_at_every_step(
    step: str, error: Exception, message: str
) -> None:
    with pytest.raises(ComplianceInputError, match=message) as caught:
        list(MultipartUpload(cast("Any", Store(step, error))).chunks())
    assert not caught.value.transient
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
