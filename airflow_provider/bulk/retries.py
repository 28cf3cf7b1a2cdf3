"""Faults that may pass: whether to try again, and whether one document is to blame or nobody gets on."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from airflow_provider.exceptions import ComplianceError

TRIES = 3  # so often a document meets passing faults until it counts as failed, if others get on
OUTAGE_RETRY_SECONDS = 300.0  # where no other documents are left to compare with
# Seconds; few tries, because each submit that was answered by a fault may have been taken.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 120.0
MANY = 4  # documents, at least
REFUSAL_SECONDS = 30.0  # in which nobody gets on until a refusal, such as 403 or 404, is believed


@dataclass
class _Trouble:
    since: float
    count: int = 0


@dataclass
class _Step:
    """How one step goes for all documents."""

    has_worked: bool = False
    went_well_at: float | None = None
    in_a_row: int = 0
    failing_since: float | None = None
    holds: int = 0
    held_until: float = 0.0


class RetryTracker:
    """Knows which documents are in trouble, and when others last got on with the same step.

    :param concurrency: how many documents are worked on at a time
    """

    def __init__(self, concurrency: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = TRIES * max(concurrency, MANY)
        self._clock = clock
        self._of: dict[tuple[Hashable, str], _Trouble] = {}
        self._steps: dict[Hashable, _Step] = {}

    def record_success(self, step: Hashable, source: str, began: float) -> None:
        """Take note that a step which began at that time went well."""
        self._of.pop((step, source), None)
        state = self._state(step)
        last = began if state.went_well_at is None else max(began, state.went_well_at)
        self._steps[step] = _Step(has_worked=True, went_well_at=last)

    def worked_before(self, step: Hashable) -> None:
        """Take note that a step went well in an earlier attempt."""
        self._state(step).has_worked = True

    def has_worked(self, step: Hashable) -> bool:
        """Tell whether a step ever went well, for any document."""
        return self._state(step).has_worked

    @property
    def any_went_well(self) -> bool:
        """Whether the service has ever done what it was asked to, in this process."""
        return any(each.went_well_at is not None for each in self._steps.values())

    def hold_seconds(self, step: Hashable) -> float:
        """Return for how many seconds no document should try a step, because all are refused."""
        return max(0.0, self._state(step).held_until - self._clock())

    def next_delay(self, step: Hashable, source: str, error: ComplianceError) -> float | None:
        """Return in how many seconds to try again, or None to give the document up.

        Where many documents in a row meet faults, it is not their fault: that ends the attempt. The error is
        transient then, unless it is a refusal of a step that has never worked.
        """
        now, state = self._clock(), self._state(step)
        trouble = self._of.setdefault((step, source), _Trouble(now))
        trouble.count += 1
        state.failing_since = now if state.failing_since is None else state.failing_since
        if trouble.count <= TRIES:
            # A few documents that are tried again and again are not many documents.
            state.in_a_row += 1
        are_many = state.in_a_row >= self._most
        if error.transient:
            if are_many and trouble.count <= TRIES:
                raise error
        elif now - state.failing_since >= REFUSAL_SECONDS and (are_many or not state.has_worked):
            error.transient = state.has_worked
            raise error
        elif are_many:
            self._hold(state, now)
        others_get_on = state.went_well_at is not None and state.went_well_at > trouble.since
        if trouble.count >= TRIES and (others_get_on or now - trouble.since >= OUTAGE_RETRY_SECONDS):
            # Only where others get on is it this document that is refused, for good.
            error.transient = error.transient or not others_get_on
            return None
        return min(LONGEST_PAUSE, FIRST_PAUSE * 3.0 ** (trouble.count - 1))

    def _hold(self, state: _Step, now: float) -> None:
        if now >= state.held_until:
            state.held_until = now + min(LONGEST_PAUSE, FIRST_PAUSE * 3.0**state.holds)
            state.holds += 1

    def _state(self, step: Hashable) -> _Step:
        return self._steps.setdefault(step, _Step())
