"""Verdicts, counted row by row in memory that does not grow with the number of documents."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider.reports.charts import StackedBar
from airflow_provider.reports.outcomes import NO_REASON, Reasons, generalize, limit_source
from airflow_provider.reports.page import State, percent, plural
from airflow_provider.severity import INSUFFICIENT, MISSING, SUFFICIENT, is_worse, normalize_category
from airflow_provider.text import sanitize

Row = Mapping[str, Any]

# The best first; each with its letter in the matrix, its CSS class and its words.
CATEGORIES = {
    SUFFICIENT: ("S", "sufficient", "sufficiently regulated"),
    INSUFFICIENT: ("N", "insufficient", "not sufficiently regulated"),
    MISSING: ("M", "missing", "missing"),
}
OTHER = ("U", "other", "without a known category")
LEGEND = [(style, words) for _, style, words in (*CATEGORIES.values(), OTHER)]
LABELS = {name: (style, words) for name, (_, style, words) in CATEGORIES.items()}  # for templates
MAX_CHANGES = 100
OPEN_CHANGES = 10  # the rest are behind a click
MAX_GONE = 12
MAX_SHOWN_DECISIONS = 30
MAX_CRITERIA = 2000  # that are counted, of all frameworks together
MAX_FRAMEWORKS = 12
MAX_SHOWN_CRITERIA = 120  # of all frameworks together
MAX_NAME_CHARS = 400
MAX_RATIONALE_CHARS = 600
REST = "(others)"
DECISION_COLUMNS = (
    "criterion", "category", "expert", "expert_category", "expert_rationale", "decided_at"
)  # fmt: skip


def to_name(value: object) -> str:
    """Return the name of a framework, a criterion or a category, which may be anything."""
    text = value if isinstance(value, str) else sanitize(value, MAX_NAME_CHARS)
    return text[:MAX_NAME_CHARS] or "(unnamed)"


def to_category(value: object) -> str:
    """Return a category as reports count it: one that is known in the spelling of the contract."""
    return to_name(normalize_category(value))


@dataclass(frozen=True)
class ChangedVerdict:
    """A criterion whose category has changed since the previous night."""

    source: str
    framework: str
    criterion: str
    title: str
    before: str
    after: str
    rationale: str

    @property
    def is_worse(self) -> bool:
        """Whether the document regulates it less than before, unless it is known to be better."""
        return is_worse(self.before, self.after)

    @property
    def order(self) -> tuple[bool, str, str]:
        """The worse ones first."""
        return not self.is_worse, self.source, self.framework


@dataclass
class VerdictCounts:
    """Verdicts by framework and criterion, what changed, and what experts decided."""

    labels: ClassVar[Mapping[str, tuple[str, str]]] = LABELS
    legend: ClassVar[Sequence[tuple[str, str]]] = LEGEND
    open_changes: ClassVar[int] = OPEN_CHANGES
    max_criteria: ClassVar[int] = MAX_CRITERIA
    max_source_chars: ClassVar[int] = 300

    criteria: dict[str, dict[str, str]] = field(default_factory=dict)  # titles, by framework and criterion
    by_criterion: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    cells: dict[str, Counter[str]] = field(default_factory=dict)  # assessed, carried, failed, by framework
    changes: list[ChangedVerdict] = field(default_factory=list)
    worse: int = 0
    better: int = 0
    new: int = 0  # had no verdict in the previous night
    gone: int = 0  # verdicts of the previous night that have no counterpart tonight
    gone_criteria: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Reasons = field(default_factory=Reasons)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    decision_count: int = 0
    _with_findings: int = 0
    _last_cell: tuple[Any, Any] | None = None

    @property
    def assessed(self) -> int:
        """How many cells were assessed in this night."""
        return self._count("assessed")

    @property
    def carried(self) -> int:
        """How many cells have the verdict of an earlier night."""
        return self._count("carried")

    @property
    def failed(self) -> int:
        """How many cells have no verdict."""
        return self._count("failed")

    def _count(self, outcome: str) -> int:
        return sum(counts[outcome] for counts in self.cells.values())

    @property
    def changed(self) -> int:
        """How many verdicts have changed since the previous night."""
        return self.worse + self.better

    @property
    def categories(self) -> Counter[str]:
        """How many verdicts are of which category, by CSS class."""
        return sum(self.by_criterion.values(), Counter())

    @property
    def total(self) -> int:
        """The number of verdicts."""
        return self.categories.total()

    @property
    def without_findings(self) -> int:
        """How many cells have completed, but the service has found nothing."""
        return max(self.assessed + self.carried - self._with_findings, 0)

    def add_cell(self, row: Row) -> None:
        """Count a row of `assessments.jsonl`."""
        framework = self._find_framework(row.get("framework"))
        if row.get("status") != "COMPLETED":
            self.cells[framework]["failed"] += 1
            reason = generalize(sanitize(row.get("error") or NO_REASON, 300))
            self.reasons.add(reason, limit_source(row.get("source"), self.max_source_chars))
        else:
            self.cells[framework]["carried" if row.get("carried_from") else "assessed"] += 1

    def add_finding(self, row: Row) -> None:
        """Count a row of `findings.jsonl`, where those of a cell follow each other."""
        framework, criterion = self._find_criterion(row)
        cell = row.get("source"), row.get("framework")
        if cell != self._last_cell:
            self._last_cell = cell
            self._with_findings += 1
        category, before = to_category(row.get("category")), row.get("changed_from")
        # Where an expert has decided, that counts.
        counted = to_category(row.get("expert_category") or category)
        self.by_criterion[framework, criterion][CATEGORIES.get(counted, OTHER)[1]] += 1
        if before:
            self._add_change(row, framework, criterion, to_category(before), category)
        elif row.get("first_seen") in (None, row.get("night")):
            self.new += 1
        if row.get("expert"):
            self.decision_count += 1
            if len(self.decisions) < MAX_SHOWN_DECISIONS:
                decision = {name: sanitize(row.get(name)) for name in DECISION_COLUMNS}
                decision |= {"category": category, "expert_category": counted}
                source = limit_source(row.get("source"), self.max_source_chars)
                self.decisions.append({**decision, "source": source, "framework": framework})

    def _add_change(self, row: Row, framework: str, criterion: str, before: str, after: str) -> None:
        change = ChangedVerdict(
            limit_source(row.get("source"), self.max_source_chars),
            framework,
            criterion,
            self.criteria[framework][criterion],
            before,
            after,
            sanitize(row.get("rationale"), MAX_RATIONALE_CHARS),
        )
        self.worse += change.is_worse
        self.better += not change.is_worse
        self.changes.append(change)
        if len(self.changes) >= 2 * MAX_CHANGES:
            self.changes = self.first_changes

    def _find_framework(self, value: object) -> str:
        """Return the framework to count under."""
        framework = to_name(value)
        if framework not in self.criteria:
            if len(self.criteria) >= self.max_criteria:
                framework = REST
            self.criteria.setdefault(framework, {})
            self.cells.setdefault(framework, Counter())
        return framework

    def _find_criterion(self, row: Row) -> tuple[str, str]:
        """Return the framework and the criterion to count under."""
        framework, criterion = self._find_framework(row.get("framework")), to_name(row.get("criterion"))
        titles = self.criteria[framework]
        if (framework, criterion) not in self.by_criterion:
            title = sanitize(row.get("title"), MAX_NAME_CHARS)
            if len(self.by_criterion) >= self.max_criteria:
                criterion, title = REST, ""
            titles.setdefault(criterion, title)
            self.by_criterion.setdefault((framework, criterion), Counter())
        return framework, criterion

    def add_gone(self, framework: str, criteria: Iterable[str]) -> None:
        """Count verdicts of the previous night that a document no longer has."""
        for criterion in sorted(criteria):
            self.gone += 1
            self.gone_criteria[framework, criterion] += 1

    # -- what a page shows

    def states(self) -> Iterator[State]:
        """Yield how good the night was."""
        if self.cells:
            yield "good", "Complete"
        if self.failed:
            is_all = not self.assessed + self.carried
            yield ("bad", "Nothing assessed") if is_all else ("warn", f"{self.failed:,} not assessed")
        if self.without_findings:
            yield "warn", f"{self.without_findings:,} without findings"
        if self.worse:
            yield "warn", f"{self.worse:,} got worse"

    def sentences(self, *, is_compared: bool) -> Iterator[str]:
        """Yield what a headline says.

        :param is_compared: whether there was a verdict in the previous night
        """
        if self.changed:
            changed = plural(self.changed, "verdict")
            yield f"{changed} changed: {self.worse:,} worse, {self.better:,} better."
        elif is_compared and self.total:
            yield "No verdict changed."
        elif self.total:
            missing, insufficient = self.categories["missing"], self.categories["insufficient"]
            yield (
                f"The first night with verdicts: {missing:,} missing, {insufficient:,} not sufficiently "
                f"regulated, of {self.total:,}."
            )
        if self.failed:
            yield f"{plural(self.failed, 'assessment')} failed."

    @property
    def first_changes(self) -> list[ChangedVerdict]:
        """The first changes, the worse ones before the better."""
        return heapq.nsmallest(MAX_CHANGES, self.changes, key=lambda change: change.order)

    @property
    def first_gone(self) -> list[tuple[tuple[str, str], int]]:
        """The criteria that most documents no longer have."""
        return self.gone_criteria.most_common(MAX_GONE)

    def describe_framework(self, framework: str) -> str:
        """Return what became of its documents."""
        cells = self.cells[framework]
        failed = f", {cells['failed']:,} failed" if cells["failed"] else ""
        counted = f"{cells['assessed']:,} assessed tonight, {cells['carried']:,} carried forward"
        return f"{plural(cells.total(), 'document')}: {counted}{failed}."

    @property
    def frameworks(self) -> list[tuple[str, StackedBar, list[tuple[StackedBar, str]], int]]:
        """The first frameworks: verdicts, those of the least regulated criteria, and how many more it has."""
        shown = list(self.criteria)[:MAX_FRAMEWORKS]
        limit = MAX_SHOWN_CRITERIA // (len(shown) or 1)
        bars = {framework: self.criterion_bars(framework) for framework in shown}
        return [
            (framework, self.framework_bar(framework), bars[framework][:limit], len(bars[framework][limit:]))
            for framework in shown
        ]

    def framework_bar(self, framework: str) -> StackedBar:
        """Return all verdicts of a framework."""
        total: Counter[str] = Counter()
        for criterion in self.criteria[framework]:
            total += self.by_criterion[framework, criterion]
        return StackedBar(sanitize(framework, 100), order_categories(total))

    def criterion_bars(self, framework: str) -> list[tuple[StackedBar, str]]:
        """Return the verdicts of each criterion with its title, the least regulated first."""
        bars = []
        for criterion, title in self.criteria[framework].items():
            counts = self.by_criterion[framework, criterion]
            note = percent(counts["sufficient"], counts.total())
            bars.append((StackedBar(sanitize(criterion, 80), order_categories(counts), note), title))
        return sorted(bars, key=lambda bar: bar[0].counts["sufficient"] / (bar[0].total or 1))


def order_categories(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the categories in the order in which bars show them."""
    return {style: counts.get(style, 0) for style, _ in LEGEND}
