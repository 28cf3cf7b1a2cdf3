"""`golden`: propose golden documents, made from what experts decided in reviews."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from airflow_provider.cli.access import open_nights
from airflow_provider.cli.commands import FAILED, GOOD, print_error, print_json
from airflow_provider.nights.reports.documents import DocumentTables
from airflow_provider.nights.review.state import EXPIRED, NO_DECISION

RUNS = 30  # the latest, that are searched


def run(options: argparse.Namespace) -> int:
    """Print a line for each decision on the chosen documents."""
    decided = _read_decided(open_nights(options))
    if not decided:
        print_error("No expert has decided anything in the latest nights: answer reviews first.")
        return FAILED
    for source in _choose(decided, options.limit):
        newest = max(decided[source].values(), key=lambda row: str(row["decided_at"]))
        text = newest["text_sha256"] or None
        for (framework, criterion), row in sorted(decided[source].items()):
            if row["text_sha256"] == newest["text_sha256"]:  # what was decided on another may be wrong by now
                line = {"framework": framework, "criterion": criterion, "category": row["category_after"]}
                print_json({"source": source, **line, "text_sha256": text})
    return GOOD


def _read_decided(tables: DocumentTables) -> dict[str, dict[tuple[str, str], Any]]:
    """Return the last decision on each framework and criterion, by source."""
    found: dict[str, dict[tuple[str, str], Any]] = {}
    for _, row in tables.latest_rows("review", "decisions", RUNS, is_intact=True):
        if row["decision"] not in (NO_DECISION, EXPIRED) and row.get("source") and row["category_after"]:
            of_source = found.setdefault(row["source"], {})
            key = row["framework"], row["criterion"]
            if key not in of_source or of_source[key]["decided_at"] < row["decided_at"]:
                of_source[key] = row
    return found


def _choose(decided: dict[str, dict[tuple[str, str], Any]], limit: int) -> list[str]:
    """Return documents that cover all criteria with all their categories, the rarest first."""
    covered: Counter[tuple[Any, ...]] = Counter()
    left, chosen = set(decided), list[str]()
    while left and len(chosen) < limit:

        def gain(source: str) -> tuple[float, str]:
            rows = decided[source].items()
            return sum(1 / (1 + covered[*key, row["category_after"]]) for key, row in rows), source

        chosen.append(max(left, key=gain))
        left.remove(chosen[-1])
        covered.update((*key, row["category_after"]) for key, row in decided[chosen[-1]].items())
    return chosen
