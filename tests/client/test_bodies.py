"""Bodies that are unpacked and decoded piece by piece, without I/O."""

from __future__ import annotations

import gzip
import logging

import pytest

from airflow_provider.client.http.bodies import (
    ACCEPT_ENCODING,
    PIECE_BYTES,
    BodyDecoder,
    BodyError,
    TextStream,
)
from airflow_provider.client.http.wire import FailureKind, HttpResponse
from airflow_provider.exceptions import ComplianceProtocolError
from tests.client.test_encodings import BAD, GOOD, WORDS

URL = "https://api.example.com/x"


def decode(encoding: str, body: bytes, limit: int | None = None, **headers: str) -> list[bytes]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    decoder = BodyDecoder({"content-encoding": encoding, **given}, limit)
    pieces = list(decoder.feed(body))
    decoder.finish()
    return pieces


@pytest.mark.parametrize("case", GOOD)
def test_a_body_is_unpacked(case: str) -> None:
    assert b"".join(decode(*GOOD[case])).decode() == WORDS


@pytest.mark.parametrize("case", BAD)
def test_a_body_that_is_not_whole_is_an_error(case: str) -> None:
    with pytest.raises(BodyError) as error:
        decode(*BAD[case])
    assert error.value.failure.kind is FailureKind.UNREADABLE
    assert str(error.value) == error.value.failure.reason != ""


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("half", "truncated compressed body"),
        ("rubbish", "corrupt compressed body"),
        ("unknown", "Content-Encoding 'br'"),
        ("twice", "Content-Encoding 'gzip, gzip'"),
        ("unknown word", "Content-Encoding 'unknown'"),
    ],
)
def test_the_error_says_what_is_wrong_with_a_body(case: str, reason: str) -> None:
    with pytest.raises(BodyError, match=f"^{reason}$"):
        decode(*BAD[case])


@pytest.mark.parametrize("encoding", ["x-gzip, gzip", "deflate", "br", "zstd", "compress"])
def test_only_gzip_is_accepted(encoding: str) -> None:
    assert ACCEPT_ENCODING == "gzip"
    with pytest.raises(BodyError, match=f"^Content-Encoding '{encoding}'$"):
        decode(encoding, b"")


def test_a_packed_body_comes_in_pieces_of_a_quarter_of_a_megabyte() -> None:
    assert PIECE_BYTES == 256 * 1024
    content = bytes(3 * PIECE_BYTES)
    pieces = decode("gzip", gzip.compress(content))
    assert b"".join(pieces) == content
    assert max(map(len, pieces)) == PIECE_BYTES


def test_no_body_is_truncated_only_if_it_comes_in_chunks() -> None:
    assert decode("gzip", b"") == []
    assert decode("", b"", transfer_encoding="chunked") == [b""]
    with pytest.raises(BodyError, match="truncated"):
        decode("gzip", b"", transfer_encoding="Chunked")


@pytest.mark.parametrize(
    ("limit", "shown"), [(512, "0.5 KB"), (2048, "2 KB"), (1024**2, "1 MB"), (3 * 1024**2 // 2, "1.5 MB")]
)
def test_a_body_that_is_too_large_is_cut_off(limit: int, shown: str) -> None:
    decoder = BodyDecoder({}, limit)
    kept = b"".join(decoder.feed(bytes(limit)))
    assert len(kept) == limit
    with pytest.raises(BodyError, match=f"^more than {shown}$") as error:
        list(decoder.feed(b"x"))
    assert error.value.failure.kind is FailureKind.TOO_LARGE


def text(content_type: str, *pieces: bytes) -> bytes:
    headers = {"content-type": content_type, "content-length": "1"}
    stream = TextStream.from_response(HttpResponse(200, headers, url=URL))
    return b"".join(map(stream.feed, pieces)) + stream.finish()


@pytest.mark.parametrize(
    ("content_type", "pieces", "expected"),
    [
        ("text/plain", [b"abc"], "abc"),
        ("text/plain", [b"\xc3", b"\xa4", b"b"], "äb"),
        ("text/plain; charset=ISO-8859-1", [b"\xe4"], "ä"),
        ('text/plain; charset="utf-16"', [b"\xff\xfe\xe4", b"\x00"], "ä"),
        ("", [b"abc"], "abc"),
    ],
)
def test_a_text_becomes_utf_8(content_type: str, pieces: list[bytes], expected: str) -> None:
    assert text(content_type, *pieces).decode() == expected


@pytest.mark.parametrize("charset", ["x-unknown", "idna", "punycode", "unicode-escape", "raw-unicode-escape",
                                     "base64", "hex", "a\0b"])  # fmt: skip
def test_an_unknown_charset_is_read_as_utf_8_with_a_warning(
    charset: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert text(f"text/plain; charset={charset}", "ä".encode()) == "ä".encode()
    assert "has an unknown charset" in caplog.text


def test_invalid_bytes_are_replaced_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert text("text/plain", b"a\xffb", b"c\xffd\xc3").decode() == "a\ufffdbc\ufffdd\ufffd"
    assert caplog.text.count("is not valid utf-8: invalid bytes become U+FFFD") == 1


def test_only_zeros_may_follow_a_packed_body() -> None:
    packed = gzip.compress(b"abc")
    assert decode("gzip", packed + bytes(5)) == [b"abc"]
    with pytest.raises(BodyError, match="truncated"):
        decode("gzip", packed + b"?")


def test_a_text_that_can_t_be_decoded_at_all_is_an_error() -> None:
    class Broken:
        errors = "strict"

        def getstate(self) -> tuple[bytes, int]:
            return b"", 0

        def setstate(self, state: object) -> None: ...

        def decode(self, data: bytes, final: bool) -> str:
            raise UnicodeError

    stream = TextStream("latin-1", URL)
    stream._decoder = Broken()  # type: ignore[assignment] # what is used of a decoder
    with pytest.raises(ComplianceProtocolError, match=f"from {URL} can't be decoded as latin-1"):
        stream.feed(b"x")


def test_a_text_whose_end_is_not_marked_is_refused() -> None:
    with pytest.raises(ComplianceProtocolError, match="neither a length nor chunks"):
        TextStream.from_response(HttpResponse(200, {"content-type": "text/plain"}, url=URL))


OCTETS = "application/octet-stream"
NOTHING, BINARY = "returned nothing, not even the type of a text", "can't be decoded as"


@pytest.mark.parametrize(
    ("content_type", "pieces", "problem"),
    [
        ("text/plain", [], ""),
        ("text/plain", [b"a\0b"], ""),
        ("", [], NOTHING),
        ("", [b""], NOTHING),  # an empty chunk
        ("", [b"x"], ""),
        ("", [b"x\xff"], BINARY),
        (OCTETS, [], NOTHING),
        (OCTETS, [b"x\xc3", b"\xa4"], ""),
        (OCTETS, [b"x\xc3"], BINARY),
        (OCTETS, [b"x", b"a\0b"], BINARY),
        (f"{OCTETS}; charset=utf-16-le", [b"x\0", b"y\0"], ""),
        (f"{OCTETS}; charset=utf-16-le", [b"x\0y"], BINARY),
    ],
)
def test_untyped_text_must_not_be_empty_or_binary(
    content_type: str, pieces: list[bytes], problem: str
) -> None:
    if problem:
        with pytest.raises(ComplianceProtocolError, match=problem):
            text(content_type, *pieces)
        return
    charset = content_type.partition("charset=")[2] or "utf-8"
    assert text(content_type, *pieces).decode() == b"".join(pieces).decode(charset)


def test_character_that_began_before_invalid_bytes_is_kept() -> None:
    stream = TextStream("utf-8", URL)
    text = stream.feed("ä".encode()[:1]) + stream.feed("ä".encode()[1:] + b"\xff") + stream.finish()
    assert text.decode() == "ä\N{REPLACEMENT CHARACTER}"
