"""Text without secrets and control characters, for all that is logged, raised, stored or shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from html.entities import codepoint2name

from airflow_provider.redaction.addresses import (
    SECRET_PARTS,
    decode,
    has_secret_word,
    is_secret,
    mask_jwts,
    redact,
    secrets_in,
)

MIN_MASKED_CHARS = 4  # for a known secret; a shorter one would match in any text
MIN_QUOTED_CHARS = 8  # for a part of an address; a shorter one may be anything
MAX_ENUMERATED = 10  # parts of a sentence

_BREAKS = re.compile(r"[^\S ]+")  # all whitespace except the space
_JOINERS = "\u200c\u200d"  # invisible, but part of words and emoji

_ESCAPED_AMPERSAND = re.compile(r"&(?:amp|#38|#x26);|\\u0026", re.IGNORECASE)

# Secrets in a text. `re` compiles and keeps them when the first text is searched, not when a DAG is parsed.
# An address, escaped or not, as in JSON or in a parameter, and without a scheme
_ADDRESS = r"""(?xi) (?: \b[a-z][a-z0-9+.-]{0,20} (?: : | %(?:25){0,3}3a ) | (?<![\w:/\\%]) )
    (?: \\{0,7}/ | %(?:25){0,3}2f ){2} [^\s'"<>`]* [^\s'"<>`.,;:!?)\]}]"""
_GLUED = re.compile(r"(?<=[,;|@])(?=[A-Za-z][A-Za-z0-9+.-]{0,20}://)")  # where another address starts
# A name and what separates it from its value: `name=`, `"name": "`, `('name', '`, `<name>`.
_FIELD = r"""(?xi) (?: (?P<mark> [?&\#;] | [(\[]\s?\\{0,7}["'] ) | (?P<tag> (?:<|&lt;)(?:\w{1,30}:)? ) )?
    (?<![\w./-]) (?P<name>[a-z][\w.-]{0,60}+)
    (?(tag) (?:\s[^<>]{0,200})? (?:>|&gt;)
    | (?P<equals> %3d | (?:\\{0,7}["'])?\s{0,3}(?:=>?|[:,])\s{0,3} ) (?: [bru]?(?P<quote>\\{0,7}["']) )? )"""
_QUOTE = re.compile(r"""(?<!\\)(\\*)(["'])(?!\w)""")  # a letter never follows a closing quote
_UNQUOTED = re.compile(r"""[^\s&;<>"',]+(?:["',](?=\w)[^\s&;<>"',]*)*""")
_CLOSING_TAG = re.compile("</|&lt;/")
_MASKED = re.compile(r"\*\*\*|redacted")
_LINE_BREAK = re.compile("[\r\n]")
_PLAIN_WORD = re.compile(r"[A-Z]?[a-z]+[.,:;!?]*(?:\s|$)")
_HEADER = "(?i)(?P<line>(?:proxy-)?authorization|(?:set-)?cookie2?)|x-[a-z-]{0,30}(?:key|token|secret|auth)"
_CREDENTIALS = r"""(?x) \b(?P<scheme>(?i:bearer|basic|negotiate|sharedkey(?:lite)?|aws4-hmac-sha256))
    (?P<space>\s+|%20|\+) (?!(?:realm|error|scope|charset)\w*=|[A-Z]?[a-z]+[.,:;!?]*(?:\s|$))
    [\w.~+/=:%-]{4,}"""
_BARE_LOGIN = r"(?<![\w/.%+-])(?!mailto:)([\w.%+-]{1,64}):(?!//)[^\s/@:'\"<>\\]{3,128}@(?=[\w.\[])"
# A word that differs between documents that failed for the same reason: a URL, a file, an id, a long number.
_SPECIFIC = r"""(?xi) .*(?: :// | \.(?:pdf|docx?|html?|txt)$ | [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} )
    | [0-9a-f]{32,}$ | [0-9]{5,}$"""
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())
_PASSWORDS = ("password", "passwd", "passphrase", "passcode", "pwd")


def one_line(text: str) -> str:
    r"""Replace line breaks by spaces and escape control characters, so that nothing can forge a log line.

    Invalid UTF-8 in a file name becomes `\xe4`.
    """
    return text if text.isprintable() else "".join(map(_escape, _BREAKS.sub(" ", text)))


def _escape(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode()


def enumerate_few(parts: Iterable[str], length: int = 100) -> str:
    """Return the first parts for a sentence, each cut to a length, and the number of the others."""
    shown = list(parts)
    more = f" and {len(shown) - MAX_ENUMERATED:,} more" if len(shown) > MAX_ENUMERATED else ""
    return ", ".join(part[:length] for part in shown[:MAX_ENUMERATED]) + more


def sanitize(value: object, limit: int = 500) -> str:
    """Return any value as one line of at most `limit` characters, without secrets.

    It is cut first, so that the cost does not grow with the value.
    """
    try:
        text = value if isinstance(value, str) else "" if value is None else str(value)
    except ValueError:  # an integer with thousands of digits
        text = "(too long)"
    start = text[: 2 * limit]
    is_cut = len(text) > len(start)
    if is_cut and (end := max(start.rfind(" "), start.rfind("\n"))) > limit:
        start = start[:end]  # without a word that was cut: half a secret may not look like one
    line = " ".join(one_line(redact_text(start)).split())
    return line if len(line) <= limit and not is_cut else line[: limit - 1] + "…"


def redact_text(text: str) -> str:
    """Redact a text: the addresses in it, and what looks like a secret by its name or its form."""
    for needed, redact_step in _STEPS:
        if any(map(text.__contains__, needed)):  # in the text as it is now: an address may be decoded
            text = redact_step(text)
    return mask_jwts(text)


def mask(text: str, secrets: Iterable[str]) -> str:
    """Mask known secrets, including their escaped forms in HTML, URLs, JSON or Python."""
    for secret in secrets:
        if len(secret) >= MIN_MASKED_CHARS:
            text = _spellings_of(secret).sub("***", text)
    return text


def mask_address(text: str, address: str) -> str:
    """Redact a text about an address, even if it quotes only a part of the address."""
    secrets = [secret for secret in secrets_in(address) if len(secret) >= MIN_QUOTED_CHARS]
    return mask(redact_text(text), secrets)


def _redact_match(match: re.Match[str]) -> str:
    found = _ESCAPED_AMPERSAND.sub("&", match[0]).replace("\\", "")
    if "//" not in found:
        found = decode(found)
    if "://" in found:
        redacted = "".join(map(redact, _GLUED.split(found)))
    else:
        redacted = redact(f"https:{found}").removeprefix("https:")
    return match[0] if redacted == found else redacted


def _mask_fields(text: str) -> str:
    """Mask the values of all names that mean a secret; masked text is not searched again."""
    letters = text.lower().encode("ascii", "ignore").translate(None, _NO_LETTERS)
    if not any(map(letters.__contains__, SECRET_PARTS)) and not any(map(text.__contains__, "?&#;%")):
        return text
    kept, start, at = [], 0, 0
    missing: set[str] = set()
    field = re.compile(_FIELD)
    while found := field.search(text, at):
        at = found.end("name")
        if _is_secret_field(text, found) and (end := _value_end(text, found, missing)) > found.end():
            kept += [text[start : found.end()], "***"]
            start = at = end
    return "".join([*kept, text[start:]])


def _is_secret_field(text: str, field: re.Match[str]) -> bool:
    name, equals, quote, at = field["name"], field["equals"] or "", field["quote"], field.end()
    mark = field["mark"] or " "
    if mark in "?&#;":  # a query, where also short names such as `key` and `code` mean a secret
        value = _UNQUOTED.match(text, at, at + 8)  # more of it decides nothing
        means_secret = is_secret(name, value[0] if value else "")
    else:
        means_secret = has_secret_word(name)
    if not means_secret or _MASKED.match(text, at):
        return False
    if ":" in equals and not quote:  # a sentence, such as `token: expired`, unless it is a password
        is_certain = re.fullmatch(_HEADER, name) or name.lower().endswith(_PASSWORDS)
        return bool(is_certain or not _PLAIN_WORD.match(text, at))
    return "," not in equals or bool(quote and mark[0] in "([")


def _value_end(text: str, field: re.Match[str], missing: set[str]) -> int:
    """Return where a value ends; if its end is missing, that is the end of the line.

    :param missing: tags and quotes that no later one closes, so that they are searched for only once
    """
    at, opening, found = field.end(), "<" if field["tag"] else field["quote"], None
    if opening and opening not in missing:
        found = _CLOSING_TAG.search(text, at) if field["tag"] else _closing_quote(text, at, opening)
        if not found:
            missing.add(opening)
    elif not opening and not ((header := re.fullmatch(_HEADER, field["name"])) and header["line"]):
        value = _UNQUOTED.match(text, at)
        return value.end() if value else at
    found = found or _LINE_BREAK.search(text, at)
    return found.start() if found else len(text)


def _closing_quote(text: str, at: int, quote: str) -> re.Match[str] | None:
    level = len(quote)  # 1, or 2, 4, 8 with nested escapes; a quote inside of the value has more
    closing = (one for one in _QUOTE.finditer(text, at) if one[2] == quote[-1])
    return next((one for one in closing if len(one[1]) % (2 * level) == level - 1), None)


def _mask_credentials(text: str) -> str:
    words = text.casefold()
    if not any(
        map(words.__contains__, ("bearer", "bas", "negot", "sharedkey", "aws4"))
    ):  # `i` may have no dot
        return text
    return re.sub(_CREDENTIALS, r"\g<scheme>\g<space>***", text)


# Each step with letters of which one is in every text that it changes.
_STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("/%", partial(re.sub, _ADDRESS, _redact_match)),
    ("=:%;>'\"", _mask_fields),
    ("aA", _mask_credentials),
    ("@", partial(re.sub, _BARE_LOGIN, r"\1:***@")),
)


@lru_cache(maxsize=64)
def _spellings_of(secret: str) -> re.Pattern[str]:
    return re.compile("".join(map(_spellings, secret)))


def _spellings(letter: str) -> str:
    """Build a pattern for all escapes of a character."""
    if letter.isascii() and letter.isalnum():
        return letter
    code, utf8 = ord(letter), letter.encode("utf-8", "surrogatepass")
    utf16 = letter.encode("utf-16-be", "surrogatepass").hex()
    forms = [
        rf"&(?:amp;)*#0*{code};",
        rf"&(?:amp;)*#[xX]0*(?i:{code:x});",
        "".join(rf"\\u(?i:{utf16[at : at + 4]})" for at in range(0, len(utf16), 4)),
    ]
    for encoded in (utf8, *([bytes([code])] if 127 < code < 256 else [])):
        forms += ["".join(rf"%(?:25)*(?i:{byte:02x})" for byte in encoded)]
        forms += ["".join(rf"\\x(?i:{byte:02x})" for byte in encoded)]
    if name := "apos" if letter == "'" else codepoint2name.get(code):
        forms.append(rf"&(?:amp;)*{name};")
    if letter == " ":
        forms.append(r"\+")
    # A backslash escape; a latin-1 byte in a text that was decoded as UTF-8.
    forms.append(rf"\\?{re.escape(letter)}" if code < 128 else re.escape(letter))
    if 127 < code < 256:
        forms.append(chr(0xDC00 + code))
    return f"(?:{'|'.join(forms)})"


def generalize(reason: str) -> str:
    """Return a reason without the names, URLs and numbers of a single document."""

    def shorten(word: str) -> str:
        core = word.strip("'\"()[]<>.,;:!?")
        return word.replace(core, "…") if core and re.match(_SPECIFIC, core) else word

    return " ".join(map(shorten, reason.split(" ")))


def plural(number: int, noun: str = "document") -> str:
    """Return a number with its noun: `1 task` or `12,345 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
