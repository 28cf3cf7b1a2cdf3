"""Which findings an expert is asked about, which come first, and what is shown of them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.client.findings import Finding
from airflow_provider.nights.review.selection import ReviewedFinding, check_only, select

GOOD, BAD, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
ROW = {
    "night": "2026-03-02T00:00:00+00:00",
    "source": "s3://my_aws@in/a/contract.pdf",
    "text_path": "s3://my_aws@out/contract.txt",
    "cell": "c1",
    "framework": "DORA",
    "criterion": "D-1",
    "title": "Exit",
    "category": MISSING,
    "rationale": "Nothing.",
    "score": 0.25,
    "response_id": 7,
    "changed_from": GOOD,
    "change_reason": "document",
}


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"category": GOOD, "changed_from": None}, {"all"}),
        ({"category": GOOD, "changed_from": MISSING}, {"all", "changed"}),
        ({"category": BAD, "changed_from": None}, {"all", "insufficient"}),
        ({"category": MISSING, "changed_from": GOOD}, {"all", "insufficient", "changed"}),
        ({"category": "UNKNOWN"}, {"all", "insufficient"}),
        ({}, {"all", "insufficient"}),
    ],
)
def test_only_says_which_findings_need_a_person(row: dict[str, Any], wanted: set[str]) -> None:
    finding = ReviewedFinding.from_row(row, "u")
    assert {only for only in ("all", "insufficient", "changed") if finding.is_wanted(only)} == wanted


def test_worsened_findings_come_first_then_the_worst_changed_before_unchanged() -> None:
    order = [
        (MISSING, GOOD),
        (MISSING, BAD),
        (BAD, GOOD),
        (MISSING, None),
        (BAD, MISSING),
        (BAD, None),
        ("ODD", None),
        (GOOD, BAD),
        (GOOD, None),
    ]
    rows = [
        {"category": category, "changed_from": before, "response_id": number}
        for number, (category, before) in enumerate(reversed(order))
    ]
    asked = select([ReviewedFinding.from_row(row, "u") for row in rows], 50).asked
    assert [(finding.category, finding.changed_from or None) for finding in asked] == order


def test_a_row_is_a_finding_that_knows_where_it_comes_from() -> None:
    finding = ReviewedFinding.from_row(ROW, "s3://out/findings.jsonl")
    assert finding.record() == {
        "id": 7,
        "title": "Exit",
        "category": MISSING,
        "score": 0.25,
        "code": "D-1",
        "document": "contract.pdf",
        "framework": "DORA",
        "source": ROW["source"],
        "text_path": ROW["text_path"],
        "night": ROW["night"],
        "cell": "c1",
        "changed_from": GOOD,
        "change_reason": "document",
        "findings": "s3://out/findings.jsonl",
    }
    assert finding.rationale == "Nothing."
    assert ReviewedFinding(**finding.record()).verdict == finding.verdict == ("7-c1", MISSING)


def test_a_criterion_that_is_its_own_title_is_not_repeated() -> None:
    finding = ReviewedFinding.from_row({**ROW, "criterion": "Exit"}, "u")
    assert (finding.code, finding.criterion) == ("", "Exit")


def test_findings_are_left_out_for_a_reason() -> None:
    findings = [Finding(number, "A") for number in range(4)]
    chosen = select([*findings, Finding(None), Finding(2, "A"), Finding(3, "another criterion")], 3)
    assert [finding.id for finding in chosen.asked] == [0, 1, 2]
    assert chosen.omitted == (
        "1 without a response ID; 1 with the response ID of another finding; 1 beyond the limit"
    )
    assert len(select(findings, 50).asked) == len(findings)
    assert select(findings, 50).omitted == ""


def test_a_decided_finding_is_asked_about_only_with_all() -> None:
    finding = ReviewedFinding.from_row({**ROW, "expert": "e-1"}, "u")
    chosen = {only: select([finding], 50, only=only) for only in ("changed", "insufficient", "all")}
    assert [check_only(only) for only, each in chosen.items() if each.asked] == ["all"]
    assert chosen["changed"].omitted == "1 decided by an expert before"


def test_a_verdict_on_an_earlier_form_holds_until_its_category_or_its_cell_changes() -> None:
    rows = [ROW, {**ROW, "category": GOOD}, {**ROW, "cell": "c2"}]
    findings = [ReviewedFinding.from_row(row, "u") for row in rows]
    shown = {findings[0].verdict}
    assert [select([finding], 50, shown=shown).valid for finding in findings] == [shown, set(), set()]


@pytest.mark.parametrize(
    ("source", "shown"), [("in/\udce4.pdf", "in/\\xe4.pdf"), ("a\0b", "a\ufffdb"), ("in/ü.pdf", "in/ü.pdf")]
)
def test_every_text_of_a_finding_can_be_stored_by_airflow(source: str, shown: str) -> None:
    finding = ReviewedFinding.from_row({**ROW, "source": source, "title": source}, "u")
    (asked,) = select([finding], 50).asked
    assert (asked.source, asked.title) == (shown, shown)
