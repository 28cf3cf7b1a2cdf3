"""When to slow down: fewer requests in flight after a 429, and retries after transient errors."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceHttpError,
    ComplianceReadError,
    ComplianceStorageDeniedError,
    ComplianceSupersededError,
    ComplianceTlsError,
)
from airflow_provider.nights.bulk.items import READY
from airflow_provider.waiting import rules
from airflow_provider.waiting.kinds import Limiter

MAX_TRIES = 3  # before an item fails, if others succeed meanwhile
OUTAGE_RETRY_SECONDS = 300.0  # without other items to compare with
# Few tries, because the service may accept a submit that ends in an error.
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 2.0, 120.0
HOLD_CHECK_SECONDS = 5.0  # between looks whether a step that is held may be tried
MIN_MANY_ITEMS = 4


class AdaptiveLimiter(Limiter):
    """Limits requests in flight (AIMD): half as many after a 429, one more after each round without one.

    :param max_limit: never more than that
    :param throttlings: returns how often the service throttled
    """

    def __init__(self, max_limit: int, throttlings: Callable[[], int]) -> None:
        self.limit = self._max_limit = float(max_limit)
        self.in_flight = 0
        self._throttlings = throttlings
        self._seen = throttlings()
        self._ignored = 0
        self._turn = asyncio.Lock()
        self._released = asyncio.Event()

    async def __aenter__(self) -> None:
        async with self._turn:  # first come, first served: else a busy worker would starve the poller
            while self.in_flight + 1 > self.limit:
                self._released.clear()
                await self._released.wait()
            self.in_flight += 1

    async def __aexit__(self, *_: object) -> None:
        self.in_flight -= 1
        self._adapt()
        self._released.set()

    def lift(self) -> None:
        """Lift the limit from now on."""
        self.limit = self._max_limit = math.inf
        self._released.set()

    def _adapt(self) -> None:
        count = self._throttlings()
        if self._ignored:
            # Requests that were in flight together are throttled together: that counts once.
            self._ignored -= 1
        elif count != self._seen:
            self.limit = max(1.0, self.limit / 2)
            self._ignored = self.in_flight
        else:
            self.limit = min(self._max_limit, self.limit + 1 / self.limit)
        self._seen = count


@dataclass
class _ItemErrors:
    since: float
    last_at: float
    count: int = 0


@dataclass
class _Step:
    """How one step goes for all items."""

    has_worked: bool = False
    last_success_at: float | None = None
    errors_in_a_row: int = 0
    failing_since: float | None = None
    hold_count: int = 0
    held_until: float = 0.0


class RetryTracker:
    """Tracks which items meet errors, and when other items last succeeded with the same step.

    :param concurrency: how many items are processed at a time
    :param is_last_attempt: whether the task has no retry left: then an outage fails only the last items
    """

    def __init__(
        self, concurrency: int, clock: Callable[[], float] = time.monotonic, *, is_last_attempt: bool = False
    ) -> None:
        self._many = MAX_TRIES * max(concurrency, MIN_MANY_ITEMS)
        self._clock = clock
        self._is_last_attempt = is_last_attempt
        self._answered_at = -math.inf
        self._errors: dict[tuple[Hashable, str], _ItemErrors] = {}
        self._steps: defaultdict[Hashable, _Step] = defaultdict(_Step)

    def record_success(self, step: Hashable, key: str, started_at: float) -> list[str]:
        """Record that a step which was started at that time succeeded.

        :return: items that need not wait any longer: they met an outage, which is over
        """
        self._errors.pop((step, key), None)
        waiting = self._errors.items() if self._steps[step].failing_since is not None else ()
        # No other item succeeded since their first error; otherwise they would be given up by now.
        late = [
            at
            for at, errors in waiting
            if at[0] == step and errors.count > MAX_TRIES and errors.since < started_at
        ]
        for at in late:
            del self._errors[at]
        last = self._steps[step].last_success_at
        last = started_at if last is None else max(started_at, last)
        self._steps[step] = _Step(has_worked=True, last_success_at=last)
        self.record_answer()
        return [key for _, key in late]

    def record_answer(self) -> None:
        """Record that the service responded to any request: it is not away."""
        self._answered_at = self._clock()

    def record_earlier_success(self, step: Hashable) -> None:
        """Record that a step succeeded in an earlier attempt."""
        self._steps[step].has_worked = True

    @property
    def has_any_success(self) -> bool:
        """Whether any step succeeded in this process."""
        return any(step.last_success_at is not None for step in self._steps.values())

    def pause_seconds(self, step: Hashable) -> float:
        """Return for how many seconds no item should try a step, because all are refused."""
        return max(0.0, self._steps[step].held_until - self._clock())

    def next_delay(self, step: Hashable, key: str, error: ComplianceError) -> float | None:
        """Return in how many seconds to retry, or None to give the item up.

        If many items in a row meet errors, or no step ever worked, it is an outage: that ends the
        attempt. So does an outage of the last few items, if Airflow has a retry left. The error is transient
        then, unless it is a refusal of a step that has never worked.
        """
        if self._concerns_all(step, error):
            raise error
        if not _is_retryable(step, error):
            return None
        now, state = self._clock(), self._steps[step]
        errors = self._errors.setdefault((step, key), _ItemErrors(now, now))
        errors.count += 1
        # An answer from before the previous error may have been sent before the service went away.
        is_silent, errors.last_at = self._answered_at <= errors.last_at, now
        state.failing_since = now if state.failing_since is None else state.failing_since
        if errors.count <= MAX_TRIES:
            # A few items that are retried again and again are not many items.
            state.errors_in_a_row += 1
        are_many = state.errors_in_a_row >= self._many
        if error.transient:
            if are_many and errors.count <= MAX_TRIES:
                raise error
        elif (are_many or not any(step.has_worked for step in self._steps.values())) and (
            now - state.failing_since >= rules.REFUSAL_SECONDS
        ):
            error.transient = state.has_worked
            raise error
        elif are_many and now >= state.held_until:
            state.held_until = now + _delay(state.hold_count)
            state.hold_count += 1
        do_others_succeed = state.last_success_at is not None and state.last_success_at > errors.since
        # A refusal of a step that has never worked, as the refresh of the only failed item, is soon believed.
        is_new_refusal = not error.transient and not state.has_worked
        # So is a source that can't be read, which says nothing about the service, and may time out each time.
        is_unreadable = isinstance(error, ComplianceReadError)
        patience = rules.REFUSAL_SECONDS if is_new_refusal or is_unreadable else OUTAGE_RETRY_SECONDS
        is_long = now - errors.since >= patience
        is_away = error.transient and not is_unreadable and is_silent
        if is_away and is_long and errors.count >= MAX_TRIES and not self._is_last_attempt:
            raise error
        if (errors.count >= MAX_TRIES and (do_others_succeed or is_long)) or (is_unreadable and is_long):
            # Only where others succeed is it this item that is refused, for good.
            error.transient = error.transient or not do_others_succeed
            return None
        return _delay(errors.count - 1)

    def _concerns_all(self, step: Hashable, error: ComplianceError) -> bool:
        """Return whether all items would meet an error."""
        if isinstance(error, ComplianceStorageDeniedError):
            return step is READY and not self._steps[step].has_worked
        is_setup = isinstance(error, (ComplianceTlsError, ComplianceSupersededError)) and not error.transient
        return is_setup or rules.is_refused_login(error)


def _is_retryable(step: Hashable, error: ComplianceError) -> bool:
    """Return whether to retry; also a refusal may come from a gateway, and be transient."""
    if isinstance(error, ComplianceHttpError):
        return error.transient or error.status not in rules.REQUEST_STATUSES
    is_refused = isinstance(error, rules.CREDENTIALS) and not rules.is_refused_login(error)
    return (
        error.transient or is_refused or (step is READY and isinstance(error, ComplianceStorageDeniedError))
    )


def _delay(retries: int) -> float:
    return min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 3.0 ** min(retries, 10))
