"""Odd but legal forms of answers, chosen by the seed, so that clients stay tolerant."""

from __future__ import annotations

import posixpath
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web
    from multidict import CIMultiDict

    from airflow_provider.emulator.memory.state import State

EXTRA_FIELDS: tuple[tuple[str, Any], ...] = (
    ("_links", {"self": {"href": "about:blank"}}),
    ("priority", 3),
    ("schemaVersion", "2026-02"),
    ("tags", []),
    ("tenant", None),
)


def format_time(state: State, seconds: float | None) -> str | None:
    """Write a point in time as one of the forms that RFC 3339 allows."""
    if seconds is None:
        return None
    if state.settings.naive_times:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    millis = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    # All forms stand for the same moment: a record must not change from one answer to the next.
    forms = (f"{millis}Z", f"{millis}000Z", f"{millis}000000Z", f"{millis}+00:00")
    return state.random.choice(forms) if state.settings.quirks else forms[0]


def shape_record(state: State, record: dict[str, Any]) -> dict[str, Any]:
    """Add fields that no document mentions, and leave out some that are null."""
    if not state.settings.quirks:
        return record
    kept = {name: value for name, value in record.items() if value is not None or state.random.random() < 0.5}
    extras = state.random.sample(EXTRA_FIELDS, state.random.randint(0, 2))
    return {**kept, **dict(extras)}


def shape_list(state: State, records: list[Any]) -> list[Any]:
    """Put a list whose order means nothing into another order."""
    return state.random.sample(records, len(records)) if state.settings.quirks else records


def make_location(state: State, request: web.Request, operation: str, **parts: str) -> str:
    """Write a Location: absolute, or now and then relative to the host or to the request."""
    target = state.settings.path_of(operation).format(**parts)
    form = state.random.random() if state.settings.quirks else 1.0
    if form < 0.2:
        return posixpath.relpath(target, posixpath.dirname(request.path))
    if form < 0.4:
        return target
    return f"http://{request.host}{target}"


def mix_case(state: State, headers: CIMultiDict[str]) -> None:
    """Write the names of headers in another case."""
    if not state.settings.quirks:
        return
    change = state.random.choice((str, str, str.lower, str.upper, str.swapcase))
    items = [(change(name), value) for name, value in headers.items()]
    headers.clear()
    headers.extend(items)


def choose_text_type(state: State, charset: str) -> str:
    """Write the content type of a text; UTF-8 need not be named."""
    named = f"text/plain;charset={charset.upper()}"
    if charset.lower() in ("utf-8", "utf8") and state.settings.quirks and state.random.random() < 0.3:
        return "text/plain"
    return named
