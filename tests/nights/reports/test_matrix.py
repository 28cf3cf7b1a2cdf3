"""The matrix of a verdict report in a browser: what its script shows, filters and explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider.nights.reports.assess import VerdictStats, render_verdicts
from tests.nights.reports.pages import BAD, GOOD, MISSING, cell, finding
from tests.nights.reports.test_assess import RUN
from tests.support.browser import Page, open_page

pytestmark = pytest.mark.browser

DOCUMENTS, PAGE = 230, 100
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A report of many documents: the first three are missing something, the fourth has failed."""
    stats = VerdictStats()
    for number in range(DOCUMENTS):
        if number == 3:
            stats.add(cell(number, status="FAILED", error="Out of order"), [])
        elif number < 3:
            changed = GOOD if number == 2 else None
            rows = [finding(number, "D-1", MISSING, rationale=f"{EVIL} {number}", changed_from=changed)]
            stats.add(cell(number), [*rows, finding(number, "D-2", BAD if number == 1 else GOOD)])
        else:
            rows = [finding(number), finding(number, "D-2")]
            stats.add(cell(number), rows[: 1 if number == DOCUMENTS - 1 else 2])
        other = finding(number, "G-1", BAD if number == 200 else GOOD, framework="GDPR")
        stats.add(cell(number, framework="GDPR"), [other])
    html = render_verdicts(stats, RUN, night="2026-03-02", last_night="m", without_text=[], files={})
    folder = tmp_path_factory.mktemp("report")
    (folder / "report.html").write_text(html)
    with open_page((folder / "report.html").as_uri(), folder / "profile", (1280, 900)) as opened:
        opened.wait_for("!!document.querySelector('.heat tbody tr')")
        yield opened


@pytest.fixture(autouse=True)
def _without_filters(page: Page) -> None:
    choose(page, framework="0", only="all", text="")


def choose(page: Page, **values: str) -> None:
    """Set filters as a person does."""
    for name, value in values.items():
        page.evaluate(
            f"(it => {{ it.value = '{value}'; it.dispatchEvent(new Event('input', {{bubbles: true}})) }})"
            f"(document.querySelector('.matrix form').elements['{name}'])"
        )


def names(page: Page) -> list[str]:
    script = "[...document.querySelectorAll('.heat tbody th')].map(cell => cell.innerText)"
    shown: list[str] = page.evaluate(script)
    return shown


def text(page: Page, selector: str) -> Any:
    return page.evaluate(f"document.querySelector('{selector}').innerText")


def test_the_worst_documents_come_first_page_by_page(page: Page) -> None:
    assert names(page)[:4] == ["1.pdf", "0.pdf", "2.pdf", "3.pdf"]
    assert text(page, ".matrix output") == f"{DOCUMENTS} documents"
    seen = names(page)
    for shown in (f"101 to 200 of {DOCUMENTS}", f"201 to {DOCUMENTS} of {DOCUMENTS}"):
        page.click(".pages [name=next]")
        assert text(page, ".pages span") == shown
        seen += names(page)
    assert sorted(seen) == sorted(f"{number}.pdf" for number in range(DOCUMENTS))
    assert page.evaluate("document.querySelector('.pages [name=next]').disabled")
    page.click(".pages [name=previous]")
    assert names(page) == seen[PAGE : 2 * PAGE]


def test_document_without_a_verdict_on_a_criterion_has_an_empty_cell(page: Page) -> None:
    choose(page, text=f"/{DOCUMENTS - 1}.")
    titles = page.evaluate("[...document.querySelectorAll('.heat tbody button')].map(it => it.title)")
    assert titles == ["D-1: sufficiently regulated", "D-2: no verdict"]


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        ({"only": "open"}, ["1.pdf", "0.pdf", "2.pdf"]),
        ({"only": "changed"}, ["2.pdf"]),
        ({"only": "failed"}, ["3.pdf"]),
        ({"only": "open", "text": "INBOX/1"}, ["1.pdf"]),
        ({"framework": "1", "only": "open"}, ["200.pdf"]),
        ({"framework": "1", "only": "worst"}, []),
    ],
)
def test_filters_show_what_they_say(page: Page, filters: dict[str, str], shown: list[str]) -> None:
    choose(page, **filters)
    assert names(page) == shown
    counted = {0: "No document", 1: "1 document"}
    assert text(page, ".matrix output") == counted.get(len(shown), f"{len(shown)} documents")
    assert page.evaluate("document.querySelector('.pages').hidden")


def test_a_verdict_explains_itself_and_foreign_text_stays_text(page: Page) -> None:
    choose(page, only="changed")
    page.click(".heat tbody td button.changed")
    assert text(page, "dialog h2") == "D-1: missing"
    assert text(page, "dialog p:last-of-type") == f"{EVIL} 2"
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    page.click("dialog button")
    assert not page.evaluate("document.querySelector('dialog').open")
    choose(page, only="failed")
    page.click(".heat tbody td button")
    assert text(page, "dialog p:last-of-type") == "See “Why assessments failed” below."
    page.click("dialog button")
