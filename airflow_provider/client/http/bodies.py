"""Response bodies: decompressed, checked for truncation and size, and decoded to UTF-8 text."""

from __future__ import annotations

import codecs
import logging
import zlib
from collections.abc import Iterator, Mapping
from email.message import Message
from functools import lru_cache

from airflow_provider.client.http.wire import Failure, FailureKind, HttpResponse
from airflow_provider.exceptions import ComplianceProtocolError

log = logging.getLogger(__name__)

ACCEPT_ENCODING = "gzip"  # all that BodyDecoder knows
GZIP = zlib.MAX_WBITS | 16
PIECE_BYTES = 256 * 1024  # most decompressed bytes at a time


class BodyError(Exception):
    """A body that can't be used; `failure` says why."""

    def __init__(self, kind: FailureKind, reason: str) -> None:
        super().__init__(reason)
        self.failure = Failure(kind, reason)


_CODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress")


class BodyDecoder:
    """Decompresses one body incrementally.

    :param headers: the response headers, with names in lower case
    :param limit: maximum number of decompressed bytes; None for no limit
    """

    def __init__(self, headers: Mapping[str, str], limit: int | None) -> None:
        codings = [name.strip() for name in headers.get("content-encoding", "").lower().split(",")]
        codings = [name for name in codings if name not in ("", "identity")]
        if codings not in ([], ["gzip"], ["x-gzip"]):
            # A gateway may echo any other value, such as a token.
            known = ", ".join(name if name in _CODINGS else "unknown" for name in codings)
            raise BodyError(FailureKind.UNREADABLE, f"Content-Encoding {known[:50]!r}")
        self._is_compressed = bool(codings)
        # A chunked body may be truncated before its first byte; with a length of 0 there is no body.
        self._has_data = self._is_compressed and "chunked" in headers.get("transfer-encoding", "").lower()
        self._decompressor = zlib.decompressobj(GZIP)
        self._limit = limit
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes of the body, yield their content up to the limit."""
        for piece in self._decompress(data) if self._is_compressed else [data]:
            self._size += len(piece)
            if self._limit is not None and self._size > self._limit:
                yield piece[: self._limit - self._size]
                raise BodyError(FailureKind.TOO_LARGE, f"more than {_format_size(self._limit)}")
            yield piece

    def finish(self) -> None:
        """Check that the body is complete, or absent."""
        if self._has_data and not self._decompressor.eof:
            raise BodyError(FailureKind.UNREADABLE, "truncated compressed body")

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        more = bool(data)
        self._has_data |= more
        while more:
            if self._decompressor.eof:
                # There may be several members and padding; nothing else may follow.
                if not (data := data.lstrip(b"\0")):
                    return
                self._decompressor = zlib.decompressobj(GZIP)
            try:
                piece = self._decompressor.decompress(data, PIECE_BYTES)
            except zlib.error:
                raise BodyError(FailureKind.UNREADABLE, "corrupt compressed body") from None
            if piece:
                yield piece
            data = self._decompressor.unused_data or self._decompressor.unconsumed_tail
            # After a full piece there may be more output, even without more input.
            more = bool(data) or (len(piece) == PIECE_BYTES and not self._decompressor.eof)


def _format_size(count: int) -> str:
    return f"{count / 1024**2:g} MB" if count >= 1024**2 else f"{count / 1024:g} KB"


_EMPTY_STATE = (b"", 0)  # for a decoder
# Codecs of Python that are not charsets.
_NOT_CHARSETS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape")


class TextStream:
    """Re-encodes one response as UTF-8 incrementally.

    :param is_text: the response says that it is one; otherwise it has to be decodable, and not empty
    """

    def __init__(self, charset: str, url: str = "", *, is_text: bool = True) -> None:
        self.charset = charset
        self._url = url
        self._is_text = self._may_be_empty = is_text
        self._decoder = codecs.getincrementaldecoder(charset)()
        self._is_utf8 = codecs.lookup(charset).name == "utf-8"

    @classmethod
    def from_response(cls, response: HttpResponse) -> TextStream:
        """Start from the headers; refuse a response whose truncation could not be detected."""
        if not response.is_delimited:
            raise ComplianceProtocolError(
                f"The response from {response.url} has neither a length nor chunks, so a truncated text "
                "could not be detected. Check the proxies in front of the service."
            )
        return cls(_charset(response), response.url, is_text=response.content_type.startswith("text/"))

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, return as much UTF-8 as is complete."""
        self._may_be_empty = self._may_be_empty or bool(data)
        return self._decode(data, final=False)

    def finish(self) -> bytes:
        """Return the rest after the last bytes; refuse nothing at all, which may be a gateway's answer."""
        if not self._may_be_empty:
            raise ComplianceProtocolError(
                f"{self._url} returned nothing, not even the type of a text: that is a proxy, "
                "not the service."
            )
        return self._decode(b"", final=True)

    def _decode(self, data: bytes, *, final: bool) -> bytes:
        state = self._decoder.getstate()
        if not self._is_text and b"\0" in data and self._is_utf8:
            raise self._not_decodable()
        if self._is_utf8 and state == _EMPTY_STATE and data.isascii():
            return data  # the usual case; checking is much faster than copying
        try:
            return self._decoder.decode(data, final).encode("utf-8", "replace")
        except UnicodeError:
            if self._decoder.errors == "replace" or not self._is_text:
                raise self._not_decodable() from None
        log.warning("The text from %s is not valid %s: invalid bytes become U+FFFD.", self._url, self.charset)
        self._decoder.setstate(state)
        self._decoder.errors = "replace"
        return self._decode(data, final=final)

    def _not_decodable(self) -> ComplianceProtocolError:
        return ComplianceProtocolError(
            f"The text from {self._url} can't be decoded as {self.charset}: check its Content-Type."
        )


def _charset(response: HttpResponse) -> str:
    name = _charset_parameter(response.headers.get("content-type", ""))
    try:
        "x".encode(name)  # fails unless it is a text encoding
        is_known = codecs.lookup(name).name not in _NOT_CHARSETS
    except (LookupError, ValueError):
        is_known = False
    if not is_known:
        log.warning("The text from %s has an unknown charset: read as UTF-8.", response.url)
        return "utf-8"
    return name


@lru_cache(maxsize=16)  # a service has one or two
def _charset_parameter(content_type: str) -> str:
    header = Message()
    header["Content-Type"] = content_type
    return str(header.get_param("charset", "utf-8")).strip()
