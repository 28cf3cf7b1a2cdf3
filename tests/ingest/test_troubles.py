"""Faults that may pass: who is to blame, and what is tried again."""

from __future__ import annotations

import pytest

from airflow_provider.bulk import retries as troubles
from airflow_provider.bulk.retries import RetryTracker
from airflow_provider.exceptions import (
    ComplianceConnectionError,
    ComplianceRefusedError,
    ComplianceServerError,
)

AS_IT_IS = {
    name: getattr(troubles, name) for name in ("FIRST_PAUSE", "LONGEST_PAUSE", "OUTAGE_RETRY_SECONDS")
}
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
def _as_it_is(monkeypatch: pytest.MonkeyPatch, _impatient: None) -> None:
    for name, value in AS_IT_IS.items():
        monkeypatch.setattr(troubles, name, value)


def pauses(known: RetryTracker, clock: Clock, tries: int, source: str = "a") -> list[float | None]:
    found = []
    for _ in range(tries):
        found.append(known.next_delay("submit", source, FAULT))
        clock.now += found[-1] or 0.0
    return found


def test_a_document_is_given_up_at_its_third_fault_if_others_get_on(clock: Clock) -> None:
    known, began = RetryTracker(16, clock), clock.now
    assert pauses(known, clock, 2) == [2.0, 6.0]
    known.record_success("submit", "b", clock.now)
    known.record_success("submit", "c", began)  # a slow one, which says nothing
    assert known.next_delay("submit", "a", FAULT) is None


@pytest.mark.parametrize("sign", ["an old one", "of another step", "none"])
def test_without_a_sign_that_others_get_on_it_is_tried_for_minutes(clock: Clock, sign: str) -> None:
    known, began = RetryTracker(16, clock), clock.now
    first = pauses(known, clock, 1)
    if sign == "an old one":
        known.record_success("submit", "b", began)  # under way before the trouble, and over after it began
    elif sign == "of another step":
        known.record_success("fetch", "b", clock.now)
    found = first + pauses(known, clock, 5)
    assert found == [2.0, 6.0, 18.0, 54.0, 120.0, 120.0]
    assert known.next_delay("submit", "a", FAULT) is None
    assert clock.now - began >= 300


def test_what_goes_well_in_the_end_is_forgotten(clock: Clock) -> None:
    known = RetryTracker(16, clock)
    pauses(known, clock, 2)
    known.record_success("submit", "a", clock.now)
    known.record_success("submit", "b", clock.now + 1)
    assert pauses(known, clock, 2) == [2.0, 6.0]


def test_faults_of_one_step_do_not_count_for_the_next(clock: Clock) -> None:
    known = RetryTracker(16, clock)
    pauses(known, clock, 2)
    known.record_success("submit", "b", clock.now)
    known.record_success("fetch", "b", clock.now)
    assert known.next_delay("fetch", "a", FAULT) == 2.0


def test_many_documents_in_a_row_end_the_attempt_with_the_last_error(clock: Clock) -> None:
    known = RetryTracker(4, clock)
    for number in range(11):
        assert known.next_delay("submit", str(number), FAULT) == 2.0
    known.record_success("fetch", "x", clock.now)
    last = ComplianceConnectionError("The service is away.")
    with pytest.raises(ComplianceConnectionError) as error:
        known.next_delay("submit", "11", last)
    assert error.value is last


def test_others_that_get_on_begin_the_row_anew(clock: Clock) -> None:
    known = RetryTracker(4, clock)
    for number in range(33):
        if number % 11 == 0:
            known.record_success("submit", "x", clock.now)
        assert known.next_delay("submit", str(number), FAULT) == 2.0


@pytest.mark.parametrize("concurrency", [1, 4])
def test_few_documents_however_often_are_not_many(clock: Clock, concurrency: int) -> None:
    known = RetryTracker(concurrency, clock)
    for _ in range(8):
        for source in "abc":
            assert known.next_delay("submit", source, FAULT)
        clock.now += 30


def refused() -> ComplianceRefusedError:
    return ComplianceRefusedError("Forbidden.", status=403)


@pytest.mark.parametrize("has_worked", [False, True])
def test_a_refusal_of_all_is_believed_after_half_a_minute(clock: Clock, has_worked: bool) -> None:
    known = RetryTracker(4, clock)
    if has_worked:
        known.worked_before("submit")
    for number in range(20):
        assert known.next_delay("submit", str(number), refused()) == 2.0
    clock.now += 29
    assert known.next_delay("submit", "a", refused()) == 2.0
    clock.now += 1
    with pytest.raises(ComplianceRefusedError) as error:
        known.next_delay("submit", "b", refused())
    assert error.value.transient is has_worked  # else the address or a role is wrong, which no retry mends


def test_a_refusal_of_few_after_others_got_on_ends_nothing(clock: Clock) -> None:
    known = RetryTracker(4, clock)
    known.worked_before("submit")
    assert known.next_delay("submit", "a", refused()) == 2.0
    clock.now += 60
    assert known.next_delay("submit", "a", refused()) == 6.0


@pytest.mark.parametrize("others_get_on", [False, True])
def test_only_where_others_get_on_is_a_refused_document_to_blame(clock: Clock, others_get_on: bool) -> None:
    known = RetryTracker(16, clock)
    known.worked_before("submit")
    assert known.next_delay("submit", "a", refused()) == 2.0
    assert known.next_delay("submit", "a", refused()) == 6.0
    clock.now += 1 if others_get_on else 300
    if others_get_on:
        known.record_success("submit", "b", clock.now)
    error = refused()
    assert known.next_delay("submit", "a", error) is None
    assert error.transient is not others_get_on


def test_nobody_tries_while_all_are_refused_then_some_do_less_and_less_often(clock: Clock) -> None:
    known = RetryTracker(4, clock)
    for number in range(12):
        assert known.hold_seconds("submit") == 0
        known.next_delay("submit", str(number), refused())
    assert known.hold_seconds("submit") == 2.0
    assert known.hold_seconds("fetch") == 0
    clock.now += 2
    known.next_delay("submit", "a", refused())
    assert known.hold_seconds("submit") == 6.0
    known.record_success("submit", "b", clock.now)
    assert known.hold_seconds("submit") == 0
