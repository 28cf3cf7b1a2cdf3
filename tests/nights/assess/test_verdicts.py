"""Verdicts as rows have them: named, compared, decided and counted."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.client.findings import Finding
from airflow_provider.emulator.service.catalog import INSUFFICIENT, MISSING, SUFFICIENT
from airflow_provider.exceptions import ComplianceProtocolError
from airflow_provider.nights.assess.cells import AssessedFramework, Cell
from airflow_provider.nights.assess.findings import (
    VERDICT_COLUMNS,
    apply_decisions,
    as_counts,
    compare,
    effective_category,
    find_unanswered,
    finding_rows,
    to_verdicts,
)
from airflow_provider.nights.assess.verdicts import FRAMEWORKS, describe_frameworks, find_shrinkage
from airflow_provider.nights.index.nights import TaskKey

TASK = TaskKey("d", "t")


def frameworks(**criteria: int) -> list[AssessedFramework]:
    return [
        AssessedFramework(key, f"F-{key}", "", {}, (("", ""),) * count) for key, count in criteria.items()
    ]


@pytest.mark.parametrize(
    ("entries", "gone", "fewer"),
    [
        ([], {}, {}),
        ([(TASK, {"x": 2, "y": 1})], {}, {}),
        ([(TASK, {"x": 3, "y": 1, "z": 4})], {"z": "F-z"}, {"F-x": (2, 3)}),
        ([(TaskKey("d", "u"), {"z": 4})], {}, {}),  # of others
        ([(TASK, {"x": 2}), (TASK, {"z": 4})], {}, {}),  # the newest counts
        ([(TASK, {"w": 1})], {}, {}),  # still listed, but not wanted
    ],
)
def test_frameworks_and_criteria_that_are_gone_are_named(entries: Any, gone: Any, fewer: Any) -> None:
    listed = [
        SimpleNamespace(task=task, facts={FRAMEWORKS: describe_frameworks(frameworks(**had))})
        for task, had in entries
    ]
    nights: Any = SimpleNamespace(task=TASK, entries=lambda: iter(listed))
    found = find_shrinkage(nights, frameworks(x=2, y=1), ["x", "y", "w"])
    assert (found.frameworks, found.criteria) == (gone, fewer)


CRITERIA = (("D-1", "Exit"), ("D-2", "Audit"))


@pytest.mark.parametrize(
    ("before", "first_seen", "changed_from", "open_from"),
    [
        ({}, "n2", None, None),
        ({"D-1": [MISSING, "n1", None, "both"]}, "n1", None, None),
        ({"D-1": [MISSING, "n1", SUFFICIENT, "both"]}, "n1", None, SUFFICIENT),
        ({"D-1": [SUFFICIENT, "n1", None, "both"]}, "n2", SUFFICIENT, SUFFICIENT),
        ({"D-1": [SUFFICIENT, "n1", MISSING, "both"]}, "n2", SUFFICIENT, SUFFICIENT),
        ({"D-2": [SUFFICIENT, "n1", None, "both"]}, "n2", None, None),
    ],
)
def test_verdicts_are_compared_by_criterion(
    before: dict[str, list[Any]], first_seen: str, changed_from: str | None, open_from: str | None
) -> None:
    (found,) = compare(to_verdicts([Finding(1, "Exit", "missing", "m", code="D-1")]), before, "n2")
    names = ("category", "first_seen", "changed_from", "open_from")
    assert tuple(found[name] for name in names) == (MISSING, first_seen, changed_from, open_from)


def test_equal_criteria_of_one_assessment_stay_apart() -> None:
    verdicts = to_verdicts([Finding(number, "Exit", MISSING) for number in (1, 2, 3)])
    assert [verdict["criterion"] for verdict in verdicts] == ["Exit", "Exit (2)", "Exit (3)"]


class OwnCategory(Enum):
    """Categories of a deployment."""

    MISSING = "MISSING"


@pytest.mark.parametrize(
    ("odd", "column", "value"),
    [
        ({"id": "R-17"}, "response_id", None),
        ({"id": "17"}, "response_id", 17),
        ({"id": 2**63}, "response_id", None),
        ({"score": float("nan")}, "score", None),
        ({"score": "0.5"}, "score", 0.5),
        ({"category": OwnCategory.MISSING}, "category", "MISSING"),
        ({"category": 5}, "category", "5"),
        ({"code": 0}, "criterion", "0"),
        ({"title": None}, "title", ""),
        ({"rationale": ["a"]}, "rationale", "['a']"),
    ],
)
def test_a_hook_may_put_anything_into_a_finding(odd: dict[str, Any], column: str, value: Any) -> None:
    finding = Finding(**{"id": 7, "title": "Exit", "category": MISSING, "code": "D-1", **odd})
    (verdict,) = to_verdicts([finding])
    assert verdict[column] == value


def test_counts_of_categories_stay_small_and_whole() -> None:
    counted = Counter({MISSING: 3, "UNKNOWN": 1, "y" * 5_000: 4} | {f"Rating {n}": 1 for n in range(1_000)})
    counts = as_counts(counted)
    assert (counts[MISSING], counts["UNKNOWN"], counts["Rating 0"]) == (3, 1, 1)
    assert sum(counts.values()) == counted.total() == counts["OTHER"] + 23
    assert len(str(counts)) < 1_000
    assert as_counts(Counter()) == {}


def test_two_verdicts_on_one_criterion_are_refused_unless_they_agree() -> None:
    twice = [Finding(1, "Exit", MISSING, code="D-1"), Finding(2, "Exit", "missing", code="D-1")]
    assert [verdict["criterion"] for verdict in to_verdicts(twice)] == ["D-1", "D-1 (2)"]
    with pytest.raises(ComplianceProtocolError, match=f"two verdicts on D-1: MISSING and {SUFFICIENT}"):
        to_verdicts([*twice, Finding(3, "Exit", SUFFICIENT, code="D-1")])


@pytest.mark.parametrize(
    ("findings", "unanswered"),
    [
        ([Finding(1, "Exit", MISSING, code="D-1"), Finding(2, "Audit", MISSING)], []),
        ([Finding(1, "exit", MISSING)], ["D-2"]),
        ([], ["D-1", "D-2"]),
        ([Finding(1, "All of it", MISSING, code="ALL")], ["D-1", "D-2"]),
    ],
)
def test_listed_criteria_without_an_answer_are_found(findings: list[Finding], unanswered: list[str]) -> None:
    assert find_unanswered(CRITERIA, to_verdicts(findings, CRITERIA)) == unanswered


@pytest.mark.parametrize("category", [None, "", True])
def test_a_finding_without_a_category_answers_nothing(category: Any) -> None:
    verdicts = to_verdicts([Finding(1, "Exit", category), Finding(2, "Other", category)], CRITERIA)
    assert find_unanswered(CRITERIA, verdicts) == ["D-1", "D-2", "Other"]


@pytest.mark.parametrize(
    ("code", "title", "criterion"),
    [
        ("d-1", "", "D-1"),
        ("", "EXIT", "D-1"),
        ("", "D-1", "D-1"),
        ("D-1", "Audit  plan", "D-1"),
        ("X-1", "exit", "D-1"),
        ("x-1", "", "x-1"),
        ("", "Same", "Same"),  # of two criteria
        ("d-4", "Same", "D-4"),
        ("D-5", "D-6", "D-5"),  # a name as the code name of another
        ("d-7", "", "d-7"),
    ],
)
def test_a_listed_criterion_is_named_as_it_is_listed(code: str, title: str, criterion: str) -> None:
    listed = (
        *CRITERIA,
        ("D-3", "Same"),
        ("D-4", "Same"),
        ("D-5", "D-6"),
        ("D-6", ""),
        ("D-7", ""),
        ("d-7", ""),
    )
    (verdict,) = to_verdicts([Finding(1, title, MISSING, code=code)], listed)
    assert verdict["criterion"] == criterion


@pytest.mark.parametrize("other", [Finding(2, "d-1", SUFFICIENT), Finding(2, "Audit", MISSING, code="D-1")])
def test_opposite_verdicts_on_a_criterion_in_two_spellings_are_refused(other: Finding) -> None:
    with pytest.raises(ComplianceProtocolError, match="verdict"):
        to_verdicts([Finding(1, "Exit", MISSING), other], CRITERIA)


@pytest.mark.parametrize(
    ("category_before", "decided_at", "is_applied"),
    [
        (MISSING, "d2", True),
        (MISSING, "d1", True),
        ("Missing", "d2", True),
        (INSUFFICIENT, "d2", False),
        (MISSING, "d0", False),
    ],
)
def test_the_newest_decision_on_the_same_category_counts(
    category_before: str, decided_at: str, is_applied: bool
) -> None:
    carried = {"criterion": "D-1", "category": MISSING, "expert": "old", "decided_at": "d1"}
    decision = {
        "category_before": category_before,
        "decided_at": decided_at,
        "expert": "new",
        "expert_category": SUFFICIENT,
        "expert_rationale": "r",
    }
    (found,) = apply_decisions([carried], "cell", {("cell", "D-1"): decision})
    assert found["expert"] == ("new" if is_applied else "old")
    assert apply_decisions([carried], "another", {("cell", "D-1"): decision}) == [carried]


@pytest.mark.parametrize(
    ("cause", "criterion", "change_reason"),
    [
        ("framework", "D-1", "other"),
        ("framework", "Exit", "other"),  # by its name
        ("framework", "D-2", "framework"),
        ("both", "D-1", "document"),
        ("both", "D-2", "both"),
        ("document", "D-1", "document"),
        ("judge", "D-1", "judge"),
    ],
)
def test_change_is_attributed_to_its_criterion(cause: str, criterion: str, change_reason: str) -> None:
    verdict = {"criterion": criterion, "title": "", "changed_from": SUFFICIENT, "category": MISSING}
    (row,) = finding_rows(Cell("k", change_reason=cause), [verdict], "n2", None, {"D-1", "Exit"})
    assert row["change_reason"] == change_reason


@pytest.mark.parametrize("origin", [None, {"run": "d/r"}])
def test_a_row_has_the_columns_of_its_cell_and_its_verdict(origin: dict[str, str] | None) -> None:
    cell = Cell(
        "k", "a-1", source="in/a", uuid="u", text_sha256="t", framework_id="1", framework="DORA",
        framework_fingerprint="f", carried_from=origin, change_reason="document", account="c",
    )  # fmt: skip
    (verdict,) = to_verdicts([Finding(7, "Exit", "missing", "Why.", 0.5, "D-1")])
    decision = {"expert": "e", "expert_category": SUFFICIENT, "expert_rationale": "r", "decided_at": "d"}
    seen = {"first_seen": "n1", "changed_from": INSUFFICIENT, "open_from": INSUFFICIENT}
    (row,) = finding_rows(cell, [verdict | seen | decision], "n2", "s3://b/a.txt")
    of_verdict = {
        "criterion": "D-1", "title": "Exit", "category": MISSING, "rationale": "Why.", "score": 0.5,
        "response_id": 7, **decision,
    }  # fmt: skip
    assert {name: row.pop(name) for name in VERDICT_COLUMNS} == of_verdict
    assert row == {
        "night": "n2", "source": "in/a", "uuid": "u", "text_path": "s3://b/a.txt", "text_sha256": "t",
        "cell": cell.digest, "framework_id": "1", "framework": "DORA", "framework_fingerprint": "f",
        "assessment_id": "a-1", "carried": origin is not None, "change_reason": "document", **seen,
        "text_change": None, "account": "c",
    }  # fmt: skip
    (same,) = finding_rows(cell, [verdict | {"changed_from": None}], "n2")
    assert same["change_reason"] is None
    assert effective_category(of_verdict) == SUFFICIENT
    assert effective_category(of_verdict | {"expert_category": None}) == MISSING
