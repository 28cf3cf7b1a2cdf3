"""Uploads end when they make no progress, and only then; on both clients over real sockets."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client import aio
from airflow_provider.client.http.uploads import UPLOAD_CHUNK_BYTES, iter_chunks
from airflow_provider.client.http.wire import Body
from airflow_provider.client.settings import Settings
from tests.support.clock import DAY
from tests.support.server_time import ServerTime, logged_in
from tests.support.service import Reply, Service
from tests.support.values import CONTENT, PDF, UUID, settings_for

LARGE = PDF + b"x" * 20_000_000  # more than the buffers of loopback hold


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ServerTime:
    return ServerTime(monkeypatch)


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
    over.wait(240)


def upload(run: Any, kind: str) -> None:
    if kind == "file":
        assert run("submit_file", io.BytesIO(LARGE)).uuid == UUID
    else:
        assert run("request", "POST", f"{CONTENT}/file", data=LARGE).status == 202


class HastyUpload(aio._StallTimeout):
    """The limits of a request, with a short one to send a chunk."""

    def __init__(self, timeout: float, response_timeout: float) -> None:
        super().__init__(0.05, response_timeout)


@pytest.mark.parametrize("kind", ["file", "payload"])
def test_upload_that_is_not_read_times_out(
    connect: Any, client_kind: str, service: Service, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # Only sending is limited to a short time: however slow this machine is, nothing else times out.
    monkeypatch.setattr(Settings, "response_timeout", 240.0)
    monkeypatch.setattr(aio, "_StallTimeout", HastyUpload)
    timeout = 0.05 if client_kind == "requests" else 240.0
    with listening(stop_reading) as url:
        run = logged_in(connect, settings_for(url, token_url=f"{service.url}/token", timeout=timeout))
        with pytest.raises(exc.ComplianceUncertainError, match="timed out"):
            upload(run, kind)


@pytest.mark.parametrize("kind", ["file", "payload"])
def test_each_chunk_of_an_upload_has_its_own_limit(
    run: Any,
    client_kind: str,
    service: Service,
    settings: Settings,
    clock: ServerTime,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    service.on(f"POST {CONTENT}/file", Reply(202, json={"uuid": UUID}))
    clock.rule(run, service)
    sent: list[tuple[int, float | None]] = []
    send = socket.socket.sendall

    def spy(self: socket.socket, data: Any, *args: Any) -> None:
        if len(data) > 1000:
            sent.append((len(data), self.gettimeout()))
        send(self, data, *args)

    def iter_slowly(body: bytes | Body) -> Iterator[bytes | Future[bytes]]:
        for chunk in iter_chunks(body):
            clock.advance(0.9 * settings.timeout)
            yield chunk

    # The limit of requests is that of a call of `sendall`; that of aiohttp is ours.
    monkeypatch.setattr(socket.socket, "sendall", spy, raising=False)
    monkeypatch.setattr("airflow_provider.client.sync.iter_chunks", iter_slowly)
    monkeypatch.setattr(aio, "iter_chunks", iter_slowly)
    upload(run, kind)
    if client_kind == "requests":
        assert len(sent) >= len(LARGE) / UPLOAD_CHUNK_BYTES
        assert all(size <= UPLOAD_CHUNK_BYTES and timeout == settings.timeout for size, timeout in sent)


class Stuck(io.BytesIO):
    """A document whose store hangs in the middle."""

    def __init__(self, content: bytes, on_stuck: Callable[[], object]) -> None:
        super().__init__(content)
        self.released = threading.Event()
        self._on_stuck = on_stuck

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 500_000 and not self.released.is_set():
            self._on_stuck()
            self.released.wait(240)
        return super().read(size)


def test_document_whose_store_hangs_is_unreadable(
    run: Any, client_kind: str, service: Service, clock: ServerTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    if client_kind == "requests":
        stuck = Stuck(LARGE, lambda: None)
        monkeypatch.setattr(Settings, "response_timeout", 0.1)
    else:
        stuck = Stuck(LARGE, lambda: clock.wait(DAY))
        clock.rule(run, service)
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
                "https://service.example", token_url=f"{service.url}/token", timeout=0.1, max_retries=0
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
