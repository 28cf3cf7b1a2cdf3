"""A change of the catalogue as the payload of an event: small, because Airflow logs it and keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from airflow_provider.frameworks.catalogue import Catalogue, Entry
    from airflow_provider.frameworks.comparison import Change, Difference, Kind

TEXT_SHOWN = 200  # characters of each text
LEAD = 40  # characters of a long text to show before the first difference
DETAILS_SHOWN = 16_000  # characters of JSON for all details together
IDS_SHOWN = 500
IDS_LENGTH = 10_000  # characters of JSON for all ids together

T = TypeVar("T")
KINDS: tuple[Kind, ...] = ("added", "removed", "changed")


def change_id(before: Catalogue, after: Catalogue) -> str:
    """Return what identifies a change wherever and however often it is noticed."""
    return sha256(f"{before.digest}:{after.digest}".encode()).hexdigest()[:32]


def payload(
    difference: Difference, before: Catalogue, after: Catalogue, conn_id: str, may_be_known: bool
) -> dict[str, Any]:
    """Return the payload of the event: ids, names, and excerpts of texts that have changed."""
    ids = difference.framework_ids
    shown = _fitting(ids[:IDS_SHOWN], IDS_LENGTH)
    event: dict[str, Any] = {
        "id": change_id(before, after),
        "conn_id": conn_id,
        "summary": difference.summary,
        "noticed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "first_sight": not before.digest,
        "possible_repeat": may_be_known,
        "details_known": not difference.overview,
        "framework_ids": shown,
        "frameworks": {kind: [] for kind in KINDS},
        "criteria": {kind: [] for kind in KINDS},
        "left_out": len(ids) - len(shown),
    }
    details = _fitting((_detail(each) for each in difference.changes), DETAILS_SHOWN)
    for change, (place, detail) in zip(difference.changes, details, strict=False):
        event[place][change.kind].append(detail)
    event["left_out"] += len(difference.changes) - len(details)
    return event


def _fitting(values: Iterable[T], room: int) -> list[T]:
    """Return the first values, as many as have room as JSON."""
    fitting = []
    for value in values:
        room -= len(json.dumps(value))
        if room < 0:
            break
        fitting.append(value)
    return fitting


def _detail(change: Change) -> tuple[str, dict[str, Any]]:
    return ("criteria", _criterion(change)) if change.criterion else ("frameworks", _framework(change))


def _framework(change: Change) -> dict[str, Any]:
    told = {"id": _cut(change.framework.key), **_names(change.framework)}
    return {**told, **(_texts(change) if change.texts else {"criteria": change.framework.criteria_count})}


def _criterion(change: Change) -> dict[str, Any]:
    assert change.criterion  # noqa: S101 - for mypy
    where = {"framework_id": _cut(change.framework.key), "framework": _cut(change.framework.title)}
    return {**where, **_names(change.criterion), **_texts(change)}


def _names(entry: Entry) -> dict[str, str | None]:
    return {name: _cut(entry.texts.get(name)) for name in ("code_name", "name")}


def _texts(change: Change) -> dict[str, Any]:
    return (
        {"fields": {name: _excerpts(*texts) for name, texts in change.texts.items()}} if change.texts else {}
    )


def _excerpts(before: str | None, after: str | None) -> dict[str, str | None]:
    """Show both texts from a little before the place where they begin to differ."""
    begin = max(0, len(commonprefix([before or "", after or ""])) - LEAD)
    if max(len(before or ""), len(after or "")) <= TEXT_SHOWN:
        begin = 0
    return {"before": _cut(before, begin), "after": _cut(after, begin)}


def _cut(text: str | None, begin: int = 0) -> str | None:
    if text is None:
        return None
    end = begin + TEXT_SHOWN
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if len(text) > end else ''}"
