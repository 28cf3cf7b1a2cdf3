"""The verdict report: what it adds to the sections that it shares with the report of a night."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from airflow_provider.nights.reports import assess, verdicts
from airflow_provider.nights.reports.assess import VerdictStats, render_verdicts
from airflow_provider.nights.reports.page import Run
from airflow_provider.nights.reports.verdicts import VerdictCounts
from tests.nights.reports.pages import BAD, GOOD, MISSING, NIGHT, Page, cell, finding

RUN = Run(
    dag_id="nightly",
    task_id="assess",
    run_id="r",
    started="2026-03-02T01:00:00Z",
    ended="2026-03-02T02:00:00Z",
)


def collect(*cells: tuple[Any, ...]) -> VerdictStats:
    stats = VerdictStats()
    for row, findings, *before in cells:
        common = {name: row.get(name) for name in ("source", "framework", "change_reason")}
        stats.add(row, [finding | common for finding in findings], *before)
    return stats


def page(stats: VerdictStats, last_night: str | None = "2026-03-01T02:00:00+00:00", **changes: Any) -> Page:
    options: dict[str, Any] = {"without_text": [], "files": {}} | changes
    html = render_verdicts(stats, RUN, night="2026-03-02", last_night=last_night, **options)
    return Page(html, has_script=True)


def matrix(shown: Page) -> Any:
    return json.loads(shown.tree.css("#verdicts")[0].text())


def test_the_page_says_what_changed_and_with_what_it_was_compared() -> None:
    carried = cell(2, carried_from={"run": "r"})
    stats = collect(
        (cell(1), [finding(category=GOOD, changed_from=MISSING)]),
        (carried, [finding(category=MISSING, changed_from=GOOD), finding(2, "D-2")]),
    )
    shown = page(stats)
    assert shown.headline == (
        "Of 2 documents, 1 is new or changed. 1 verdict got worse and 1 better.",
        "1 got worse",
        "warn",
    )
    assert shown.text(".lead") == "1 assessment ran tonight (1 framework); 1 was carried over unchanged."
    assert "Compared with 1 Mar 2026, 02:00 UTC" in shown.text(".facts")
    assert "Ended 2 Mar 2026, 02:00 UTC" in shown.text(".facts")
    assert shown.texts("h2")[:3] == ["What changed since the night before", "DORA", "All documents"]


def test_the_page_says_first_why_verdicts_changed_and_groups_them() -> None:
    worse: Any = {"category": MISSING, "changed_from": GOOD}
    better: Any = {"category": GOOD, "changed_from": BAD}
    stats = collect(
        *(
            (cell(number, framework="GDPR", change_reason="framework"), [finding(**worse)])
            for number in range(3)
        ),
        (cell(7, change_reason="document"), [finding(7, **worse), finding(7, "D-2", **better)]),
        (cell(7, framework="GDPR", change_reason="document"), [finding(7, **better)]),
        (cell(7, framework="NIS2", change_reason="both"), [finding(7, **worse)]),
        (cell(8, change_reason="judge"), [finding(8)]),
        (cell(9, "FAILED"), []),
        (cell(9, carried_from={"run": "r"}), []),
    )
    shown = page(stats)
    assert shown.text("h1").startswith(
        "Of 6 documents, 1 is new or changed and 1 failed. 5 verdicts got worse and 2 better."
    )
    assert shown.texts(".changes > p")[1:] == [
        (
            "GDPR was changed, so 3 documents with the same text were reassessed: "
            "3 verdicts got worse on D-1, none better."
        ),
        "The text of 1 document changed: 1 verdict got worse on D-1, 2 better.",
        "The text and the framework of 1 document changed: 1 verdict got worse on D-1, none better.",
        "1 document with the same text and framework was reassessed: no verdict changed.",
    ]
    first, second, *_ = shown.texts(".changes tbody tr")
    assert first == (
        "0.pdf s3://inbox/ and 2 more documents s3://inbox/ 1.pdf s3://inbox/ 2.pdf D-1 GDPR Exit "
        "new version of the framework sufficiently regulated missing Why it is worse For example, 0.pdf: why"
    )
    assert second.startswith("7.pdf s3://inbox/ D-1 DORA Exit new text")


def test_change_is_not_blamed_on_a_criterion_whose_requirement_is_the_same() -> None:
    counts = VerdictCounts()
    counts.add_cell(cell(0, change_reason="framework"))
    counts.add_finding(finding(category=MISSING, changed_from=GOOD, change_reason="other"))
    (said,) = counts.explain()
    assert said.startswith(
        "DORA was changed, so 1 document with the same text was reassessed: 1 verdict got worse"
    )
    assert said.endswith(" on D-1, whose requirement is the same, none better.")


def test_reasons_for_worse_verdicts_name_three_criteria_and_count_the_rest() -> None:
    counts = VerdictCounts()
    counts.add_cell(cell(0, change_reason="document"))
    names = ["D-1", "D-1", "D-2", "D-3", "D-4", "D-5"]
    for number, name in enumerate(names):
        counts.add_finding(finding(number, name, MISSING, changed_from=GOOD, change_reason="document"))
    (said,) = counts.explain()
    assert "6 verdicts got worse (2 on D-1, 1 on D-2, 1 on D-3, 2 on others), none better." in said
    counts = VerdictCounts()
    counts.add_cell(cell(0, change_reason="document"))
    counts.add_finding(finding(changed_from=BAD, change_reason="document"))
    assert list(counts.explain()) == ["The text of 1 document changed: no verdict got worse, 1 better."]


@pytest.mark.parametrize(
    "name",
    [
        "framework",
        "criterion",
        "change_reason",
        "changed_from",
        "category",
        "expert",
        "decided_at",
        "outcome",
    ],
)
def test_changes_of_different_kinds_are_apart(name: str) -> None:
    change = finding(1, "D-1", MISSING, changed_from=GOOD, change_reason="document")
    counts = VerdictCounts()
    for row in (change, change, change | {name: BAD}):
        counts.add_finding(row)
    assert [kind.total for kind in counts.changes] == [2, 1]


def test_cells_and_criteria_are_counted_and_the_rest_beyond_a_limit_together(monkeypatch: Any) -> None:
    monkeypatch.setattr(verdicts, "MAX_CRITERIA", 2)
    counts = VerdictCounts()
    for row in (cell(1), cell(2, carried_from={"run": "r"}), cell(3, "FAILED"), cell(4, framework="GDPR")):
        counts.add_cell(row)
    for number in range(4):
        counts.add_finding(finding(number // 2, f"D-{number}"))
    dora, gdpr = counts.frameworks.values()
    assert counts.describe_framework(dora) == ("Documents: 1 assessed tonight, 1 carried over, 1 failed.")
    assert counts.describe_framework(gdpr) == "Documents: 1 assessed tonight."
    assert list(dora.criteria) == ["D-0", "D-1", "(others)"]
    assert (dora.number, gdpr.number, counts.total) == (0, 1, 4)
    counts.add_cell(cell(1, framework="NIS2"))
    assert list(counts.frameworks) == ["DORA", "GDPR", "(others)"]
    assert gdpr.least_regulated == []


def test_an_unchanged_a_first_and_an_empty_night_say_so() -> None:
    stats = collect((cell(1), [finding(), finding(1, "D-2", MISSING)]))
    assert page(stats).text("h1") == "Of 1 document, 1 is new or changed. No verdict changed."
    new = [finding(first_seen=NIGHT), finding(1, "D-2", MISSING, first_seen=NIGHT)]
    first = page(collect((cell(1), new)), None)
    assert "The first night with verdicts: 1 missing, 0 not sufficiently" in first.text("h1")
    assert "Nothing to compare with" in first.text(".changes")
    assert "Compared with" not in first.text(".facts")
    empty = page(VerdictStats(), None)
    assert empty.headline == ("There were no documents to assess.", "Nothing to do", "idle")
    assert not empty.tree.css("#verdicts, script")


def test_warnings_come_first() -> None:
    shown = page(collect((cell(1), [finding()])), warnings=["The service no longer lists GDPR."])
    assert shown.texts("main section")[0] == "Warnings The service no longer lists GDPR."
    assert shown.headline[1:] == ("With warnings", "warn")


def test_verdicts_that_are_not_there_are_named() -> None:
    stats = collect((cell(1), [finding()], ["D-1", "D-2"]), (cell(2, findings=0), [], ["D-2"]))
    assert (stats.gone.total(), stats.without_findings) == (2, 1)
    section = page(stats).section("Verdicts without a counterpart")
    assert "1 assessment completed without a single finding." in section
    assert "2 verdicts of the night before are missing tonight" in section
    assert "D-2 DORA in 2 documents" in section
    assert "are gone" not in page(collect((cell(1), [finding()], ["D-1"]))).text("main")


def test_documents_are_counted_by_the_worst_of_their_verdicts() -> None:
    stats = collect(
        (cell(1), [finding(), finding(1, "D-2")]),
        (cell(2), [finding(), finding(2, "D-2", BAD)]),
        (cell(3), [finding(3, "D-1", MISSING, changed_from=GOOD), finding(3, "D-2", BAD)]),
        (cell(4, "FAILED", error="Out of order"), []),
        (cell(5), [finding(5, "D-1", "ODD")]),
    )
    shown = page(stats, without_text=["s3://inbox/9.pdf"], files={"Findings": "s3://out/f.jsonl"})
    assert shown.text(".framework .sub") == (
        "Documents: 1 sufficiently regulated throughout, 1 not sufficiently regulated in places, "
        "1 with something missing, 1 with a verdict of no known category, 1 not assessed."
    )
    assert shown.headline[1] == "1 not assessed"
    assert "Out of order s3://inbox/ 4.pdf" in shown.text(".reasons")
    assert "1 document s3://inbox/ 9.pdf" in shown.section("Without a text")
    assert "Findings s3://out/ f.jsonl" in shown.section("Data")


def test_the_matrix_has_a_letter_for_each_criterion_in_lower_case_where_it_changed() -> None:
    decided = {"expert": "ann", "expert_category": GOOD, "expert_rationale": "Annex 2."}
    stats = collect(
        (cell(1), [finding(1, "D-1", MISSING), finding(1, "D-2", BAD, changed_from=GOOD)]),
        (cell(1, framework="GDPR"), [finding(1, "G-1", "ODD")]),
        (cell(2), [finding(2, "D-3", MISSING, **decided)]),
        (cell(3, "FAILED"), []),
    )
    data = matrix(page(stats))
    assert data["documents"] == [["s3://inbox/", f"{number}.pdf"] for number in (1, 2, 3)]
    assert [framework["rows"] for framework in data["frameworks"]] == [["Mn", "..S", "F"], ["U", "", ""]]
    assert [framework["name"] for framework in data["frameworks"]] == ["DORA", "GDPR"]
    assert data["frameworks"][0]["criteria"] == [[f"D-{number}", "Exit"] for number in (1, 2, 3)]
    assert data["notes"].pop("1/0/2") == "Decided by ann. Annex 2. The service said: missing. why"
    assert data["notes"] == {"0/0/0": "why", "0/0/1": "why", "0/1/0": "why"}


def test_hostile_texts_stay_texts() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    names = ("criterion", "category", "changed_from", "rationale", "title", "expert", "expert_rationale")
    stats = collect((cell(1, framework=evil, source=evil), [dict.fromkeys(names, evil)]))
    shown = page(stats, without_text=[evil], files={"Findings": evil})
    assert len(shown.tree.css("script")) == 2
    assert not shown.tree.css("img")
    assert matrix(shown)["notes"]["0/0/0"].endswith(f"The service said: without a known category. {evil}")


def test_the_policy_allows_this_script_and_style_only() -> None:
    shown = page(collect((cell(1), [finding()])))
    policy = str(shown.tree.css("meta[http-equiv]")[0].attributes["content"])
    script = next(node.text() for node in shown.tree.css("script") if not node.attributes.get("type"))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r'(src|href)="(?!s3:)', shown.html)


def test_ten_thousand_documents_make_a_page_of_bounded_size(monkeypatch: Any) -> None:
    monkeypatch.setattr(assess, "MAX_DOCUMENTS", 9_000)
    stats = collect(
        *(
            (cell(n), [finding(n, f"D-{one}", MISSING, rationale="x" * 300) for one in range(6)])
            for n in range(10_000)
        )
    )
    shown = page(stats, without_text=["x"] * 10_000)
    assert len(shown.html) < 4_000_000
    assert "and 9,800 more" in shown.section("Without a text")
    data = matrix(shown)
    assert (len(data["documents"]), data["left_out"]) == (9_000, 1_000)
    assert len(data["notes"]) == assess.RATIONALE_BUDGET_CHARS // 300
