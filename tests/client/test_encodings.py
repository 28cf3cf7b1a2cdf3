"""Content-Encoding, interim answers and long headers: whole and the same, or an error, on both clients."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from tests.support.service import Raw, Reply, Service
from tests.support.values import CONTENT, UUID, settings_for

TEXT = f"GET {CONTENT}/{UUID}/content"
STATUS = f"GET {CONTENT}/{UUID}/status"
SUBMIT = f"POST {CONTENT}/url"
WORDS = "Prüfung §5 € " * 50_000


GOOD: dict[str, tuple[str, bytes]] = {
    "gzip": ("gzip", gzip.compress(WORDS.encode())),
    "upper case": (" GZIP ", gzip.compress(WORDS.encode())),
    "x-gzip": ("x-gzip", gzip.compress(WORDS.encode())),
    "members": ("gzip", gzip.compress(WORDS[:999].encode()) + gzip.compress(WORDS[999:].encode())),
    "padded": ("gzip", gzip.compress(WORDS.encode()) + bytes(1000)),
    "identity": ("identity", WORDS.encode()),
    "identity and gzip": ("gzip, identity", gzip.compress(WORDS.encode())),
}
PACKED = GOOD["gzip"][1]
BAD: dict[str, tuple[str, bytes]] = {
    "half": ("gzip", PACKED[: len(PACKED) // 2]),
    "without its check": ("gzip", PACKED[:-8]),
    "without its last byte": ("gzip", PACKED[:-1]),
    "wrong check": ("gzip", PACKED[:-8] + bytes(8)),
    "head only": ("gzip", PACKED[:5]),
    "rubbish": ("gzip", b"not packed at all"),
    "rubbish after it": ("gzip", PACKED + b"rubbish"),
    "deflate": ("deflate", zlib.compress(WORDS.encode())),  # which was not asked for
    "unknown": ("br", b"\x0b\x02\x80text\x03"),
    "unknown word": ("compress;q=1", b"text"),
    "twice": ("gzip, gzip", gzip.compress(PACKED)),
}


def reply(encoding: str, body: bytes) -> Reply:
    return Reply(body=body, headers={"Content-Encoding": encoding, "Content-Type": "text/plain"})


@pytest.mark.parametrize("case", GOOD)
def test_a_text_is_unpacked(run: Any, service: Service, case: str) -> None:
    service.on(TEXT, reply(*GOOD[case]))
    target = io.BytesIO()
    run("download_content", UUID, target)
    assert target.getvalue().decode() == WORDS
    assert run("get_content", UUID) == WORDS
    assert service.received[-1].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("case", BAD)
def test_a_text_that_can_not_be_unpacked_whole_is_an_error_that_may_pass(
    connect: Any, service: Service, case: str
) -> None:
    service.on(TEXT, reply(*BAD[case]))
    run = connect(settings_for(service.url, max_retries=1))
    for method, args in (("get_content", (UUID,)), ("download_content", (UUID, io.BytesIO()))):
        with pytest.raises(exc.ComplianceProtocolError) as caught:
            run(method, *args)
        assert caught.value.transient


@pytest.mark.parametrize("case", ["half", "unknown"])
def test_error_response_counts_by_its_status_with_any_body(run: Any, service: Service, case: str) -> None:
    encoding, body = BAD[case]
    service.on(SUBMIT, Reply(409, body=body, headers={"Content-Encoding": encoding}))
    with pytest.raises(exc.ComplianceRefusedError, match="409"):
        run("submit_url", "https://example.com")


def test_an_answer_without_a_body_may_say_how_it_would_be_packed(run: Any, service: Service) -> None:
    service.on(f"DELETE {CONTENT}/{UUID}", Reply(200, headers={"Content-Encoding": "gzip"}))
    run("cancel", UUID)
    assert len(service.requests_to(f"DELETE {CONTENT}/{UUID}")) == 1


@pytest.mark.parametrize("status", ["100 Continue", "102 Processing", "103 Early Hints"])
def test_an_interim_answer_is_not_the_answer(run: Any, service: Service, status: str) -> None:
    interim = f"HTTP/1.1 {status}\r\nLink: </x>; rel=preload\r\n\r\n".encode() * 3
    body = f'{{"uuid": "{UUID}", "status": "PENDING"}}'.encode()
    final = b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    service.on(SUBMIT, Raw(interim + final))
    assert run("submit_url", "https://example.com").status == "PENDING"
    service.on("GET /api/v1/frameworks", Reply(json=[]))
    assert run("list_frameworks") == []


def test_an_interim_answer_alone_is_uncertain(run: Any, service: Service) -> None:
    service.on(SUBMIT, Raw(b"HTTP/1.1 103 Early Hints\r\n\r\n"))
    with pytest.raises(exc.ComplianceUncertainError):
        run("submit_url", "https://example.com")


@pytest.mark.parametrize("size", [8_200, 30_000])
def test_long_headers_are_fine(run: Any, service: Service, size: int) -> None:
    service.on(STATUS, Reply(json={"status": "FAILED"}, headers={"X-Policy": "x" * size}))
    assert run("get_status", UUID).status == "FAILED"
