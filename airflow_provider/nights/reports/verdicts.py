"""Verdicts, counted row by row in memory that does not grow with the number of documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.nights.reports.outcomes import Kind, Reasons, Row, Top
from airflow_provider.nights.reports.page import (
    CAUSES,
    CELLS,
    OPEN,
    STATES,
    Summary,
    apply_decision,
    list_counts,
    read_decision,
    standing,
    state_of,
)
from airflow_provider.nights.severity import BAD, BEST, classify, is_worse, normalize_category
from airflow_provider.redaction.text import plural, sanitize

MAX_CHANGES = 100  # kinds of change that a page shows
MAX_CAUSES = 3  # criteria in one sentence
MAX_SHOWN_DECISIONS = 30  # decisions of earlier nights
MAX_MADE_DECISIONS = 500  # in this night
MAX_CRITERIA = 2000  # that are counted, of all frameworks together
MAX_NAME_CHARS = 400
REST = "(others)"
CHANGED = ("framework", "criterion", "change_reason", "changed_from", "category")


def to_name(value: object) -> str:
    """Return the name of a framework, a criterion or a category, which may be anything."""
    text = value if isinstance(value, str) else sanitize(value, MAX_NAME_CHARS)
    return text[:MAX_NAME_CHARS] or "(unnamed)"


@dataclass
class CriterionCounts:
    """The verdicts on a criterion, by CSS class.

    :param number: its place in its framework
    """

    number: int
    title: str
    verdicts: Counter[str] = field(default_factory=Counter)

    @property
    def sufficient(self) -> int:
        """How many verdicts are sufficient."""
        return self.verdicts[BEST.style]

    @property
    def share(self) -> float:
        """The share of verdicts that are sufficient."""
        return self.sufficient / (self.verdicts.total() or 1)


@dataclass
class FrameworkCounts:
    """Counts for a framework.

    :param number: its place among all
    :param cells: assessed, carried, failed
    :param categories: how many verdicts have which category, as the contract spells it
    """

    name: str
    number: int
    cells: Counter[str] = field(default_factory=Counter)
    categories: Counter[str] = field(default_factory=Counter)
    criteria: dict[str, CriterionCounts] = field(default_factory=dict)

    @property
    def verdicts(self) -> Counter[str]:
        """All verdicts, by CSS class."""
        return sum((criterion.verdicts for criterion in self.criteria.values()), Counter())

    @property
    def least_regulated(self) -> list[tuple[str, CriterionCounts]]:
        """The criteria, the least regulated first."""
        return sorted(self.criteria.items(), key=lambda item: item[1].share)


@dataclass
class Change(Kind):
    """Verdicts on one criterion that changed in the same way, for the same cause, and were decided alike.

    :param row: the first of them
    """

    row: Row = field(default_factory=dict)

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return state_of(self.row)

    @property
    def effect(self) -> str:
        """What stands, compared with before: `worse`, `better`, or nothing if the change was overruled."""
        return effect_of(self.row["changed_from"], standing(self.row))


def effect_of(before: object, stands: str) -> str:
    """Return `worse`, `better`, or nothing if it is the same."""
    if normalize_category(before) == stands:
        return ""
    return "worse" if is_worse(before, stands) else "better"


def _find_cause(row: Row) -> tuple[str, str] | None:
    """Return why a verdict may have changed, and the framework if that is the cause; None if unknown."""
    cause = row.get("change_reason")
    if not isinstance(cause, str) or cause not in CAUSES:
        return None
    framework = to_name(row.get("framework")) if cause in ("framework", "other") else ""
    return "framework" if framework else cause, framework


def _count_worse(criteria: Counter[str]) -> str:
    """Return how many verdicts got worse, and on which criteria most of them."""
    total, most = criteria.total(), criteria.most_common(MAX_CAUSES)
    said = f"{plural(total, 'verdict')} got worse" if total else "no verdict got worse"
    if len(criteria) <= 1:
        return said + "".join(f" on {name}" for name in criteria)
    more = total - sum(number for _, number in most)
    counted = [
        *(f"{number:,} on {name}" for name, number in most),
        *([f"{more:,} on others"] if more else []),
    ]
    return f"{said} ({', '.join(counted)})"


def _find_question(row: Row) -> tuple[str, ...]:
    """Return the subject of a decision: equal texts share a cell, and so a decision."""
    about = row.get("cell") or row.get("source")
    return tuple(str(part) for part in (about, row.get("framework"), row.get("criterion")))


@dataclass
class VerdictCounts:
    """Verdicts by framework and criterion, what changed, and what experts decided.

    :param cells: assessed, carried, failed, of all frameworks
    :param without_findings: how many of them completed, but the service found nothing
    :param changed: how many findings have another category than in the previous night; `changes` are kinds
    :param worse, better: what stands of them
    :param states: what experts made of findings that changed; `open_earlier` counts earlier nights
    :param overruled: verdicts where the category of an expert counts instead
    :param again: documents with a new cause for a verdict, by cause, and by framework if that is the cause
    :param new: verdicts on documents and criteria without one in the previous night
    :param decisions: expert decisions of earlier nights; `made` are tonight's, counted by `answers`, and
        added before findings
    :param unasked: how many open findings no expert was asked about
    :param gone: verdicts of the previous night that have no counterpart tonight, by framework and criterion
    """

    frameworks: dict[str, FrameworkCounts] = field(default_factory=dict)
    cells: Counter[str] = field(default_factory=Counter)
    without_findings: int = 0
    changed: int = 0
    worse: int = 0
    better: int = 0
    states: Counter[str] = field(default_factory=Counter)
    open_earlier: int = 0
    overruled: int = 0
    again: Counter[tuple[str, str]] = field(default_factory=Counter)
    new: int = 0
    gone: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Reasons = field(default_factory=Reasons)
    decisions: Top[Row] = field(default_factory=lambda: Top(MAX_SHOWN_DECISIONS))
    made: Top[Row] = field(
        default_factory=lambda: Top(MAX_MADE_DECISIONS, lambda row: STATES.index(state_of(row)))
    )
    answers: Counter[str] = field(default_factory=Counter)
    unasked: int = 0
    _asked: dict[tuple[str, ...], Row] = field(default_factory=dict)
    _changes: dict[tuple[str, ...], Change] = field(default_factory=dict)
    _last_sources: dict[tuple[str, str], Any] = field(default_factory=dict)  # rows of one follow each other

    @property
    def categories(self) -> Counter[str]:
        """How many verdicts have which category, as the contract spells it."""
        return sum((framework.categories for framework in self.frameworks.values()), Counter())

    @property
    def total(self) -> int:
        """The number of verdicts."""
        return self.categories.total()

    @property
    def open(self) -> int:
        """The number of changed verdicts that no expert decided about."""
        return self.states[OPEN] + self.open_earlier

    @property
    def is_compared(self) -> bool:
        """Whether any verdict had one in the previous night."""
        return self.total > self.new

    def add_cell(self, row: Row) -> FrameworkCounts:
        """Count a row of `assessments.jsonl`; return its framework."""
        framework = self._find_framework(row)
        outcome = "carried" if row.get("carried_from") else "assessed"
        if row.get("status") != "COMPLETED":
            outcome = "failed"
            self.reasons.add(row)
        elif row.get("findings") == 0:
            self.without_findings += 1
        framework.cells[outcome] += 1
        self.cells[outcome] += 1
        if cause := _find_cause(row):
            self.again[cause] += self._last_sources.get(cause) != row.get("source")
            self._last_sources[cause] = row.get("source")
        return framework

    def add_finding(self, row: Row, framework: FrameworkCounts | None = None) -> tuple[int, str]:
        """Count a row of `findings.jsonl.gz`; return the number of its criterion and its letter."""
        framework = framework or self._find_framework(row)
        criterion = self._find_criterion(framework.criteria, row)
        if row.get("expert"):
            self.decisions.add(row)
        row = apply_decision(row, self._asked.get(_find_question(row))) if self._asked else row
        category = standing(row)
        self.overruled += category != normalize_category(row.get("category"))
        framework.categories[to_name(category)] += 1
        found = classify(category)
        criterion.verdicts[found.style] += 1
        is_open = (row.get("changed_from") or row.get("open_from")) and state_of(row) == OPEN
        self.unasked += bool(is_open) and _find_question(row) not in self._asked
        if row.get("changed_from"):
            self._add_change(row, category)
        elif is_open:
            self.open_earlier += 1
        elif row.get("first_seen") in (None, row.get("night")):
            self.new += 1
        return criterion.number, found.letter

    def add_decision(self, row: Row) -> None:
        """Add a row of a table of decisions."""
        made = read_decision(row)
        self.answers[state_of(made)] += 1
        self.made.add(made)
        known = self._asked.setdefault(_find_question(row), made)
        if state_of(made) != OPEN and (
            state_of(known) == OPEN or str(known["decided_at"]) < str(made["decided_at"])
        ):
            self._asked[_find_question(row)] = made

    def add_gone(self, framework: str, criteria: Iterable[str]) -> None:
        """Count verdicts of the previous night that a document no longer has."""
        self.gone.update((framework, criterion) for criterion in sorted(criteria))

    def _add_change(self, row: Row, stands: str) -> None:
        self.changed += 1
        self.states[state_of(row)] += 1
        effect = effect_of(row["changed_from"], stands)
        self.worse += effect == "worse"
        self.better += effect == "better"
        names = (*CHANGED, "decision", "expert", "decided_at", "outcome")  # one answer to a form is one row
        key = (*(to_name(row.get(name)) for name in names), state_of(row), to_name(stands))
        if key not in self._changes and len(self._changes) < MAX_CRITERIA:
            self._changes[key] = Change(row=row)
        if change := self._changes.get(key):
            change.add(row.get("source"))

    def _find_framework(self, row: Row) -> FrameworkCounts:
        name = to_name(row.get("framework"))
        if name in self.frameworks:
            return self.frameworks[name]
        if len(self.frameworks) >= MAX_CRITERIA:
            name = REST
        return self.frameworks.setdefault(name, FrameworkCounts(name, len(self.frameworks)))

    def _find_criterion(self, criteria: dict[str, CriterionCounts], row: Row) -> CriterionCounts:
        name = to_name(row.get("criterion"))
        if name in criteria:
            return criteria[name]
        title = sanitize(row.get("title"), MAX_NAME_CHARS)
        if sum(len(framework.criteria) for framework in self.frameworks.values()) >= MAX_CRITERIA:
            name, title = REST, ""
        return criteria.setdefault(name, CriterionCounts(len(criteria), title))

    # -- parts of a page

    @property
    def changes(self) -> list[Change]:
        """Overruled changes, open ones, the rest; worse ones before better ones."""

        def order(change: Change) -> tuple[int, bool, int]:
            return min(STATES.index(change.state), 2), change.effect != "worse", -change.total

        return sorted(self._changes.values(), key=order)[:MAX_CHANGES]

    def explain(self, only_worse: bool = False) -> Iterator[str]:
        """Yield why verdicts changed: frameworks, then documents, then the service itself."""
        causes = list(CAUSES)
        for key, number in sorted(self.again.items(), key=lambda item: causes.index(item[0][0])):
            changes = [change for change in self._changes.values() if _find_cause(change.row) == key]
            effects, worse = Counter[str](), Counter[str]()
            for change in changes:
                effects[change.effect] += change.total
                criterion = sanitize(change.row.get("criterion"), 80)
                if change.row.get("change_reason") == "other":
                    criterion += ", whose requirement is the same"
                worse[criterion] += change.total * (change.effect == "worse")
            if only_worse and not effects["worse"]:
                continue
            counted = f"{_count_worse(+worse)}, {effects['better'] or 'none'} better"
            counted = counted if effects else "no verdict changed"
            documents, again = plural(number), "was" if number == 1 else "were"
            if key[0] == "framework":
                because = f"{sanitize(key[1], 100)} was changed, so {documents} with the same text"
                yield f"{because} {again} reassessed: {counted}."
            elif key[0] == "judge":
                yield f"{documents} with the same text and framework {again} reassessed: {counted}."
            else:
                framework = "text and the framework" if key[0] == "both" else "text"
                yield f"The {framework} of {documents} changed: {counted}."

    def summarize(self) -> Iterator[Summary]:
        """Yield how good the night was, and the parts of a headline."""
        sentence, failed = "", self.cells["failed"]
        overruled = f"Experts overruled {plural(self.overruled, 'verdict')}." if self.overruled else ""
        if self.changed:
            effects = [(self.worse, "worse"), (self.better, "better")]
            (number, first), *more = [effect for effect in effects if effect[0]] or [(0, "")]
            rest = "".join(f" and {other:,} {word}" for other, word in more)
            stands = (
                f"{plural(number, 'verdict')} got {first}{rest}." if number else "No changed verdict stands."
            )
            sentence = f"{stands} {overruled}".strip()
        elif self.is_compared:
            sentence = (
                f"No verdict of the service changed. {overruled}" if overruled else "No verdict changed."
            )
        elif self.total:
            counts = self.categories
            counted = ", ".join(f"{counts[one.name]:,} {one.words}" for one in reversed(BAD))
            sentence = f"The first night with verdicts: {counted}, of {plural(self.total, 'verdict')}."
        yield "good" if self.cells else "idle", "Complete", sentence
        if failed:
            is_all = failed == self.cells.total()
            tone, status = ("bad", "Nothing assessed") if is_all else ("warn", f"{failed:,} not assessed")
            yield tone, status, f"{plural(failed, 'assessment')} failed."
        if self.without_findings:
            yield "warn", f"{self.without_findings:,} without findings", ""
        if self.worse:
            yield "warn", f"{self.worse:,} got worse", ""

    def describe_answers(self) -> str:
        """Return how many findings on forms were decided, and how many are open."""
        if not (total := self.answers.total()):
            wait = "waits" if self.open == 1 else "wait"
            return f"{plural(self.open, 'changed verdict')} {wait} for an expert." if self.open else ""
        left = self.answers[OPEN]
        counted = list_counts(self.answers, {state: state for state in reversed(STATES) if state != OPEN})
        sentences = [f"{total - left:,} of {plural(total, 'finding')} decided{counted and f': {counted}'}."]
        sentences += [f"{left:,} {'is' if left == 1 else 'are'} still open."] if left else []
        asked = f"No form asks about {plural(self.unasked, 'open verdict')}." if self.unasked else ""
        return " ".join(filter(None, [*sentences, asked]))

    def describe_framework(self, framework: FrameworkCounts) -> str:
        """Return what became of its documents."""
        return f"Documents: {list_counts(framework.cells, CELLS) or 'none'}."
