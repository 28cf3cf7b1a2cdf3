"""The night that a run belongs to, and how long it takes by the rates of earlier nights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any


@dataclass(frozen=True)
class Night:
    """The run that documents and verdicts belong to.

    :param at: its logical date, or when it was due, in ISO 8601; nights are ordered by it
    :param run: identifies the DAG run
    """

    at: str
    run: str

    @classmethod
    def of(cls, context: Any) -> Night:
        """Return the night of a task's context."""
        dag_run = context.get("dag_run")
        at = next(
            (
                at
                for name in ("logical_date", "run_after", "queued_at")
                if (at := getattr(dag_run, name, None))
            ),
            datetime.now(UTC),
        )
        ti = context["ti"]
        return cls(at.astimezone(UTC).isoformat(), f"{ti.dag_id}/{ti.run_id}")

    @property
    def date(self) -> str:
        """The day, for people and partitions."""
        return self.at[:10]

    def days_since(self, at: str) -> int:
        """Return how many days after an earlier night it is."""
        return (date.fromisoformat(self.date) - date.fromisoformat(at[:10])).days


def estimate_seconds(items: int, rates: Iterable[float]) -> int | None:
    """Return how long so many items take; None if there is no earlier night.

    :param rates: items per second of earlier nights; the mean of them counts
    """
    known = [each for each in rates if each > 0]
    return round(items * len(known) / sum(known)) if known else None
