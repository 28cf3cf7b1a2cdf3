"""`failures`: the documents that failed in the latest night, with the reason."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Any

from airflow_provider.cli.access import open_nights
from airflow_provider.cli.commands import FOUND, GOOD, print_json, print_line, print_table
from airflow_provider.nights.evidence.chain import Chain
from airflow_provider.nights.reports.documents import DocumentTables
from airflow_provider.nights.reports.night import advise
from airflow_provider.storage.jsonl import Row

RECORDS = 30  # that are searched for the latest night: a backfill is closed later
FIELDS = ("night", "nights", "since", "document", "framework", "reason")


def run(options: argparse.Namespace) -> int:
    """Print what failed."""
    found = list(_find_failed(open_nights(options)))
    if options.json:
        for failure in found:
            print_json(failure)
    elif found:
        print_table(
            [name.upper() for name in FIELDS],
            [[str(value or "") for value in failure.values()] for failure in found],
        )
    else:
        print_line("Nothing failed in the latest night.")
    return FOUND if found else GOOD


def _find_failed(tables: DocumentTables) -> Iterator[dict[str, Any]]:
    """Iterate over failed tasks, documents and assessments; of several runs, the latest counts."""
    yield from _find_failed_tasks(tables)
    for kind, table in (("ingest", "manifest"), ("assess", "assessments")):
        latest: dict[tuple[Any, Any], tuple[str, Row]] = {}
        for day, row in tables.latest_rows(kind, table):
            latest.setdefault((row.get("source"), row.get("framework")), (day, row))
        for day, row in latest.values():
            if row.get("status") == "FAILED":
                yield {
                    "night": day,
                    "nights": row.get("failed_nights"),
                    "since": str(row.get("failed_since") or "")[:10],
                    "document": row.get("source"),
                    "framework": row.get("framework"),
                    "reason": row.get("error"),
                }


def _find_failed_tasks(tables: DocumentTables) -> Iterator[dict[str, Any]]:
    """Iterate over the tasks that failed or left no manifest in the latest night that was closed."""
    chain = Chain(tables.root)
    records = [entry.record for entry in islice(chain.newest_first(chain.find_head()), RECORDS)]
    latest = max(records, key=lambda record: str(record.get("night") or ""), default={})
    reasons = [f"Task {task}: {advise(task)}." for task in latest.get("missing") or ()]
    reasons += [f"Task {task} failed, but left a manifest." for task in latest.get("failed_tasks") or ()]
    for reason in reasons:
        yield {**dict.fromkeys(FIELDS), "night": str(latest.get("night"))[:10], "reason": reason}
