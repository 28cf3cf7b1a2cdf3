from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from airflow_provider.reports.ingest import MAX_FAILURES, ReportStats, Run, render_report
from tests.reports.pages import ATTACKS, ODD, Strict

if TYPE_CHECKING:
    from collections.abc import Iterator

START = datetime(2026, 3, 3, 1, 0, tzinfo=UTC)
RUN = Run(
    dag_id="nightly",
    task_id="ingest",
    run_id="scheduled__2026-03-03",
    map_index=3,
    started=START,
    ended="2026-03-03T01:30:00Z",
    destination="s3://texts/dt=2026-03-03/",
    manifest="s3://texts/dt=2026-03-03/manifest.jsonl",
)


def row(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a manifest row: a PDF with 1 kB of text after ten seconds."""
    begun = START + timedelta(seconds=number)
    return {
        "source": f"s3://inbox/{number}.pdf",
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "status": "COMPLETED",
        "error": None,
        "path": f"{number}.txt",
        "bytes": 1000,
        "sha256": "ab" * 32,
        "submitted_at": begun.isoformat(),
        "completed_at": (begun + timedelta(seconds=10)).isoformat(),
        "attempts": 1,
        **changes,
    }


def failed(number: int = 0, error: str | None = "It is damaged.", **changes: Any) -> dict[str, Any]:
    return row(number, status="FAILED", error=error, path=None, bytes=None, sha256=None, **changes)


KEYS = list(row())
STATUSES = st.sampled_from(["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]) | ODD
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={key: STATUSES if key == "status" else ODD for key in KEYS}),
    max_size=12,
)


class Page:
    """A parsed report."""

    def __init__(self, *rows: dict[str, Any], run: Run = RUN) -> None:
        self.html = render_report(iter(rows), run)
        self.links = Strict(self.html).links
        self.tree = LexborHTMLParser(self.html)

    def text(self, selector: str) -> str:
        return " ".join(self.texts(selector))

    def texts(self, selector: str) -> list[str]:
        return [" ".join(node.text(separator=" ").split()) for node in self.tree.css(selector)]

    def section(self, title: str) -> str:
        [text] = [text for text in self.texts("section") if text.startswith(title)] or [""]
        return text

    def bars(self, title: str) -> dict[str, int]:
        """Return the bars of the chart of a section, by their labels."""
        for section in self.tree.css("section"):
            heading = section.css_first("h2")
            if heading is not None and heading.text() == title:
                titles = [node.text() for node in section.css("rect.hit title")]
                pairs = [re.fullmatch(r"(.*): ([\d,]+) documents?", text) for text in titles]
                return {pair[1]: int(pair[2].replace(",", "")) for pair in pairs if pair}
        return {}


def many(number: int) -> Iterator[dict[str, Any]]:
    for place in range(number):
        if place % 10 == 0:
            yield failed(place, f"Reason {place} of many: {'<' * 200}")
        else:
            yield row(place, bytes=place * 7)


@settings(max_examples=50, deadline=None)
@given(rows=ROWS, value=ODD)
def test_the_report_of_any_rows_is_well_formed_and_contains_no_foreign_markup(
    rows: list[dict[str, Any]], value: Any
) -> None:
    run = Run(
        dag_id=value,
        task_id=value,
        run_id=value,
        started=value,
        ended=value,
        destination=value,
        manifest=value,
    )
    text = render_report(rows, run)

    assert all(link.lower().startswith(("http://", "https://")) for link in Strict(text).links)
    assert text.encode()
    tree = LexborHTMLParser(text)
    assert not tree.css("script, img, iframe, object, embed, link, base, form")
    assert len(tree.css("h1")) == len(tree.css("style")) == 1


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "ODD"])
def test_hostile_text_in_any_field_stays_text(key: str, status: str) -> None:
    page = Page(*(row(status=status, error="x") | {key: attack} for attack in ATTACKS))

    assert not [href for href in page.links if not href.startswith(("http://", "https://"))]
    assert "secret" not in page.html


def test_a_report_loads_nothing_and_its_policy_forbids_all_but_its_own_style() -> None:
    page = Page(row(), failed(1), row(2, source="https://example.org/terms"))

    assert not page.tree.css("script, link, img, [src], [style], [onclick]")
    assert page.links == ["https://example.org/terms"] * 2
    [css] = re.findall(r"<style>(.*?)</style>", page.html, re.DOTALL)
    assert not re.search(r"url\(|@import", css)
    digest = b64encode(sha256(css.encode()).digest()).decode()
    [policy] = page.tree.css("meta[http-equiv=Content-Security-Policy]")
    assert policy.attributes["content"] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


@pytest.mark.parametrize(
    ("source", "is_link"),
    [
        ("https://example.org/a?b=1&c=2", True),
        ("HTTP://example.org", True),
        ("https://user:secret@example.org/", False),
        ("https://", False),
        ("https://[broken/", False),
        ("http:example.org", False),
        ("javascript:alert('https://example.org')", False),
        ("https://example.org/ a", False),
        ("https://example.org/\\evil", False),
        ("s3://bucket/a.pdf", False),
        (None, False),
    ],
)
def test_only_plain_urls_become_links(source: str | None, is_link: bool) -> None:
    page = Page(failed(source=source))

    assert set(page.links) == ({source} if is_link else set())


def test_a_run_without_documents_says_so_and_has_no_charts() -> None:
    page = Page()

    assert page.text("h1") == "The run had no documents."
    assert not page.tree.css("svg, table")


@pytest.mark.parametrize(
    ("rows", "headline", "tone"),
    [
        ([row()], "The only document completed.", "good"),
        ([row(), row(1)], "All 2 documents completed.", "good"),
        ([row(), row(1, status="SKIPPED")], "1 document completed; 1 was skipped.", "good"),
        ([row(status="SKIPPED"), row(status="SKIPPED")], "All 2 documents were skipped.", "good"),
        ([failed()], "The only document failed.", "bad"),
        ([failed()] * 12, "All 12 documents failed.", "bad"),
        (
            [*[row()] * 5, failed(), row(status="CANCELLED"), row(status="HELD")],
            "5 of 8 documents completed; 1 failed (12.5 %), 1 was cancelled, 1 ended with another status.",
            "warn",
        ),
        (
            [*[row()] * 8, failed(), row(status="SKIPPED")],
            "8 of 10 documents completed; 1 failed (10.0 %), 1 was skipped.",
            "warn",
        ),
        ([row(), failed(), failed()], "1 of 3 documents completed; 2 failed (66.7 %).", "bad"),
    ],
)
def test_the_headline_summarizes_the_run(rows: list[dict[str, Any]], headline: str, tone: str) -> None:
    page = Page(*rows)

    assert page.text("h1").replace("\u00a0", " ") == headline
    assert page.tree.css(f"header.{tone}")


def test_the_numbers_are_those_of_the_manifest() -> None:
    lengths = [1, 2, 2, 4, 10, 10, 10, 30, 60, 600]
    rows = [
        row(
            0,
            completed_at=(START + timedelta(seconds=length)).isoformat(),
            bytes=10 ** (place % 5),
            attempts=1,
        )
        for place, length in enumerate(lengths)
    ]
    rows += [row(0, bytes=0, source="s3://inbox/scan.pdf", attempts=2)]
    rows += [row(1, source="https://a.example/b.docx?x=.pdf"), row(2, source="https://a.example/page")]
    rows += [row(3, source="notes.txt", status="SKIPPED", submitted_at=None, completed_at=None, attempts=0)]
    rows += [failed(4, attempts=7), failed(5, attempts=3, source="s3://inbox/x.DOCX")]
    page = Page(*rows)

    outcomes = page.section("Outcomes").replace("\u00a0", " ")
    assert "Completed 13 81.2 % Failed 2 12.5 % Skipped 1 6.2 %" in outcomes
    assert sum(page.bars("Time per document").values()) == 13
    assert page.bars("Time per document")["10 s to 12.5 s"] == 6
    assert "Median 10 s" in page.section("Time per document").replace("10 s Median", "Median 10 s")
    assert "10 min" in page.section("Time per document")
    assert sum(page.bars("Size of texts").values()) == 12
    assert "1 text is empty" in page.section("Size of texts")
    assert "scan.pdf" in page.section("Size of texts")
    assert sum(page.bars("Throughput").values()) == 13
    kinds = page.section("Kinds of source")
    assert re.findall(r"(Web page|PDF|DOCX|Other): (\d+) document", kinds) == [
        ("Web page", "1"),
        ("PDF", "12"),
        ("DOCX", "2"),
        ("Other", "1"),
    ]
    attempts = re.findall(r"(Once|Twice|\d times|5 or more): (\d+) document", page.section("Attempts"))
    assert attempts == [("Once", "12"), ("Twice", "1"), ("3 times", "1"), ("5 or more", "1")]
    assert page.texts("table.ranking")[0].split("Took ")[1].startswith("s3://inbox/ 0.pdf")


def test_what_took_longest_and_what_is_largest_are_listed_in_order() -> None:
    rows = [
        row(number, completed_at=(START + timedelta(seconds=number + number**2)).isoformat(), bytes=number**3)
        for number in range(20)
    ]
    page = Page(*rows)

    assert [int(n) for n in re.findall(r"(\d+)\.pdf", page.section("Slowest documents"))] == list(
        range(19, 9, -1)
    )
    assert [int(n) for n in re.findall(r"(\d+)\.pdf", page.section("Largest texts"))] == list(
        range(19, 9, -1)
    )
    assert "6 min 1 s" in page.section("Slowest documents")
    assert "6.9 kB" in page.section("Largest texts")


def test_failures_are_grouped_by_what_they_have_in_common() -> None:
    page = Page(
        *(failed(n, f"Fetching https://example.org/{n} gave HTTP 404 Not Found.") for n in range(3)),
        *(failed(n, f"Job 00000000-0000-4000-8000-{n:012d} was lost.") for n in range(2)),
        failed(9, None),
    )

    counts = [line.split(" ", 1)[0] for line in page.texts("table.reasons tbody tr")]
    reasons = page.section("Why documents failed")
    assert counts == ["3", "2", "1"]
    assert "Fetching … gave HTTP 404 Not Found." in reasons
    assert "Job … was lost." in reasons
    assert "(no reason given)" in reasons
    table = page.text("table.failures")
    assert "Fetching https://example.org/2 gave HTTP 404 Not Found." in table
    assert "00000000-0000-4000-8000-000000000009" in table


def test_other_states_are_named() -> None:
    page = Page(row(), row(1, status="HELD"), row(2, status=None))

    assert "Other outcomes: HELD 1, (no status) 1" in page.section("Outcomes")
    assert page.texts("table.failures .badge") == ["HELD", "(no status)"]


def test_a_large_run_takes_little_memory() -> None:
    tracemalloc.start(2)
    ours = tracemalloc.Filter(True, "*/airflow_provider/reports/*", all_frames=True)

    def allocated() -> int:
        """Return the bytes that our modules hold; threads of earlier tests may still be running."""
        snapshot = tracemalloc.take_snapshot().filter_traces([ours])
        return sum(each.size for each in snapshot.statistics("filename"))

    try:
        stats = ReportStats()
        for one in many(6_000):
            stats.add(one)
        half = allocated()
        for one in many(6_000):
            stats.add(one)
        whole = allocated()
    finally:
        tracemalloc.stop()
    assert half > 0
    assert whole - half < 6_000 * 32  # bytes per document


def test_a_large_run_gives_a_small_report() -> None:
    text = render_report(many(20_000), RUN)

    assert len(text.encode()) < 2_000_000  # nearly all of it is the hostile text of the rows
    page = LexborHTMLParser(text)
    assert len(page.css("table.failures tbody tr")) == MAX_FAILURES
    assert "The first 500; 1,500 more are in the manifest" in page.css("section.long")[0].text()


def test_a_report_of_ordinary_rows_is_small() -> None:
    assert len(render_report((row(n) for n in range(2000)), RUN)) < 40_000


def test_documents_completed_outside_the_run_are_counted_but_not_drawn() -> None:
    rows = [row(n) for n in range(10)]
    page = Page(*rows, row(completed_at="1970-01-01T00:00:00Z", submitted_at=None))

    assert sum(page.bars("Throughput").values()) == 10
    assert "1 document completed before or after the run" in page.section("Throughput")


def test_a_run_without_times_is_drawn_over_the_times_of_its_documents() -> None:
    page = Page(*(row(n * 60) for n in range(5)), run=Run(dag_id="d", task_id="t", run_id="r"))

    assert page.bars("Throughput") == {f"2026-03-03 01:0{n}:10 UTC": 1 for n in range(5)}
    assert page.text(".over").startswith("d · t")
    assert page.text(".lead") == "5 kB of text extracted."


def test_bidirectional_controls_and_logins_are_masked_everywhere() -> None:
    hostile = "https://user:secret@example.org/\u202efdp.exe"
    run = Run(
        dag_id=hostile,
        task_id=hostile,
        run_id=hostile,
        destination=hostile,
        manifest=hostile,
    )
    page = Page(failed(source=hostile, error=hostile, uuid=hostile), row(source=hostile), run=run)

    assert "secret" not in page.html
    assert "\u202e" not in page.html
    assert r"https://redacted-04f8996da763@example.org/\u202efdp.exe" in page.text("table.failures")


def test_importing_the_report_loads_only_the_standard_library() -> None:
    probe = (
        "import json, sys; before = set(sys.modules); import airflow_provider.reports.ingest; "
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) - set(sys.stdlib_module_names) == {"airflow_provider"}
