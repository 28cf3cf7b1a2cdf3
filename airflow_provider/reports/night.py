"""The report of a whole night: all shards of ingestion and assessment, compared with earlier nights."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider.reports.judge import JudgeStats
from airflow_provider.reports.outcomes import OutcomeStats, summarize
from airflow_provider.reports.page import format_night, limit_source, plural, render, worst
from airflow_provider.reports.trend import JUDGE_CHARTS, TrendPoint, plot_trend
from airflow_provider.reports.verdicts import VerdictCounts
from airflow_provider.text import sanitize

MAX_TREND_NIGHTS = 30  # this one included
KINDS = {
    "ingest": "Manifests of ingestion",
    "assess": "Assessments",
    "findings": "Findings",
    "golden": "Golden documents",
    "agreement": "Agreement with experts",
    "review": "Decisions of experts",
}

_COUNT = re.compile(r"(?<=\d) (?=[a-z])")  # where a line must not end


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

    :param record: of the night, without the report itself; see docs/night.md
    :param documents: rows of all ingest manifests
    :param verdicts: rows of all assessments and findings
    :param judge: rows about golden documents and agreement with experts
    :param trend: dates and totals of earlier nights, the latest first
    :param vanished: the first documents of an earlier night that are not among tonight's
    :param rules: what changed in them: framework, criterion, field, and its value before and after
    """
    root = shlex.quote(sanitize(record["root"]))
    tone, status, headline = summarize_night(record, documents, verdicts)
    earlier = [TrendPoint.parse(*night) for night in trend[: MAX_TREND_NIGHTS - 1]]
    points = [TrendPoint.parse(record["night"], record["totals"]), *earlier]
    return render(
        "night.html",
        record=record,
        advise=advise,
        documents=documents,
        verdicts=verdicts,
        is_compared=_is_compared(verdicts),
        night=format_night(record["night"]),
        tone=tone,
        status=status,
        headline=_COUNT.sub("\u00a0", headline),
        last_night=format_night(trend[0][0]) if trend else "",
        more_documents=documents.total - earlier[0].numbers["documents"] if earlier else 0,
        trend=plot_trend(points),
        judge=judge,
        judge_trend=plot_trend(points, JUDGE_CHARTS),
        vanished=[limit_source(source) for source in vanished],
        rules=rules,
        files={
            title: [manifest for manifest in record["manifests"] if manifest["kind"] == kind]
            for kind, title in KINDS.items()
        },
        up="../" * (1 + len([name for name in record["destination"].split("/") if name])),  # to the root
        command=f"python -m airflow_provider verify {root}",
    )


def advise(instance: object) -> str:
    """Return what to do about a task instance that left no manifest, such as `ingest[3] (failed)`."""
    if str(instance).endswith("(upstream_failed)"):
        return "did not run, because a task above it failed"
    if str(instance).endswith("(not run)"):
        return "had not run when the night was closed"
    return "see its log, then clear it with all tasks downstream"


def _is_compared(verdicts: VerdictCounts) -> bool:
    return verdicts.total > verdicts.new  # any verdict had one in the previous night


def summarize_night(
    record: Mapping[str, Any], documents: OutcomeStats, verdicts: VerdictCounts
) -> tuple[str, str, str]:
    """Return the tone, the status and the headline: of several problems, the worst."""
    states = [("idle", "Nothing to do")]
    sentences = []
    if missing := len(record["missing"]):
        states.append(("bad", "Incomplete"))
        more = f" and {missing - 1:,} more" if missing > 1 else ""
        named = f"{sanitize(record['missing'][0], 200)}{more}"
        sentences.append(f"{plural(missing, 'task')} of this night left no manifest: {named}.")
    if vanished := record["totals"]["vanished"]:
        states.append(("warn", f"{vanished:,} vanished") if documents.total else ("bad", "No documents"))
        day = sanitize(record["compared_with"]["night"])[:10]
        sentences.append(f"{plural(vanished, 'document')} of the night of {day} vanished.")
    if record["gone_frameworks"]:
        gone = plural(len(record["gone_frameworks"]), "framework")
        states.append(("warn", f"{gone} gone"))
        sentences.append(f"{gone} of the previous night without a verdict.")
    if drifted := record["totals"].get("drifted"):
        states.append(("warn", "The judge has drifted"))
        sentences.append(f"The judge has drifted on {drifted:,} of its criteria.")
    if record["warnings"]:
        states.append(("warn", "Less than expected"))
    if record["failed_tasks"]:
        states.append(("warn", f"{plural(len(record['failed_tasks']), 'task')} failed"))
        sentences.append(f"{plural(len(record['failed_tasks']), 'task')} failed.")
    states += verdicts.states()
    sentences += verdicts.sentences(is_compared=_is_compared(verdicts))
    if documents.total:
        tone, status, sentence = summarize(documents)
        states.append((tone, status))
        sentences.append(sentence)
    tone, status = worst(states)
    if tone == "good" and documents.total and verdicts.cells:
        status = "Complete"
    headline = " ".join(sentences) or "There was nothing to do in this night."
    return tone, status, headline
