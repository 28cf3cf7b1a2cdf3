"""The payload of a framework event: small, because Airflow logs it and stores it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeVar

from airflow_provider.frameworks.catalogue import KINDS, Catalogue, Change, Difference

MAX_TEXT_CHARS = 200
MAX_DETAILS_CHARS = 16_000  # of JSON, all details together
MAX_IDS = 500
MAX_IDS_CHARS = 10_000  # of JSON, all ids together

T = TypeVar("T")


def event_id(before: Catalogue, after: Catalogue) -> str:
    """Return the id of a change: the same whoever notices it, and however often."""
    return sha256(f"{before.digest}:{after.digest}".encode()).hexdigest()[:32]


def build_payload(
    difference: Difference, before: Catalogue, after: Catalogue, conn_id: str
) -> dict[str, Any]:
    """Return the payload of the event: ids, names and excerpts of changed texts."""
    ids = difference.framework_ids
    shown = _take(ids[:MAX_IDS], MAX_IDS_CHARS)
    details = _take((_detail(each) for each in difference.changes), MAX_DETAILS_CHARS)
    event: dict[str, Any] = {
        "id": event_id(before, after),
        "conn_id": conn_id,
        "summary": difference.summary,
        "noticed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "first_sight": not before.digest,
        "details_known": not difference.overview,
        "framework_ids": shown,
        "frameworks": {kind: [] for kind in KINDS},
        "criteria": {kind: [] for kind in KINDS},
        "left_out": len(ids) - len(shown) + len(difference.changes) - len(details),
    }
    for change, detail in zip(difference.changes, details, strict=False):
        event["criteria" if change.criterion else "frameworks"][change.kind].append(detail)
    return event


def _take(values: Iterable[T], room: int) -> list[T]:
    """Return the first values that fit into the room as JSON."""
    taken = []
    for value in values:
        room -= len(json.dumps(value))
        if room < 0:
            break
        taken.append(value)
    return taken


def _detail(change: Change) -> dict[str, Any]:
    framework = change.framework
    if change.criterion:
        detail = {"framework_id": _cut(framework.key), "framework": _cut(framework.title)}
    else:
        detail = {"id": _cut(framework.key)}
    entry = change.criterion or framework
    names = {name: _cut(entry.texts.get(name)) for name in ("code_name", "name")}
    if change.texts:
        texts = {name: {"before": _cut(a), "after": _cut(b)} for name, (a, b) in change.texts.items()}
        return {**detail, **names, "fields": texts}
    return {**detail, **names, **({} if change.criterion else {"criteria": framework.criteria_count})}


def _cut(text: str | None) -> str | None:
    return f"{text[:MAX_TEXT_CHARS]}…" if text and len(text) > MAX_TEXT_CHARS else text
