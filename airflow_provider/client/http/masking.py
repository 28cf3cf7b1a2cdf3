"""Sanitize foreign text for messages: one line, no hidden characters, no secrets."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from html.entities import codepoint2name
from urllib.parse import quote_plus

_BREAKS = re.compile(r"[^\S ]+")  # all whitespace except the space
_JOINERS = "\u200c\u200d"  # invisible, but part of words and emoji
MIN_SECRET_CHARS = 4  # shorter ones would match in any text
MIN_BASE64_CHARS = 8
_BACKSLASHES = r"\\{%d,15}"  # four nested escapes; unbounded, a long run of them would take quadratic time


def one_line(text: str) -> str:
    """Replace line breaks by spaces and escape control characters, so that nothing can forge a log line."""
    return "".join(
        letter if letter.isprintable() or letter in _JOINERS else letter.encode("unicode_escape").decode()
        for letter in _BREAKS.sub(" ", text)
    )


def mask(text: str, secrets: Iterable[str]) -> str:
    """Mask secrets, even if escaped for HTML, URLs, JSON or Python, or encoded in base64."""
    for secret in secrets:
        if len(secret) >= MIN_SECRET_CHARS:
            forms = ["".join(map(_spellings, secret)), *_in_base64(secret)]
            text = re.sub("|".join(forms), "***", text)
    return text


def _spellings(letter: str) -> str:
    """Build a pattern for all escapes of a character, even nested ones."""
    if letter.isascii() and letter.isalnum():
        return letter
    code, utf8 = ord(letter), letter.encode("utf-8", "surrogatepass")
    utf16 = letter.encode("utf-16-be", "surrogatepass").hex()
    forms = [
        rf"&(?:amp;)*#0*{code};",
        rf"&(?:amp;)*#[xX]0*(?i:{code:x});",
        "".join(rf"{_BACKSLASHES % 1}u(?i:{utf16[at : at + 4]})" for at in range(0, len(utf16), 4)),
    ]
    for encoded in (utf8, *([bytes([code])] if 127 < code < 256 else [])):
        forms += ["".join(rf"%(?:25)*(?i:{byte:02x})" for byte in encoded)]
        forms += ["".join(rf"{_BACKSLASHES % 1}x(?i:{byte:02x})" for byte in encoded)]
    if name := "apos" if letter == "'" else codepoint2name.get(code):
        forms.append(rf"&(?:amp;)*{name};")
    if letter == " ":
        forms.append(r"\+")
    # A backslash escape; a latin-1 byte in a text that was decoded as UTF-8.
    forms.append(rf"{_BACKSLASHES % 0}{re.escape(letter)}" if code < 128 else re.escape(letter))
    if 127 < code < 256:
        forms.append(chr(0xDC00 + code))
    return f"(?:{'|'.join(forms)})"


def _in_base64(secret: str) -> Iterator[str]:
    """Build patterns for a secret inside a larger base64-encoded text."""
    for raw in {secret, quote_plus(secret, errors="replace")}:
        data = raw.encode("utf-8", "surrogatepass")
        for before in range(3):
            encoded = base64.b64encode(bytes(before) + data).decode()
            # The characters at both ends also hold bits of their neighbors.
            core = encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
            if len(core) >= MIN_BASE64_CHARS:
                yield re.sub(r"[+/]", lambda sign: {"+": r"[+\-]", "/": "[/_]"}[sign[0]], core)
