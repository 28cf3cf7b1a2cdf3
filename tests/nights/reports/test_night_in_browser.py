"""The report of a night in a browser, on a wide and a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from airflow_provider.nights.reports.page import render
from tests.nights.reports.pages import BAD, GOOD, MISSING, NIGHT, TOTALS, Night, cell, document, finding
from tests.nights.reports.test_judge import moved, row
from tests.support.browser import CONTRAST, Page, open_page

pytestmark = pytest.mark.browser

LONG = "a-name-without-a-single-space-" * 12


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Open a night with everything that a page can show, with long names."""
    night = Night(
        [document(number, "FAILED" if number % 5 == 0 else "COMPLETED", error=LONG) for number in range(50)],
        [cell(number, "FAILED" if number == 7 else "COMPLETED", error=LONG) for number in range(50)],
        [
            finding(
                number,
                f"D-{one}",
                BAD if one == 2 else GOOD,
                source=f"https://example.org/{LONG}/{number}.html",
                title=f"Exit {LONG}",
                changed_from=MISSING if number % 3 else None,
                rationale=f"Because of {LONG}",
                expert=LONG if number == 4 else None,
                expert_rationale=LONG,
            )
            for number in range(50)
            for one in range(3)
        ],
        [(f"2026-02-{day:02}", {**TOTALS, "missing": day % 9 == 0}) for day in range(28, 0, -1) if day != 20],
        totals={**TOTALS, "changed": 99, "decisions": 2},
        missing=[f"ingest[3] {LONG}"],
        manifests=[{"kind": "ingest", "path": f"{LONG}/{'ab' * 32}.jsonl", "sha256": "ab" * 32}],
        previous={"sha256": "cd" * 32},
        judged=[
            row(None),
            row(LONG, no_better_than_chance=True),
            row("exit", state="drifted", moved=1, compared=4),
            moved(source=LONG),
        ],
    )
    target = tmp_path / "report.html"
    target.write_text(night.render())
    with open_page(target.as_uri(), tmp_path / "profile") as opened:
        opened.wait_for("document.querySelectorAll('.strip svg').length === 4")
        yield opened


def test_nothing_needs_horizontal_scrolling_and_all_can_be_read(page: Page) -> None:
    backgrounds = set()
    for is_open in (False, True):
        page.evaluate(
            f"document.querySelectorAll('details').forEach(details => details.open = {str(is_open).lower()})"
        )
        for width in (1400, 400):
            for scheme in ("light", "dark"):
                found = page.evaluate_on_screen(
                    "document.documentElement.scrollWidth", width=width, scheme=scheme
                )
                assert found <= width
                assert page.evaluate_on_screen(CONTRAST, width=width, scheme=scheme) >= 4.5
                script = "getComputedStyle(document.body).backgroundColor"
                backgrounds.add(page.evaluate_on_screen(script, width=width, scheme=scheme))
    assert len(backgrounds) == 2


def test_agreement_fits_on_a_narrow_screen(page: Page) -> None:
    place = "document.querySelector('.judged').parentElement"
    wider = page.evaluate_on_screen(f"{place}.scrollWidth - {place}.clientWidth", width=400, scheme="light")
    assert wider <= 0


def test_a_click_shows_why_a_verdict_changed(page: Page) -> None:
    shown = "document.querySelector('[data-label=Now] .why').innerText.includes('Because of')"
    assert not page.evaluate(shown)

    page.click("[data-label=Now] .why summary")
    page.wait_for(shown)


def test_list_of_nights_fits_on_a_narrow_screen(tmp_path: Path) -> None:
    record = {"night": NIGHT, "dag_id": LONG, "run_id": LONG, "totals": {"documents": 2**40, "decisions": 0}}
    chain = {"id": "x", "root": "s3://texts/", "problem": "", "nights": [{"record": record, "number": 1}]}
    shown = {"base": "", "airflow": "", "quote": quote, "chains": [chain], "decided": {}}
    html = render("nights.html", **shown, open_forms={(LONG, LONG): 12})
    (tmp_path / "nights.html").write_text(html)
    with open_page((tmp_path / "nights.html").as_uri(), tmp_path / "profile") as opened:
        opened.wait_for("!!document.querySelector('.nights td')")
        widest = "Math.max(...[...document.querySelectorAll('*')].map(it => it.scrollWidth))"
        assert opened.evaluate_on_screen(widest, width=400) <= 400


def test_the_page_loads_nothing(page: Page) -> None:
    assert page.evaluate("performance.getEntriesByType('resource').map(it => it.name)") == []
