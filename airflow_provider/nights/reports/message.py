"""What a message about a closed night says, as plain values for the templates of notifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider.nights.reports.night import advise, summarize_night
from airflow_provider.nights.reports.outcomes import OutcomeStats
from airflow_provider.nights.reports.page import CAUSES, limit_source, standing, verdict_words
from airflow_provider.nights.reports.verdicts import VerdictCounts
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import redact_text, sanitize

MAX_CHANGES = 10  # of verdicts that got worse
MAX_NAMED = 20  # tasks without output, and documents that vanished


def describe_night(
    record: Mapping[str, Any],
    documents: OutcomeStats,
    verdicts: VerdictCounts,
    vanished: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what a person wants to read in the morning; all texts are without secrets.

    :param record: of the night
    :param vanished: the documents of an earlier night that are not among tonight's
    """
    tone, status, headline = summarize_night(record, documents, verdicts)
    worse = [change for change in verdicts.changes if change.effect == "worse"][:MAX_CHANGES]
    return {
        "date": str(record["night"])[:10],
        "dag_id": record["dag_id"],
        "run_id": record["run_id"],
        "revision": record["revision"],
        "tone": tone,
        "status": status,
        "headline": headline,
        "counts": dict(record["totals"]),
        "changes": [
            {
                "document": limit_source(redact(change.sources[0])),
                "documents": change.total,
                "framework": sanitize(change.row.get("framework"), 100),
                "criterion": sanitize(change.row.get("criterion"), 100),
                "before": verdict_words(change.row.get("changed_from")),
                "now": verdict_words(standing(change.row)),
                "because": CAUSES.get(str(change.row.get("because")), ""),
                "decision": change.state,
            }
            for change in worse
        ],
        "failed": [
            {"reason": reason, "documents": kind.total, "document": redact_text(kind.sources[0])}
            for reasons in (documents.reasons, verdicts.reasons)
            for reason, kind in reasons.most_common
        ],
        "missing": [f"{instance}: {advise(instance)}" for instance in record["missing"][:MAX_NAMED]],
        "vanished": [limit_source(redact(source)) for source in vanished[:MAX_NAMED]],
        "open": record["totals"]["open"],
    }
