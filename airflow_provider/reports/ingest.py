"""The report of an ingest run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.reports.charts import StackedBar, plot_durations, plot_sizes, plot_times
from airflow_provider.reports.formatting import documents, duration, percent, read_time, size
from airflow_provider.reports.page import render
from airflow_provider.reports.stats import MAX_ATTEMPTS, OUTCOMES, ReportStats, quantile, rank

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping
    from datetime import datetime

MAX_SHOWN_REASONS = 12
MAX_SHOWN_STATUSES = 6
ATTEMPTS = {1: "Once", 2: "Twice", 3: "3 times", 4: "4 times", MAX_ATTEMPTS: "5 or more"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run that a report is about; times are `datetime` or ISO 8601."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1
    started: datetime | str | None = None
    ended: datetime | str | None = None
    destination: str | None = None
    manifest: str | None = None


def render_report(rows: Iterable[Mapping[str, Any]], run: Run) -> str:
    """Return the HTML report of a run from the rows of its manifest, read once."""
    stats = ReportStats()
    for row in rows:
        stats.add(row)
    started, ended = read_time(run.started), read_time(run.ended)
    tone, status, headline = summarize(stats)
    reasons = stats.reasons.most_common(MAX_SHOWN_REASONS)
    return render(
        "ingest.html",
        run=run,
        started=started,
        ended=ended,
        tone=tone,
        status=status,
        headline=headline,
        stats=stats,
        quantile=quantile,
        outcomes=StackedBar("Outcomes", _by_outcome(stats.outcomes)),
        statuses=stats.statuses.most_common(MAX_SHOWN_STATUSES),
        throughput=plot_times(stats.completed_at, started, ended),
        durations=plot_durations(stats.durations),
        sizes=plot_sizes(stats.sizes),
        kinds=[
            StackedBar(kind, _by_outcome(counts), f"{counts['failed']:,} failed" if counts["failed"] else "")
            for kind, counts in stats.kinds.items()
            if counts
        ],
        attempts=[
            StackedBar(ATTEMPTS[tries], {"plain": number}, percent(number, stats.attempts.total()))
            for tries, number in sorted(stats.attempts.items())
        ],
        reasons=[
            (StackedBar(reason or "(no reason given)", {"failed": number}), stats.examples[reason].source)
            for reason, number in reasons
        ],
        other_reasons=stats.without_text - sum(number for _, number in reasons),
        slowest=[(each, duration(seconds)) for each, seconds in rank(stats.slowest)],
        largest=[(each, size(octets)) for each, octets in rank(stats.largest)],
    )


def _by_outcome(counts: Counter[str]) -> dict[str, int]:
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def summarize(stats: ReportStats) -> tuple[str, str, str]:
    """Return the tone, the status and the headline of a report."""
    total, missing = stats.total, stats.without_text
    completed, failed, cancelled, skipped, other = (stats.outcomes[each] for each in OUTCOMES)
    if not total:
        return "idle", "Nothing to do", "The run had no documents."
    everything = "The only document" if total == 1 else f"All {documents(total)}"
    if skipped == total:
        return "good", "Nothing new", f"{everything} {_were(total)} skipped."
    if completed == total:
        return "good", "All completed", f"{everything} completed."
    if failed == total:
        return "bad", "All failed", f"{everything} failed."
    parts = [f"{failed:,} failed ({percent(failed, total)})"] if failed else []
    parts += [f"{cancelled:,} {_were(cancelled)} cancelled"] if cancelled else []
    parts += [f"{skipped:,} {_were(skipped)} skipped"] if skipped else []
    parts += [f"{other:,} ended with another status"] if other else []
    if not missing:
        return "good", "No failures", f"{documents(completed)} completed; {parts[0]}."
    tone, status = ("warn", "Some failed") if 2 * missing < total else ("bad", "Most failed")
    return tone, status, f"{completed:,} of {documents(total)} completed; {', '.join(parts)}."


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
