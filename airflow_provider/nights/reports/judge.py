"""What golden documents and decisions of experts say about the judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from airflow_provider.nights.reports.outcomes import Row

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
    """Collects what the section about the judge shows: every criterion and document once.

    Without golden documents, each instance of a mapped assess task has counted the same decisions.
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
        """Return what is wrong about a criterion, the worst first."""
        return [words for name, words in STATES.items() if row.get("state") == name or row.get(name) is True]
