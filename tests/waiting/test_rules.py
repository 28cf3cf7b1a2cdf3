"""The rules of polling, without a service and without waiting."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.waiting import rules
from airflow_provider.waiting.rules import (
    PollState,
    RefreshCheck,
    accept_any,
    accept_final,
    is_new_result,
    is_refusal,
    next_poll_time,
)

OLD = {"status": "FAILED", "completed_at": "2026-01-01", "fetched_at": "2026-01-02"}
UNTIMED = {"status": "FAILED"}
RUNNING = {"status": "RUNNING"}


PRODUCTION = {name: getattr(rules, name) for name in ("REFRESH_GRACE_SECONDS", "UNKNOWN_SECONDS")}


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch, _soon_sure: None) -> None:
    for name, value in PRODUCTION.items():
        monkeypatch.setattr(rules, name, value)


@pytest.mark.parametrize(
    ("age", "poll_interval", "min_interval", "expected"),
    [
        (0, 60, 1.0, 1001),
        (7.9, 60, 1.0, 1001),
        (8, 60, 1.0, 1002),
        (15.9, 60, 1.0, 1002),
        (16, 60, 1.0, 1004),
        (1000, 60, 1.0, 1020),  # the next multiple of 60
        (1000, 60, 2.0, 1020),
        (0, 60, 5.0, 1005),
        (1000, 0, 1.0, 1000.1),
    ],
)
def test_polls_lie_on_a_grid_that_widens_with_age(
    age: float, poll_interval: float, min_interval: float, expected: float
) -> None:
    found = next_poll_time(1000.0, 1000.0 - age, poll_interval, min_interval)
    assert found == pytest.approx(expected)


def test_the_first_polls_are_a_second_apart_by_default() -> None:
    assert next_poll_time(1000.5, 1000.5, 60) == 1001


def test_a_time_just_before_the_grid_is_not_polled_twice() -> None:
    assert next_poll_time(1000.9995, 1000.0, 60) == 1002
    assert next_poll_time(1000.998, 1000.0, 60) == 1001


@pytest.mark.parametrize(
    ("min_interval", "polls"), [(0.25, [0.25, 0.5, 1.0, 2.0, 3.0]), (1.0, [1.0, 2.0, 3.0, 4.0, 5.0])]
)
def test_new_jobs_are_polled_at_short_intervals_at_first(min_interval: float, polls: list[float]) -> None:
    found, now = list[float](), 1000.0
    while len(found) < len(polls):
        now = next_poll_time(now, 1000.0, 30.0, min_interval)
        found.append(now - 1000.0)
    assert found == polls


def test_processes_poll_at_different_times_and_their_jobs_at_the_same() -> None:
    phases = (0.0, 0.3, 17.9)
    for age in (0.0, 7.0, 100.0):
        times = {next_poll_time(1000.0, 1000.0 - age, 60.0, phase=phase) for phase in phases}
        assert len(times) == len(phases)
        assert all(1000.0 < at <= 1060.0 for at in times)
    young, old = (next_poll_time(1000.0, 1000.0 - age, 60.0, phase=0.3) for age in (0.0, 12.0))
    assert (old - young) % 1.0 == pytest.approx(0.0)


def test_a_failing_job_is_polled_every_second_at_most() -> None:
    state = PollState("u", 1000.0, 30.0)
    state.observe(exc.ComplianceServerError("500", status=500), 1000.0, True)
    state.schedule(1000.0, 0.25)
    assert state.next_poll_at == 1001


UNKNOWN = {"status": "UNKNOWN"}
FORBIDDEN = exc.ComplianceRefusedError("403", status=403)
AWAY = exc.ComplianceServerError("500", status=500)
NO_LOGIN, NO_TOKENS = exc.ComplianceAuthError("401"), exc.ComplianceConfigError("not a token endpoint")
NO_TOKENS.transient = True


@pytest.mark.parametrize(
    ("has_worked", "polls"),
    [
        *((True, [({"status": status}, 10.0, True)]) for status in ("COMPLETED", "FAILED", "CANCELLED")),
        (True, [(RUNNING, 10.0, False)]),
        # Credentials that never worked end a wait at once; a page of a gateway says nothing about them.
        (False, [(NO_LOGIN, 10.0, True)]),
        (True, [(NO_LOGIN, 10.0, False)]),
        (False, [(NO_TOKENS, 10.0, False)]),
        (False, [(FORBIDDEN, 10.0, False)]),
        # Server errors are outlasted forever, refusals for a quarter of an hour since the last good poll.
        (True, [(AWAY, 0.0, False), (AWAY, 1e4, False), (AWAY, 1e6, False)]),
        (
            True,
            [
                (AWAY, 10.0, False),
                (FORBIDDEN, 100.0, False),
                (FORBIDDEN, 999.9, False),
                (FORBIDDEN, 1003.0, True),
            ],
        ),
        (True, [(FORBIDDEN, 100.0, False), (RUNNING, 1004.0, False), (FORBIDDEN, 9000.0, False)]),
        # A job is gone after half a minute without a sign of it.
        (True, [(UNKNOWN, 100.0, False), (UNKNOWN, 129.9, False), (UNKNOWN, 130.0, True)]),
        (True, [(UNKNOWN, 100.0, False), (RUNNING, 131.0, False), (UNKNOWN, 200.0, False)]),
    ],
)
def test_a_poll_ends_a_wait_or_not(has_worked: bool, polls: list[tuple[Any, float, bool]]) -> None:
    state = PollState("u", 0.0, 30.0)
    for found, at, is_end in polls:
        ended = state.observe(found, at, has_worked)
        assert (ended is not None) is is_end
        assert state.last_result is found


def test_refusal_that_ends_a_wait_is_transient() -> None:
    state = PollState("u", 0.0, 30.0)
    state.observe(FORBIDDEN, 100.0, True)
    ended = state.observe(FORBIDDEN, 1003.0, True)
    assert isinstance(ended, exc.ComplianceRefusedError)
    assert (ended.transient, FORBIDDEN.transient) == (True, False)  # the task is retried
    assert (str(ended), str(FORBIDDEN)) == ("No request has succeeded for 903 s: 403", "403")
    assert is_refusal(NO_TOKENS)


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED", "UNKNOWN", "RUNNING"])
def test_a_wait_is_for_a_final_state_or_for_any(status: str) -> None:
    assert accept_final("u", {"status": status}, 0.0) is (status != "RUNNING")
    assert accept_any("u", {"status": status}, 0.0) is True


def test_a_failing_or_unknown_job_is_polled_like_a_new_one() -> None:
    state = PollState("u", 0.0, 3600.0)
    state.schedule(10_000.5, 1.0)
    assert state.next_poll_at - 10_000.5 > 100
    state.observe({"status": "UNKNOWN"}, 10_000.5, True)
    state.schedule(10_000.5, 1.0)
    assert state.next_poll_at == 10_001
    state.observe(RUNNING, 10_000.5, True)
    state.observe(exc.ComplianceServerError("500", status=500), 10_000.5, True)
    state.schedule(10_000.5, 1.0)
    assert state.next_poll_at == 10_001
    state.observe(RUNNING, 10_000.5, True)
    state.schedule(10_000.5, 1.0)
    assert state.next_poll_at - 10_000.5 > 100


@pytest.mark.parametrize(("poll_interval", "pause"), [(0.1, 60.0), (120.0, 120.0)])
def test_failing_polls_are_a_minute_apart_unless_the_interval_is_longer(
    poll_interval: float, pause: float
) -> None:
    state = PollState("u", 0.0, poll_interval)
    state.failing_since = 0.0
    state.schedule(120_000.0, 1.0)
    assert state.next_poll_at - 120_000.0 == pause


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (OLD, False),
        (OLD | {"status": "COMPLETED"}, True),
        (OLD | {"completed_at": "2026-02-01"}, True),
        (OLD | {"fetched_at": "2026-02-02"}, True),
        (UNTIMED, None),
        (UNTIMED | {"fetched_at": "2026-01-02"}, False),
    ],
)
def test_status_and_times_tell_a_new_result_from_an_old_one(after: Any, expected: bool | None) -> None:
    assert is_new_result(OLD, after) is expected


def test_a_time_that_was_missing_before_makes_a_result_new() -> None:
    assert is_new_result(UNTIMED, OLD) is True
    assert is_new_result(UNTIMED, UNTIMED) is None


NEWER = OLD | {"completed_at": "2026-02-01"}


@pytest.mark.parametrize(
    ("before", "unchanged_seconds", "polls"),
    [
        (OLD, None, [(OLD, 0.0, False), (OLD, 1e6, False), (NEWER, 1e6, True)]),
        (OLD, 300.0, [(OLD, 100.0, False), (OLD, 399.0, False), (OLD, 400.0, True)]),
        (UNTIMED, None, [(UNTIMED, 100.0, False), (UNTIMED, 129.0, False), (UNTIMED, 130.0, True)]),
    ],
)
def test_result_of_a_refresh_is_new_or_unchanged_for_long_enough(
    before: Any, unchanged_seconds: float | None, polls: list[tuple[Any, float, bool]]
) -> None:
    check = RefreshCheck({"a": before}, unchanged_seconds)
    for record, at, is_accepted in polls:
        assert check.has_pending_refreshes
        assert check.accepts("a", record, at) is is_accepted
    assert not check.has_pending_refreshes


def test_a_second_refresh_starts_all_over() -> None:
    check = RefreshCheck({"a": OLD}, 300.0)
    assert check.accepts("a", OLD, 0.0) is False
    check.restart("a", NEWER)
    assert check.has_pending_refreshes
    assert [check.accepts("a", NEWER, at) for at in (300.0, 599.0, 600.0)] == [False, False, True]


def test_any_result_is_accepted_unless_one_is_expected() -> None:
    check = RefreshCheck({"a": OLD, "b": OLD})
    assert check.accepts("other", OLD, 0.0) is True
    assert check.accepts("a", RUNNING, 0.0) is False  # it was seen in flight
    assert check.accepts("a", OLD, 1.0) is True
    check.forget("b")
    check.forget("unknown")
    assert not check.has_pending_refreshes
    assert check.accepts("b", OLD, 0.0) is True
