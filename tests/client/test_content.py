"""Texts: whole or an error, in any charset, on both clients over real sockets."""

from __future__ import annotations

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


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("head", [LENGTH + HALF, chunked(HALF, end=False)], ids=["length", "chunked"])
def test_a_text_that_breaks_off_is_an_error(run: Any, service: Service, head: bytes, reset: bool) -> None:
    service.on(TEXT, Raw(head, reset=reset))
    with pytest.raises(exc.ComplianceConnectionError) as caught:
        run("download_content", UUID, io.BytesIO())
    assert caught.value.transient


def test_a_text_in_memory_that_breaks_off_is_asked_for_again(run: Any, service: Service) -> None:
    service.on(TEXT, Raw(LENGTH + HALF), Raw(chunked(HALF, end=False), reset=True), Raw(chunked(b"whole")))
    assert run("get_content", UUID) == "whole"


def test_a_download_survives_faults_before_its_first_byte(run: Any, service: Service) -> None:
    service.on(TEXT, Reply(503), Raw(reset=True), Reply(401), Raw(chunked(b"whole")))
    target = io.BytesIO()
    assert run("download_content", UUID, target) == 5
    assert service.requests_to(TEXT)[-1].token == "access-2"
