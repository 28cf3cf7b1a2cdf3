"""The report of an assessment night: the verdicts, for a person who is not an engineer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Any

from airflow_provider.nights.reports.outcomes import Row, count_documents
from airflow_provider.nights.reports.page import (
    SHOWN,
    Summary,
    list_counts,
    render,
    split_source,
    summarize,
)
from airflow_provider.nights.reports.verdicts import FrameworkCounts, VerdictCounts
from airflow_provider.nights.severity import BAD, BEST, CATEGORIES, classify
from airflow_provider.redaction.text import sanitize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from airflow_provider.nights.reports.page import Run

MAX_DOCUMENTS = 20_000  # for the matrix
MAX_RATIONALE_CHARS = 600
RATIONALE_BUDGET_CHARS = 1_500_000
RANKS = ("", "skipped", "completed", "failed")  # ranks of documents; the last one counts most
FAILED = "F"  # where others have the letter of a category
# How a document is counted, by the letter of its worst verdict.
WORST = {category.letter: category.worst for category in SHOWN} | {FAILED: "not assessed"}
WORST_FIRST = (FAILED, *(category.letter for category in reversed(CATEGORIES)))
NUMBERS = ("cases", "agreed", "agreement", "base_rate", "kappa", "moved", "compared")
MAX_CRITERIA = 300
MAX_MOVED = 100
# The worst first; each with its words.
STATES = {
    "drifted": "drifted",
    "no_better_than_chance": "no better than chance",
    "inconsistent": "inconsistent",
}


@dataclass
class JudgeStats:
    """Collects the data of the section about the judge: every criterion and document once.

    Without golden documents, each instance of a mapped assess task counted the same decisions.
    """

    _rows: dict[tuple[str, ...], Row] = field(default_factory=dict)
    _moved: dict[tuple[str, ...], Row] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Add a row of `agreement.jsonl` or `golden.jsonl`."""
        key = tuple(str(row.get(name)) for name in ("framework", "criterion", "source"))
        if "cases" not in row:
            if row.get("reference") not in (None, row.get("category")):
                self._moved.setdefault(key, row)
            return
        is_new = key not in self._rows or row.get("state") == "drifted"
        if is_new and all(isinstance(row.get(name), int | float | None) for name in NUMBERS):
            self._rows[key] = row

    @property
    def rows(self) -> list[Row]:
        """Rows of `agreement.jsonl`."""
        return list(self._rows.values())[:MAX_CRITERIA]

    @property
    def moved(self) -> list[Row]:
        """Rows of `golden.jsonl` whose verdict is another one than the reference."""
        return list(self._moved.values())[:MAX_MOVED]

    @property
    def numbers(self) -> Counter[str]:
        """Cases that were `agreed` and `disagreed` on, and criteria that have `drifted`."""
        counts: Counter[str] = Counter()
        for row in self._rows.values():
            if row.get("criterion") is not None:
                counts["drifted"] += row.get("state") == "drifted"
            else:  # a whole framework
                cases, agreed = (int(row.get(name) or 0) for name in ("cases", "agreed"))
                counts.update(agreed=agreed, disagreed=cases - agreed)
        return +counts

    def notes(self, row: Row) -> list[str]:
        """Return the problems of a criterion, the worst first."""
        return [words for name, words in STATES.items() if row.get("state") == name or row.get(name) is True]


@dataclass
class VerdictStats(VerdictCounts):
    """Content of the report: counts, and the verdicts of each document for the matrix.

    :param documents: their numbers, by source
    :param letters: letters of the verdicts in the order of the criteria, by number of the framework and of
        the document; a point for none, none at the end, and `F` if it failed
    :param notes: why, by number of the document, of the framework and of the criterion
    :param kinds: the kind of each document, by number: one of `RANKS`
    """

    documents: dict[str, int] = field(default_factory=dict)
    letters: dict[int, dict[int, str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    _note_chars: int = 0

    def add(
        self, cell: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], before: Iterable[str] = ()
    ) -> None:
        """Count a row of `assessments.jsonl` with its rows of `findings.jsonl.gz`.

        :param before: the criteria that had a verdict in the previous night
        """
        framework = self.add_cell(cell)
        number = self.documents.setdefault(str(cell["source"]), len(self.documents))
        rows = self.letters.setdefault(framework.number, {})
        self.kinds[number] = max(self.kinds.get(number, ""), _kind_of(cell), key=RANKS.index)
        if cell["status"] != "COMPLETED":
            rows[number] = FAILED
            return
        letters: dict[int, str] = {}
        self.add_gone(cell["framework"], set(before).difference([row["criterion"] for row in findings]))
        for row in findings:
            criterion, letter = self.add_finding(row, framework)
            is_changed = bool(row.get("changed_from"))
            letters[criterion] = letter.lower() if is_changed else letter
            # Verdicts that need a person are explained on the page; the rest where there is room.
            room = RATIONALE_BUDGET_CHARS // (1 if is_changed or letter != BEST.letter else 3)
            if number < MAX_DOCUMENTS and self._note_chars < room and (note := _explain(row)):
                self._note_chars += len(note)
                self.notes[f"{number}/{framework.number}/{criterion}"] = note
        columns = range(max(letters, default=-1) + 1)
        # Most documents have the same as many others.
        rows[number] = intern("".join(letters.get(column, ".") for column in columns))

    def summarize(self) -> Iterator[Summary]:
        """Yield how good the night was, after the number of documents."""
        if self.kinds:
            yield "idle", "", count_documents(Counter(self.kinds.values()))
        yield from super().summarize()

    def describe_framework(self, framework: FrameworkCounts) -> str:
        """Count the documents by the worst of their verdicts."""
        rows = self.letters[framework.number]
        worst = (next((one for one in WORST_FIRST if one in row.upper()), "") for row in rows.values())
        counted = list_counts(Counter(worst), WORST)
        return f"Documents: {counted}." if counted else ""

    def matrix(self) -> dict[str, Any]:
        """Return documents and verdicts for the script: a letter for each, in lower case where it changed."""
        sources = list(self.documents)[:MAX_DOCUMENTS]
        frameworks = []
        for framework in self.frameworks.values():
            rows = self.letters[framework.number]
            frameworks.append(
                {
                    "name": sanitize(framework.name, 100),
                    "criteria": [
                        [sanitize(criterion, 60), sanitize(counts.title, 200)]
                        for criterion, counts in framework.criteria.items()
                    ],
                    "rows": [rows.get(number, "") for number in range(len(sources))],
                }
            )
        return {
            "documents": [split_source(source)[:2] for source in sources],
            "left_out": len(self.documents) - len(sources),
            "frameworks": frameworks,
            "notes": self.notes,
            "categories": {one.letter: [one.words, one.style, one.sign] for one in CATEGORIES},
            "bad": "".join(one.letter for one in BAD),
        }


def render_verdicts(
    stats: VerdictStats,
    run: Run,
    *,
    night: str,
    last_night: str | None,
    without_text: Sequence[str],
    files: Mapping[str, str],
    warnings: Sequence[str] = (),
    judge: JudgeStats | None = None,
) -> str:
    """Return the HTML report of an assessment night.

    :param last_night: when the verdicts were made that these are compared with
    :param without_text: sources that have no text, and so no verdict
    :param files: where the tables are, by title
    :param warnings: shortfalls; shown first
    :param judge: what golden documents and decisions say about the judge
    """
    judge = judge or JudgeStats()
    less = [("warn", "The service has changed", "")] if judge.numbers["drifted"] else []
    less += [("warn", "With warnings", "")] if warnings else []
    return render(
        "assess.html",
        summary=summarize([*less, *stats.summarize()], "There were no documents to assess."),
        run=run,
        night=night,
        last_night=last_night,
        verdicts=stats,
        without_text=without_text,
        files=files,
        warnings=warnings,
        judge=judge,
        matrix=stats.matrix(),
    )


def _kind_of(cell: Mapping[str, Any]) -> str:
    """Return the outcome of a document, according to one of its assessments."""
    if cell["status"] != "COMPLETED":
        return "failed"
    is_same_text = cell.get("carried_from") or cell.get("change_reason") in ("framework", "judge")
    return "skipped" if is_same_text else "completed"


def _explain(finding: Mapping[str, Any]) -> str:
    """Return why the service decided; before that, why an expert did."""
    rationale = sanitize(finding.get("rationale"), MAX_RATIONALE_CHARS)
    if not finding.get("expert"):
        return rationale
    words = classify(finding["category"]).words
    decided = f"Decided by {finding['expert']}. {finding.get('expert_rationale') or ''}".strip()
    return sanitize(f"{decided} The service said: {words}. {rationale}", MAX_RATIONALE_CHARS)
