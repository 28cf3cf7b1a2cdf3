"""Faults that may pass: whether to try again, and whether one document is to blame or nobody gets on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider.exceptions import ComplianceError

TRIES = 3  # so often a document meets passing faults until it counts as failed, if others get on
PATIENCE = 300.0  # seconds that it is tried again where that can't be seen, because no others are left
# Seconds; few tries, because each submit that was answered by a fault may have been taken.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 120.0
MANY = 4  # documents, at least


@dataclass
class _Trouble:
    since: float
    count: int = 0


class Troubles:
    """Knows which documents are in trouble, and when others last got on with the same step.

    :param concurrency: how many documents are worked on at a time
    """

    def __init__(self, concurrency: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = TRIES * max(concurrency, MANY)
        self._clock = clock
        self._of: dict[tuple[str, str], _Trouble] = {}
        self._in_a_row: Counter[str] = Counter()
        self._went_well: dict[str, float] = {}

    def over(self, step: str, source: str, began: float) -> None:
        """Take note that a step which began at that time went well."""
        self._of.pop((step, source), None)
        self._in_a_row[step] = 0
        self._went_well[step] = max(began, self._went_well.get(step, began))

    def pause(self, step: str, source: str, error: ComplianceError) -> float | None:
        """Return in how many seconds to try again, or None to give the document up.

        Where many documents in a row meet faults, it is not their fault: that ends the attempt.
        """
        now = self._clock()
        trouble = self._of.setdefault((step, source), _Trouble(now))
        trouble.count += 1
        if trouble.count <= TRIES:
            # A few documents that are tried again and again are not many documents.
            self._in_a_row[step] += 1
            if self._in_a_row[step] >= self._most:
                raise error
        others_get_on = self._went_well.get(step, trouble.since) > trouble.since
        if trouble.count >= TRIES and (others_get_on or now - trouble.since >= PATIENCE):
            return None
        return min(LONGEST_PAUSE, FIRST_PAUSE * 3.0 ** (trouble.count - 1))
