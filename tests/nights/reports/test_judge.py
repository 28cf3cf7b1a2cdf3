"""The section about the judge: agreement with experts, drift, and its trend."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nights.reports.pages import Night, Strict

GOOD, MISSING = "SUFFICIENTLY_REGULATED", "MISSING"


def row(criterion: str | None, **changes: Any) -> dict[str, Any]:
    numbers = {"cases": 20, "agreed": 18, "agreement": 0.9, "base_rate": 0.9, "kappa": 0.0}
    states = {"no_better_than_chance": False, "state": "steady", "compared": 4, "moved": 0}
    return {"framework": "DORA", "criterion": criterion, **numbers, **states, **changes}


def moved(**changes: Any) -> dict[str, Any]:
    about = {"source": "s3://in/a.pdf", "framework": "DORA", "criterion": "exit"}
    return {**about, "reference": GOOD, "category": MISSING, "expert_category": GOOD, **changes}


def render(*judged: Any, **record: Any) -> str:
    page = Night(judged=judged, **record).render().replace("\u00a0", " ")
    Strict(page)
    return page


def test_chance_level_and_inconsistent_criteria_have_a_badge() -> None:
    page = render(
        row(None),
        row("exit", no_better_than_chance=True),
        row("audit", cases=0, state="inconsistent"),
        row("data", cases=0),
    )
    for text in ("90 %", "0.00", "no better than chance", "inconsistent", ">audit"):
        assert text in page
    assert ">data" not in page  # nothing is known about it
    assert ">0.00</td>" in page
    assert ">0.00</td>" not in render(row("exit", cases=19))  # few cases prove nothing


def test_drifted_criterion_is_shown_with_documents_before_and_now() -> None:
    judged = [
        row("exit", state="drifted", moved=3, compared=4),
        moved(),
        moved(source="s3://in/b.pdf", reference=None),
    ]
    page = render(*judged, row(None, state="drifted"), totals={"drifted": 1})
    assert "The service decides differently on 1 criterion than before." in page
    assert "3 of 4 documents got another verdict" in page
    assert [name in page for name in ("a.pdf", "b.pdf")] == [True, False]


def test_rows_of_a_mapped_task_count_once_and_a_drift_in_any_of_them_is_shown() -> None:
    drift = row("exit", state="drifted", moved=3, compared=4)
    whole = row(None, state="drifted")
    night = Night(judged=[row(None), row("exit"), moved(), whole, drift, moved(), row("exit")])
    page = night.render()
    assert night.judge.numbers == {"agreed": 18, "disagreed": 2, "drifted": 1}
    assert page.count("<b>Drifted:</b>") == page.count('data-label="Before"') == 1
    assert page.count("<b>DORA</b>") == 1


def test_trend_of_agreement_needs_two_nights_with_cases() -> None:
    totals = {"documents": 1, "agreed": 9, "disagreed": 1}
    both = render(row(None), totals=totals, trend=[("2026-03-01", totals)])
    assert "<title>Agreement</title>" in both
    assert "<title>Agreement</title>" not in render(row(None), totals=totals, trend=[])
    assert "Agreement with experts" not in render()


@pytest.mark.parametrize("value", ["9", [9], {"a": 1}])
def test_rows_that_are_not_numbers_are_left_out(value: Any) -> None:
    assert "Agreement with experts" not in render(row("exit", kappa=value))
