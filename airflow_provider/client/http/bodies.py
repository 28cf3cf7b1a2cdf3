"""The body of an answer, from its bytes on the wire to its content: unpacked, whole, and within a limit."""

from __future__ import annotations

import codecs
import logging
import zlib
from collections.abc import Iterator, Mapping
from email.message import Message

from airflow_provider.client.wire import Failure, FailureKind, HttpResponse
from airflow_provider.exceptions import ComplianceProtocolError

log = logging.getLogger(__name__)

ACCEPT_ENCODING = "gzip, deflate"  # what requests ask for, and what can be decoded here
PIECE_BYTES = 256 * 1024  # bytes of content at a time, however well they are packed


class BodyError(Exception):
    """A body that can't be taken; `failure` says why."""

    def __init__(self, kind: FailureKind, reason: str) -> None:
        super().__init__(reason)
        self.failure = Failure(kind, reason)


class BodyDecoder:
    """Decodes one body, piece by piece.

    :param headers: the headers of the answer, with keys in lower case
    :param limit: how many bytes of content are taken at most; None for any number
    """

    def __init__(self, headers: Mapping[str, str], limit: int | None) -> None:
        codings = [word.strip() for word in headers.get("content-encoding", "").lower().split(",")]
        codings = [word for word in codings if word not in ("", "identity")]
        if codings not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise BodyError(FailureKind.UNREADABLE, f"Content-Encoding {', '.join(codings)[:50]!r}")
        self._is_gzip = codings in (["gzip"], ["x-gzip"])
        self._is_packed = bool(codings)
        # Chunks may end before the first byte of a packed body; a length of 0 says that there is none.
        self._is_begun = self._is_packed and "chunked" in headers.get("transfer-encoding", "").lower()
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if self._is_gzip else None
        self._limit = limit
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes of the body, give the content in them; what exceeds the limit is cut off."""
        for piece in self._unpacked(data) if self._is_packed else [data]:
            left = len(piece) if self._limit is None else self._limit - self._size
            self._size += len(piece)
            yield piece[:left]
            if len(piece) > left:
                raise BodyError(FailureKind.TOO_LARGE, f"more than {_size(self._size - len(piece) + left)}")

    def finish(self) -> None:
        """Check that the body was whole; an answer may also have none."""
        if self._is_begun and not (self._unpacker and self._unpacker.eof):
            raise BodyError(FailureKind.UNREADABLE, "a packed body that is cut off")

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        more = bool(data)
        self._is_begun |= more
        while more:
            if self._unpacker is None:  # deflate: with the head of zlib, as it should be, or bare
                self._unpacker = zlib.decompressobj(zlib.MAX_WBITS if data[0] & 15 == 8 else -zlib.MAX_WBITS)
            elif self._unpacker.eof:
                # A gzip file may have several members, and be padded; nothing else may follow.
                if not (data := data.lstrip(b"\0")):
                    return
                if not self._is_gzip:
                    raise BodyError(FailureKind.UNREADABLE, "rubbish after a packed body")
                self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                piece = self._unpacker.decompress(data, PIECE_BYTES)
            except zlib.error:
                raise BodyError(FailureKind.UNREADABLE, "a packed body that is broken") from None
            if piece:
                yield piece
            data = self._unpacker.unused_data or self._unpacker.unconsumed_tail
            # A full piece says that there may be more of it, also without more bytes to unpack.
            more = bool(data) or (len(piece) == PIECE_BYTES and not self._unpacker.eof)


def _size(count: int) -> str:
    return f"{count / 1024**2:g} MB" if count >= 1024**2 else f"{count / 1024:g} KB"


# Python calls these text encodings, but no text comes in them.
_NOTHING_KEPT = (b"", 0)  # by a decoder
_NO_CHARSETS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape")


class TextStream:
    """Turns the bytes of one answer into UTF-8."""

    def __init__(self, charset: str, url: str = "") -> None:
        self.charset = charset
        self._url = url
        self._decoder = codecs.getincrementaldecoder(charset)()
        self._is_utf8 = codecs.lookup(charset).name == "utf-8"

    @classmethod
    def from_response(cls, response: HttpResponse) -> TextStream:
        """Begin with the head of an answer; one that does not say where it ends is refused."""
        if not response.is_delimited:
            raise ComplianceProtocolError(
                f"The answer from {response.url} says neither its length nor that it is chunked, so a broken "
                "text could not be told from a whole one. Check the proxies on the way to the service."
            )
        return cls(_charset(response), response.url)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the answer, return as much UTF-8 as is complete."""
        return self._decode(data, final=False)

    def finish(self) -> bytes:
        """Return what is left after the last bytes."""
        return self._decode(b"", final=True)

    def _decode(self, data: bytes, *, final: bool) -> bytes:
        state = self._decoder.getstate()
        if self._is_utf8 and state == _NOTHING_KEPT and data.isascii():
            return data  # as it should be: looking is much faster than copying
        try:
            return self._decoder.decode(data, final).encode("utf-8", "replace")
        except UnicodeError:
            if self._decoder.errors == "replace":
                raise ComplianceProtocolError(
                    f"The text from {self._url} can't be decoded as {self.charset}."
                ) from None
        log.warning("The text from %s is not valid %s: bad bytes become U+FFFD.", self._url, self.charset)
        self._decoder.setstate(state)
        self._decoder.errors = "replace"
        return self._decode(data, final=final)


def _charset(response: HttpResponse) -> str:
    header = Message()
    header["Content-Type"] = response.headers.get("content-type", "")
    name = str(header.get_param("charset", "utf-8")).strip()
    try:
        "x".encode(name)  # fails for what is no text encoding
        known = codecs.lookup(name).name not in _NO_CHARSETS
    except (LookupError, ValueError):
        known = False
    if not known:
        log.warning("The text from %s has an unknown charset %r: read as UTF-8.", response.url, name[:50])
        return "utf-8"
    return name
