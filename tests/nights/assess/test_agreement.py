"""How well the judge agrees with experts and with itself: pure rules."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.nights.assess.agreement import (
    DRIFTED,
    INCONSISTENT,
    STEADY,
    JudgedGroup,
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
    ("cases", "agreement", "base_rate", "kappa", "is_no_better"),
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
    cases: Any, agreement: float, base_rate: float, kappa: float | None, is_no_better: bool
) -> None:
    found = measure(cases)
    assert (found["agreement"], found["base_rate"], found["kappa"]) == (agreement, base_rate, kappa)
    assert found["no_better_than_chance"] is is_no_better


def test_chance_of_at_least_some_events_is_exact() -> None:
    assert at_least(0, 3, 0.3) == at_least(2, 3, 1.0) == 1.0
    assert math.isclose(at_least(1, 2, 0.1), 1 - 0.9**2)
    assert math.isclose(at_least(2, 3, 0.1), 3 * 0.1**2 * 0.9 + 0.1**3)
    assert at_least(9_000, 10_000, 0.05) < 1e-300


Answer = Callable[[int, int, int, int], int]
"""The category of a judge, by night, document, framework and criterion."""


def steady(night: int, document: int, framework: int, criterion: int) -> int:
    return (document + criterion) % 3


def noisy(wobble: float, seed: int, judge: Answer = steady) -> Answer:
    """Return a judge that is wrong in a share of its answers."""
    numbers = random.Random(seed)
    return lambda *case: (judge(*case) + (numbers.random() < wobble) * numbers.randint(1, 2)) % 3


def undecided(seed: int, frameworks: int = 3, criteria: int = 6, *, is_one_coin: bool = False) -> Answer:
    """Return a judge that tosses a coin on some criteria of three documents; or one coin for a document."""
    numbers, coins = random.Random(seed), dict[tuple[int, int], int]()

    def answer(night: int, document: int, framework: int, criterion: int) -> int:
        said = steady(night, document, framework, criterion)
        if document >= 3 or framework >= frameworks or criterion >= criteria:
            return said
        coin = numbers.randint(0, 1)
        return (said + (coins.setdefault((night, document), coin) if is_one_coin else coin)) % 3

    return answer


class Watch:
    """Nights with golden documents, newest first, that a judge answers: 6 criteria of each framework."""

    def __init__(self, answer: Answer, documents: int = 12, frameworks: int = 3) -> None:
        self.answer, self.documents, self.frameworks = answer, documents, frameworks
        self.nights: list[list[dict[str, Any]]] = []
        self.number = 0

    def night(self, **changes: Any) -> list[JudgedGroup]:
        rows: list[dict[str, Any]] = [
            {
                "night": f"{self.number:03}",
                "source": f"{document}",
                "framework_id": f"{framework}",
                "framework": f"F{framework}",
                "criterion": f"C{criterion}",
                **dict.fromkeys(("text_sha256", "framework_fingerprint", "payload_digest"), "x"),
                "category": "ABC"[self.answer(self.number, document, framework, criterion)],
                **changes,
            }
            for framework in range(self.frameworks)
            for document in range(self.documents)
            for criterion in range(6)
        ]
        found = compare_golden(rows, self.nights)
        self.nights = [rows, *self.nights][:10]
        self.number += 1
        return found

    def drifted(self, **changes: Any) -> set[str]:
        """Return the criteria that have drifted tonight."""
        found = self.night(**changes)
        return {f"{one.framework}-{one.criterion}" for one in found if one.criterion and one.state == DRIFTED}

    def alarms(self, nights: int) -> list[int]:
        """Return the nights with a drift."""
        return [number for number in range(nights) if self.drifted()]


def test_five_percent_of_wrong_answers_are_neither_drift_nor_inconsistency() -> None:
    for seed in range(4):
        watch = Watch(noisy(0.05, seed))
        for _ in range(30):
            assert {one.state for one in watch.night()} == {STEADY}


def test_three_undecided_documents_of_twelve_are_no_drift() -> None:
    alarms = [len(Watch(undecided(seed)).alarms(30)) for seed in range(10)]
    assert sum(alarms) <= 3  # one night of a hundred


def test_thirty_percent_of_wrong_answers_are_inconsistent_within_ten_nights() -> None:
    watch = Watch(noisy(0.3, 5))
    found = [watch.night() for _ in range(10)][-1]
    assert [one.state for one in found if one.criterion].count(INCONSISTENT) >= 14


@pytest.mark.parametrize("wobble", [0.0, 0.05])
def test_documents_that_change_one_after_the_other_are_named_before_a_third_has(wobble: float) -> None:
    def judge(night: int, document: int, framework: int, criterion: int) -> int:
        return (steady(night, document, framework, criterion) + (night >= 4 + 3 * document)) % 3

    first = [Watch(noisy(wobble, seed, judge)).alarms(16)[0] for seed in range(10)]
    assert all(4 <= night < 4 + 3 * 4 for night in first)


@pytest.mark.parametrize("wobble", [0.0, 0.05])
def test_two_documents_that_change_for_one_framework_are_named_within_three_nights(wobble: float) -> None:
    def judge(night: int, document: int, framework: int, criterion: int) -> int:
        return (steady(0, document, 0, criterion) + (night >= 5 and document < 2 and framework == 0)) % 3

    first = [Watch(noisy(wobble, seed, judge)).alarms(12)[0] for seed in range(10)]
    assert min(first) >= 5
    assert sum(night < 8 for night in first) >= (7 if wobble else 10)


def changed(moved: int, since: int) -> Answer:
    """Return a judge that has another opinion on the first criterion of some documents from a night on."""
    return lambda night, document, framework, criterion: (
        (
            steady(night, document, framework, criterion)
            + (framework == criterion == 0 and document < moved and night >= since)
        )
        % 3
    )


@pytest.mark.parametrize(
    ("documents", "moved", "since", "is_drift"),
    [
        (12, 12, 2, True),
        (12, 11, 1, False),  # how much the documents wobble is not known in the second night
        (12, 7, 5, True),
        (12, 6, 5, False),
        (4, 4, 5, False),  # of one criterion, four documents say too little
        (2, 2, 9, False),
    ],
)
def test_drift_needs_more_documents_than_chance_explains(
    documents: int, moved: int, since: int, is_drift: bool
) -> None:
    watch = Watch(changed(moved, since), documents)
    found = [watch.drifted() for _ in range(since + 1)][-1]
    assert found == ({"F0-C0"} if is_drift else set())


def test_the_judge_after_a_drift_is_the_new_reference() -> None:
    watch = Watch(lambda night, *case: changed(12, 0)(0, *case) if 4 <= night < 9 else steady(0, *case))
    assert watch.alarms(12) == [4, 9]
    moved = [row for row in watch.nights[2] if row["reference"] != row["category"]]
    assert {(row["criterion"], row["state"], row["since"]) for row in moved} == {("C0", DRIFTED, "004")}


def test_a_document_that_was_missing_in_the_night_of_a_drift_starts_again() -> None:
    watch = Watch(changed(12, 3))
    for _ in range(3):
        watch.night()
    watch.documents = 11
    assert watch.drifted() == {"F0-C0"}
    watch.documents = 12
    watch.night()
    keys = ("source", "framework_id", "criterion")
    (back,) = (row for row in watch.nights[0] if [row[name] for name in keys] == ["11", "0", "C0"])
    assert (back["before"], back["nights"]) == (None, 1)


@pytest.mark.parametrize("column", ["text_sha256", "framework_fingerprint", "payload_digest"])
@pytest.mark.parametrize("value", ["another", ""])
def test_verdict_on_another_or_an_unknown_input_is_not_compared(column: str, value: str) -> None:
    watch = Watch(changed(12, 3))
    for _ in range(3):
        watch.night()
    assert watch.drifted(**{column: value}) == set()
    assert {row["before"] for row in watch.nights[0]} == {None}


def test_agreement_comes_from_golden_documents_and_decisions() -> None:
    names = ("framework", "criterion", "expert_category", "category")
    values = [("DORA", "a", "MISSING", "MISSING"), ("DORA", "b", None, "MISSING")]
    golden = [{**dict(zip(names, row, strict=True)), "text_sha256": "t0"} for row in values]
    decided = [("DORA", "missing", "t1"), ("GDPR", "", "t2"), ("DORA", "missing", "t0")]  # the last is golden
    decisions: dict[tuple[str, str], dict[str, Any]] = {
        (f"cell {text}", "a"): {
            "framework": framework,
            "expert_category": category,
            "category_before": "UNKNOWN",
            "text_sha256": text,
        }
        for framework, category, text in decided
    }
    decisions["cell t3", "a"] = {
        **decisions["cell t1", "a"],
        "text_sha256": "t3",
        "is_single": False,
    }  # the switch
    row = {"changes": 2, "nights": 5, "lasts": 0}
    judged = [JudgedGroup("1", "DORA", "a", {"s": [row]}, state=INCONSISTENT)]
    rows = agreement_rows("2026-03-01", golden, decisions, judged)
    columns = ("framework", "criterion", "cases", "golden_cases", "agreed", "state", "repeats")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("DORA", None, 2, 1, 1, None, 0),
        ("DORA", "a", 2, 1, 1, INCONSISTENT, 3),
        ("DORA", "b", 0, 0, 0, None, 0),
    ]
