from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from airflow_provider.reports.assess import VerdictStats, render_verdicts
from airflow_provider.reports.ingest import Run
from airflow_provider.reports.verdicts import MAX_CHANGES, OPEN_CHANGES
from tests.reports.pages import read_text as text

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
RUN = Run(
    dag_id="nightly",
    task_id="assess",
    run_id="r",
    started="2026-03-02T01:00:00Z",
    ended="2026-03-02T02:00:00Z",
)


def finding(criterion: str = "D-1", category: str = GOOD, **changes: Any) -> dict[str, Any]:
    return {"criterion": criterion, "title": "Exit", "category": category, "rationale": "why", **changes}


def cell(
    number: int, *, status: str = "COMPLETED", framework: str = "DORA", **changes: Any
) -> dict[str, Any]:
    return {"source": f"s3://in/{number}.pdf", "framework": framework, "status": status, **changes}


def page(stats: VerdictStats, last_night: str | None = "2026-03-01", **changes: Any) -> LexborHTMLParser:
    options: dict[str, Any] = {"without_text": [], "files": {}} | changes
    return LexborHTMLParser(render_verdicts(stats, RUN, night="2026-03-02", last_night=last_night, **options))


def matrix(tree: LexborHTMLParser) -> Any:
    return json.loads(text(tree, "#verdicts"))


def test_what_changed_comes_first_the_worse_before_the_better() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding(category=GOOD, changed_from=MISSING)])
    stats.add(
        cell(2, carried_from={"run": "r"}), [finding(category=MISSING, changed_from=GOOD), finding("D-2")]
    )
    tree = page(stats)
    assert text(tree, "h1") == "2 verdicts changed: 1 worse, 1 better."
    assert text(tree, ".lead") == "2 documents, 1 framework: 1 assessed tonight, 1 carried forward unchanged."
    assert [row.attributes["class"] for row in tree.css(".changes tbody tr")] == ["worse", "better"]
    assert tree.css_first("main section").text().strip().startswith("What changed since the previous night")


def test_nothing_changed_and_a_first_night_say_so() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding(), finding("D-2", MISSING)])
    assert text(page(stats), "h1") == "No verdict changed."
    assert "The first night with verdicts: 1 missing, 0 not sufficiently" in text(page(stats, None), "h1")
    assert "There is nothing to compare with" in text(page(stats, None), ".changes")


def test_failed_cells_are_counted_with_their_reasons() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding()])
    for number in (2, 3):
        stats.add(cell(number, status="FAILED", error="Out of order"), [])
    tree = page(stats)
    assert text(tree, ".mark") == "2 not assessed"
    assert "Out of order such as s3://in/ 2.pdf" in text(tree, ".reasons")
    assert matrix(tree)["frameworks"][0]["rows"] == ["S", "F", "F"]


def test_verdicts_that_are_not_there_are_named() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding("D-1")], ["D-1", "D-2"])
    stats.add(cell(2), [], ["D-2"])
    assert (stats.gone, stats.without_findings) == (2, 1)
    shown = text(page(stats), "main")
    assert "1 assessment completed without a single finding." in shown
    assert "2 verdicts of the previous night have no counterpart tonight" in shown
    assert "D-2 DORA in 2 documents" in shown
    complete = VerdictStats()
    complete.add(cell(1), [finding("D-1")], ["D-1"])
    assert "Verdicts that are gone" not in text(page(complete), "main")


def test_what_there_is_less_of_comes_first() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding()])
    tree = page(stats, warnings=["The service no longer lists GDPR."])
    assert text(tree, "main section") == "Less than expected The service no longer lists GDPR."
    assert tree.css("header.warn")


def test_documents_are_counted_by_the_worst_of_their_verdicts() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding(), finding("D-2")])
    stats.add(cell(2), [finding(), finding("D-2", BAD)])
    stats.add(cell(3), [finding("D-1", MISSING, changed_from=GOOD), finding("D-2", BAD)])
    stats.add(cell(4, status="FAILED", error="Out of order"), [])
    assert text(page(stats), ".framework .sub") == (
        "4 documents: 1 sufficiently regulated throughout, 1 not sufficiently regulated in places, "
        "1 with something missing, 1 not assessed."
    )


def test_nights_are_shown_as_people_write_them() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding()])
    tree = page(stats, "2026-03-01T02:00:00+00:00")
    assert "Compared with 2026-03-01 02:00 UTC" in text(tree, ".facts")


def test_many_changes_do_not_push_the_totals_off_the_page() -> None:
    stats = VerdictStats()
    for number in range(50):
        stats.add(cell(number), [finding(changed_from=MISSING)])
    tree = page(stats)
    assert len(tree.css(".changes > table tbody tr")) == OPEN_CHANGES
    assert text(tree, ".changes .more summary") == f"{50 - OPEN_CHANGES} more"


def test_the_matrix_has_a_letter_for_each_criterion_in_lower_case_where_it_changed() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding("D-1", MISSING), finding("D-2", BAD, changed_from=GOOD)])
    stats.add(cell(1, framework="GDPR"), [finding("G-1", "ODD")])
    stats.add(cell(2), [finding("D-3")])
    data = matrix(page(stats))
    assert [each["rows"] for each in data["frameworks"]] == [["Mn.", "..S"], ["U", ""]]
    assert data["notes"] == {"0/0/0": "why", "0/0/1": "why", "0/1/0": "why", "1/0/2": "why"}


def test_hostile_texts_stay_texts() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    stats = VerdictStats()
    stats.add(
        cell(1, framework=evil, source=evil),
        [
            finding(
                evil, evil, changed_from=evil, rationale=evil, title=evil, expert=evil, expert_rationale=evil
            )
        ],
    )
    tree = page(stats, without_text=[evil], files={"Findings": evil})
    assert len(tree.css("script")) == 2
    assert not tree.css("img")
    assert matrix(tree)["notes"]["0/0/0"].endswith(f"The service said: without a known category. {evil}")


def test_the_policy_allows_this_script_and_style_only() -> None:
    stats = VerdictStats()
    stats.add(cell(1), [finding()])
    tree = page(stats)
    policy = str(tree.css_first("meta[http-equiv]").attributes["content"])
    script = next(each.text() for each in tree.css("script") if not each.attributes.get("type"))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    html = render_verdicts(stats, RUN, night="n", last_night=None, without_text=[], files={})
    assert not re.search(r'(src|href)="(?!s3:)', html)


def test_ten_thousand_documents_make_a_page_of_bounded_size() -> None:
    stats = VerdictStats()
    for number in range(10_000):
        changed = GOOD if number % 7 == 0 else None
        stats.add(
            cell(number),
            [finding(f"D-{one}", MISSING, rationale="x" * 300, changed_from=changed) for one in range(6)],
        )
    html = render_verdicts(stats, RUN, night="n", last_night="m", without_text=["x"] * 10_000, files={})
    assert len(html) < 4_000_000
    assert len(LexborHTMLParser(html).css(".changes tbody tr")) == MAX_CHANGES
    assert stats.worse == 6 * 1429


def test_an_empty_night_says_so() -> None:
    tree = page(VerdictStats(), None)
    assert text(tree, "h1") == "There were no documents to assess."
    assert not tree.css("#verdicts")
