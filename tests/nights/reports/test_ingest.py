"""The report of an ingest run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.nights.reports.ingest import Run, render_report
from airflow_provider.nights.reports.outcomes import MAX_FAILURES, OutcomeStats
from tests.nights.reports.pages import ATTACKS, ODD, Page, document, measure_growth

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


def row(number: int = 0, seconds: float = 10, **changes: Any) -> dict[str, Any]:
    """Return a row of a manifest: a PDF with 1 kB of text after ten seconds."""
    begun = START + timedelta(seconds=number)
    return document(number) | {
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "bytes": 1000,
        "submitted_at": begun.isoformat(),
        "completed_at": (begun + timedelta(seconds=seconds)).isoformat(),
        "attempts": 1,
        **changes,
    }


def failed(number: int = 0, error: str | None = "It is damaged.", **changes: Any) -> dict[str, Any]:
    return row(number, status="FAILED", error=error, bytes=None, **changes)


KEYS = list(row())
STATUSES = st.sampled_from(["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]) | ODD
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={key: STATUSES if key == "status" else ODD for key in KEYS}),
    max_size=12,
)


def page(*rows: dict[str, Any], run: Run = RUN) -> Page:
    return Page(render_report(iter(rows), run))


def bars(shown: Page, title: str) -> dict[str, int]:
    """Return the bars of the chart of a section, by their labels."""
    for section in shown.tree.css("section"):
        if section.css("h2")[0].text() == title:
            titles = [node.text() for node in section.css("rect.hit title")]
            pairs = [re.fullmatch(r"(.*): ([\d,]+) documents?", text) for text in titles]
            return {pair[1]: int(pair[2].replace(",", "")) for pair in pairs if pair}
    return {}


def many(numbers: range) -> Iterator[dict[str, Any]]:
    for number in numbers:
        if number % 10 == 0:
            yield failed(number, f"Reason {number} of many: {'<' * 200}")
        else:
            yield row(number, bytes=number * 7)


@settings(max_examples=50, deadline=None)
@given(rows=ROWS, value=ODD)
def test_the_report_of_any_rows_is_well_formed_and_contains_no_foreign_markup(
    rows: list[dict[str, Any]], value: Any
) -> None:
    names = ("dag_id", "task_id", "run_id", "started", "ended", "destination", "manifest")
    shown = page(*rows, run=Run(**dict.fromkeys(names, value)))
    assert all(link.lower().startswith(("http://", "https://")) for link in shown.links)
    assert shown.html.encode()
    assert not shown.tree.css("script, img, iframe, object, embed, link, base, form")
    assert len(shown.tree.css("h1")) == len(shown.tree.css("style")) == 1


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "ODD"])
def test_hostile_text_in_any_field_stays_text(key: str, status: str) -> None:
    shown = page(*(row(status=status, error="x") | {key: attack} for attack in ATTACKS))
    assert all(link.startswith(("http://", "https://")) for link in shown.links)
    assert "secret" not in shown.html


def test_a_report_loads_nothing_and_its_policy_forbids_all_but_its_own_style() -> None:
    shown = page(row(), failed(1), row(2, source="https://example.org/terms"))
    assert not shown.tree.css("script, link, img, [src], [style], [onclick]")
    assert shown.links == ["https://example.org/terms"] * 2
    [css] = re.findall(r"<style>(.*?)</style>", shown.html, re.DOTALL)
    assert not re.search(r"url\(|@import", css)
    digest = b64encode(sha256(css.encode()).digest()).decode()
    [policy] = shown.tree.css("meta[http-equiv=Content-Security-Policy]")
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
    assert set(page(failed(source=source)).links) == ({source} if is_link else set())


@pytest.mark.parametrize(
    ("rows", "headline", "status", "tone"),
    [
        ([], "The run had no documents.", "Nothing to do", "idle"),
        ([row()], "Of 1 document, 1 is new or changed.", "No failures", "good"),
        (
            [row(), row(status="SKIPPED")],
            "Of 2 documents, 1 is new or changed.",
            "No failures",
            "good",
        ),
        ([row(status="SKIPPED")] * 2, "2 documents, unchanged.", "Nothing new", "good"),
        ([failed()], "Of 1 document, 1 failed.", "All failed", "bad"),
        (
            [*[row()] * 5, failed(), row(status="CANCELLED"), row(status="HELD")],
            "Of 8 documents, 5 are new or changed and 3 failed.",
            "Some failed",
            "warn",
        ),
        (
            [*[row()] * 7, failed(), *[row(status="SKIPPED")] * 2],
            "Of 10 documents, 7 are new or changed and 1 failed.",
            "Some failed",
            "warn",
        ),
        (
            [row(), failed()],
            "Of 2 documents, 1 is new or changed and 1 failed.",
            "Most failed",
            "bad",
        ),
    ],
)
def test_the_headline_summarizes_the_run(
    rows: list[dict[str, Any]], headline: str, status: str, tone: str
) -> None:
    shown = page(*rows)
    assert shown.headline == (headline, status, tone)
    assert bool(shown.tree.css("svg, table")) is bool(rows)


def test_the_numbers_are_those_of_the_manifest() -> None:
    lengths = [1, 2, 2, 4, 10, 10, 10, 30, 60, 600]
    rows = [row(0, length, bytes=10 ** (place % 5)) for place, length in enumerate(lengths)]
    rows += [row(0, bytes=0, source="s3://inbox/scan.pdf", attempts=2)]
    rows += [row(1, source="https://a.example/b.docx?x=.pdf"), row(2, source="https://a.example/page")]
    rows += [row(3, source="notes.txt", status="SKIPPED", submitted_at=None, completed_at=None, attempts=0)]
    rows += [failed(4, attempts=7), failed(5, attempts=3, source="s3://inbox/x.DOCX")]
    rows += [failed(6, attempts=None, source="https://a.example/other")]
    shown = page(*rows)
    assert "Took 30 min, 26 documents per hour. 24 kB of text extracted." in shown.text(".lead")
    assert "New or changed 13 76.5 % Failed 3 17.6 % Unchanged 1 5.9 %" in shown.section("Outcomes")
    assert sum(bars(shown, "Time per document").values()) == 13
    assert bars(shown, "Time per document")["10 s to 12.5 s"] == 6
    assert "Median 10 s 95 % within 10 min Longest 10 min" in shown.section("Time per document")
    assert sum(bars(shown, "Size of texts").values()) == 12
    assert re.search("1 text is empty: .*scan.pdf", shown.section("Size of texts"))
    assert sum(bars(shown, "Throughput").values()) == 13
    kinds = re.findall(r"(Web page|PDF|DOCX|Other): (\d+) document", shown.section("Kinds of source"))
    assert kinds == [("Web page", "2"), ("PDF", "12"), ("DOCX", "2"), ("Other", "1")]
    attempts = re.findall(r"(Once|Twice|\d times|5 or more): (\d+) document", shown.section("Attempts"))
    assert attempts == [("Once", "12"), ("Twice", "1"), ("3 times", "1"), ("5 or more", "1")]


def test_the_slowest_and_the_largest_documents_are_listed_in_order() -> None:
    shown = page(*(row(number, number**2, bytes=number**3) for number in [*range(20), *range(20, 50)]))
    for title, largest in (("Slowest documents", "40 min 1 s"), ("Largest texts", "118 kB")):
        section = shown.section(title)
        assert [int(number) for number in re.findall(r"(\d+)\.pdf", section)] == list(range(49, 39, -1))
        assert largest in section


def test_failures_are_grouped_by_what_they_have_in_common() -> None:
    shown = page(
        *(failed(n, f"Fetching https://example.org/{n} gave HTTP 404 Not Found.") for n in range(3)),
        *(failed(n, f"Job 00000000-0000-4000-8000-{n:012d} was lost.") for n in range(2)),
        failed(9, None),
    )
    rows = shown.texts("table.reasons tbody tr")
    assert [line.split(" ", 1)[0] for line in rows] == ["3", "2", "1"]
    for reason in ("Fetching … gave HTTP 404 Not Found.", "Job … was lost.", "(no reason given)"):
        assert f"{reason} " in " ".join(rows)
    table = shown.text("table.rows")
    assert "Fetching https://example.org/2 gave HTTP 404 Not Found." in table
    assert "00000000-0000-4000-8000-000000000009" in table


def test_a_large_run_takes_little_memory() -> None:
    stats = OutcomeStats()

    def add(numbers: range) -> None:
        for one in many(numbers):
            stats.add(one)

    assert measure_growth(add, 12_000) < 6_000 * 32  # bytes per document


def test_a_large_run_gives_a_small_report() -> None:
    shown = Page(render_report(many(range(20_000)), RUN))
    assert len(shown.html.encode()) < 2_000_000  # nearly all of it is the hostile text of the rows
    assert len(shown.tree.css("table.rows tbody tr")) == MAX_FAILURES
    assert "The first 500; 1,500 more are in the manifest" in shown.text("section.long")
    assert "1,988 other reasons" in shown.text("table.reasons")
    assert len(render_report((row(number) for number in range(2000)), RUN)) < 40_000


def test_documents_completed_before_or_after_the_run_are_drawn() -> None:
    for completed_at in ("2026-03-02T23:00:00Z", "2026-03-03T04:00:00Z"):
        shown = page(row(1), row(2, completed_at=completed_at, submitted_at=None))
        assert sum(bars(shown, "Throughput").values()) == 2
    ticks = page(row(1)).texts("section.wide .tick")
    assert "01:30" in ticks  # the end of the run


def test_a_run_without_times_is_drawn_over_the_times_of_its_documents() -> None:
    shown = page(*(row(n * 60) for n in range(5)), run=Run(dag_id="d", task_id="t", run_id="r"))
    assert bars(shown, "Throughput") == {f"3 Mar 2026, 01:0{n}:10 UTC": 1 for n in range(5)}
    assert shown.text(".over").startswith("d · t")
    assert shown.text(".lead") == "5 kB of text extracted."


def test_bidirectional_controls_and_logins_are_masked_everywhere() -> None:
    hostile = "https://user:secret@example.org/\u202efdp.exe"
    names = ("dag_id", "task_id", "run_id", "destination", "manifest")
    rows = failed(source=hostile, error=hostile, uuid=hostile), row(source=hostile)
    fields: dict[str, Any] = dict.fromkeys(names, hostile)
    shown = page(*rows, run=Run(**fields))
    assert "secret" not in shown.html
    assert "\u202e" not in shown.html
    assert r"https://redacted-04f8996da763@example.org/\u202efdp.exe" in shown.text("table.rows")


def test_importing_the_report_loads_only_the_standard_library() -> None:
    probe = (
        "import json, sys; before = set(sys.modules); import airflow_provider.nights.reports.outcomes; "
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) - set(sys.stdlib_module_names) == {"airflow_provider"}
