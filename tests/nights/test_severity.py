"""One table decides which of two verdicts is worse, for the report and for the form."""

from __future__ import annotations

import pytest

from airflow_provider.nights.reports.verdicts import VerdictCounts
from airflow_provider.nights.review.selection import ReviewedFinding
from airflow_provider.nights.severity import (
    INSUFFICIENT,
    MISSING,
    NO_CATEGORY,
    SUFFICIENT,
    normalize_category,
)

CHANGES = {
    (SUFFICIENT, INSUFFICIENT): True,
    (SUFFICIENT, MISSING): True,
    (SUFFICIENT, NO_CATEGORY): True,
    (INSUFFICIENT, SUFFICIENT): False,
    (INSUFFICIENT, MISSING): True,
    (INSUFFICIENT, NO_CATEGORY): True,  # no one knows whether it is better
    (MISSING, SUFFICIENT): False,
    (MISSING, INSUFFICIENT): False,
    (MISSING, NO_CATEGORY): True,
    (NO_CATEGORY, SUFFICIENT): False,
    (NO_CATEGORY, INSUFFICIENT): True,
    (NO_CATEGORY, MISSING): True,
    ("PARTLY", "MOSTLY"): True,
    ("missing", "Not sufficiently regulated"): False,
}


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_report_and_form_agree_on_what_became_worse(before: str, after: str) -> None:
    counts = VerdictCounts()
    counts.add_finding({"category": after, "changed_from": before})
    is_later, *_ = ReviewedFinding(1, category=after, changed_from=before).priority
    assert (counts.worse == 1) is (not is_later) is CHANGES[before, after]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("missing", MISSING),
        (" Missing ", MISSING),
        ("Not sufficiently regulated", INSUFFICIENT),
        ("not-sufficiently-regulated", INSUFFICIENT),
        ("sufficiently_regulated", SUFFICIENT),
        ("Partly regulated", "Partly regulated"),
        ("", NO_CATEGORY),
        (None, NO_CATEGORY),
    ],
)
def test_spellings_of_a_category_are_the_same_category(given: str | None, expected: str) -> None:
    assert normalize_category(given) == expected


def test_sufficient_in_another_spelling_needs_no_expert() -> None:
    assert not ReviewedFinding(1, category="Sufficiently regulated").is_wanted("insufficient")
    assert ReviewedFinding(1, category="missing").is_wanted("insufficient")
