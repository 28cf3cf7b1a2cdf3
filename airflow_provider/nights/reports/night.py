"""The report of a whole night, compared with earlier nights, and what a message about it says."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider.nights.reports.judge import JudgeStats
from airflow_provider.nights.reports.outcomes import OutcomeStats
from airflow_provider.nights.reports.page import (
    CAUSES,
    Summary,
    limit_source,
    render,
    standing,
    summarize,
    verdict_words,
)
from airflow_provider.nights.reports.trend import JUDGE_CHARTS, TrendPoint, plot_trend
from airflow_provider.nights.reports.verdicts import VerdictCounts
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import plural, redact_text, sanitize

SALT_BYTES = 16  # so that the hash of a page confirms no name once the page is gone
MAX_TREND_NIGHTS = 30  # this one included
MAX_TOLD = 10  # verdicts that got worse, in a message
MAX_NAMED = 20  # in a message: tasks without output, and documents that vanished
KINDS = {
    "ingest": "Manifests of ingestion",
    "assess": "Assessments",
    "findings": "Findings",
    "golden": "Golden documents",
    "agreement": "Agreement with experts",
    "review": "Expert decisions",
}


def render_night(
    record: Mapping[str, Any],
    documents: OutcomeStats,
    verdicts: VerdictCounts,
    judge: JudgeStats,
    *,
    trend: Sequence[tuple[object, object]] = (),
    vanished: Sequence[str] = (),
    rules: Sequence[tuple[str, ...]] = (),
) -> str:
    """Return the HTML page of a night.

    :param record: of the night, without the report itself; see docs/evidence-format.md
    :param documents: rows of all ingest manifests
    :param verdicts: rows of all assessments and findings
    :param judge: rows about golden documents and agreement with experts
    :param trend: dates and totals of earlier nights, the latest first
    :param vanished: the first documents of an earlier night that are not among tonight's
    :param rules: what changed in them: framework, criterion, field, and its value before and after
    """
    root = shlex.quote(sanitize(record["root"]))
    earlier = [TrendPoint.parse(*night) for night in trend[: MAX_TREND_NIGHTS - 1]]
    points = [TrendPoint.parse(record["night"], record["totals"]), *earlier]
    return render(
        "night.html",
        summary=summarize_night(record, documents, verdicts),
        record=record,
        salt=secrets.token_hex(SALT_BYTES),
        advise=advise,
        documents=documents,
        verdicts=verdicts,
        last_night=trend[0][0] if trend else "",
        more_documents=documents.total - earlier[0].numbers["documents"] if earlier else 0,
        trend=plot_trend(points),
        judge=judge,
        judge_trend=plot_trend(points, JUDGE_CHARTS),
        vanished=vanished,
        rules=rules,
        files={
            title: [manifest for manifest in record["manifests"] if manifest["kind"] == kind]
            for kind, title in KINDS.items()
        },
        command=f"python -m airflow_provider verify {root}",
    )


def describe_night(
    record: Mapping[str, Any],
    documents: OutcomeStats,
    verdicts: VerdictCounts,
    vanished: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what a message about a closed night says, for templates of notifiers; without secrets.

    :param record: of the night
    :param vanished: the documents of an earlier night that are not among tonight's
    """
    tone, status, headline = summarize_night(record, documents, verdicts)
    worse = [change for change in verdicts.changes if change.effect == "worse"][:MAX_TOLD]
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
                "change_reason": CAUSES.get(str(change.row.get("change_reason")), ""),
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


def advise(instance: object) -> str:
    """Return what to do about a task instance that left no manifest, such as `ingest[3] (failed)`."""
    if str(instance).endswith("(upstream_failed)"):
        return "did not run, because a task above it failed"
    if str(instance).endswith("(not run)"):
        return "had not run when the night was closed"
    return "see its log, then clear it with all tasks downstream"


def summarize_night(record: Mapping[str, Any], documents: OutcomeStats, verdicts: VerdictCounts) -> Summary:
    """Return the tone, the status and the headline: of several problems, the worst."""
    parts = [*_find_problems(record, documents), *verdicts.summarize(), *documents.summarize()]
    return summarize(parts, "There was nothing to do in this night.")


def _find_problems(record: Mapping[str, Any], documents: OutcomeStats) -> Iterator[Summary]:
    """Yield what is wrong with a night, apart from its documents and verdicts."""
    if (listed := record["totals"].get("sample_of")) is not None:
        yield "idle", "A sample", f"A sample of {documents.total:,} of {plural(listed)}."
    if missing := record["missing"]:
        more = f" and {len(missing) - 1:,} more" if missing[1:] else ""
        tasks = f"{plural(len(missing), 'task')} of this night left no manifest"
        yield "bad", "Incomplete", f"{tasks}: {sanitize(missing[0], 200)}{more}."
    if vanished := record["totals"]["vanished"]:
        day = sanitize(record["compared_with"]["night"])[:10]
        tone, status = ("warn", f"{vanished:,} vanished") if documents.total else ("bad", "No documents")
        yield tone, status, f"{plural(vanished)} of the night of {day} vanished."
    if record["gone_frameworks"]:
        gone = plural(len(record["gone_frameworks"]), "framework")
        yield "warn", f"{gone} gone", f"{gone} of the night before without a verdict."
    if drifted := record["totals"].get("drifted"):
        yield "warn", "The judge has drifted", f"The judge has drifted on {drifted:,} of its criteria."
    if record["warnings"]:
        yield "warn", "Less than expected", ""
    if record["failed_tasks"]:
        failed = f"{plural(len(record['failed_tasks']), 'task')} failed"
        yield "warn", failed, f"{failed}."
