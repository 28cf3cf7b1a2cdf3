"""The report of an assessment night: the verdicts, for a person who is not an engineer."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.reports.page import (
    MAX_SOURCE_LENGTH,
    documents,
    format_night,
    read_time,
    render,
    split_source,
    worst,
)
from airflow_provider.reports.verdicts import (
    CATEGORIES,
    MAX_RATIONALE_CHARS,
    OTHER,
    VerdictCounts,
    to_category,
    to_name,
)
from airflow_provider.text import sanitize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_provider.reports.ingest import Run

MAX_DOCUMENTS = 20_000  # of the matrix
RATIONALE_BUDGET_CHARS = 1_500_000
# What a document is counted as, by the letter of its worst verdict.
DOCUMENTS = {
    "S": "sufficiently regulated throughout",
    "N": "not sufficiently regulated in places",
    "M": "with something missing",
    "U": "with a verdict of no known category",
    "F": "not assessed",
}


@dataclass
class VerdictStats(VerdictCounts):
    """What the report shows: counts, and the verdicts of each document for the matrix."""

    max_criteria: ClassVar[int] = sys.maxsize  # each is a column of the matrix
    max_source_chars: ClassVar[int] = MAX_SOURCE_LENGTH

    documents: dict[str, int] = field(default_factory=dict)
    letters: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)
    notes: dict[tuple[int, str, str], str] = field(default_factory=dict)
    _note_chars: int = 0

    def add(
        self, cell: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], before: Iterable[str] = ()
    ) -> None:
        """Count a row of `assessments.jsonl` with its rows of `findings.jsonl`.

        :param before: the criteria that had a verdict in the previous night
        """
        self.add_cell(cell)
        source, framework = str(cell["source"]), to_name(cell["framework"])
        number = self.documents.setdefault(source, len(self.documents))
        letters = self.letters.setdefault(framework, {}).setdefault(number, {})
        if cell["status"] != "COMPLETED":
            letters[""] = "F"
            return
        self.add_gone(framework, set(before).difference(str(each["criterion"]) for each in findings))
        for each in findings:
            self.add_finding({**each, "source": source, "framework": framework})
            counted = to_category(each.get("expert_category") or each["category"])
            letter, _, _ = CATEGORIES.get(counted, OTHER)
            is_changed = bool(each.get("changed_from"))
            criterion = to_name(each["criterion"])
            letters[criterion] = letter.lower() if is_changed else letter
            # What needs a person is explained on the page; the rest where there is room.
            room = RATIONALE_BUDGET_CHARS // (1 if is_changed or letter != "S" else 3)
            self._add_note((number, framework, criterion), each, room)

    def _add_note(self, key: tuple[int, str, str], finding: Mapping[str, Any], room: int) -> None:
        rationale = sanitize(finding.get("rationale"), MAX_RATIONALE_CHARS)
        if finding.get("expert"):
            rationale = sanitize(_explain(finding, rationale), MAX_RATIONALE_CHARS)
        if rationale and self._note_chars + len(rationale) <= room:
            self._note_chars += len(rationale)
            self.notes[key] = rationale

    def describe_framework(self, framework: str) -> str:
        """Count the documents by the worst of their verdicts."""
        counts: Counter[str] = Counter()
        for letters in self.letters[framework].values():
            found = {letter.upper() for letter in letters.values()}
            counts[next((letter for letter in "FMNUS" if letter in found), "")] += 1
        counted = ", ".join(f"{counts[each]:,} {words}" for each, words in DOCUMENTS.items() if counts[each])
        return f"{documents(len(self.letters[framework]))}: {counted}." if counted else ""


def render_verdicts(
    stats: VerdictStats,
    run: Run,
    *,
    night: str,
    last_night: str | None,
    without_text: Sequence[str],
    files: Mapping[str, str],
    warnings: Sequence[str] = (),
) -> str:
    """Return the HTML report of an assessment night.

    :param last_night: when the verdicts were made that these are compared with
    :param without_text: sources that have no text, and so no verdict
    :param files: where the tables are, by title
    :param warnings: what there is less of than expected; shown first
    """
    ended, is_compared = read_time(run.ended), last_night is not None
    less = [("warn", "Less than expected")] if warnings else []
    tone, status = worst([("idle", "Nothing to do"), *less, *stats.states()])
    headline = " ".join(stats.sentences(is_compared=is_compared)) or "There were no documents to assess."
    return render(
        "assess.html",
        run=run,
        ended=ended,
        night=format_night(night),
        last_night=format_night(last_night),
        tone=tone,
        status=status,
        headline=headline,
        verdicts=stats,
        is_compared=is_compared,
        without_text=without_text,
        files=files,
        warnings=warnings,
        matrix=_script_json(_matrix(stats)),
    )


def _explain(finding: Mapping[str, Any], rationale: str) -> str:
    """Return why an expert decided, then why the service did."""
    _, _, words = CATEGORIES.get(to_category(finding["category"]), OTHER)
    decided = f"Decided by {finding['expert']}. {finding.get('expert_rationale') or ''}".strip()
    return f"{decided} The service said: {words}. {rationale}"


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


def _script_json(value: Any) -> str:
    """Return JSON that can't end the script element that it is in."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
