"""How well the judge agrees with experts, and with itself: per framework and criterion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.assess.findings import Decisions
from airflow_provider.severity import normalize_category

WOBBLE = 0.05  # share of answers in which a usable judge may contradict itself
CHANCE = 0.001  # share of nights in which such a judge may be called drifted, over all criteria
UNLIKELY = 0.01  # contradictions of such a judge in its repeats: with more, a criterion is inconsistent
MIN_CASES = 10  # before a judge is called worthless
MAX_NAMED = 10  # documents that moved
DRIFTED, INCONSISTENT, STEADY = "drifted", "inconsistent", "steady"
INPUT = ("text_sha256", "framework_fingerprint", "payload_digest")  # where it differs, nothing is compared

Row = dict[str, Any]
Case = tuple[str, str]
"""The category of an expert, and that of the judge."""


@dataclass
class JudgedCriterion:
    """What golden documents say about the judge of one criterion, compared with the previous night.

    :param compared: how many verdicts each document has tonight, and had in the previous night
    :param moved: rows of documents that no verdict of tonight and of the previous night agrees on
    :param repeats: how many cells were assessed twice, in both nights
    :param contradictions: how many of these got two different verdicts
    """

    framework_id: str
    framework: str
    criterion: str
    compared: list[tuple[int, int]] = field(default_factory=list)
    moved: list[Row] = field(default_factory=list)
    repeats: int = 0
    contradictions: int = 0
    state: str = STEADY

    def __str__(self) -> str:
        moved = (
            f"{self.criterion} ({self.framework}), {len(self.moved)} of {len(self.compared)} documents moved"
        )
        row = self.moved[0]
        return f"{moved}, such as '{row['source']}' from {row['before']} to {row['category']}"

    def count_repeats(self, rows: Sequence[Row]) -> None:
        """Count a document that was assessed twice in a night."""
        self.repeats += len(rows) > 1
        self.contradictions += len({row["category"] for row in rows}) > 1

    def decide(self, limit: float) -> None:
        """Set the state: drifted if more documents moved than chance explains.

        A document moves by chance only if all its verdicts of one of the two nights are wrong.

        :param limit: how unlikely that has to be for an unchanged judge
        """
        # One more than were seen: a few repeats say little. Two verdicts differ if either is wrong.
        measured = (self.contradictions + 1) / (2 * self.repeats) if self.contradictions else 0.0
        wobble = max(WOBBLE, measured)
        chances = [min(1.0, wobble**now + wobble**before) for now, before in self.compared]
        if self.moved and at_least(len(self.moved), chances) <= limit:
            self.state = DRIFTED
        elif at_least(self.contradictions, [2 * WOBBLE] * self.repeats) <= UNLIKELY:
            self.state = INCONSISTENT

    def summarize(self) -> Row:
        """Return what has moved, for the result of the task."""
        moved = [{name: row[name] for name in ("source", "before", "category")} for row in self.moved]
        numbers = {"moved": len(moved), "compared": len(self.compared), "documents": moved[:MAX_NAMED]}
        return {"framework": self.framework, "criterion": self.criterion, **numbers}


def at_least(number: int, chances: Iterable[float]) -> float:
    """Return how likely at least this number of independent events is, given the chance of each."""
    exactly = [1.0]
    for chance in chances:
        happens, not_yet = [0.0, *exactly], [*exactly, 0.0]
        exactly = [one * chance + other * (1 - chance) for one, other in zip(happens, not_yet, strict=True)]
    return sum(exactly[number:])


def compare_golden(rows: Iterable[Row], earlier: Iterable[Row]) -> list[JudgedCriterion]:
    """Compare rows of `golden.jsonl` with those of the previous night; set their `before`."""
    found: dict[tuple[str, str], JudgedCriterion] = {}
    last = _group(earlier)
    for key, some in _group(rows).items():
        _, framework, criterion = key
        judged = found.setdefault(
            (framework, criterion), JudgedCriterion(framework, some[0]["framework"], criterion)
        )
        judged.count_repeats(some)
        before: Sequence[Row] = last.get(key, [{}])
        if not some[0]["text_sha256"] or any(some[0][name] != before[0].get(name) for name in INPUT):
            continue
        judged.count_repeats(before)
        judged.compared.append((len(some), len(before)))
        for row in some:
            row["before"] = before[0]["category"]
        if {row["category"] for row in some}.isdisjoint(row["category"] for row in before):
            judged.moved.append(some[0])
    tested = sum(bool(judged.compared) for judged in found.values())
    for judged in found.values():
        judged.decide(CHANCE / max(1, tested))
    return list(found.values())


def _group(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """Return the verdicts on each document, framework and criterion, the repeated one last."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["source"], row["framework_id"], row["criterion"]), []).append(row)
    return groups


def measure(cases: Sequence[Case]) -> Row:
    """Return raw agreement, base rate and Cohen's kappa, which is None where only one category occurs.

    The base rate is the agreement of a judge that always says the experts' most common category. A judge is
    worthless if it is no better than chance, however high its raw agreement is.
    """
    total, agreed = len(cases), sum(expert == judge for expert, judge in cases)
    experts, judges = Counter(expert for expert, _ in cases), Counter(judge for _, judge in cases)
    chance = sum(number * judges[category] for category, number in experts.items())
    room = total * total - chance
    kappa = (agreed * total - chance) / room if room else None
    return {
        "cases": total,
        "agreed": agreed,
        "agreement": agreed / total if total else None,
        "base_rate": max(experts.values()) / total if total else None,
        "kappa": kappa,
        "worthless": total >= MIN_CASES and len(experts) > 1 and (kappa or 0) <= 0,
    }


def agreement_rows(
    night: str, golden: Iterable[Row], decisions: Decisions, judged: Iterable[JudgedCriterion]
) -> list[Row]:
    """Return the rows of `agreement.jsonl`: one for each framework, without a criterion, and its criteria.

    :param golden: rows of `golden.jsonl`
    :param decisions: of experts, in earlier nights
    """
    checks = {(one.framework, one.criterion): one for one in judged}
    cases: dict[tuple[str, str], list[Case]] = {}

    def add(framework: str, criterion: str, expert: object, judge: object) -> None:
        for key in ((framework, ""), (framework, criterion)):
            found = cases.setdefault(key, [])
            found += [(normalize_category(expert), normalize_category(judge))] if expert else []

    for row in golden:
        if not row["repeat"]:
            add(row["framework"], row["criterion"], row["expert_category"], row["category"])
    golden_cases = {key: len(some) for key, some in cases.items()}
    for (_, criterion), decision in decisions.items():
        if decision["expert_category"]:
            add(decision["framework"], criterion, decision["expert_category"], decision["category_before"])
    rows = []
    for (framework, criterion), some in sorted(cases.items()):
        check = checks.get((framework, criterion)) or JudgedCriterion("", "", "", state="")
        rows.append(
            {
                "night": night,
                "framework": framework,
                "criterion": criterion or None,
                "golden_cases": golden_cases.get((framework, criterion), 0),
                **measure(some),
                "state": check.state or None,
                "compared": len(check.compared),
                "moved": len(check.moved),
                "repeats": check.repeats,
                "contradictions": check.contradictions,
            }
        )
    return rows
