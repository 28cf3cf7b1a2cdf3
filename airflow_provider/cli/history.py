"""`history`: everything that the nights say about one document."""

from __future__ import annotations

import argparse

from airflow_provider.cli.access import open_nights
from airflow_provider.cli.commands import FAILED, GOOD, print_error, print_json, print_line
from airflow_provider.nights.reports.documents import DocumentNight
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
from airflow_provider.storage.jsonl import Row

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
