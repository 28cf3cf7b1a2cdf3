"""`history`: everything that the nights say about one document."""

from __future__ import annotations

import argparse

from airflow_provider.cli.access import open_nights
from airflow_provider.cli.commands import FAILED, GOOD, print_error, print_json, print_line
from airflow_provider.nights.reports.documents import DocumentNight
from airflow_provider.nights.reports.page import CAUSES, UNDECIDED

MAX_NAMED = 10


def run(options: argparse.Namespace) -> int:
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
        parts = [f"    {framework} {criterion}: {finding.get('category')}"]
        if finding.get("changed_from"):
            cause = CAUSES.get(str(finding.get("because")))
            parts.append(f"changed from {finding['changed_from']}{f' because {cause}' if cause else ''}")
        if finding.get("expert"):
            parts.append(f"{finding['expert']} decided {finding.get('expert_category')}")
        print_line(", ".join(parts))
    for decision in night.decisions:
        expert = decision.get("expert_id") or decision.get("answered_by") or "no one"
        left = UNDECIDED.get(str(decision.get("decision")))
        made = ("decision", "category_after", "rational_feedback")
        words = [
            decision.get("criterion"),
            *([left] if left else (decision.get(name) for name in made)),
            decision.get("decided_at"),
        ]
        print_line(f"    {expert}: {', '.join(str(word) for word in words if word)}")
