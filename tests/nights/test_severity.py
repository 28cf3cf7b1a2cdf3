"""One table decides which of two verdicts is worse, for the report and for the form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider.client.models import FeedbackCategory
from airflow_provider.emulator.service.catalog import INSUFFICIENT, MISSING, RESULT_CATEGORIES, SUFFICIENT
from airflow_provider.nights.reports import page
from airflow_provider.nights.reports.assess import VerdictStats
from airflow_provider.nights.reports.verdicts import VerdictCounts
from airflow_provider.nights.review.selection import ReviewedFinding
from airflow_provider.nights.severity import (
    CATEGORIES,
    KNOWN_CATEGORIES,
    NO_CATEGORY,
    normalize_category,
)

TEMPLATES = Path(page.__file__).parent / "templates"

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


def test_the_contract_the_emulator_and_the_table_have_the_same_categories_in_the_same_order() -> None:
    assert KNOWN_CATEGORIES == tuple(FeedbackCategory) == RESULT_CATEGORIES


def test_categories_can_be_told_apart() -> None:
    for values in zip(
        *((one.letter, one.sign, one.style, one.color, one.words) for one in CATEGORIES), strict=True
    ):
        assert len(set(values)) == len(CATEGORIES)
    assert not {one.letter for one in CATEGORIES} & {"F", "."}
    assert set(page.STYLES) >= {one.style for one in CATEGORIES}


def test_style_and_script_of_a_report_know_each_category_from_the_table_only() -> None:
    style = str(page._environment().globals["css"])
    for category in CATEGORIES:
        assert f".heat td.{category.style} {{ background: var(--{category.color}); }}" in style
        for variable in (category.color, category.ink):
            assert len(re.findall(rf"--{variable}: #", style)) == 2, "one for light and one for dark pages"
    assert set(VerdictStats().matrix()["categories"]) == {one.letter for one in CATEGORIES}
    for name in ("report.css", "matrix.js"):
        words = set(re.findall(r"[\w-]+", (TEMPLATES / name).read_text()))
        assert not words & {one.style for one in CATEGORIES if one.style != "other"}, name
