"""Findings, read from results of any shape."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.client import findings
from airflow_provider.client.findings import Finding
from airflow_provider.client.profile import Profile
from airflow_provider.exceptions import ComplianceProtocolError
from airflow_provider.nights.review.selection import select

ONE = {"assessmentResponseId": 7, "criterionName": "Exit", "category": "MISSING", "rationale": "Nothing."}
READ = Finding(7, "Exit", "MISSING", "Nothing.")
parse_findings = partial(findings.parse_findings, profile=Profile())
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
        {"results": [], "findings": [ONE]},
        {"criteria": ["D-1"], "responses": [ONE]},
    ],
)
def test_findings_are_seen_in_every_plausible_shape(results: Any) -> None:
    assert parse_findings(results) == [READ]


def test_a_field_that_the_profile_maps_comes_before_all_synonyms() -> None:
    names = {"document": "ref", "framework": "rules", "criterionName": "demand", "score": "sure"}
    profile = Profile.parse({"fields": names})
    other = {"fileName": "a.pdf", "frameworkName": "B", "title": "C", "confidence": 0.1}
    (finding,) = parse_findings(
        [{**ONE, **other, "ref": "1", "rules": "2", "demand": "3", "sure": 4}], profile=profile
    )
    assert (finding.document, finding.framework, finding.title) == ("1", "framework 2", "3")
    assert finding.score == 4
    (finding,) = parse_findings([{**ONE, **other}], profile=profile)
    assert (finding.document, finding.framework, finding.title) == ("a.pdf", "B", "Exit")


@pytest.mark.parametrize("results", [[], {"results": []}, {"uuid": "u", "findings": []}])
def test_results_may_have_no_finding(results: Any) -> None:
    assert parse_findings(results) == []


@pytest.mark.parametrize(
    "results",
    [
        None,
        7,
        "x",
        {},
        {"status": "COMPLETED"},
        ["x"],
        {"results": "none"},
        ["?", ONE, None],
        [{**ONE, "category": {"name": "MISSING"}}],
        [{**ONE, "category": ["MISSING"]}],
        [{"category": "MISSING"}],
        [ONE, {}],
    ],
)
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
def test_any_results_are_read_or_refused(results: Any) -> None:
    try:
        found = parse_findings(results)
    except ComplianceProtocolError:
        return
    chosen = select(found, 3)
    assert len(chosen.asked) == len({each.id for each in chosen.asked}) <= 3
    assert len(chosen.asked) + chosen.left_out.total() <= len(found)


@pytest.mark.parametrize(
    ("fields", "document", "framework"),
    [
        ({"fileName": "a.pdf", "frameworkCodeName": "DORA"}, "a.pdf", "DORA"),
        ({"source": "s3://b/a.pdf", "framework": {"id": 1, "codeName": "DORA"}}, "s3://b/a.pdf", "DORA"),
        ({"document": {"name": "a.pdf"}, "frameworkIds": [2]}, "a.pdf", "framework 2"),
        ({"document": ["a.pdf", "b.pdf"], "frameworkIds": [1, 2]}, "", ""),
        ({}, "", ""),
    ],
)
@pytest.mark.parametrize("is_inherited", [True, False])
def test_document_and_framework_are_those_of_the_finding_or_of_all_results(
    fields: dict[str, Any], document: str, framework: str, is_inherited: bool
) -> None:
    results = {**fields, "results": [ONE]} if is_inherited else [{**ONE, **fields}]
    (finding,) = parse_findings(results)
    assert (finding.document, finding.framework) == (document, framework)


@pytest.mark.parametrize(
    "said",
    [
        {"last": False},
        {"isLast": "false"},
        {"last_page": False},
        {"complete": False},
        {"finished": False},
        {"next": "/x"},
        {"nextPageUrl": "/x"},
        {"nextOffset": 3},
        {"@odata.nextLink": "/x"},
        {"links": {"next": "/x"}},
        {"_links": {"next": {"href": "/x"}}},
        {"pageInfo": {"hasNextPage": True}},
        {"moreResults": True},
        {"has_more": "true"},
        {"continuationToken": "x"},
        {"remaining": 7},
        {"isTruncated": True},
        {"partial": True},
        {"errors": ["x"]},
        {"resultStatus": "PARTIAL"},
        {"total": 10},
        {"total": "10"},
        {"count": 10},
        {"totalItems": 10},
        {"number_of_results": 10},
        {"numFound": 10},
        {"@odata.count": 10},
        {"meta": {"pagination": {"totalCount": 10}}},
        {"meta": {"last_page": 3}},
        {"pages": 2},
        {"page": 1, "pageCount": 4},
    ],
)
def test_an_answer_that_says_that_it_is_a_part_is_refused(said: dict[str, Any]) -> None:
    profile = Profile(lists=("items",))
    for wrapped in ({"results": [ONE], **said}, {"results": {"items": [ONE], **said}}):
        with pytest.raises(ComplianceProtocolError, match="only a part"):
            parse_findings(wrapped)
    with pytest.raises(ComplianceProtocolError, match="only a part of the list"):
        profile.read("list_frameworks", {"items": [{"id": 1}], **said})


@pytest.mark.parametrize(
    "said",
    [
        {"last": True, "next": None, "hasMore": "false", "nextReview": "2027-01-01", "lastError": None},
        {"page": 1, "pages": 1, "total": 1, "totalScore": 88, "count": "1"},
        {"pageCount": 12, "document": {"pages": 12, "state": "queued"}, "usage": {"total": 12_345}},
        {"moreInfo": "https://example.com", "summary": {"total": 6, "partial": 2}, "error": None},
    ],
)
def test_an_answer_that_says_nothing_of_the_kind_is_whole(said: dict[str, Any]) -> None:
    assert parse_findings({"results": [ONE], **said}) == [READ]
    assert Profile(lists=("items",)).read("list_criteria", {"items": [ONE], **said}) == [ONE]
