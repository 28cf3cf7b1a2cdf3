"""The report of an assessment night: the verdicts, for a person who is not an engineer."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.reports.charts import StackedBar
from airflow_provider.reports.page import (
    documents,
    moment,
    percent,
    read_time,
    render,
    sanitize,
    split_source,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_provider.reports.ingest import Run

# Best first; each with its letter in the matrix, its CSS class and its words.
CATEGORIES = {
    "SUFFICIENTLY_REGULATED": ("S", "sufficient", "sufficiently regulated"),
    "NOT_SUFFICIENTLY_REGULATED": ("N", "insufficient", "not sufficiently regulated"),
    "MISSING": ("M", "missing", "missing"),
}
OTHER = ("U", "other", "without a known category")
RANKS = {name: rank for rank, name in enumerate(CATEGORIES)}
MAX_CHANGES = 200
OPEN_CHANGES = 20  # of these; the rest are behind a click
MAX_DOCUMENTS = 20_000  # of the matrix
MAX_RATIONALE_CHARS = 600
RATIONALE_BUDGET_CHARS = 1_500_000
MAX_REASONS = 12
MAX_DECISIONS = 200
DECISION_COLUMNS = (
    "criterion", "category", "expert", "expert_category", "expert_rationale", "decided_at"
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A criterion whose category is another one than in the last night."""

    source: str
    framework: str
    criterion: str
    title: str
    before: str
    after: str
    rationale: str

    @property
    def is_worse(self) -> bool:
        """Whether the document regulates it less than before."""
        return RANKS.get(self.after, len(RANKS)) > RANKS.get(self.before, len(RANKS))


@dataclass
class VerdictStats:
    """What the report shows, collected cell by cell in bounded memory."""

    documents: dict[str, int] = field(default_factory=dict)
    criteria: dict[str, dict[str, str]] = field(default_factory=dict)  # titles, by framework and criterion
    letters: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)
    by_criterion: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    worse: int = 0
    better: int = 0
    assessed: int = 0
    carried: int = 0
    failed: int = 0
    without_findings: int = 0  # completed, but the service has found nothing
    gone: int = 0  # verdicts of the last night that have no counterpart tonight
    gone_criteria: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    decision_count: int = 0
    notes: dict[tuple[int, str, str], str] = field(default_factory=dict)
    _note_chars: int = 0

    def add(
        self, cell: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], before: Iterable[str] = ()
    ) -> None:
        """Count a row of `assessments.jsonl` with its rows of `findings.jsonl`.

        :param before: the criteria that had a verdict in the last night
        """
        source, framework = str(cell["source"]), str(cell["framework"])
        number = self.documents.setdefault(source, len(self.documents))
        letters = self.letters.setdefault(framework, {}).setdefault(number, {})
        titles = self.criteria.setdefault(framework, {})
        if cell["status"] != "COMPLETED":
            self.failed += 1
            reason = sanitize(cell.get("error") or "(no reason given)", 300)
            self.reasons[reason] += 1
            self.examples.setdefault(reason, source)
            letters[""] = "F"
            return
        self.carried += bool(cell.get("carried_from"))
        self.assessed += not cell.get("carried_from")
        self.without_findings += not findings
        for criterion in set(before).difference(str(each["criterion"]) for each in findings):
            self.gone += 1
            self.gone_criteria[framework, criterion] += 1
        for each in findings:
            self._add_finding(source, framework, number, each, letters, titles)

    def _add_finding(
        self,
        source: str,
        framework: str,
        number: int,
        each: Mapping[str, Any],
        letters: dict[str, str],
        titles: dict[str, str],
    ) -> None:
        criterion, category = str(each["criterion"]), str(each["category"])
        # Where an expert has decided, that counts.
        counted = str(each.get("expert_category") or category)
        titles.setdefault(criterion, str(each.get("title") or ""))
        letter, style, _ = CATEGORIES.get(counted, OTHER)
        before = each.get("changed_from")
        letters[criterion] = letter.lower() if before else letter
        self.by_criterion.setdefault((framework, criterion), Counter())[style] += 1
        rationale = sanitize(each.get("rationale"), MAX_RATIONALE_CHARS)
        if before:
            change = Change(source, framework, criterion, titles[criterion], str(before), category, rationale)
            self.worse += change.is_worse
            self.better += not change.is_worse
            if len(self.changes) < 50 * MAX_CHANGES:
                self.changes.append(change)
        if each.get("expert"):
            self.decision_count += 1
            if len(self.decisions) < MAX_DECISIONS:
                decision = {name: each.get(name) for name in DECISION_COLUMNS}
                self.decisions.append({**decision, "source": source, "framework": framework})
            rationale = sanitize(_explain(each, rationale), MAX_RATIONALE_CHARS)
        # What needs a person is explained on the page; the rest where there is room.
        room = RATIONALE_BUDGET_CHARS if before or letter != "S" else RATIONALE_BUDGET_CHARS // 3
        if rationale and self._note_chars + len(rationale) <= room:
            self._note_chars += len(rationale)
            self.notes[number, framework, criterion] = rationale

    @property
    def changed(self) -> int:
        """How many verdicts are other ones than in the last night."""
        return self.worse + self.better


def render_verdicts(
    stats: VerdictStats,
    run: Run,
    *,
    night: str,
    last_night: str | None,
    without_text: Sequence[str],
    files: Mapping[str, str],
) -> str:
    """Return the HTML report of an assessment night.

    :param last_night: when the verdicts were made that these are compared with
    :param without_text: sources that have no text, and so no verdict
    :param files: where the tables are, by title
    """
    started, ended = read_time(run.started), read_time(run.ended)
    tone, status, headline = _summarize(stats, last_night)
    shown = heapq.nsmallest(
        MAX_CHANGES, stats.changes, key=lambda each: (not each.is_worse, each.source, each.framework)
    )
    reasons = stats.reasons.most_common(MAX_REASONS)
    return render(
        "assess.html",
        run=run,
        started=started,
        ended=ended,
        night=_format_night(night),
        last_night=_format_night(last_night),
        tone=tone,
        status=status,
        headline=headline,
        stats=stats,
        changes=(shown[:OPEN_CHANGES], shown[OPEN_CHANGES:]),
        words={name: words for name, (_, _, words) in CATEGORIES.items()},
        styles={name: style for name, (_, style, _) in CATEGORIES.items()},
        frameworks=[
            (framework, _total(stats, framework), _bars(stats, framework), _count_documents(stats, framework))
            for framework in stats.criteria
        ],
        gone=stats.gone_criteria.most_common(MAX_REASONS),
        legend=[(style, words) for _, style, words in (*CATEGORIES.values(), OTHER)],
        reasons=[
            (StackedBar(reason, {"failed": number}), stats.examples[reason]) for reason, number in reasons
        ],
        without_text=without_text,
        files=files,
        matrix=_script_json(_matrix(stats)),
    )


def _explain(finding: Mapping[str, Any], rationale: str) -> str:
    """Return why an expert decided, then why the service did."""
    _, _, words = CATEGORIES.get(str(finding["category"]), OTHER)
    decided = f"Decided by {finding['expert']}. {finding.get('expert_rationale') or ''}".strip()
    return f"{decided} The service said: {words}. {rationale}"


def _summarize(stats: VerdictStats, last_night: str | None) -> tuple[str, str, str]:
    """Return the tone, the status and the headline."""
    total = stats.assessed + stats.carried + stats.failed
    if not total:
        return "idle", "Nothing to do", "There were no documents to assess."
    if stats.failed == total:
        return "bad", "All failed", f"No document could be assessed: all {total:,} assessments failed."
    tone, status = ("warn", f"{stats.failed:,} failed") if stats.failed else ("good", "Complete")
    if last_night is None:
        verdicts = stats.by_criterion.values()
        missing = sum(each["missing"] for each in verdicts)
        insufficient = sum(each["insufficient"] for each in verdicts)
        headline = (
            f"The first night: {missing:,} missing, {insufficient:,} not sufficiently regulated, of "
            f"{sum(each.total() for each in verdicts):,} verdicts."
        )
    elif stats.changed:
        headline = (
            f"{stats.changed:,} verdict{'s' if stats.changed > 1 else ''} changed since the last night: "
            f"{stats.worse:,} worse, {stats.better:,} better."
        )
        tone = "warn" if stats.worse else tone
    else:
        headline = "No verdict changed since the last night."
    return tone, status, headline


def _total(stats: VerdictStats, framework: str) -> StackedBar:
    """Return all verdicts of a framework."""
    total: Counter[str] = Counter()
    for (name, _), counts in stats.by_criterion.items():
        if name == framework:
            total += counts
    return StackedBar(framework, _in_order(total))


def _count_documents(stats: VerdictStats, framework: str) -> str:
    """Count the documents by the worst of their verdicts."""
    worst: Counter[str] = Counter()
    for letters in stats.letters[framework].values():
        found = {each.upper() for each in letters.values()}
        worst[next((letter for letter in "FMNUS" if letter in found), "")] += 1
    parts = {
        "S": "sufficiently regulated throughout",
        "N": "not sufficiently regulated in places",
        "M": "with something missing",
        "U": "with a verdict of no known category",
        "F": "not assessed",
    }
    counted = ", ".join(f"{worst[letter]:,} {words}" for letter, words in parts.items() if worst[letter])
    return f"{documents(len(stats.letters[framework]))}: {counted}." if counted else ""


def _bars(stats: VerdictStats, framework: str) -> list[tuple[StackedBar, str]]:
    """Return the verdicts of each criterion, the least regulated first."""
    bars = []
    for criterion, title in stats.criteria[framework].items():
        counts = stats.by_criterion[framework, criterion]
        note = percent(counts["sufficient"], counts.total())
        bars.append((StackedBar(criterion, _in_order(counts), note), title))
    return sorted(bars, key=lambda bar: bar[0].counts["sufficient"] / (bar[0].total or 1))


def _in_order(counts: Counter[str]) -> dict[str, int]:
    return {style: counts[style] for _, style, _ in (*CATEGORIES.values(), OTHER)}


def _matrix(stats: VerdictStats) -> dict[str, Any]:
    """Return documents and verdicts for the script: a letter for each, in lower case where it changed."""
    frameworks = []
    numbers = list(stats.documents.values())[:MAX_DOCUMENTS]
    for framework, titles in stats.criteria.items():
        rows = stats.letters[framework]
        frameworks.append(
            {
                "name": sanitize(framework, 100),
                "criteria": [[sanitize(name, 60), sanitize(title, 200)] for name, title in titles.items()],
                "rows": [_letters(rows.get(number), titles) for number in numbers],
            }
        )
    index = {framework: number for number, framework in enumerate(stats.criteria)}
    columns = {
        (framework, criterion): number
        for framework, titles in stats.criteria.items()
        for number, criterion in enumerate(titles)
    }
    notes = {
        f"{number}/{index[framework]}/{columns[framework, criterion]}": rationale
        for (number, framework, criterion), rationale in stats.notes.items()
        if number < MAX_DOCUMENTS
    }
    return {
        "documents": [split_source(source)[:2] for source in list(stats.documents)[:MAX_DOCUMENTS]],
        "left_out": max(0, len(stats.documents) - MAX_DOCUMENTS),
        "frameworks": frameworks,
        "notes": notes,
    }


def _letters(row: Mapping[str, str] | None, titles: Mapping[str, str]) -> str:
    if row is None:
        return ""
    if "" in row:
        return "F"
    return "".join(row.get(criterion, ".") for criterion in titles)


def _format_night(night: str | None) -> str:
    """Return when a night was, as people read it."""
    at = read_time(night)
    return sanitize(night) if at is None else moment(at, "%Y-%m-%d %H:%M UTC")


def _script_json(value: Any) -> str:
    """Return JSON that can't end the script element that it is in."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
