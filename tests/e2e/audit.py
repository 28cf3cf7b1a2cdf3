"""What came of an ingest, told by what lies in the store, not by what Airflow says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider.storage.names import OWN_FOLDERS
from tests.e2e.stage import Stage, key_of

JOURNAL = "/journal-"


def manifests(stage: Stage, prefix: str) -> list[str]:
    """Find the manifests below a prefix."""
    return sorted(key for key in stage.keys(prefix) if key.endswith("/manifest.jsonl"))


def problems(
    stage: Stage, prefix: str, wanted: Mapping[str, str | None], beside: Iterable[str] = ()
) -> list[str]:
    """Compare all texts below a prefix with their documents; say all that is wrong.

    :param wanted: the text of each source, None where it can't be read
    :param beside: what else may be there
    """
    keys = stage.keys(prefix)
    rows = [row for manifest in manifests(stage, prefix) for row in stage.rows(manifest)]
    by_source = {row["source"]: row for row in rows}
    found = [f"{len(rows)} rows for {len(by_source)} sources"] if len(rows) != len(by_source) else []
    found += [f"{source}: lost" for source in wanted.keys() - by_source.keys()]
    found += [f"{source}: was not asked for" for source in by_source.keys() - wanted.keys()]
    for source in wanted.keys() & by_source.keys():
        if problem := _problem(stage, wanted[source], by_source[source]):
            found.append(f"{source}: {problem}")
    named = {key_of(row["path"]) for row in rows if row["path"]} | {key_of(uri) for uri in beside}
    found += [f"{key}: no manifest names it" for key in keys - named if not OWN_FOLDERS & {*key.split("/")}]
    found += [f"{key}: left over" for key in keys if JOURNAL in key or key.endswith(".part")]
    return found


def _problem(stage: Stage, text: str | None, row: dict[str, Any]) -> str:
    if text is None:
        return "" if row["status"] == "FAILED" and row["error"] else f"can't be read, but is {row['status']}"
    if row["status"] != "COMPLETED":
        return f"{row['status']}, {row['error']}"
    data = stage.read(row["path"])
    if data != text.encode():
        return "not the text of the document"
    is_right = row["sha256"] == hashlib.sha256(data).hexdigest() and row["bytes"] == len(data)
    return "" if is_right else "size or hash are not those of the text"
