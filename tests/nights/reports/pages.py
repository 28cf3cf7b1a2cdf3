"""What tests of pages share: rows, hostile texts, and a parser that rejects what a page never has."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from airflow_provider.nights.reports.assess import JudgeStats
from airflow_provider.nights.reports.night import render_night
from airflow_provider.nights.reports.outcomes import OutcomeStats
from airflow_provider.nights.reports.verdicts import VerdictCounts

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
NIGHT, LAST_NIGHT = "2026-03-02T01:00:00+00:00", "2026-03-01T01:00:00+00:00"
TOTALS = {"documents": 10, "completed": 9, "failed": 1, "categories": {GOOD: 20}}
VOID = {"meta", "line", "rect", "br"}
ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</title></style></svg><h1>taken</h1>",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)//http://x",
    'http://a/"onmouseover="alert(1)',
    "https://user:secret@example.org/a.pdf",
    "data:text/html,<script>alert(1)</script>",
    "]]><!--<x>-->&lt;&amp;&#60;",
    "\ud800 half \x00 zero \u202e back \x1b[2J",
    "x" * 100_000,
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=60),
    st.sampled_from(ATTACKS),
    st.datetimes(timezones=st.none() | st.just(UTC)),
    st.datetimes().map(datetime.isoformat),
    st.lists(st.sampled_from(ATTACKS), max_size=2),
)
ODD = VALUES | st.just(10**5000)  # which JSON can't have


def document(number: int = 0, status: str = "COMPLETED", **changes: Any) -> dict[str, Any]:
    """Return a row of a manifest of ingestion."""
    error = "It is damaged." if status == "FAILED" else None
    return {"source": f"s3://inbox/{number}.pdf", "status": status, "error": error, **changes}


def cell(number: int = 0, status: str = "COMPLETED", **changes: Any) -> dict[str, Any]:
    """Return a row of a table of assessments."""
    row = {"source": f"s3://inbox/{number}.pdf", "framework": "DORA", "status": status, "carried_from": None}
    return {**row, "findings": 1, **changes}


def finding(number: int = 0, criterion: str = "D-1", category: str = GOOD, **changes: Any) -> dict[str, Any]:
    """Return a row of a table of findings."""
    row = {"night": NIGHT, "source": f"s3://inbox/{number}.pdf", "framework": "DORA", "criterion": criterion}
    row |= {"title": "Exit", "category": category, "rationale": "why", "first_seen": LAST_NIGHT}
    return {**row, **changes}


class Night:
    """What the report of a night is made from; other fields of its record by name."""

    def __init__(
        self,
        documents: Any = (),
        cells: Any = (),
        findings: Any = (),
        trend: Any = (("2026-03-01", TOTALS),),
        vanished: Any = (),
        judged: Any = (),
        decisions: Any = (),
        rules: Any = (),
        **record: Any,
    ) -> None:
        self.documents, self.verdicts, self.judge = OutcomeStats(), VerdictCounts(), JudgeStats()
        for row in judged:
            self.judge.add(row)
        self.trend, self.vanished, self.rules = trend, vanished, rules
        for row in documents:
            self.documents.add(row)
        for row in decisions:
            self.verdicts.add_decision(row)
        for row in cells:
            self.verdicts.add_cell(row)
        for row in findings:
            self.verdicts.add_finding(row)
        outcomes = self.documents.outcomes
        totals = {"documents": outcomes.total(), "completed": outcomes["completed"], "vanished": 0}
        totals |= {"failed": outcomes["failed"], "decisions": 0, **record.pop("totals", {})}
        self.record: dict[str, Any] = {
            "dag_id": "nightly",
            "run_id": "scheduled__2026-03-02",
            "night": NIGHT,
            "revision": 1,
            "root": "s3://texts",
            "destination": "dt=2026-03-02",
            "previous": None,
            "compared_with": {"night": LAST_NIGHT},
            "totals": totals,
        }
        for name in ("missing", "failed_tasks", "gone_frameworks", "warnings", "manifests", "objects"):
            self.record[name] = []
        self.record |= record

    def render(self) -> str:
        return render_night(
            self.record,
            self.documents,
            self.verdicts,
            self.judge,
            trend=self.trend,
            vanished=self.vanished,
            rules=self.rules,
        )


class Strict(HTMLParser):
    """Reject what a report never has: unclosed elements, unknown elements and attributes, comments."""

    ELEMENTS = frozenset(
        {"html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "details"}
        | {"p", "h1", "h2", "dl", "dt", "dd", "div", "span", "bdi", "small", "a", "ul", "li", "summary"}
        | {"table", "thead", "tbody", "tr", "th", "td", "svg", "text", "line", "rect", "b", "i", "pre"}
    )
    ATTRIBUTES = frozenset(
        {"lang", "charset", "http-equiv", "content", "name", "class", "href", "rel", "scope", "role", "rx"}
        | {"aria-hidden", "aria-label", "tabindex", "x", "y", "x1", "x2", "y1", "y2", "width", "height"}
        | {"text-anchor", "data-label", "id"}
    )

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.ELEMENTS, tag
        assert {name for name, _ in attrs} <= self.ATTRIBUTES, attrs
        for name, value in attrs:
            if name == "href":
                assert tag == "a"
                assert dict(attrs)["rel"] == "noreferrer noopener"
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


class Page:
    """A parsed page; texts have plain spaces."""

    def __init__(self, html: str, *, has_script: bool = False) -> None:
        self.html = html
        self.links = [] if has_script else Strict(html).links
        self.tree = LexborHTMLParser(html)

    def texts(self, selector: str) -> list[str]:
        return [" ".join(node.text(separator=" ").split()) for node in self.tree.css(selector)]

    def text(self, selector: str) -> str:
        return " ".join(self.texts(selector))

    @property
    def headline(self) -> tuple[str, str, str]:
        """The headline, the status and the tone."""
        tone = self.tree.css("header")[0].attributes["class"] or ""
        return self.text("h1"), self.text(".mark"), tone

    def section(self, title: str) -> str:
        [text] = [text for text in self.texts("section") if text.startswith(title)] or [""]
        return text


def measure_growth(add: Callable[[range], None], documents: int) -> int:
    """Return the bytes that the second half of some documents adds to what our modules hold."""
    ours = tracemalloc.Filter(True, "*/airflow_provider/nights/reports/*", all_frames=True)

    def allocated() -> int:  # by us: threads of earlier tests may still be running
        snapshot = tracemalloc.take_snapshot().filter_traces([ours])
        return sum(statistic.size for statistic in snapshot.statistics("filename"))

    tracemalloc.start(2)
    try:
        add(range(documents // 2))
        half = allocated()
        add(range(documents // 2, documents))
        whole = allocated()
    finally:
        tracemalloc.stop()
    assert half > 0
    return whole - half
