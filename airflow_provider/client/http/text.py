"""The extracted text: from the charset of the answer to UTF-8, piece by piece."""

from __future__ import annotations

import codecs
import logging
from email.message import Message

from airflow_provider.client.wire import HttpResponse
from airflow_provider.exceptions import ComplianceProtocolError

log = logging.getLogger(__name__)

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
    def of(cls, response: HttpResponse) -> TextStream:
        """Begin with the head of an answer; one that does not say where it ends is refused."""
        if not response.has_marked_end:
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
