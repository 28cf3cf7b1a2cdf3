"""What experts decided about findings: written by reviews, read by the next night below the same root.

A decision belongs to a cell, that is to one text, framework and payload, and to the category that the expert
saw. So it is carried forward with the verdict, and never applied to another one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

from airflow_provider.exceptions import ComplianceError
from airflow_provider.provenance import instance_of
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import find_tables, read_valid_rows, to_lines
from airflow_provider.storage.layout import DECISIONS
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.names import digest, safe

log = logging.getLogger(__name__)

SUMMARY = "summary.json"  # beside the findings, says which root they are below
READERS = 16
KEPT_DAYS = 400  # in which a decision counts: as long as the verdict that it is about

Decision = Mapping[str, Any]
"""The columns of a decision, the `category_before` that it is about, and `decided_on`, the night of that."""


# -- written by a review


def write_decisions(
    decisions: Sequence[Decision], destination: Any, ti: Any, reviewed: str
) -> list[Location]:
    """Write decisions as JSON Lines, replacing those of an earlier attempt; return where.

    :param destination: an object, or a prefix below which each task has one of its own; None for neither
    :param ti: the task instance
    :param reviewed: the name of what was reviewed
    """
    task = digest(json.dumps([ti.dag_id, ti.run_id, ti.task_id, instance_of(ti)]))
    targets: list[tuple[Location, Sequence[Decision]]] = []
    if destination:
        location = Location.to_write(destination)
        own = location / f"{safe(reviewed)}-{task}.jsonl" if location.is_prefix else location
        targets.append((own, decisions))
    for folder, rows in _by_night(decisions).items():
        targets.append((Location.to_write(folder) / f"{safe(ti.task_id)}-{task}.jsonl", rows))
    for location, written in targets:
        put_sync(location, to_lines(written))
    return [location for location, _ in targets]


def _by_night(decisions: Iterable[Decision]) -> dict[str, list[Decision]]:
    """Return the folder below the root where the next night looks for each decision."""
    folders: dict[str, list[Decision]] = {}
    roots: dict[str, str] = {}
    for each in decisions:
        if uri := each.get("findings"):
            if uri not in roots:
                roots[uri] = _read_root(uri)
            if root := roots[uri]:
                folder = f"{root.rstrip('/')}/{DECISIONS}/{safe(str(each['night'])[:10])}"
                folders.setdefault(folder, []).append(each)
    return folders


def _read_root(findings: str) -> str:
    """Return the root that findings are below; empty if nobody knows."""
    location = Location(findings.rpartition("/")[0] + f"/{SUMMARY}")
    try:
        with storage_errors(location, "read"):
            content: bytes = location.fs.cat_file(location.path)
        return str(json.loads(content)["root"])
    except (ComplianceError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ComplianceError) and error.transient:
            raise
        log.warning("The next night will not find these decisions: '%s' can't be read: %s", location, error)
        return ""


# -- read by the next night


def read_decisions(
    root: Location, cells: Collection[str], night: str
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last decision on each cell and criterion, of all nights before.

    :param cells: the digests of tonight's cells
    :param night: when tonight is, in ISO 8601; a run that is cleared does not see decisions on itself
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in _rows(root / DECISIONS, night):
        try:
            key = str(row["cell"]), str(row["criterion"])
            if key[0] not in cells or not row["night"] < night:
                continue
            decision = {
                "expert": str(row["expert_id"] or row["answered_by"]),
                "expert_category": str(row["category_after"] or ""),
                "expert_rationale": str(row["rational_feedback"] or ""),
                "decided_at": str(row["decided_at"]),
                "decided_on": str(row["night"]),
                "category_before": row["category_before"],
            }
        except (KeyError, TypeError) as error:
            log.warning("An invalid decision below '%s' is ignored: %r", root, error)
            continue
        if key not in found or found[key]["decided_at"] <= decision["decided_at"]:
            found[key] = decision
    return found


def _rows(folder: Location, night: str) -> Iterator[dict[str, Any]]:
    oldest = (datetime.fromisoformat(night) - timedelta(days=KEPT_DAYS)).date().isoformat()
    tables = [
        location for name, location in find_tables(folder) if oldest <= name.partition("/")[0] <= night[:10]
    ]
    with ThreadPoolExecutor(READERS) as readers:
        for rows in readers.map(lambda location: list(read_valid_rows(location)), tables):
            yield from rows
