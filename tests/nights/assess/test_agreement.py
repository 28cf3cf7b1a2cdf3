"""How well the judge agrees with experts and with itself: pure rules."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.nights.assess.agreement import (
    DRIFTED,
    INCONSISTENT,
    STEADY,
    Comparison,
    JudgedCriterion,
    agreement_rows,
    at_least,
    compare_golden,
    measure,
)

# cohen_kappa_score of scikit-learn 1.9.1 on `random_tables()`, None where that is not a number.
KAPPAS = Path(__file__).parent / "kappas.json"


def random_tables() -> list[list[tuple[str, str]]]:
    """Return the categories of experts and judge in 1,000 tables of all sizes."""
    numbers = random.Random(7)
    tables = []
    for _ in range(1000):
        categories, skew = "ABCD"[: numbers.randint(1, 4)], numbers.random() * 3
        weights = [math.exp(-skew * place) for place in range(len(categories))]
        accuracy, table = numbers.random(), []
        for _ in range(numbers.randint(1, 60)):
            (expert,) = numbers.choices(categories, weights)
            judge = expert if numbers.random() < accuracy else numbers.choice(categories)
            table.append((expert, judge))
        tables.append(table)
    return tables


def test_kappa_equals_that_of_scikit_learn_on_1000_random_tables() -> None:
    expected = json.loads(KAPPAS.read_text())
    assert len(expected) == 1000
    assert 50 < expected.count(None) < 500
    for table, kappa in zip(random_tables(), expected, strict=True):
        found = measure(table)["kappa"]
        assert (found is None) is (kappa is None)
        assert kappa is None or math.isclose(found, kappa, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("cases", "agreement", "base_rate", "kappa", "is_worthless"),
    [
        ([("A", "A")] * 9 + [("B", "A")], 0.9, 0.9, 0.0, True),  # always says the majority category
        ([("A", "A")] * 9 + [("B", "B")], 1.0, 0.9, 1.0, False),
        ([("A", "A")] * 8 + [("B", "A")], 8 / 9, 8 / 9, 0.0, False),  # too few cases to say so
        ([("A", "A")] * 20, 1.0, 1.0, None, False),  # only one category: nothing is known
        ([("A", "A")] * 18 + [("A", "B")] * 2, 0.9, 1.0, 0.0, False),  # experts have seen one category only
        ([("A", "B")] * 12, 0.0, 1.0, 0.0, True),  # but this says enough
        ([("A", "B")] * 10 + [("B", "A")] * 10, 0.0, 0.5, -1.0, True),
        ([], None, None, None, False),
    ],
)
def test_agreement_is_measured_beside_base_rate_and_kappa(
    cases: Any, agreement: float, base_rate: float, kappa: float | None, is_worthless: bool
) -> None:
    found = measure(cases)
    assert (found["agreement"], found["base_rate"], found["kappa"]) == (agreement, base_rate, kappa)
    assert found["worthless"] is is_worthless


def test_chance_of_at_least_some_events_is_exact() -> None:
    assert at_least(0, [0.3]) == 1.0
    assert math.isclose(at_least(1, [0.1, 0.2]), 1 - 0.9 * 0.8)
    assert math.isclose(
        at_least(2, [0.1, 0.2, 0.5]), 0.1 * 0.2 * 0.5 + 0.1 * 0.2 * 0.5 + 0.1 * 0.8 * 0.5 + 0.9 * 0.2 * 0.5
    )
    assert at_least(4, [0.1] * 3) == 0.0


def judge(
    numbers: random.Random, wobble: float = 0.0, moved: int = 0, documents: int = 12, frameworks: int = 3
) -> list[dict[str, Any]]:
    """Return the golden rows of a night: 6 criteria, 12 cells assessed twice.

    :param wobble: share of wrong answers
    :param moved: documents on which the judge of the first criterion has another opinion than before
    """

    def answer(right: int) -> str:
        return "ABC"[right if numbers.random() >= wobble else (right + numbers.randint(1, 2)) % 3]

    return [
        {
            "source": f"{document}",
            "framework_id": f"{framework}",
            "framework": f"F{framework}",
            "criterion": f"C{criterion}",
            **dict.fromkeys(("text_sha256", "framework_fingerprint", "payload_digest"), "x"),
            "category": answer(
                (document + criterion + (framework == criterion == 0 and document < moved)) % 3
            ),
            "repeat": is_repeat,
            "before": None,
            "state": "",
        }
        for is_repeat in (False, True)
        for framework in range(frameworks)
        for document in range(min(documents, 12 // frameworks) if is_repeat else documents)
        for criterion in range(6)
    ]


def drifted(tonight: list[dict[str, Any]], *before: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what has drifted since the nights before, the newest first."""
    return [(one.framework, one.criterion) for one in compare_golden(tonight, before) if one.state == DRIFTED]


def states(tonight: list[dict[str, Any]], *before: list[dict[str, Any]]) -> set[str]:
    """Return the states of all criteria, given the nights before, the newest first."""
    return {one.state for one in compare_golden(tonight, before)}


@pytest.mark.parametrize("seed", range(3))
def test_five_percent_of_wrong_answers_are_neither_drift_nor_inconsistency(seed: int) -> None:
    numbers = random.Random(seed)
    nights = [judge(numbers, 0.05) for _ in range(101)]
    found = [states(nights[at], *nights[max(0, at - 5) : at][::-1]) for at in range(1, 101)]
    assert sum(DRIFTED in some for some in found) == 0
    assert sum(INCONSISTENT in some for some in found) <= 1


def test_thirty_percent_of_wrong_answers_are_inconsistent_within_five_nights() -> None:
    numbers = random.Random(5)
    tonight, *before = [judge(numbers, 0.3) for _ in range(5)]
    found = [one.state for one in compare_golden(tonight, before)]
    assert found.count(INCONSISTENT) >= 16
    assert len(found) == 18


def test_changed_judge_is_found_among_five_percent_of_wrong_answers() -> None:
    numbers = random.Random(3)
    found = [drifted(judge(numbers, 0.05, moved=12), judge(numbers, 0.05)) for _ in range(100)]
    assert sum(one == [("F0", "C0")] for one in found) >= 90
    assert all(one in ([], [("F0", "C0")]) for one in found)


def test_change_that_moves_half_of_the_documents_is_found_within_two_nights() -> None:
    numbers = random.Random(4)
    at_once = within_two = 0
    for _ in range(40):
        before = [judge(numbers, 0.05) for _ in range(5)]
        first, second = judge(numbers, 0.05, moved=6), judge(numbers, 0.05, moved=6)
        is_found = bool(drifted(first, *before))
        at_once += is_found
        within_two += is_found or bool(drifted(second, first, *before[:4]))
    assert at_once >= 25
    assert within_two >= 36


def test_verdicts_of_a_judge_before_a_drift_are_not_compared_with() -> None:
    numbers = random.Random(0)
    old, new = [judge(numbers) for _ in range(4)], judge(numbers, moved=12)
    assert drifted(new, *old) == [("F0", "C0")]
    assert {row["state"] for row in new if row["criterion"] == "C0" and row["framework"] == "F0"} == {DRIFTED}
    assert drifted(judge(numbers, moved=12), new, *old) == []
    back = judge(numbers)
    assert drifted(back, new, *old) == [("F0", "C0")]


@pytest.mark.parametrize(
    ("documents", "moved", "nights", "is_drift"),
    [
        (12, 12, 1, True),
        (12, 6, 1, True),
        (12, 5, 1, False),
        (12, 5, 5, True),  # the longer the judge was steady, the fewer are needed
        (12, 4, 5, False),
        (4, 4, 1, True),
        (4, 3, 1, True),  # all four are assessed twice
        (4, 2, 1, False),
        (2, 2, 1, True),
        (2, 1, 1, False),
        (1, 1, 5, False),  # one document may always be an accident
    ],
)
def test_drift_needs_more_documents_than_chance_explains(
    documents: int, moved: int, nights: int, is_drift: bool
) -> None:
    numbers = random.Random(0)
    before = [judge(numbers, documents=documents) for _ in range(nights)]
    tonight = judge(numbers, moved=moved, documents=documents)
    assert drifted(tonight, *before) == ([("F0", "C0")] if is_drift else [])


def test_drift_that_is_not_certain_is_so_in_the_second_night() -> None:
    numbers = random.Random(0)
    before = [judge(numbers) for _ in range(5)]
    first, second = judge(numbers, moved=4), judge(numbers, moved=4)
    assert drifted(first, *before) == []
    assert drifted(second, first, *before[:4]) == [("F0", "C0")]
    found = [row for row in second if row["before"] != row["category"]]
    assert {row["source"] for row in found} == {"0", "1", "2", "3"}  # shown with the verdict of the old judge
    assert drifted(judge(numbers, moved=4), second, first, *before[:3]) == []


@pytest.mark.parametrize("column", ["text_sha256", "framework_fingerprint", "payload_digest"])
def test_verdict_on_another_input_is_not_compared(column: str) -> None:
    numbers = random.Random(0)
    before, tonight = judge(numbers), judge(numbers, moved=12)
    for row in tonight:
        row[column] = "another"
    assert drifted(tonight, before) == []
    assert {row["before"] for row in tonight} == {None}


def test_unknown_text_is_not_compared() -> None:
    numbers = random.Random(0)
    before, tonight = judge(numbers), judge(numbers, moved=12)
    for row in [*before, *tonight]:
        row["text_sha256"] = ""
    assert drifted(tonight, before) == []


@pytest.mark.parametrize(
    ("contradictions", "state"), [(0, DRIFTED), (2, STEADY), (4, INCONSISTENT), (8, INCONSISTENT)]
)
def test_criterion_that_wobbles_anyway_is_inconsistent_not_drifted(contradictions: int, state: str) -> None:
    judged = JudgedCriterion("1", "DORA", "C", repeats=8, contradictions=contradictions)
    judged.comparisons = (Comparison([(1, 1)] * 8 + [(2, 2)] * 4, [{}] * 6),)
    judged.decide(1)
    assert judged.state == state


def test_agreement_comes_from_golden_documents_and_decisions() -> None:
    names = ("framework", "criterion", "expert_category", "category", "repeat")
    values = [
        ("DORA", "a", "MISSING", "MISSING", False),
        ("DORA", "a", "MISSING", "UNKNOWN", True),
        ("DORA", "b", None, "MISSING", False),
    ]
    golden = [{**dict(zip(names, row, strict=True)), "text_sha256": "t0"} for row in values]
    decided = [("DORA", "missing", "t1"), ("GDPR", "", "t2"), ("DORA", "missing", "t0")]  # the last is golden
    decisions = {
        (f"cell {text}", "a"): {
            "framework": framework,
            "expert_category": category,
            "category_before": "UNKNOWN",
            "text_sha256": text,
        }
        for framework, category, text in decided
    }
    judged = [JudgedCriterion("1", "DORA", "a", repeats=3, state=INCONSISTENT)]
    rows = agreement_rows("2026-03-01", golden, decisions, judged)
    columns = ("framework", "criterion", "cases", "golden_cases", "agreed", "state", "repeats")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("DORA", None, 2, 1, 1, None, 0),
        ("DORA", "a", 2, 1, 1, INCONSISTENT, 3),
        ("DORA", "b", 0, 0, 0, None, 0),
    ]
