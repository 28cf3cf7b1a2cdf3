"""Texts: whole or an error, whatever the charset, on both clients over real sockets."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from tests.support.service import Raw, Reply, Service
from tests.support.values import CONTENT, UUID

TEXT = f"GET {CONTENT}/{UUID}/content"
PLAIN = "Content-Type: text/plain\r\n"


def chunked(*chunks: bytes, end: bool = True) -> bytes:
    head = f"HTTP/1.1 200 OK\r\n{PLAIN}Transfer-Encoding: chunked\r\n\r\n".encode()
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + body + (b"0\r\n\r\n" if end else b"")


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("; charset=utf-8", "utf-8"),
        ("", "utf-8"),
        ('; charset="ISO-8859-1"', "latin-1"),
        ("; charset=utf-16", "utf-16"),
        ("; charset=gb18030", "gb18030"),
        ("; charset=no-such", "utf-8"),
        ("; charset=hex", "utf-8"),
        ("; charset=idna", "utf-8"),
    ],
)
def test_the_text_is_utf8_whatever_the_charset(run: Any, service: Service, charset: str, codec: str) -> None:
    text = "Prüfung §5 € " * 60_000 if codec != "latin-1" else "Prüfung §5" * 60_000
    service.on(TEXT, Reply(body=text.encode(codec), headers={"Content-Type": f"text/plain{charset}"}))
    target = io.BytesIO()
    assert run("download_content", UUID, target) == len(text.encode())
    assert target.getvalue().decode() == text
    assert run("get_content", UUID) == text


def test_letters_cut_by_chunks_are_put_together(run: Any, service: Service) -> None:
    letters = [bytes([byte]) for byte in "§ü€😀".encode()]
    service.on(TEXT, Raw(chunked(*letters)))
    target = io.BytesIO()
    run("download_content", UUID, target)
    assert target.getvalue().decode() == "§ü€😀"


def test_bad_bytes_become_replacement_characters_and_a_warning(
    run: Any, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.on(TEXT, Reply(body=b"good \xff bad \xe2\x82", headers={"Content-Type": "text/plain"}))
    assert run("get_content", UUID) == "good \ufffd bad \ufffd"
    assert "not valid utf-8" in caplog.text


def test_an_empty_text_is_empty(run: Any, service: Service) -> None:
    service.on(TEXT, Reply(body=b"", headers={"Content-Type": "text/plain"}))
    target = io.BytesIO()
    assert run("download_content", UUID, target) == 0
    assert run("get_content", UUID) == ""


@pytest.mark.parametrize(
    "answer",
    [
        Reply(body=b""),
        Reply(204),
        Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Reply(body=gzip.compress(b""), headers={"Content-Encoding": "gzip"}),
    ],
    ids=["length", "no content", "chunked", "compressed"],
)
def test_nothing_at_all_is_no_text(run: Any, service: Service, answer: Any) -> None:
    service.on(TEXT, answer)
    for call in (("get_content", UUID), ("download_content", UUID, io.BytesIO())):
        with pytest.raises(exc.ComplianceProtocolError, match="nothing, not even the type") as caught:
            run(*call)
        assert caught.value.transient


class Silent(io.BytesIO):
    """Says nothing of what it has written, like paramiko's SFTPFile."""

    def write(self, data: Any) -> Any:
        super().write(data)


class Short(io.BytesIO):
    """Writes at most 1,000 bytes at a time, as a raw file may."""

    def write(self, data: Any) -> int:
        return super().write(data[:1000])


@pytest.mark.parametrize("target", [Silent, Short])
def test_every_byte_arrives_in_an_unusual_file(run: Any, service: Service, target: type[io.BytesIO]) -> None:
    text = "Prüfung §5 € " * 60_000
    service.on(TEXT, Reply(body=text.encode(), headers={"Content-Type": "text/plain"}))
    file = target()
    assert run("download_content", UUID, file) == len(text.encode())
    assert file.getvalue().decode() == text


@pytest.mark.parametrize("written", [None, 0])
def test_a_file_that_takes_nothing_is_an_error(run: Any, service: Service, written: int | None) -> None:
    class Full(io.RawIOBase):
        def write(self, _: Any) -> int | None:
            return written

    service.on(TEXT, Reply(body=b"text", headers={"Content-Type": "text/plain"}))
    with pytest.raises(BlockingIOError, match="non-blocking and full"):
        run("download_content", UUID, Full())


HALF = b"half of it"
LENGTH = f"HTTP/1.1 200 OK\r\n{PLAIN}Content-Length: 1000\r\n\r\n".encode()
NO_LENGTH = f"HTTP/1.1 200 OK\r\n{PLAIN}Connection: close\r\n\r\n".encode()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("head", [LENGTH + HALF, chunked(HALF, end=False)], ids=["length", "chunked"])
def test_a_text_that_breaks_off_is_an_error(run: Any, service: Service, head: bytes, reset: bool) -> None:
    service.on(TEXT, Raw(head, reset=reset))
    with pytest.raises(exc.ComplianceConnectionError) as caught:
        run("download_content", UUID, io.BytesIO())
    assert caught.value.transient


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
def test_a_text_without_a_marked_end_is_refused(
    run: Any, service: Service, reset: bool, version: bytes
) -> None:
    head = NO_LENGTH.replace(b"HTTP/1.1", version)
    service.on(TEXT, Raw(head + HALF, reset=reset))
    target = io.BytesIO()
    with pytest.raises((exc.ComplianceProtocolError, exc.ComplianceConnectionError)):
        run("download_content", UUID, target)
    with pytest.raises((exc.ComplianceProtocolError, exc.ComplianceConnectionError)):
        run("get_content", UUID)
    assert target.getvalue() == b""


def test_a_text_in_memory_that_breaks_off_is_asked_for_again(run: Any, service: Service) -> None:
    service.on(TEXT, Raw(LENGTH + HALF), Raw(chunked(HALF, end=False), reset=True), Raw(chunked(b"whole")))
    assert run("get_content", UUID) == "whole"


def test_a_download_survives_faults_before_its_first_byte(run: Any, service: Service) -> None:
    service.on(TEXT, Reply(503), Raw(reset=True), Reply(401), Raw(chunked(b"whole")))
    target = io.BytesIO()
    assert run("download_content", UUID, target) == 5
    assert service.requests_to(TEXT)[-1].token == "access-2"


def test_a_login_page_is_no_text(run: Any, service: Service) -> None:
    service.on(TEXT, Reply(body=b"<html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(exc.ComplianceProtocolError, match="returned an HTML page"):
        run("download_content", UUID, io.BytesIO())


@pytest.mark.parametrize(
    "kind", ["application/octet-stream", "application/pdf", "image/png", "application/json", "text/xml"]
)
def test_what_has_another_type_is_no_text(run: Any, service: Service, kind: str) -> None:
    service.on(TEXT, Reply(body=b"<html>Maintenance</html>", headers={"Content-Type": kind}))
    with pytest.raises(exc.ComplianceProtocolError, match=f"returned {kind}, not a text") as caught:
        run("get_content", UUID)
    assert caught.value.transient


@pytest.mark.parametrize("kind", ["text/plain", "Text/Plain; charset=utf-8", "text/markdown"])
def test_any_type_of_text_is_a_text(run: Any, service: Service, kind: str) -> None:
    service.on(TEXT, Reply(body=b"A text.", headers={"Content-Type": kind}))
    assert run("get_content", UUID) == "A text."


def test_the_text_of_an_unfinished_job_is_an_error_with_the_service_s_words(
    run: Any, service: Service
) -> None:
    service.on(TEXT, Reply(409, json={"message": "job is RUNNING"}))
    with pytest.raises(exc.ComplianceRefusedError, match="job is RUNNING"):
        run("download_content", UUID, io.BytesIO())
