"""One ingest run as one HTML page: no script, no resource from elsewhere, so it opens wherever it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.reports import sections
from airflow_provider.reports.formatting import (
    count,
    documents,
    duration,
    escape,
    link,
    moment,
    percent,
    read_time,
    sanitize,
    size,
)
from airflow_provider.reports.stats import ReportStats
from airflow_provider.reports.style import CSS, POLICY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime


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

    @property
    def name(self) -> str:
        """The task, with its index where it is mapped."""
        index = f" [{self.map_index}]" if self.map_index >= 0 else ""
        return f"{sanitize(self.dag_id)} · {sanitize(self.task_id)}{index}"

    @property
    def seconds(self) -> float | None:
        """How long it took, where that is known."""
        started, ended = read_time(self.started), read_time(self.ended)
        return ended - started if started is not None and ended is not None and ended >= started else None


def render_report(rows: Iterable[Mapping[str, Any]], run: Run) -> str:
    """Return the report of a run from the rows of its manifest, which are read once."""
    stats = ReportStats()
    for row in rows:
        stats.add(row)
    return render(stats, run)


def render(stats: ReportStats, run: Run) -> str:
    """Return the report of a run whose rows are counted already."""
    tone, mark, headline = judge(stats)
    parts = (
        sections.show_outcomes(stats),
        sections.show_timeline(stats, read_time(run.started), read_time(run.ended)),
        sections.show_durations(stats),
        sections.show_sizes(stats),
        sections.show_kinds(stats),
        sections.show_attempts(stats),
        sections.show_reasons(stats),
        sections.show_failures(stats, run.manifest),
        sections.show_ranking("Slowest documents", "Took", stats.slowest.ranked(), duration),
        sections.show_ranking("Largest texts", "Size", stats.largest.ranked(), size),
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="robots" content="noindex">
<title>{headline} {escape(run.name)}</title>
<style>{CSS}</style>
</head>
<body>
<header class="{tone}">
<p class="over"><bdi>{escape(run.name)}</bdi> <span class="mark">{mark}</span></p>
<h1>{headline}</h1>
<p class="lead">{_lead(stats, run)}</p>
{_facts(run)}
</header>
<main>
{"".join(parts)}
</main>
<footer>Times are UTC. Made from the run's manifest, which has every document.</footer>
</body>
</html>
"""


def judge(stats: ReportStats) -> tuple[str, str, str]:
    """Say in one sentence whether the run went well, with a tone and a word for it."""
    number, done, skipped, failed = (
        stats.number,
        stats.outcomes["completed"],
        stats.outcomes["skipped"],
        stats.outcomes["failed"],
    )
    if not number:
        return "idle", "Nothing to do", "The run had no documents."
    if not stats.without_text:
        if not done:
            return "good", "Nothing new", f"{_all(number)} {_were(number)} skipped."
        rest = f"; {count(skipped)} {_were(skipped)} skipped" if skipped else ""
        whole = f"{documents(done)}" if skipped else _all(done)
        return "good", "All went well", f"{whole} came through{rest}."
    if failed == number:
        return "bad", "Nothing came through", f"{_all(number)} failed."
    others = [f"{count(failed)} failed ({percent(failed, number)})"] if failed else []
    for outcome, words in (("cancelled", "cancelled"), ("skipped", "skipped")):
        if amount := stats.outcomes[outcome]:
            others.append(f"{count(amount)} {_were(amount)} {words}")
    if amount := stats.outcomes["other"]:
        others.append(f"{count(amount)} ended otherwise")
    tone, mark = ("warn", "Some failed") if 2 * stats.without_text < number else ("bad", "Most failed")
    return tone, mark, f"{count(done)} of {documents(number)} came through; {', '.join(others)}."


def _all(number: int) -> str:
    return "The only document" if number == 1 else f"All {documents(number)}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _lead(stats: ReportStats, run: Run) -> str:
    parts = []
    done, seconds = stats.outcomes["completed"], run.seconds
    if seconds is not None:
        parts.append(f"It took {duration(seconds)}")
        if done > 1 and seconds >= 1:
            a_minute = 60 * done / seconds
            rate = (
                f"{a_minute:,.0f} documents a minute" if a_minute >= 9.5 else f"{60 * a_minute:,.0f} an hour"
            )
            parts[0] += f", {rate}"
    if stats.sizes.number:
        parts.append(f"{size(stats.sizes.total)} of text came out")
    return ". ".join(parts) + ("." if parts else "")


def _facts(run: Run) -> str:
    started, ended = read_time(run.started), read_time(run.ended)
    facts = {
        "Run": escape(run.run_id),
        "Started": "" if started is None else moment(started),
        "Ended": "" if ended is None else moment(ended),
        "Texts": link(run.destination, 300) if run.destination else "",
        "Manifest": link(run.manifest, 300) if run.manifest else "",
    }
    items = (f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items() if value)
    return f'<dl class="facts">{"".join(items)}</dl>'
