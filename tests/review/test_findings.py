"""Findings, read from whatever results look like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.exceptions import ComplianceProtocolError
from airflow_provider.review.findings import Finding, parse_findings, select

ONE = {"assessmentResponseId": 7, "criterionName": "Exit", "category": "MISSING", "rationale": "Nothing."}
READ = Finding(7, "Exit", "MISSING", "Nothing.")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["results", "id", "criterion", "score", "category"]) | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "results",
    [
        [ONE],
        {"results": [ONE]},
        {"uuid": "u", "status": "COMPLETED", "summary": {"MISSING": 1}, "results": [ONE]},
        {"findings": [ONE]},
        {"assessment_responses": [ONE]},
        {"data": {"results": [ONE]}},
        ONE,
        [{"id": "7", "criterion": {"name": "Exit"}, "Category": "MISSING", "reasoning": "Nothing."}],
        ["?", ONE, None],
    ],
)
def test_findings_are_seen_in_every_plausible_shape(results: Any) -> None:
    assert parse_findings(results) == [READ]


@pytest.mark.parametrize("results", [[], {"results": []}, {"uuid": "u", "findings": []}])
def test_results_may_have_no_finding(results: Any) -> None:
    assert parse_findings(results) == []


@pytest.mark.parametrize("results", [None, 7, "x", {}, {"status": "COMPLETED"}, ["x"], {"results": "none"}])
def test_a_shape_that_is_not_understood_is_an_error_that_names_the_hook(results: Any) -> None:
    with pytest.raises(ComplianceProtocolError, match="Override findings_of"):
        parse_findings(results)


@pytest.mark.parametrize(
    ("score", "read"),
    [(0.4, 0.4), ("0.4", 0.4), (1, 1.0), (None, None), ("high", None), (True, None), (float("nan"), None)],
)
def test_a_score_is_a_number_or_none(score: Any, read: float | None) -> None:
    (finding,) = parse_findings([{**ONE, "confidence": score}])
    assert finding.score == read


@pytest.mark.parametrize("number", [None, "x", 1.5, True, 2**63, "12345678901234567890"])
def test_an_id_that_no_feedback_can_refer_to_is_none(number: Any) -> None:
    (finding,) = parse_findings([{**ONE, "assessmentResponseId": number}])
    assert finding.id is None


def test_an_id_beyond_the_precision_of_floats_is_kept() -> None:
    (finding,) = parse_findings([{**ONE, "assessmentResponseId": 2**63 - 1}])
    assert finding.id == 2**63 - 1


@given(JSON)
def test_whatever_comes_is_read_or_refused(results: Any) -> None:
    try:
        found = parse_findings(results)
    except ComplianceProtocolError:
        return
    chosen = select(found, 0.5, 3)
    assert len(chosen.asked) == len({each.id for each in chosen.asked}) <= 3
    assert len(chosen.asked) + chosen.confident + chosen.without_id + chosen.over_limit <= len(found)


def test_what_is_sure_or_nameless_or_too_much_is_counted() -> None:
    scores = [0.9, 0.8, 0.79, None, 0.1, 0.2]
    findings = [Finding(number, score=score) for number, score in enumerate(scores)]
    chosen = select([*findings, Finding(None), Finding(2, "again")], 0.8, 3)
    assert [each.id for each in chosen.asked] == [2, 3, 4]
    assert (chosen.confident, chosen.without_id, chosen.over_limit) == (2, 1, 1)


def test_without_a_threshold_all_are_asked_for() -> None:
    assert len(select([Finding(1, score=1.0), Finding(2, score=0.0)], None, 50).asked) == 2
