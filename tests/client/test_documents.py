"""Documents are looked at before they are sent, and read as often as needed."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.client.documents import DOCX, PDF, Document
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
    with Document(io.BytesIO(content)) as document:
        assert document.media_type == media_type
        assert sum(map(len, document.chunks())) == document.length


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (5, "is no file"),
        (None, "is no file"),
        (io.StringIO("%PDF-"), "open as text"),
        ("no/such/file.pdf", "There is no file 'no/such/file.pdf'"),
        ("a\0b", "no usable path"),
        (".", "is a folder"),
    ],
)
def test_what_is_no_file_is_refused(file: Any, message: str) -> None:
    with pytest.raises(ComplianceInputError, match=message):
        Document(file)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ComplianceInputError, match="may not be read"):
        Document(tmp_path / "x.pdf")


def test_a_pipe_is_refused() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe, pytest.raises(ComplianceInputError, match="can't be read twice"):
        Document(pipe)


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
    assert Document(io.BytesIO(values.PDF), given).name == sent


def test_a_nameless_docx_has_a_name() -> None:
    assert Document(io.BytesIO(values.docx())).name == "document.docx"


def test_an_open_file_stays_open_and_a_path_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(values.PDF)
    with path.open("rb") as file:
        Document(file).close()
        assert not file.closed
    with Document(path) as document:
        stream = document._stream
    assert stream.closed


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(b"")
    with pytest.raises(
        ComplianceInputError
    ):  # an open file left behind would be a ResourceWarning, an error here
        Document(path)


def test_a_file_that_shrinks_while_it_is_sent_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(values.PDF * 50_000)
    with Document(path) as document:
        chunks = document.chunks()
        next(chunks)
        path.write_bytes(values.PDF)
        with pytest.raises(ComplianceReadError, match="became shorter"):
            list(chunks)


def test_a_store_that_fails_while_it_is_read_is_a_transient_error() -> None:
    class Failing(io.BytesIO):
        broken = False

        def read(self, size: int | None = -1, /) -> bytes:
            if self.broken:
                raise OSError(5, "Input/output error")
            return super().read(size)

    file = Failing(values.PDF)
    document = Document(file)
    file.broken = True
    with pytest.raises(ComplianceReadError, match="Input/output error") as caught:
        list(document.chunks())
    assert caught.value.transient
