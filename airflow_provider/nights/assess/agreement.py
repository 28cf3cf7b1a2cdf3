"""How well the judge agrees with experts, and with itself: per framework and criterion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, lgamma, log
from typing import Any

from airflow_provider.nights.assess.findings import Decisions
from airflow_provider.nights.severity import normalize_category
from airflow_provider.runtime import metrics
from airflow_provider.storage.lineage import Verdict
from airflow_provider.storage.locations import Location

AGREEMENT = "agreement"  # name of the table
SAME_JUDGE, BETTER_THAN_CHANCE = (
    "gets the same verdicts as on earlier nights",
    "gets verdicts that agree with experts beyond chance",
)
DIFFERS = 0.095  # share of verdicts that differ between two nights, if one in twenty is wrong
ACCIDENT = 0.05  # share of nights in which it may misjudge a whole document
MAX_CHANCE = 0.001  # share of nights in which such a judge may be called drifted or inconsistent
MIN_CASES = 10  # before agreement is called no better than chance
MAX_NAMED = 10  # documents that moved
DRIFTED, INCONSISTENT, STEADY = "drifted", "inconsistent", "steady"
INPUT = ("text_sha256", "framework_fingerprint", "payload_digest")  # where it differs, nothing is compared

Row = dict[str, Any]
Case = tuple[str, str]
"""The categories of an expert and of the judge."""


@dataclass
class JudgedGroup:
    """What golden documents say about the judge of a criterion, or of all criteria of a framework together.

    :param rows: tonight's rows that have a reference, by source
    :ivar moved: rows of documents whose verdict differs from the reference, the most moved first
    """

    framework_id: str
    framework: str
    criterion: str | None
    rows: dict[str, list[Row]] = field(default_factory=dict)
    moved: list[Row] = field(default_factory=list)
    state: str = STEADY

    def __str__(self) -> str:
        row = self.moved[0]
        return (
            f"{self.criterion or 'all criteria'} ({self.framework}), {self.documents_moved} of "
            f"{len(self.rows)} documents moved, such as '{row['source']}' from {row['reference']} to "
            f"{row['category']}"
        )

    @property
    def documents_moved(self) -> int:
        """How many documents moved."""
        return len({row["source"] for row in self.moved})

    @property
    def nights(self) -> int:
        """How often a verdict could contradict earlier ones."""
        return sum(_count_nights(rows) for rows in self.rows.values())

    @property
    def contradictions(self) -> int:
        """How often one has: a change that lasts is none."""
        return sum(_count_wobbles(rows) for rows in self.rows.values()) // 2

    def decide(self, wobbles: Mapping[str, float], limit: float) -> None:
        """Set the state: drifted if more documents moved, or moved further, than chance explains.

        :param wobbles: the share of each document's verdicts in which two nights differ
        :param limit: a chance that is smaller explains nothing
        """
        chances: dict[str, float] = {}
        for source, rows in self.rows.items():
            if lasting := sorted(row["lasts"] for row in rows if row["lasts"]):
                own = _share(rows) if self.criterion and _count_wobbles(rows) else 0.0
                chance = at_least(len(lasting), len(rows), max(wobbles[source], own))
                # All of it may be one accident, but that does not last.
                chances[source] = max(chance, ACCIDENT ** lasting[(len(lasting) - 1) // 2])
        ordered = sorted(chances, key=lambda source: chances[source])
        found = (at_least(n, len(self.rows), chances[source]) for n, source in enumerate(ordered, 1))
        self.moved = [row for source in ordered for row in self.rows[source] if row["lasts"]]
        if min(found, default=1.0) <= limit:
            self.state = DRIFTED

    def summarize(self) -> Row:
        """Return what moved, for the result of the task."""
        documents = [
            {"source": row["source"], "before": row["reference"], "category": row["category"]}
            for row in {row["source"]: row for row in reversed(self.moved)}.values()
        ][::-1]
        numbers = {"moved": len(documents), "compared": len(self.rows), "documents": documents[:MAX_NAMED]}
        return {"framework": self.framework, "criterion": self.criterion, **numbers}


def _count_wobbles(rows: Iterable[Row]) -> int:
    """Return how often verdicts changed, except for a change that lasts."""
    return sum(row["changes"] - bool(row["lasts"]) for row in rows)


def _count_nights(rows: Iterable[Row]) -> int:
    return sum(max(0, row["nights"] - 2) for row in rows)


def _share(rows: Sequence[Row]) -> float:
    """Return in which share of verdicts on a document two nights differ; not too small if few are known."""
    return min(1.0, (_count_wobbles(rows) + 1) / (_count_nights(rows) + 2))


@lru_cache(maxsize=10_000)
def at_least(number: int, total: int, chance: float) -> float:
    """Return how likely at least this number of independent events is, of which each has the same chance."""
    if number <= 0 or chance >= 1:
        return 1.0
    most = lgamma(total + 1)
    return sum(
        exp(most - lgamma(n + 1) - lgamma(total - n + 1) + n * log(chance) + (total - n) * log(1 - chance))
        for n in range(number, total + 1)
    )


def compare_golden(rows: Sequence[Row], earlier: Sequence[Sequence[Row]]) -> list[JudgedGroup]:
    """Compare rows of `golden.jsonl` with their references; set `before`, `reference`, ..., and `state`.

    The reference is the first verdict that the judge gave in two nights in a row, since document, framework
    and payload are the same, and since the judge of the framework last drifted. How much a document
    wobbles is learned from its own nights since then.

    :param earlier: rows of earlier nights, the newest first
    :return: the criteria of each framework, after all of them together
    """
    nights = [{_key(row): row for row in night} for night in earlier]
    drifted = [{row["framework_id"] for row in night if row["state"] == DRIFTED} for night in earlier]
    groups: dict[tuple[str, str | None], JudgedGroup] = {}
    for row in rows:
        _continue(row, nights, drifted)
        for criterion in (None, row["criterion"]):
            key = row["framework_id"], criterion
            group = groups.setdefault(key, JudgedGroup(key[0], row["framework"], criterion))
            if row["reference"] and row["before"]:
                group.rows.setdefault(row["source"], []).append(row)
    found = list(groups.values())
    for group in found:
        whole = groups[group.framework_id, None]
        wobbles = {source: max(DIFFERS, _share(whole.rows[source])) for source in group.rows}
        group.decide(wobbles, MAX_CHANCE / len(found))
        unsteady = at_least(group.contradictions, group.nights, DIFFERS / 2)
        if group.criterion and group.state == STEADY and unsteady <= MAX_CHANCE / len(found):
            group.state = INCONSISTENT
    for group in found:
        if group.criterion and group.moved and groups[group.framework_id, None].state == DRIFTED:
            group.state = DRIFTED
    for row in rows:
        row["state"] = groups[row["framework_id"], row["criterion"]].state
    return found


def _key(row: Row) -> tuple[str, str, str]:
    return row["source"], row["framework_id"], row["criterion"]


def _continue(
    row: Row, nights: Sequence[Mapping[tuple[str, str, str], Row]], drifted: Sequence[Collection[str]]
) -> None:
    """Let a row go on from the newest earlier one that it can be compared with."""
    start = {"reference": None, "since": row["night"], "nights": 1, "changes": 0, "lasts": 0}
    row |= {"before": None, **start}
    for night, frameworks in zip(nights, drifted, strict=True):
        has_drifted = row["framework_id"] in frameworks
        if before := night.get(_key(row)):
            if row["text_sha256"] and all(row[name] == before[name] for name in INPUT):
                is_same = row["category"] == before["category"]
                row |= {"before": before["category"]} | {name: before[name] for name in start}
                if has_drifted:
                    row |= start | {"reference": before["category"], "since": before["night"]}
                elif is_same and not row["reference"]:
                    row["reference"] = row["category"]
                row["nights"] += 1
                row["changes"] += not is_same
                row["lasts"] = row["lasts"] + 1 if row["reference"] not in (None, row["category"]) else 0
            return
        if has_drifted:
            return  # older verdicts are from another judge


def measure(cases: Sequence[Case]) -> Row:
    """Return raw agreement, base rate and Cohen's kappa, which is None where only one category occurs.

    The base rate is what always giving the experts' most common category would achieve. Agreement can be no
    better than chance however high it is. Where experts used a single category, it means mostly wrong.
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
        "no_better_than_chance": is_measured and total >= MIN_CASES and (kappa or 0) <= 0,
    }


def agreement_rows(
    night: str, golden: Iterable[Row], decisions: Decisions, judged: Iterable[JudgedGroup]
) -> list[Row]:
    """Return the rows of `agreement.jsonl`: one for each framework, without a criterion, and its criteria.

    :param golden: rows of `golden.jsonl`
    :param decisions: expert decisions on earlier nights; the switch of a form proves no agreement
    """
    checks = {(one.framework, one.criterion or ""): one for one in judged}
    cases: dict[tuple[str, str], list[Case]] = {}

    def add(framework: str, criterion: str, expert: object, judge: object) -> None:
        for key in ((framework, ""), (framework, criterion)):
            found = cases.setdefault(key, [])
            found += [(normalize_category(expert), normalize_category(judge))] if expert else []

    known: set[tuple[str, str, str]] = set()  # a golden document may be made of a decision, which counts once
    for row in golden:
        add(row["framework"], row["criterion"], row["expert_category"], row["category"])
        if row["expert_category"]:
            known.add((row["framework"], row["criterion"], row["text_sha256"]))
    golden_cases = {key: len(some) for key, some in cases.items()}
    for (_, criterion), decision in decisions.items():
        about = decision["framework"], criterion, decision.get("text_sha256")
        if decision["expert_category"] and about not in known and decision.get("is_single", True):
            add(decision["framework"], criterion, decision["expert_category"], decision["category_before"])
    rows = []
    for (framework, criterion), some in sorted(cases.items()):
        check = checks.get((framework, criterion)) or JudgedGroup("", "", "", state="")
        rows.append(
            {
                "night": night,
                "framework": framework,
                "criterion": criterion or None,
                "golden_cases": golden_cases.get((framework, criterion), 0),
                **measure(some),
                "state": check.state or None,
                "compared": len(check.rows),
                "moved": check.documents_moved,
                "repeats": check.nights,
                "contradictions": check.contradictions,
            }
        )
    return rows


def report_agreement(conn_id: str, rows: Sequence[Row]) -> None:
    """Send metrics of each framework."""
    drifted = Counter(row["framework"] for row in rows if row["criterion"] and row["state"] == DRIFTED)
    for row in rows:
        if row["criterion"] is None:
            values = (row["agreement"], row["kappa"], drifted[row["framework"]])
            gauges = (metrics.AGREEMENT, metrics.KAPPA, metrics.DRIFTED)
            for metric, value in zip(gauges, values, strict=True):
                if value is not None:
                    metrics.gauge(metric, conn_id, value, framework=row["framework"])


def assert_agreement(golden: Location, rows: Iterable[Row]) -> Iterator[Verdict]:
    """Yield what golden documents and decisions say about the judge of each criterion."""
    for row in rows:
        name = f"{row['framework']}: {row['criterion']}"
        if row["criterion"] and row["state"]:
            yield Verdict(golden, name, row["state"] != DRIFTED, SAME_JUDGE)
        if row["criterion"] and row["kappa"] is not None and row["cases"] >= MIN_CASES:
            yield Verdict(golden, name, not row["no_better_than_chance"], BETTER_THAN_CHANCE)
