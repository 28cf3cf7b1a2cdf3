"""Data about documents from the nights: `history` of one, `failures` of the latest night, `golden` ones."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from airflow_provider.cli.access import open_nights
from airflow_provider.cli.commands import (
    FAILED,
    FOUND,
    GOOD,
    print_error,
    print_json,
    print_line,
    print_table,
)
from airflow_provider.exceptions import FailureKind
from airflow_provider.nights.evidence.chain import Chain
from airflow_provider.nights.reports.documents import DocumentNight, DocumentTables
from airflow_provider.nights.reports.night import advise
from airflow_provider.nights.reports.page import (
    CAUSES,
    FEEDBACK,
    OPEN,
    OVERRULED,
    format_time,
    read_decision,
    standing,
    state_of,
    verdict_words,
)
from airflow_provider.nights.review.state import EXPIRED, NO_DECISION
from airflow_provider.storage.jsonl import Row

MAX_NAMED = 10
RECORDS = 30  # that are searched for the latest night: a backfill is closed later
FIELDS = ("night", "nights", "since", "document", "framework", "failure_kind", "reason")
RUNS = 30  # the latest, that are searched for decisions


def history(options: argparse.Namespace) -> int:
    """Print the nights of a document, newest first."""
    tables = open_nights(options)
    source, nights = options.document, tables.read(options.document)
    if not nights and len(found := tables.search(options.document)) == 1:
        source, nights = found[0], tables.read(found[0])
    elif not nights:
        for name in found[:MAX_NAMED]:
            print_error(f"Several documents match: {name}")
        if not found:
            print_error("No night has this document: give its source, or a part of it.")
        return FAILED
    for night in nights:
        for table in night.changed:
            print_error(f"Left out, because it is not as it was published: {table}")
        if options.json:
            findings = list(night.findings.values())
            line = {
                "night": night.date,
                "document": night.document,
                "findings": findings,
                "decisions": night.decisions,
                "changed": night.changed,
            }
            print_json({"source": source, **line})
        else:
            _print(source, night)
    return GOOD


def _print(source: str, night: DocumentNight) -> None:
    row = night.document
    text = [
        str(row.get("status") or "no row of ingestion"),
        row.get("error"),
        row.get("path"),
        row.get("sha256"),
    ]
    print_line(f"{night.date}  {source}: {', '.join(str(part) for part in text if part)}")
    for (framework, criterion), finding in sorted(night.findings.items()):
        verdict = _describe(finding) if finding.get("expert") else finding.get("category")
        parts = [f"    {framework} {criterion}: {verdict}"]
        if finding.get("changed_from"):
            cause = CAUSES.get(str(finding.get("change_reason")))
            parts.append(f"changed from {finding['changed_from']}{f' because {cause}' if cause else ''}")
        if finding.get("open_from") and not finding.get("expert"):
            parts.append(f"open since {format_time(finding.get('first_seen'))}")
        print_line(", ".join(parts))
    for decision in map(read_decision, night.decisions):
        rationale = " ".join((decision["expert_rationale"] or "").split())
        print_line(f"    {decision['criterion']}: {_describe(decision)}{rationale and f': {rationale}'}")


def _describe(row: Row) -> str:
    """Return what stands, who decided it, when, and what became of the feedback."""
    state, at = state_of(row), format_time(row.get("decided_at"))
    if state == OPEN:
        return ", ".join(filter(None, [state, at]))
    words, outcome = verdict_words(standing(row)), FEEDBACK.get(str(row.get("outcome")))
    was = f" (the service said: {verdict_words(row.get('category'))})" if state == OVERRULED else ""
    said = ", ".join(filter(None, [f"{words}{was}", f"{state} by {row.get('expert')}", at]))
    return f"{said} ({outcome})" if outcome else said


# -- what failed


def failures(options: argparse.Namespace) -> int:
    """Print what failed."""
    kinds = set(options.kind)
    if unknown := kinds - {*FailureKind}:
        print_error(f"{min(unknown)!r} is not a kind of failure: use one of {', '.join(FailureKind)}.")
        return FAILED
    failed = _find_failed(open_nights(options))
    found = [failure for failure in failed if not kinds or failure["failure_kind"] in kinds]
    if options.json:
        for failure in found:
            print_json(failure)
    elif found:
        print_table(
            [name.upper() for name in FIELDS],
            [[str(value or "") for value in failure.values()] for failure in found],
        )
    else:
        print_line(f"Nothing {'of that kind ' if kinds else ''}failed in the latest night.")
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
                    "failure_kind": row.get("failure_kind"),
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


# -- golden documents


def golden(options: argparse.Namespace) -> int:
    """Print a line for each decision on the chosen documents."""
    decided = _read_decided(open_nights(options))
    if not decided:
        print_error("No expert decided anything in the latest nights: answer reviews first.")
        return FAILED
    for source in _choose(decided, options.limit):
        newest = max(decided[source].values(), key=lambda row: str(row["decided_at"]))
        text = newest["text_sha256"] or None
        for (framework, criterion), row in sorted(decided[source].items()):
            if row["text_sha256"] == newest["text_sha256"]:  # a decision on another text may be wrong by now
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
