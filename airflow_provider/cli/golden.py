"""`golden`: propose golden documents, made from what experts have decided in reviews."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_provider.cli.commands import FAILED, GOOD, Command, option, print_error, print_line

if TYPE_CHECKING:
    from airflow_provider.reports.documents import DocumentTables

RUNS = 30  # the latest, that are searched


def run(options: argparse.Namespace) -> int:
    """Print a line for each decision on the chosen documents."""
    from airflow_provider.cli.access import open_nights

    decided = _read_decided(open_nights(options.uri, use_connection=options.use_connection))
    if not decided:
        print_error("No expert has decided anything in the latest nights: answer reviews first.")
        return FAILED
    for source in _choose(decided, options.limit):
        newest = max(decided[source].values(), key=lambda row: str(row["decided_at"]))
        text = newest["text_sha256"] or None
        for (framework, criterion), row in sorted(decided[source].items()):
            if row["text_sha256"] == newest["text_sha256"]:  # what was decided on another may be wrong by now
                line = {"framework": framework, "criterion": criterion, "category": row["category_after"]}
                print_line(json.dumps({"source": source, **line, "text_sha256": text}))
    return GOOD


def _read_decided(tables: DocumentTables) -> dict[str, dict[tuple[str, str], Any]]:
    """Return the last decision on each framework and criterion, by source."""
    from airflow_provider.review.state import EXPIRED, NO_DECISION

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


COMMAND = Command(
    name="golden",
    help="Propose golden documents from what experts have decided",
    description="Print golden documents as JSON Lines, for `golden` of the assess operator: documents on "
    "which experts decided in reviews of the latest 30 runs, spread over criteria and categories, with the "
    "hash of the text that the expert saw. Read them before you use them. Exit code 2: no one has decided.",
    options=(
        option("uri", metavar="URI", help="root of the nights, or a folder below it"),
        option("--limit", type=int, default=12, metavar="N", help="documents, 12 by default, at most 500"),
        option(
            "--use-connection", action="store_true", help="use the Airflow connection in the URI as tasks do"
        ),
        option("--json", action="store_true", help="as without it"),
    ),
    run=run,
)
