"""Numbers, times and foreign text as a person reads them, safe to put into HTML."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from airflow_provider.storage.names import printable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Half characters, which no encoding writes, and those that turn the direction of what follows.
UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
LOGIN = re.compile(r"(?<=://)[^/\s?#@]+@")
MAX_LINK = 2000


def sanitize(value: object, limit: int = 500) -> str:
    """Return a foreign value as one line of at most `limit` characters, without logins in addresses."""
    try:
        text = value if isinstance(value, str) else "" if value is None else str(value)
    except ValueError:  # an integer of thousands of digits
        text = "(too long)"
    # Cut first, so that a huge value costs no more than a large one.
    line = UNFIT.sub("\ufffd", " ".join(printable(text[: 2 * limit]).split()))
    line = LOGIN.sub("***@", line)
    return line if len(line) <= limit and len(text) <= 2 * limit else line[: limit - 1] + "…"


def escape(value: object, limit: int = 500) -> str:
    """Return a foreign value for HTML, be it text or the value of an attribute."""
    return html.escape(sanitize(value, limit))


def shorten(text: str, limit: int) -> str:
    """Cut a path in the middle: both its root and its name tell something."""
    tail = limit * 2 // 3
    return text if len(text) <= limit else f"{text[: limit - tail - 1]}…{text[-tail:]}"


def link(source: object, limit: int = 160) -> str:
    """Return the HTML of a source: its folder dimmed, and a link where it is a plain web address."""
    text = sanitize(source, MAX_LINK)
    if not text:
        return '<span class="dim">(unknown)</span>'
    short = shorten(text, limit)
    cut = short.rstrip("/").rfind("/") + 1
    folder, name = html.escape(short[:cut]), html.escape(short[cut:])
    shown = f'<span class="dim">{folder}</span>{name}' if folder else name
    if text != source or not is_web_address(text):
        return f"<span>{shown}</span>"
    return f'<a href="{html.escape(text)}" rel="noreferrer noopener">{shown}</a>'


def is_web_address(text: str) -> bool:
    """Tell whether a text is an address that a click may safely open."""
    if not re.fullmatch(r"(?i)https?://[^\s\\\"'<>`]+", text) or text.endswith("…"):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def count(number: int) -> str:
    """Return 12,345."""
    return f"{number:,}"


def documents(number: int) -> str:
    """Return `1 document` or `12,345 documents`."""
    return f"{number:,} document{'' if number == 1 else 's'}"


def percent(part: int, whole: int) -> str:
    """Return a share that never claims to be all or nothing when it is not."""
    share = 100 * part / whole if whole else 0.0
    if part in (0, whole):
        return f"{share:.0f}\u00a0%"
    return "<0.1\u00a0%" if share < 0.1 else f"{min(share, 99.9):.1f}\u00a0%"


def duration(seconds: float, *, exact: bool = False) -> str:
    """Return a duration in at most two units, rounded to what a reader keeps in mind unless it is `exact`."""
    if exact and seconds < 60:
        return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    whole = round(seconds)
    for size, unit, small, small_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size:,} {unit}" + (f" {rest} {small_unit}" if rest else "")
    raise AssertionError("unreachable")


def size(octets: float, *, exact: bool = False) -> str:
    """Return a size in decimal units, rounded likewise."""
    value, unit = float(octets), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    if exact:
        return f"{value:g} {unit}"
    digits = f"{value:.1f}".removesuffix(".0") if value < 9.95 and unit != "B" else f"{value:,.0f}"
    return f"{digits} {unit}"


def moment(seconds: float, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Return a time, given in seconds since 1970."""
    try:
        return (EPOCH + timedelta(seconds=seconds)).strftime(form)
    except OverflowError:
        return "(out of range)"


def read_time(value: object) -> float | None:
    """Return the seconds since 1970 of a `datetime` or an ISO 8601 text; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH).total_seconds()


def read_number(value: object) -> float | None:
    """Return a number of a size that means something, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value <= 2**63 else None
