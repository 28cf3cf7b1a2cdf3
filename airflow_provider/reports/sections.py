"""The sections of a report, each from the tally alone; one without data is empty."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_provider.reports.charts import draw, share_bar, spread_histogram, time_histogram
from airflow_provider.reports.formatting import count, documents, duration, escape, link, percent, size
from airflow_provider.reports.histograms import DURATION_TICKS, SIZE_TICKS
from airflow_provider.reports.stats import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_provider.reports.stats import Failure, Named, ReportStats

MOST_REASONS = 12


def _section(title: str, body: str, style: str = "", sub: str = "") -> str:
    note = f'<p class="sub">{sub}</p>' if sub else ""
    return f'<section class="{style}"><h2>{title}</h2>{note}{body}</section>\n'


def _stats(values: Mapping[str, str]) -> str:
    items = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in values.items())
    return f'<dl class="stats">{"".join(items)}</dl>'


def show_outcomes(stats: ReportStats) -> str:
    """Show how many documents ended how."""
    if not stats.number:
        return ""
    shares = {outcome: stats.outcomes[outcome] for outcome in OUTCOMES if stats.outcomes[outcome]}
    key = ""
    for outcome, number in shares.items():
        swatch = f'<svg aria-hidden="true"><rect class="{outcome}" width="10" height="10"/></svg>'
        key += (
            f"<div>{swatch}<dt>{outcome.capitalize()}</dt>"
            f"<dd>{count(number)} <small>{percent(number, stats.number)}</small></dd></div>"
        )
    bar = share_bar(shares, stats.number, f"Outcomes of {documents(stats.number)}")
    others = ", ".join(
        f"{escape(status)} {count(number)}" for status, number in stats.statuses.most_common(6)
    )
    sub = f"Other outcomes: {others}" if others else ""
    return _section("Outcomes", f'{bar}<dl class="key">{key}</dl>', "wide outcomes", sub)


def show_timeline(stats: ReportStats, started: float | None, ended: float | None) -> str:
    """Show when documents completed."""
    if not stats.timeline.counts:
        return ""
    begin, width, counts = stats.timeline.bars(started, ended)
    outside = stats.timeline.counts.total() - sum(counts)
    sub = f"{documents(outside)} completed before or after the run, not shown" if outside else ""
    return _section("Throughput", draw(time_histogram(begin, width, counts)), "wide", sub)


def show_durations(stats: ReportStats) -> str:
    """Show how long documents took."""
    spread = stats.durations
    if not spread.number:
        return ""
    chart = spread_histogram(
        spread,
        "Time per document",
        "From submit to completion",
        partial(duration, exact=True),
        DURATION_TICKS,
    )
    values = {
        "Median": duration(spread.quantile(0.5)),
        "95 % within": duration(spread.quantile(0.95)),
        "Longest": duration(spread.largest),
    }
    return _section("Time per document", _stats(values) + draw(chart))


def show_sizes(stats: ReportStats) -> str:
    """Show how large the texts are, and which are empty."""
    spread = stats.sizes
    if not spread.number and not stats.empty:
        return ""
    body = ""
    if spread.number:
        values = {
            "Median": size(spread.quantile(0.5)),
            "95 % within": size(spread.quantile(0.95)),
            "Largest": size(spread.largest),
            "Empty": count(stats.empty),
        }
        chart = spread_histogram(
            spread,
            "Size of texts",
            "Size of the text, without empty ones",
            partial(size, exact=True),
            SIZE_TICKS,
        )
        body = _stats(values) + draw(chart)
    if stats.empty:
        items = "".join(f"<li>{link(named.source)}</li>" for named in stats.empties)
        rest = stats.empty - len(stats.empties)
        items += f'<li class="dim">and {count(rest)} more, in the manifest</li>' if rest else ""
        what = "text is empty: its document" if stats.empty == 1 else "texts are empty: their documents"
        may = f"{count(stats.empty)} {what} may hold pictures of text only"
        body += f"<details><summary>{may}</summary><ul>{items}</ul></details>"
    return _section("Size of texts", body)


def _bars(rows: Iterable[tuple[str, Mapping[str, int], str]]) -> str:
    """Return bars below each other, each with a label and a remark; the longest one fills the room."""
    listed = [(label, shares, sum(shares.values()), remark) for label, shares, remark in rows]
    longest = max(number for _, _, number, _ in listed)
    lines = ""
    for label, shares, number, remark in listed:
        bar = share_bar(shares, longest, f"{label}: {documents(number)}")
        numbers = f'{count(number)} <span class="dim">{remark}</span>'
        lines += f'<tr><th scope="row">{label}</th><td>{bar}</td><td class="number">{numbers}</td></tr>'
    return f'<table class="bars"><tbody>{lines}</tbody></table>'


def show_kinds(stats: ReportStats) -> str:
    """Show what the sources are."""
    if not stats.number:
        return ""
    rows = []
    for kind, outcomes in stats.kinds.items():
        if outcomes:
            failed = f"{count(outcomes['failed'])} failed" if outcomes["failed"] else ""
            rows.append((kind, {outcome: outcomes[outcome] for outcome in OUTCOMES}, failed))
    return _section("Kinds of source", _bars(rows), sub="Coloured by outcome, as above")


def show_attempts(stats: ReportStats) -> str:
    """Show how often documents were tried."""
    whole = stats.attempts.total()
    if not whole:
        return ""
    names = {1: "Once", 2: "Twice", 3: "3 times", 4: "4 times", 5: "5 or more"}
    rows = [
        (names[tries], {"plain": number}, percent(number, whole))
        for tries, number in sorted(stats.attempts.items())
    ]
    return _section("Attempts", _bars(rows), sub="How often a document was tried")


def show_reasons(stats: ReportStats) -> str:
    """Show why documents failed, the commonest reasons first."""
    if not stats.reasons:
        return ""
    ranked = sorted(stats.reasons.values(), key=lambda reason: -reason.number)
    most = ranked[0].number
    lines = ""
    for reason in ranked[:MOST_REASONS]:
        bar = share_bar({"failed": reason.number}, most, documents(reason.number))
        text = escape(reason.text) or "(no reason given)"
        example = f'<p class="dim">such as {link(reason.example, 110)}</p>'
        lines += (
            f'<tr><td class="number">{count(reason.number)}</td><td>{bar}</td><td>{text}{example}</td></tr>'
        )
    left = stats.more_reasons + sum(reason.number for reason in ranked[MOST_REASONS:])
    if left:
        lines += f'<tr><td class="number">{count(left)}</td><td></td><td class="dim">other reasons</td></tr>'
    head = '<thead><tr><th class="number">Count</th><th></th><th>Reason</th></tr></thead>'
    table = f'<table class="reasons">{head}<tbody>{lines}</tbody></table>'
    return _section("Why documents failed", table, "wide")


def show_failures(stats: ReportStats, manifest: str | None) -> str:
    """Show which documents have no text."""
    if not stats.failures:
        return ""
    heads = '<th>Source, uuid</th><th>Reason</th><th class="number">Attempts</th>'
    lines = "".join(_failure(failure) for failure in stats.failures)
    more = stats.without_text - len(stats.failures)
    where = f' <span class="mono">{escape(manifest)}</span>' if manifest else ""
    sub = (
        f"The first {count(len(stats.failures))}; {count(more)} more are in the manifest{where}"
        if more
        else ""
    )
    table = f'<table class="failures"><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>'
    return _section("Documents without a text", table, "wide long", sub)


def _failure(failure: Failure) -> str:
    badge = (
        "" if failure.status.upper() == "FAILED" else f'<span class="badge">{escape(failure.status)}</span>'
    )
    return (
        f'<tr><td>{link(failure.source)}<div class="mono dim">{escape(failure.uuid)}</div></td>'
        f'<td>{badge}{escape(failure.reason)}</td><td class="number">{escape(failure.attempts)}</td></tr>\n'
    )


def show_ranking(title: str, measure: str, ranked: list[Named], form: Callable[[float], str]) -> str:
    """Show the documents with the highest values."""
    if not ranked:
        return ""
    lines = "".join(
        f'<tr><td>{link(named.source)}<div class="mono dim">{escape(named.uuid)}</div></td>'
        f'<td class="number">{form(named.value)}</td></tr>'
        for named in ranked
    )
    head = f'<thead><tr><th>Source, uuid</th><th class="number">{measure}</th></tr></thead>'
    return _section(title, f'<table class="ranking">{head}<tbody>{lines}</tbody></table>')
