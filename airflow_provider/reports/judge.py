"""What golden documents and decisions of experts say about the judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from airflow_provider.reports.outcomes import Row

NUMBERS = ("cases", "agreed", "agreement", "base_rate", "kappa", "moved", "compared")
MAX_CRITERIA = 300
MAX_MOVED = 100
# The worst first; each with its words.
STATES = {"drifted": "drifted", "worthless": "no better than chance", "inconsistent": "inconsistent"}


@dataclass
class JudgeStats:
    """Collects what the section about the judge shows.

    :param rows: of `agreement.jsonl`
    :param moved: rows of `golden.jsonl` whose verdict is another one than in the previous night
    :param numbers: cases that were `agreed` and `disagreed` on, and criteria that have `drifted`
    """

    rows: list[Row] = field(default_factory=list)
    moved: list[Row] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        """Add a row of either table."""
        if "cases" not in row:
            is_moved = not row.get("repeat") and row.get("before") not in (None, row.get("category"))
            self.moved += [row] if is_moved and len(self.moved) < MAX_MOVED else []
            return
        if not all(isinstance(row.get(name), int | float | None) for name in NUMBERS):
            return
        self.rows += [row] if len(self.rows) < MAX_CRITERIA else []
        self.numbers["drifted"] += row.get("state") == "drifted"
        if row.get("criterion") is None:  # a whole framework
            cases, agreed = (int(row.get(name) or 0) for name in ("cases", "agreed"))
            self.numbers += Counter({"agreed": agreed, "disagreed": cases - agreed})

    def notes(self, row: Row) -> list[str]:
        """Return what is wrong about a criterion, the worst first."""
        return [words for name, words in STATES.items() if row.get("state") == name or row.get(name) is True]
