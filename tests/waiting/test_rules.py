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


def test_transient_errors_of_credentials_are_refusals_that_are_outlasted() -> None:
    error = exc.ComplianceConfigError("not a token endpoint")
    error.transient = True
    assert is_refusal(error)
    assert PollState("u", 0.0, 30.0).observe(error, 10.0, has_worked=False) is None


@pytest.mark.parametrize("has_worked", [False, True])
def test_credentials_end_a_wait_at_once_only_if_they_never_worked(has_worked: bool) -> None:
    error = exc.ComplianceAuthError("401")
    found = PollState("u", 0.0, 30.0).observe(error, 10.0, has_worked)
    assert found is (None if has_worked else error)


def test_a_refused_job_is_outlasted_by_a_new_process_too() -> None:
    error = exc.ComplianceRefusedError("403", status=403)
    assert PollState("u", 0.0, 30.0).observe(error, 10.0, has_worked=False) is None


def test_server_errors_are_outlasted_forever() -> None:
    state, error = PollState("u", 0.0, 30.0), exc.ComplianceServerError("500", status=500)
    assert [state.observe(error, at, True) for at in (0.0, 1e4, 1e6)] == [None] * 3
    assert state.last_result is error


def test_refusals_are_outlasted_for_a_quarter_of_an_hour() -> None:
    state, error = PollState("u", 0.0, 30.0), exc.ComplianceRefusedError("403", status=403)
    assert state.observe(exc.ComplianceServerError("500", status=500), 10.0, True) is None  # not a refusal
    assert [state.observe(error, at, True) for at in (100.0, 999.9)] == [None, None]
    ended = state.observe(error, 1003.0, True)
    assert isinstance(ended, exc.ComplianceRefusedError)
    assert ended.transient  # the task is retried
    assert (str(ended), str(error)) == ("No request has succeeded for 903 s: 403", "403")
    assert not error.transient
    state.observe(RUNNING, 1004.0, True)
    assert state.observe(error, 9000.0, True) is None  # since the last good poll


def test_a_job_is_gone_after_half_a_minute_without_a_sign_of_it() -> None:
    state, unknown = PollState("u", 0.0, 30.0), {"status": "UNKNOWN"}
    assert [state.observe(unknown, at, True) for at in (100.0, 129.9, 130.0)] == [None, None, unknown]
    state.observe(RUNNING, 131.0, True)
    assert state.observe(unknown, 200.0, True) is None


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED", "UNKNOWN", "RUNNING"])
def test_a_wait_is_for_a_final_state_or_for_any(status: str) -> None:
    assert accept_final("u", {"status": status}, 0.0) is (status != "RUNNING")
    assert accept_any("u", {"status": status}, 0.0) is True


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED", "RUNNING"])
def test_a_final_record_ends_a_wait(status: str) -> None:
    record = {"status": status}
    found = PollState("u", 0.0, 30.0).observe(record, 10.0, True)
    assert found == (None if status == "RUNNING" else record)


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
    state = PollState("u", 0.0, poll_interval, failing_since=0.0)
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


def test_a_new_result_is_accepted_and_the_old_one_is_not() -> None:
    check = RefreshCheck({"a": OLD})
    assert check.has_unconfirmed
    assert check.accepts("a", OLD, 0.0) is False
    assert check.accepts("a", OLD, 1e6) is False
    assert check.has_unconfirmed
    assert check.accepts("a", OLD | {"completed_at": "2026-02-01"}, 1e6) is True
    assert not check.has_unconfirmed


def test_an_unchanged_result_counts_after_the_given_time() -> None:
    check = RefreshCheck({"a": OLD}, unchanged_seconds=300.0)
    assert [check.accepts("a", OLD, at) for at in (100.0, 399.0, 400.0)] == [False, False, True]
    assert not check.has_unconfirmed


def test_a_result_without_times_counts_after_half_a_minute() -> None:
    check = RefreshCheck({"a": UNTIMED})
    assert [check.accepts("a", UNTIMED, at) for at in (100.0, 129.0, 130.0)] == [False, False, True]


def test_after_the_job_was_in_flight_any_result_is_new() -> None:
    check = RefreshCheck({"a": OLD})
    assert check.accepts("a", RUNNING, 0.0) is False
    assert not check.has_unconfirmed
    assert check.accepts("a", OLD, 1.0) is True


def test_a_job_that_was_not_refreshed_is_accepted_as_it_is() -> None:
    assert RefreshCheck({"a": OLD}).accepts("b", OLD, 0.0) is True


def test_a_second_refresh_starts_all_over() -> None:
    check = RefreshCheck({"a": OLD}, unchanged_seconds=300.0)
    check.accepts("a", OLD, 0.0)
    check.accepts("a", RUNNING, 1.0)
    newer = OLD | {"completed_at": "2026-02-01"}
    check.restart("a", newer)
    assert check.has_unconfirmed
    assert check.accepts("a", newer, 1000.0) is False
    assert check.accepts("a", newer, 1299.0) is False
    assert check.accepts("a", newer, 1300.0) is True


def test_a_forgotten_refresh_is_not_waited_for() -> None:
    check = RefreshCheck({"a": OLD})
    check.forget("a")
    check.forget("unknown")
    assert not check.has_unconfirmed
    assert check.accepts("a", OLD, 0.0) is True
