"""Uploads end when they make no progress, and only then; on both clients over real sockets."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from tests.support.service import Reply, Service
from tests.support.stalls import despite_stalls, logged_in
from tests.support.values import CONTENT, PDF, UUID, settings_for

LARGE = PDF + b"x" * 20_000_000
BYTES_PER_SECOND = 8_000_000  # slow, but the megabytes that sockets buffer do not take as long as a timeout
BUFFERED = 4_000_000  # more than the buffers of loopback hold: that much is sent long before it is read
ACCEPT_ENCODING = b'HTTP/1.1 202 Accepted\r\nContent-Length: 15\r\n\r\n{"uuid":"u-17"}'


@contextmanager
def listening(serve: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server that does with each connection what a test says, until the test is over."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)

        def accept() -> None:
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

        def serve_one(connection: socket.socket) -> None:
            with connection:
                try:
                    serve(connection, over)
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)


def stop_reading(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)
    over.wait(60)


def read_slowly(connection: socket.socket, over: threading.Event) -> None:
    received, total = b"", None
    count, started = 0, time.monotonic()
    while total is None or count < total:
        data = connection.recv(262_144)
        if not data:
            return
        count += len(data)
        if total is None:
            received += data
            head, found, _ = received.partition(b"\r\n\r\n")
            if found:
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                total = len(head) + 4 + int(length)
        if total is None or count < total - BUFFERED:
            over.wait(max(0.0, started + count / BYTES_PER_SECOND - time.monotonic()))
    connection.sendall(ACCEPT_ENCODING)


def test_an_upload_that_nobody_reads_ends(connect: Any, service: Service) -> None:
    with listening(stop_reading) as url:
        run = logged_in(connect, settings_for(url, token_url=f"{service.url}/token", timeout=0.5))
        with pytest.raises(exc.ComplianceUncertainError, match="timed out"):
            run("submit_file", io.BytesIO(LARGE))


def test_a_large_payload_that_nobody_reads_ends(connect: Any, service: Service) -> None:
    with listening(stop_reading) as url:
        run = logged_in(connect, settings_for(url, token_url=f"{service.url}/token", timeout=0.5))
        with pytest.raises(exc.ComplianceUncertainError, match="timed out"):
            run("request", "POST", "/x", data=LARGE)


@pytest.mark.parametrize("kind", ["file", "payload"])
def test_an_upload_that_is_slow_but_continues_is_fine(connect: Any, service: Service, kind: str) -> None:
    with listening(read_slowly) as url:
        run = logged_in(connect, settings_for(url, token_url=f"{service.url}/token", timeout=1.5))

        def upload() -> float:
            started = time.monotonic()
            if kind == "file":
                assert run("submit_file", io.BytesIO(LARGE)).uuid == "u-17"
            else:
                assert run("request", "POST", "/x", data=LARGE).status == 202
            return time.monotonic() - started

        assert despite_stalls(upload) > 1.5


class Stuck(io.BytesIO):
    """A document whose store hangs in the middle."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.released = threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 500_000:
            self.released.wait(60)
        return super().read(size)


def test_a_document_whose_store_hangs_ends_as_unreadable(connect: Any, service: Service) -> None:
    stuck = Stuck(LARGE)
    run = logged_in(connect, settings_for(service.url, timeout=0.2))
    try:
        with pytest.raises(exc.ComplianceReadError, match="Timed out"):
            run("submit_file", stuck)
    finally:
        stuck.released.set()
    assert not service.requests_to(f"POST {CONTENT}/file")


def test_a_silent_proxy_is_a_connection_that_was_not_made(
    connect: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(stop_reading) as url:
        monkeypatch.setenv("https_proxy", url)
        run = connect(
            settings_for(
                "https://service.example", token_url=f"{service.url}/token", timeout=0.3, max_retries=0
            )
        )
        with pytest.raises(exc.ComplianceConnectionError):
            run("submit_url", "https://example.com")


def test_an_answer_before_the_end_of_an_upload_counts(connect: Any, service: Service) -> None:
    def refuse(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        while connection.recv(262_144):
            pass

    with listening(refuse) as url:
        run = connect(settings_for(url, token_url=f"{service.url}/token"))
        with pytest.raises(exc.ComplianceRefusedError, match="413"):
            run("submit_file", io.BytesIO(LARGE))


def test_uploads_still_work(run: Any, service: Service) -> None:
    service.on(f"POST {CONTENT}/file", Reply(202, json={"uuid": UUID}))
    assert run("submit_file", io.BytesIO(PDF)).uuid == UUID
