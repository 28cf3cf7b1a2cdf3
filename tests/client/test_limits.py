"""Answers have a limit of size and of time; on both clients over real sockets."""

from __future__ import annotations

import gzip
import io
import itertools
import tracemalloc
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.http.uploads import CHUNK_BYTES
from airflow_provider.client.models import ContentJob
from tests.support.server_time import ServerTime
from tests.support.service import Drip, Reply, Service
from tests.support.values import CONTENT, UUID, settings_for

MB = 1024 * 1024
STATUS = f"GET {CONTENT}/{UUID}/status"
BATCH = f"POST {CONTENT}/status/batch"
TEXT = f"GET {CONTENT}/{UUID}/content"
SUBMIT = f"POST {CONTENT}/url"
JSON = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ENDLESS = Drip(f"{JSON}Content-Length: {10**12}\r\n\r\n".encode(), b" " * MB, times=10**6)


def packed(body: bytes) -> Reply:
    return Reply(body=gzip.compress(body, 1), headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize("way", ["endless", "packed"])
def test_an_answer_without_end_is_refused_and_costs_little_memory(
    run: Any, service: Service, way: str
) -> None:
    service.on(STATUS, ENDLESS if way == "endless" else packed(b" " * 100 * MB))
    service.on("GET /api/v1/frameworks", Reply(json=[]))
    run("list_frameworks")
    tracemalloc.start()
    try:
        with pytest.raises(exc.ComplianceProtocolError, match=r"too large.* 8 MB") as caught:
            run("get_status", UUID)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.transient
    assert len(service.requests_to(STATUS)) == 1
    assert peak < 60 * MB


def test_unrequested_records_are_not_parsed(
    run: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    validate = ContentJob.model_validate

    def counted(record: Any) -> ContentJob:
        read.append(record)
        return validate(record)

    monkeypatch.setattr(ContentJob, "model_validate", counted)
    strangers = [{"uuid": f"stranger-{number}"} for number in range(20_000)]
    service.on(BATCH, Reply(json=[*strangers, 5, {"uuid": UUID.upper(), "status": "FAILED"}]))
    assert run("get_statuses", [UUID])[UUID].status == "FAILED"
    assert len(read) == 1


def test_a_text_that_is_streamed_has_no_limit(run: Any, service: Service) -> None:
    size = 64 * MB
    service.on(TEXT, Reply(body=gzip.compress(b"x" * size, 1), headers={"Content-Encoding": "gzip"}))

    class Counter(io.RawIOBase):
        count = 0

        def write(self, data: Any) -> int:
            self.count += len(data)
            assert len(data) <= MB
            return len(data)

    target = Counter()
    assert run("download_content", UUID, target) == target.count == size


# Time: a client gives three timeouts to a response, or to each piece of a stream

TIMEOUT = 60.0
ALMOST = 0.9 * TIMEOUT
SLOW_HEAD = Drip(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x", ALMOST, end=b"\r\nContent-Length: 2\r\n\r\n[]")
SLOW_BODY = Drip(f"{JSON}Content-Length: 42\r\n\r\n".encode(), every=ALMOST, end=b"[]")
SLOW_CHUNK_SIZE = Drip(
    f"{JSON}Transfer-Encoding: chunked\r\n\r\n".encode(), b"0", ALMOST, end=b"2\r\n[]\r\n0\r\n\r\n"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ServerTime:
    return ServerTime(monkeypatch)


@pytest.fixture
def timed(connect: Any, service: Service, clock: ServerTime) -> Any:
    """One client, of either kind, for which time passes as the server says."""
    caller = connect(settings_for(service.url, timeout=TIMEOUT, max_retries=0))
    clock.rule(caller, service)
    return caller


@pytest.mark.parametrize("slow", [SLOW_HEAD, SLOW_BODY, SLOW_CHUNK_SIZE], ids=["head", "body", "chunk"])
def test_dripped_response_times_out(timed: Any, service: Service, slow: Drip) -> None:
    service.on("GET /api/v1/frameworks", slow)
    with pytest.raises(exc.ComplianceConnectionError, match="timed out"):
        timed("list_frameworks")


def test_dripped_error_page_counts_by_its_status(timed: Any, service: Service) -> None:
    service.on(SUBMIT, Drip(b"HTTP/1.1 409 Conflict\r\nContent-Length: 100\r\n\r\n", every=ALMOST))
    with pytest.raises(exc.ComplianceRefusedError):
        timed("submit_url", "https://example.com")


def test_stream_has_a_limit_for_each_piece(timed: Any, service: Service) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 40\r\n\r\n"
    service.on(TEXT, Drip(head, every=ALMOST))
    with pytest.raises(exc.ComplianceConnectionError, match=r"timed out.*is incomplete"):
        timed("download_content", UUID, io.BytesIO())


class Target(io.BytesIO):
    """Somewhere to write to, which takes some time, and tells how much it has."""

    def __init__(self, clock: ServerTime | None = None) -> None:
        super().__init__()
        self.size = 0
        self._clock = clock

    def write(self, data: Any) -> int:
        if self._clock:
            self._clock.advance(0.3 * TIMEOUT)
        written = super().write(data)
        self.size += written
        return written


def test_long_stream_whose_pieces_come_in_time_is_complete(
    timed: Any, service: Service, clock: ServerTime
) -> None:
    piece, target, sent = b"x" * CHUNK_BYTES, Target(), itertools.count()

    def wait(seconds: float) -> bool:
        expected = next(sent) * CHUNK_BYTES
        while target.size < expected and not service.over.wait(0.001):
            pass
        clock.advance(seconds)
        return service.over.is_set()

    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(piece) * 10}\r\n\r\n"
    service.on(TEXT, Drip(head.encode(), piece, ALMOST, times=10))
    service.wait = wait
    timed("download_content", UUID, target)
    assert target.getvalue() == piece * 10


def test_time_that_the_target_takes_does_not_count(timed: Any, service: Service, clock: ServerTime) -> None:
    text, target = b"x" * 16 * CHUNK_BYTES, Target(clock)
    service.on(TEXT, Reply(body=text, headers={"Content-Type": "text/plain"}))
    timed("download_content", UUID, target)
    assert target.getvalue() == text
