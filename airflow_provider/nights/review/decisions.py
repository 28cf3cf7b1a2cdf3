"""Expert decisions about findings: written by reviews, read by later nights below the same root.

A decision belongs to a cell, that is to one text, framework and payload, and to the category that the expert
saw. So it is carried forward with the verdict, and never applied to another one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import chain
from typing import Any

from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey, has_night
from airflow_provider.nights.review.state import EXPIRED, NO_DECISION
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import one_line
from airflow_provider.runtime.provenance import instance_of
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import TableFile, complete_once, to_lines
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import digest, safe

log = logging.getLogger(__name__)

DECISIONS = "decisions"  # the table of a review's entry, and its folder beside `findings.jsonl.gz`
READERS = 16


def write_decisions(
    decisions: Sequence[Mapping[str, Any]], destination: Any, ti: Any, account: str
) -> list[Location]:
    """Write decisions as JSON Lines, replacing the decisions of an earlier attempt; return where.

    Decisions on a night are also written beside its findings, with an entry for later nights, and stay there.
    No file name contains the name of a document: the evidence of a closed night has the paths of its tables.

    :param destination: an object, or a prefix below which each task has one of its own; None for neither
    """
    task = digest(json.dumps([ti.dag_id, ti.run_id, ti.task_id, instance_of(ti)]))
    written: list[Location] = []
    if destination:
        location = Location.to_write(destination)
        written.append(location / f"{safe(ti.task_id)}-{task}.jsonl" if location.is_prefix else location)
        put_sync(written[0], to_lines(decisions))
    for (root, at), rows in _by_night(decisions).items():
        folder = Location.to_write(str(rows[0]["findings"]).rpartition("/")[0])
        table = TableFile(folder / DECISIONS / f"{safe(ti.task_id)}-{task}.jsonl")
        table.add(rows)
        complete_once([table])
        table.publish()
        written.append(table.location)
        cells = [str(row["cell"]) for row in rows]
        night = Night(at, f"{ti.dag_id}/{ti.run_id}")
        nights = EarlierNights(Location.to_write(root), "review", night, TaskKey.of(ti), account)
        # An expert may fill in an open form later: then nights that ran in the meantime did not see the
        # answer.
        if nights.own or any(row["decision"] not in (NO_DECISION, EXPIRED) for row in rows):
            nights.publish({DECISIONS: Table.of(table.location, table.sha256)}, cells)
    return written


def _by_night(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Return decisions on findings of nights, by the root and the time of their night."""
    keys = [(str(row.get("findings") or ""), str(row.get("night") or "")) for row in rows]
    roots = {key: find_root(*key) for key in dict.fromkeys(keys) if key[0]}
    for findings, _ in (key for key, root in roots.items() if not root):
        shown = one_line(redact(findings))
        log.warning("Later nights will not find decisions on '%s': no night published it.", shown)
    nights: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for key, row in zip(keys, rows, strict=True):
        if root := roots.get(key):
            nights.setdefault((root, key[1]), []).append(row)
    return nights


def find_root(findings: str, night: str) -> str:
    """Return the root below which a night published its findings; empty if it published none."""
    try:
        day = date.fromisoformat(night[:10]).isoformat()
    except ValueError:
        return ""
    folder = findings
    while (folder := folder.rpartition("/")[0]) and not folder.endswith("/"):
        if has_night(Location(folder), "assess", day):
            return folder
    return ""


def read_decisions(nights: EarlierNights) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last decision on each cell and criterion in the nights that a night sees."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with ThreadPoolExecutor(READERS) as readers:
        tables = list(readers.map(lambda entry: list(entry.rows(DECISIONS)), nights.entries("review")))
    for row in chain.from_iterable(tables):
        if row["decision"] in (NO_DECISION, EXPIRED):
            continue
        key = str(row["cell"]), str(row["criterion"])
        decision = {
            "framework": str(row.get("framework") or ""),
            "text_sha256": str(row.get("text_sha256") or ""),
            "expert": str(row["expert_id"] or row["answered_by"]),
            "expert_category": str(row["category_after"] or ""),
            "expert_rationale": str(row["rational_feedback"] or ""),
            "decided_at": str(row["decided_at"]),
            "category_before": row["category_before"],
            "is_single": row["decision"] != "agreed",  # which the switch of a form does with all the rest
        }
        if found.get(key, decision)["decided_at"] <= decision["decided_at"]:
            found[key] = decision
    return found
