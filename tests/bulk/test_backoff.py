"""Transient errors: who is to blame, and what is retried."""

from __future__ import annotations

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.bulk import backoff
from airflow_provider.bulk.backoff import RetryTracker
from airflow_provider.bulk.items import PENDING, READY, ItemState
from airflow_provider.exceptions import (
    ComplianceConnectionError,
    ComplianceReadError,
    ComplianceRefusedError,
    ComplianceServerError,
)

NAMES = ("FIRST_DELAY_SECONDS", "MAX_DELAY_SECONDS", "OUTAGE_RETRY_SECONDS")
PRODUCTION = {name: getattr(backoff, name) for name in NAMES}
FAULT = ComplianceServerError("The service has a fault.", status=500)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch, _impatient: None) -> None:
    for name, value in PRODUCTION.items():
        monkeypatch.setattr(backoff, name, value)


def delays(tracker: RetryTracker, clock: Clock, tries: int, source: str = "a") -> list[float | None]:
    found = []
    for _ in range(tries):
        found.append(tracker.next_delay("submit", source, FAULT))
        clock.now += found[-1] or 0.0
    return found


def test_an_item_is_given_up_at_its_third_error_if_others_succeed(clock: Clock) -> None:
    tracker, began = RetryTracker(16, clock), clock.now
    assert delays(tracker, clock, 2) == [2.0, 6.0]
    tracker.record_success("submit", "b", clock.now)
    tracker.record_success("submit", "c", began)  # a slow one, which proves nothing
    assert tracker.next_delay("submit", "a", FAULT) is None


@pytest.mark.parametrize("sign", ["an old one", "of another step", "none"])
def test_without_a_sign_that_others_succeed_it_is_retried_for_minutes(clock: Clock, sign: str) -> None:
    tracker, began = RetryTracker(16, clock), clock.now
    first = delays(tracker, clock, 1)
    if sign == "an old one":
        tracker.record_success("submit", "b", began)  # started before the errors, and ended after their begin
    elif sign == "of another step":
        tracker.record_success("fetch", "b", clock.now)
    found = first + delays(tracker, clock, 5)
    assert found == [2.0, 6.0, 18.0, 54.0, 120.0, 120.0]
    assert tracker.next_delay("submit", "a", FAULT) is None
    assert clock.now - began >= 300


def test_errors_before_a_success_are_forgotten(clock: Clock) -> None:
    tracker = RetryTracker(16, clock)
    delays(tracker, clock, 2)
    tracker.record_success("submit", "a", clock.now)
    tracker.record_success("submit", "b", clock.now + 1)
    assert delays(tracker, clock, 2) == [2.0, 6.0]


def test_errors_of_one_step_do_not_count_for_the_next(clock: Clock) -> None:
    tracker = RetryTracker(16, clock)
    delays(tracker, clock, 2)
    tracker.record_success("submit", "b", clock.now)
    tracker.record_success("fetch", "b", clock.now)
    assert tracker.next_delay("fetch", "a", FAULT) == 2.0


def test_many_items_in_a_row_end_the_attempt_with_the_last_error(clock: Clock) -> None:
    tracker = RetryTracker(4, clock)
    for number in range(11):
        assert tracker.next_delay("submit", str(number), FAULT) == 2.0
    tracker.record_success("fetch", "x", clock.now)
    last = ComplianceConnectionError("The service is away.")
    with pytest.raises(ComplianceConnectionError) as error:
        tracker.next_delay("submit", "11", last)
    assert error.value is last


def test_a_success_of_others_restarts_the_count(clock: Clock) -> None:
    tracker = RetryTracker(4, clock)
    for number in range(33):
        if number % 11 == 0:
            tracker.record_success("submit", "x", clock.now)
        assert tracker.next_delay("submit", str(number), FAULT) == 2.0


def test_success_of_another_item_ends_the_wait_of_those_that_met_an_outage(clock: Clock) -> None:
    tracker = RetryTracker(4, clock)
    began = clock.now
    for step, key, errors in (("submit", "a", 4), ("submit", "b", 3), ("fetch", "c", 4)):
        for _ in range(errors):
            tracker.next_delay(step, key, FAULT)
    assert tracker.record_success("submit", "x", began) == []  # it may have been sent before the outage
    tracker.next_delay("submit", "y", FAULT)
    assert tracker.record_success("submit", "x", began + 1) == ["a"]
    assert tracker.next_delay("submit", "a", FAULT) == 2.0  # as for a first error


@pytest.mark.parametrize("concurrency", [1, 4])
def test_few_items_however_often_are_not_many(clock: Clock, concurrency: int) -> None:
    tracker = RetryTracker(concurrency, clock)
    for _ in range(8):
        for source in "abc":
            assert tracker.next_delay("submit", source, FAULT)
        clock.now += 30


def refused() -> ComplianceRefusedError:
    return ComplianceRefusedError("Forbidden.", status=403)


@pytest.mark.parametrize("has_worked", [False, True])
def test_a_refusal_of_all_is_believed_after_half_a_minute(clock: Clock, has_worked: bool) -> None:
    tracker = RetryTracker(4, clock)
    if has_worked:
        tracker.record_earlier_success("submit")
    for number in range(20):
        assert tracker.next_delay("submit", str(number), refused()) == 2.0
    clock.now += 29
    assert tracker.next_delay("submit", "a", refused()) == 2.0
    clock.now += 1
    with pytest.raises(ComplianceRefusedError) as error:
        tracker.next_delay("submit", "b", refused())
    assert error.value.transient is has_worked  # else the URL or a role is wrong: non-retryable


def test_a_refusal_of_few_after_others_succeeded_ends_nothing(clock: Clock) -> None:
    tracker = RetryTracker(4, clock)
    tracker.record_earlier_success("submit")
    assert tracker.next_delay("submit", "a", refused()) == 2.0
    clock.now += 60
    assert tracker.next_delay("submit", "a", refused()) == 6.0


@pytest.mark.parametrize("do_others_succeed", [False, True])
def test_only_where_others_succeed_is_a_refused_item_to_blame(clock: Clock, do_others_succeed: bool) -> None:
    tracker = RetryTracker(16, clock)
    tracker.record_earlier_success("submit")
    assert tracker.next_delay("submit", "a", refused()) == 2.0
    assert tracker.next_delay("submit", "a", refused()) == 6.0
    clock.now += 1 if do_others_succeed else 300
    if do_others_succeed:
        tracker.record_success("submit", "b", clock.now)
    error = refused()
    assert tracker.next_delay("submit", "a", error) is None
    assert error.transient is not do_others_succeed


def test_no_item_tries_while_all_are_refused_then_some_do_less_and_less_often(clock: Clock) -> None:
    tracker = RetryTracker(4, clock)
    for number in range(12):
        assert tracker.hold_seconds("submit") == 0
        tracker.next_delay("submit", str(number), refused())
    assert tracker.hold_seconds("submit") == 2.0
    assert tracker.hold_seconds("fetch") == 0
    clock.now += 2
    tracker.next_delay("submit", "a", refused())
    assert tracker.hold_seconds("submit") == 6.0
    tracker.record_success("submit", "b", clock.now)
    assert tracker.hold_seconds("submit") == 0


@pytest.mark.parametrize(("concurrency", "many"), [(1, 12), (4, 12), (5, 15)])
def test_many_are_three_times_as_many_as_are_processed_at_a_time(
    clock: Clock, concurrency: int, many: int
) -> None:
    tracker = RetryTracker(concurrency, clock)
    for number in range(many - 1):
        assert tracker.next_delay("submit", str(number), FAULT) == 2.0
    with pytest.raises(ComplianceServerError):
        tracker.next_delay("submit", "last", FAULT)


def test_an_earlier_success_is_not_one_of_this_process(clock: Clock) -> None:
    tracker = RetryTracker(4, clock)
    assert not tracker.has_any_success
    tracker.record_earlier_success("submit")
    assert not tracker.has_any_success
    tracker.record_success("fetch", "a", clock.now)
    assert tracker.has_any_success


def transient(error: exc.ComplianceError) -> exc.ComplianceError:
    error.transient = True
    return error


ENDS, FAILS, RETRIED = "ends the attempt", "fails its item", "is retried"


@pytest.mark.parametrize(
    ("step", "error", "has_worked", "outcome"),
    [
        (PENDING, exc.ComplianceConfigError("x"), True, ENDS),
        (PENDING, exc.ComplianceAuthError("x"), True, ENDS),
        (PENDING, transient(exc.ComplianceAuthError("x")), True, RETRIED),  # such as stale keys
        (READY, exc.ComplianceSupersededError("x"), True, ENDS),
        (READY, exc.ComplianceStorageDeniedError("x"), False, ENDS),  # no result can be stored
        (READY, exc.ComplianceStorageDeniedError("x"), True, RETRIED),
        (PENDING, exc.ComplianceStorageDeniedError("x"), False, FAILS),  # one source can't be read
        (PENDING, exc.ComplianceInputError("x"), True, FAILS),
        (PENDING, exc.ComplianceServerError("x", status=503), True, RETRIED),
        (PENDING, exc.ComplianceRefusedError("x", status=403), True, RETRIED),  # maybe of a gateway
        (PENDING, exc.ComplianceRefusedError("x", status=422), True, FAILS),
    ],
)
def test_an_error_ends_the_attempt_or_concerns_one_item(
    clock: Clock, step: ItemState, error: exc.ComplianceError, has_worked: bool, outcome: str
) -> None:
    tracker = RetryTracker(4, clock)
    if has_worked:
        tracker.record_earlier_success(step)
    if outcome == ENDS:
        with pytest.raises(type(error)):
            tracker.next_delay(step, "a", error)
    else:
        assert tracker.next_delay(step, "a", error) == (2.0 if outcome == RETRIED else None)


@pytest.mark.parametrize(("seconds", "is_given_up"), [(299.9, False), (300.0, True)])
def test_an_outage_is_retried_for_five_minutes(clock: Clock, seconds: float, is_given_up: bool) -> None:
    tracker, began = RetryTracker(4, clock), clock.now
    assert [tracker.next_delay("submit", "a", FAULT) for _ in range(2)] == [2.0, 6.0]
    clock.now = began + seconds
    assert (tracker.next_delay("submit", "a", FAULT) is None) is is_given_up


def test_two_errors_are_not_enough_to_give_an_item_up(clock: Clock) -> None:
    tracker = RetryTracker(4, clock)
    assert tracker.next_delay("submit", "a", FAULT) == 2.0
    clock.now += 1000
    tracker.record_success("submit", "b", clock.now)
    assert tracker.next_delay("submit", "a", FAULT) == 6.0


@pytest.mark.parametrize(("seconds", "is_given_up"), [(29.9, False), (30.0, True)])
def test_a_refusal_of_a_step_that_never_worked_is_believed_after_half_a_minute(
    clock: Clock, seconds: float, is_given_up: bool
) -> None:
    tracker, began = RetryTracker(4, clock), clock.now
    tracker.record_success("submit", "a", clock.now)
    for _ in range(2):
        tracker.next_delay("retry", "a", refused())
    clock.now = began + seconds
    error = refused()
    assert (tracker.next_delay("retry", "a", error) is None) is is_given_up
    assert error.transient is is_given_up


@pytest.mark.parametrize(("read_seconds", "expected"), [(0.0, [2.0, 6.0, 18.0, 54.0]), (60.0, [2.0])])
def test_the_last_source_that_cannot_be_read_is_given_up_within_two_minutes(
    clock: Clock, read_seconds: float, expected: list[float]
) -> None:
    tracker, error = RetryTracker(16, clock), ComplianceReadError("'a.pdf' can't be read.")
    tracker.record_success("submit", "b", clock.now)
    waited: list[float] = []
    clock.now += read_seconds
    while (delay := tracker.next_delay("submit", "a", error)) is not None:
        waited.append(delay)
        clock.now += delay + read_seconds
    assert waited == expected
    assert error.transient


def test_a_success_that_began_with_the_errors_proves_nothing(clock: Clock) -> None:
    tracker = RetryTracker(4, clock)
    tracker.next_delay("submit", "a", FAULT)
    tracker.next_delay("submit", "a", FAULT)
    tracker.record_success("submit", "b", clock.now)
    assert tracker.next_delay("submit", "a", FAULT) == 18.0


def test_an_older_success_does_not_hide_a_newer_one(clock: Clock) -> None:
    tracker, began = RetryTracker(4, clock), clock.now
    tracker.next_delay("submit", "a", FAULT)
    tracker.next_delay("submit", "a", FAULT)
    tracker.record_success("submit", "b", began + 1)
    tracker.record_success("submit", "c", began - 1)
    assert tracker.next_delay("submit", "a", FAULT) is None
