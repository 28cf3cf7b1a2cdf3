"""How well the judge agrees with experts, and with itself: per framework and criterion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from airflow_provider.nights.assess.findings import Decisions
from airflow_provider.nights.severity import normalize_category

WOBBLE = 0.05  # share of answers in which a usable judge may contradict itself
# Shares of nights in which such a judge may be called drifted or inconsistent, on any criterion.
DRIFT_CHANCE, INCONSISTENCY_CHANCE = 0.001, 0.01
MIN_CASES = 10  # before a judge is called worthless
MAX_NAMED = 10  # documents that moved
DRIFTED, INCONSISTENT, STEADY = "drifted", "inconsistent", "steady"
INPUT = ("text_sha256", "framework_fingerprint", "payload_digest")  # where it differs, nothing is compared

Row = dict[str, Any]
Case = tuple[str, str]
"""The category of an expert, and that of the judge."""


@dataclass
class Comparison:
    """Documents whose verdicts are compared with those of earlier nights.

    :param verdicts: how many each has, and how many in earlier nights
    :param moved: rows of those that never got the usual verdict
    """

    verdicts: list[tuple[int, int]] = field(default_factory=list)
    moved: list[Row] = field(default_factory=list)

    def add(self, now: Sequence[Row], before: Sequence[Row]) -> None:
        """Compare a document."""
        counts = Counter(row["category"] for row in before)
        usual = {category for category, number in counts.items() if number == max(counts.values())}
        self.verdicts += [(len(now), len(before))] if before else []
        if before and usual.isdisjoint(row["category"] for row in now):
            self.moved.append({**now[0], "before": min(usual)})

    def is_chance(self, wobble: float, limit: float) -> bool:
        """Return whether that may be chance: all verdicts on one are wrong, or most of those before."""
        chances = [
            min(1.0, wobble**now + at_least(before // 2 + 1, [wobble] * before))
            for now, before in self.verdicts
        ]
        return not self.moved or at_least(len(self.moved), chances) > limit


@dataclass
class JudgedCriterion:
    """What golden documents say about the judge of one criterion.

    :param comparisons: of tonight with earlier nights; and of the last two nights with those before, because
        what is not certain in the first night of a new judge may be so in the second
    :param repeats: how often a cell was assessed again: in a night, or, where it never was, in the next one
        before tonight. No verdict counts in two of them, else one that is wrong would be two contradictions
    :param contradictions: how often it got another verdict then
    """

    framework_id: str
    framework: str
    criterion: str
    comparisons: tuple[Comparison, ...] = field(default_factory=lambda: (Comparison(), Comparison()))
    repeats: int = 0
    contradictions: int = 0
    state: str = STEADY
    shown: Comparison = field(default_factory=Comparison)

    def __str__(self) -> str:
        row, numbers = self.shown.moved[0], f"{len(self.shown.moved)} of {len(self.shown.verdicts)}"
        example = f"'{row['source']}' from {row['before']} to {row['category']}"
        return f"{self.criterion} ({self.framework}), {numbers} documents moved, such as {example}"

    def add(self, nights: Sequence[Sequence[Row]]) -> None:
        """Add the verdicts on a document, of each night, tonight first."""
        twice = [rows for rows in nights if len(rows) > 1]
        pairs = twice or [[*one, *other] for one, other in zip(nights[1::2], nights[2::2], strict=False)]
        self.repeats += len(pairs)
        self.contradictions += sum(one["category"] != other["category"] for one, other in pairs)
        for number, comparison in enumerate(self.comparisons, 1):
            comparison.add(list(chain(*nights[:number])), list(chain(*nights[number:])))

    def decide(self, tests: int) -> None:
        """Set the state: drifted if more documents moved than chance explains.

        :param tests: how often that is asked tonight, about all criteria: any of them may be an accident
        """
        # One more than were seen: a few repeats say little. Two verdicts differ if either is wrong.
        measured = (self.contradictions + 1) / (2 * self.repeats) if self.contradictions else 0.0
        wobble = max(WOBBLE, measured)
        drifted = [one for one in self.comparisons if not one.is_chance(wobble, DRIFT_CHANCE / tests)]
        self.shown = (drifted or self.comparisons)[0]
        if drifted:
            self.state = DRIFTED
        elif at_least(self.contradictions, [2 * WOBBLE] * self.repeats) <= INCONSISTENCY_CHANCE / tests:
            self.state = INCONSISTENT

    def summarize(self) -> Row:
        """Return what has moved, for the result of the task."""
        moved = [{name: row[name] for name in ("source", "before", "category")} for row in self.shown.moved]
        numbers = {"moved": len(moved), "compared": len(self.shown.verdicts), "documents": moved[:MAX_NAMED]}
        return {"framework": self.framework, "criterion": self.criterion, **numbers}


def at_least(number: int, chances: Iterable[float]) -> float:
    """Return how likely at least this number of independent events is, given the chance of each."""
    exactly = [1.0]
    for chance in chances:
        happens, not_yet = [0.0, *exactly], [*exactly, 0.0]
        exactly = [one * chance + other * (1 - chance) for one, other in zip(happens, not_yet, strict=True)]
    return sum(exactly[number:])


def compare_golden(rows: Iterable[Row], earlier: Iterable[Iterable[Row]]) -> list[JudgedCriterion]:
    """Compare rows of `golden.jsonl` with earlier nights, the newest first; set `before` and `state`."""
    found: dict[tuple[str, str], JudgedCriterion] = {}
    tonight, nights = _group(rows), [_group(night) for night in earlier]
    for key, some in tonight.items():
        _, framework, criterion = key
        judged = found.setdefault(
            (framework, criterion), JudgedCriterion(framework, some[0]["framework"], criterion)
        )
        same = [some]
        for before in (night[key] for night in nights if key in night):
            if not some[0]["text_sha256"] or any(some[0][name] != before[0][name] for name in INPUT):
                break
            same.append(before)
            if before[0]["state"] == DRIFTED:  # what is older is of another judge
                break
        for row in some if len(same) > 1 else ():
            row["before"] = same[1][0]["category"]
        judged.add(same)
    tests = sum(max(1, sum(bool(one.verdicts) for one in judged.comparisons)) for judged in found.values())
    for judged in found.values():
        judged.decide(tests)
    for (source, framework, criterion), some in tonight.items():
        judged = found[framework, criterion]
        moved = {row["source"]: row["before"] for row in judged.shown.moved if judged.state == DRIFTED}
        for row in some:
            row |= {"state": judged.state, "before": moved.get(source, row["before"])}
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
    worthless if it is no better than chance, however high its raw agreement is; or wrong in most cases, where
    experts know one category only.
    """
    total, agreed = len(cases), sum(expert == judge for expert, judge in cases)
    experts, judges = Counter(expert for expert, _ in cases), Counter(judge for _, judge in cases)
    chance = sum(number * judges[category] for category, number in experts.items())
    room = total * total - chance
    kappa = (agreed * total - chance) / room if room else None
    is_measured = len(experts) > 1 or 2 * agreed < total
    return {
        "cases": total,
        "agreed": agreed,
        "agreement": agreed / total if total else None,
        "base_rate": max(experts.values()) / total if total else None,
        "kappa": kappa,
        "worthless": is_measured and total >= MIN_CASES and (kappa or 0) <= 0,
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

    known: set[tuple[str, str, str]] = set()  # a golden document may be made of a decision, which counts once
    for row in golden:
        if not row["repeat"]:
            add(row["framework"], row["criterion"], row["expert_category"], row["category"])
            if row["expert_category"]:
                known.add((row["framework"], row["criterion"], row["text_sha256"]))
    golden_cases = {key: len(some) for key, some in cases.items()}
    for (_, criterion), decision in decisions.items():
        about = decision["framework"], criterion, decision.get("text_sha256")
        if decision["expert_category"] and about not in known:
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
                "compared": len(check.shown.verdicts),
                "moved": len(check.shown.moved),
                "repeats": check.repeats,
                "contradictions": check.contradictions,
            }
        )
    return rows
