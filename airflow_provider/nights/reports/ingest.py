"""The report of an ingest run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from airflow_provider.nights.reports.charts import DURATIONS, SIZES, plot_histogram, plot_times
from airflow_provider.nights.reports.outcomes import MAX_ATTEMPTS, OutcomeStats, Row
from airflow_provider.nights.reports.page import Run, read_time, render, summarize

__all__ = ["Run", "quantile", "render_report"]

ATTEMPTS = {1: "Once", 2: "Twice", 3: "3 times", 4: "4 times", MAX_ATTEMPTS: "5 or more"}


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed."""
    ranked = sorted(values)
    return ranked[math.ceil(share * len(ranked)) - 1]


def render_report(rows: Iterable[Row], run: Run) -> str:
    """Return the HTML report of a run from the rows of its manifest, read once."""
    stats = OutcomeStats()
    for row in rows:
        stats.add(row)
    started, ended = read_time(run.started), read_time(run.ended)
    return render(
        "ingest.html",
        summary=summarize(stats.summarize(), "The run had no documents."),
        run=run,
        started=started,
        ended=ended,
        stats=stats,
        quantile=quantile,
        throughput=plot_times(stats.completed_at, started, ended),
        durations=plot_histogram(
            "Time per document", stats.durations, DURATIONS, "From submit to completion"
        ),
        sizes=plot_histogram("Size of texts", stats.sizes, SIZES, "Size of the text, without empty ones"),
        kinds={kind: counts for kind, counts in stats.kinds.items() if counts},
        attempts={ATTEMPTS[tries]: Counter(plain=number) for tries, number in sorted(stats.attempts.items())},
    )
