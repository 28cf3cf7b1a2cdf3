"""Verdicts, counted row by row in memory that does not grow with the number of documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.nights.reports.outcomes import Kind, Reasons, Row, Top
from airflow_provider.nights.reports.page import CAUSES, CELLS, UNDECIDED, Summary, list_counts
from airflow_provider.nights.severity import BAD, BEST, classify, is_worse, normalize_category
from airflow_provider.redaction.text import plural, sanitize

MAX_CHANGES = 100  # kinds of change that a page shows
MAX_CAUSES = 3  # criteria in one sentence
MAX_SHOWN_DECISIONS = 30  # of earlier nights
MAX_MADE_DECISIONS = 500  # in this night
MAX_CRITERIA = 2000  # that are counted, of all frameworks together
MAX_NAME_CHARS = 400
REST = "(others)"
ANSWERS = {word: word for word in ("decided", *UNDECIDED.values())}


def to_name(value: object) -> str:
    """Return the name of a framework, a criterion or a category, which may be anything."""
    text = value if isinstance(value, str) else sanitize(value, MAX_NAME_CHARS)
    return text[:MAX_NAME_CHARS] or "(unnamed)"


@dataclass
class CriterionCounts:
    """The verdicts on a criterion, by CSS class.

    :param number: its place among those of its framework
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
    """What became of the documents for a framework.

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
    """Verdicts on one criterion that changed in the same way, for the same cause.

    :param row: the first of them
    """

    row: Row = field(default_factory=dict)

    @property
    def is_worse(self) -> bool:
        """Whether the verdicts became worse."""
        return is_worse(self.row["changed_from"], self.row.get("category"))


def _find_cause(row: Row) -> tuple[str, str] | None:
    """Return why a verdict may have changed, and the framework if that is the cause; None if unknown."""
    cause = row.get("because")
    if not isinstance(cause, str) or cause not in CAUSES:
        return None
    return cause, to_name(row.get("framework")) if cause == "framework" else ""


def _find_question(row: Row) -> tuple[str, ...]:
    """Return what an expert is asked about: equal texts share a cell, and so a decision."""
    about = row.get("cell") or row.get("source")
    return tuple(str(part) for part in (about, row.get("framework"), row.get("criterion")))


@dataclass
class VerdictCounts:
    """Verdicts by framework and criterion, what changed, and what experts decided.

    :param cells: assessed, carried, failed, of all frameworks
    :param without_findings: how many of them have completed, but the service has found nothing
    :param changed: how many findings have another category than in the previous night; `changes` are kinds
    :param again: documents with a new cause for a verdict, by cause, and by framework if that is the cause
    :param new: verdicts on what had none in the previous night
    :param decisions: of experts in earlier nights; `made` are those of tonight, and `answers` counts these
    :param unasked: how many findings changed that no expert was asked about; decisions are added before
    :param gone: verdicts of the previous night that have no counterpart tonight, by framework and criterion
    """

    frameworks: dict[str, FrameworkCounts] = field(default_factory=dict)
    cells: Counter[str] = field(default_factory=Counter)
    without_findings: int = 0
    changed: int = 0
    worse: int = 0
    again: Counter[tuple[str, str]] = field(default_factory=Counter)
    new: int = 0
    gone: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Reasons = field(default_factory=Reasons)
    decisions: Top[Row] = field(default_factory=lambda: Top(MAX_SHOWN_DECISIONS))
    made: Top[Row] = field(
        default_factory=lambda: Top(MAX_MADE_DECISIONS, lambda row: str(row["decision"]) in UNDECIDED)
    )
    answers: Counter[str] = field(default_factory=Counter)
    unasked: int = 0
    _asked: set[tuple[str, ...]] = field(default_factory=set)
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
    def is_compared(self) -> bool:
        """Whether any verdict had one in the previous night."""
        return self.total > self.new

    def add_cell(self, row: Row) -> FrameworkCounts:
        """Count a row of `assessments.jsonl`; return its framework."""
        framework = self._find_framework(row)
        outcome = "carried" if row.get("carried_from") else "assessed"
        if row.get("status") != "COMPLETED":
            outcome = "failed"
            self.reasons.add(sanitize(row.get("error"), 300), row.get("source"))
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
        # Where an expert has decided, that counts.
        category = normalize_category(row.get("expert_category") or row.get("category"))
        framework.categories[to_name(category)] += 1
        found = classify(category)
        criterion.verdicts[found.style] += 1
        if row.get("changed_from"):
            self._add_change(row)
        elif row.get("first_seen") in (None, row.get("night")):
            self.new += 1
        if row.get("expert"):
            self.decisions.add(row)
        return criterion.number, found.letter

    def add_decision(self, row: Row) -> None:
        """Add a row of a table of decisions, with the columns that findings have for those."""
        names = ("source", "framework", "criterion", "decision", "decided_at")
        about = {name: row.get(name) for name in names}
        expert = row.get("expert_id") or row.get("answered_by") or "no one"
        categories = {"category": row.get("category_before"), "expert_category": row.get("category_after")}
        rationale = row.get("rational_feedback")
        self.answers[UNDECIDED.get(str(row.get("decision")), "decided")] += 1
        self._asked.add(_find_question(row))
        self.made.add({**about, **categories, "expert": expert, "expert_rationale": rationale})

    def add_gone(self, framework: str, criteria: Iterable[str]) -> None:
        """Count verdicts of the previous night that a document no longer has."""
        self.gone.update((framework, criterion) for criterion in sorted(criteria))

    def _add_change(self, row: Row) -> None:
        self.changed += 1
        self.worse += is_worse(row["changed_from"], row.get("category"))
        self.unasked += not row.get("expert") and _find_question(row) not in self._asked
        names = ("framework", "criterion", "because", "changed_from", "category")
        key = tuple(to_name(row.get(name)) for name in names)
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

    # -- what a page shows

    @property
    def changes(self) -> list[Change]:
        """What became worse before what became better, the most frequent first."""
        ordered = sorted(self._changes.values(), key=lambda change: (not change.is_worse, -change.total))
        return ordered[:MAX_CHANGES]

    def explain(self) -> Iterator[str]:
        """Yield why verdicts changed: frameworks, then documents, then the service itself."""
        causes = list(CAUSES)
        for key, number in sorted(self.again.items(), key=lambda item: causes.index(item[0][0])):
            changes = [change for change in self._changes.values() if _find_cause(change.row) == key]
            worse: Counter[str] = Counter()
            for change in changes:
                worse[sanitize(change.row.get("criterion"), 80)] += change.total * change.is_worse
            better = sum(change.total for change in changes if not change.is_worse)
            counted = f"{worse.total():,} worse, {better:,} better"
            again = f"{plural(number)} {'was' if number == 1 else 'were'} assessed again"
            if key[0] == "framework":
                named = [f"{count:,} got worse on {name}" for name, count in (+worse).most_common(MAX_CAUSES)]
                same = f" although their text is the same: {', '.join(named)}" if named else ""
                yield f"{sanitize(key[1], 100)} has changed: {again}, {counted}{same}."
            elif key[0] in ("document", "both"):
                framework = " and a changed framework" if key[0] == "both" else ""
                yield f"{plural(number)} {'has' if number == 1 else 'have'} a new text{framework}: {counted}."
            else:
                yield f"{again} with the same text and framework: {counted}."

    def summarize(self) -> Iterator[Summary]:
        """Yield how good the night was, and what a headline says."""
        sentence, failed = "", self.cells["failed"]
        if self.changed:
            better = self.changed - self.worse
            sentence = f"{plural(self.changed, 'verdict')} changed: {self.worse:,} worse, {better:,} better."
        elif self.is_compared:
            sentence = "No verdict changed."
        elif self.total:
            counts = self.categories
            counted = ", ".join(f"{counts[one.name]:,} {one.words}" for one in reversed(BAD))
            sentence = f"The first night with verdicts: {counted}, of {self.total:,}."
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
        """Return how many findings on forms were decided; empty without forms."""
        counted = list_counts(self.answers, ANSWERS)
        unasked = f" No one was asked about {plural(self.unasked, 'changed verdict')}."
        return f"On forms of this night: {counted}.{unasked if self.unasked else ''}" if counted else ""

    def describe_framework(self, framework: FrameworkCounts) -> str:
        """Return what became of its documents."""
        return f"Documents: {list_counts(framework.cells, CELLS) or 'none'}."
