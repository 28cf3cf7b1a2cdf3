"""When a bulk task ends: done, late, killed, deferred, or for an error; in virtual time."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.bulk import backoff, engine, pipeline
from airflow_provider.bulk.items import COMPLETED, FAILED, SUBMITTED, Item
from airflow_provider.waiting import rules
from tests.support import polled
from tests.support.bulk import Night
from tests.support.polled import RUNNING
from tests.support.virtual_time import seconds

AWAY = exc.ComplianceServerError("The service is away.", status=503)
DONE = {"status": "COMPLETED"}
PRODUCTION = {
    engine: {
        name: getattr(engine, name)
        for name in (
            "IDLE_BEFORE_DEFER_SECONDS",
            "CLOCK_CHECK_SECONDS",
            "GRACE_SECONDS",
            "SUBMIT_GRACE_SECONDS",
            "CANCEL_SECONDS",
        )
    },
    backoff: {name: getattr(backoff, name) for name in ("FIRST_DELAY_SECONDS", "MAX_DELAY_SECONDS")},
}


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch, _impatient: None, _soon_sure: None) -> None:
    for module, values in PRODUCTION.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 30.0)


def iso(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat()


@pytest.fixture(autouse=True)
def _virtual_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time()
    monkeypatch.setattr(pipeline, "now", lambda: iso(began + seconds()))


@pytest.fixture
def night(caplog: pytest.LogCaptureFixture) -> Night:
    caplog.set_level(logging.INFO, "bulk")
    return Night()


def submitted(key: str) -> Item:
    return Item(key, key, SUBMITTED)


def test_a_task_ends_when_all_is_done_with_one_line(night: Night, caplog: pytest.LogCaptureFixture) -> None:
    night.service.job("a", s3=DONE)
    assert night.run(submitted("a"), may_defer=True) == []
    assert caplog.messages[-1].startswith("1 of 1 items: 1 completed")
    assert night.journal.flushes == [3]
    assert night.journal.checks == 1


def test_a_task_may_be_deferred_when_it_only_waits_for_ten_seconds(night: Night) -> None:
    night.service.job("a")
    assert night.run(submitted("a"), Item("b"), may_defer=True) == ["a", "b"]
    assert night.journal.flushes == [11]  # the engine looks at its clock every second


def test_a_task_that_may_not_defer_waits(night: Night) -> None:
    night.service.job("a", s60=DONE)
    item = submitted("a")
    assert night.run(item) == []
    assert item.state == COMPLETED


def test_a_task_with_work_left_does_not_defer(night: Night) -> None:
    night.outcome("submit", "b", 50.0)
    night.service.job("a")
    night.service.job("b")
    night.run(submitted("a"), Item("b"), may_defer=True)
    assert 60 < night.journal.flushes[-1] <= 62


def test_an_unknown_job_is_settled_before_the_task_defers(night: Night) -> None:
    night.service.job("a", {"status": "UNKNOWN"}, s25={"status": "RUNNING"})
    night.run(submitted("a"), may_defer=True)
    assert night.journal.flushes[-1] >= 25


def test_an_attempt_that_was_superseded_does_not_end_well(night: Night) -> None:
    night.service.job("a", DONE)
    night.journal.owner_error = exc.ComplianceSupersededError("Another attempt.")
    with pytest.raises(exc.ComplianceSupersededError):
        night.run(submitted("a"))


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_after_the_deadline_what_is_completed_is_fetched_and_the_rest_cancelled(
    night: Night, cancel_on_kill: bool
) -> None:
    night.service.job("a", s19=DONE)
    night.service.job("b")
    items = [submitted("a"), submitted("b")]
    assert night.run(*items, deadline=19.5, poll_interval=3600.0, cancel_on_kill=cancel_on_kill) == []
    assert [item.state for item in items] == [COMPLETED, FAILED]
    assert items[1].error == "Not finished in time: its job was RUNNING."
    assert night.service.polls[-1] == (19.5, ["a", "b"])
    assert night.service.cancelled == (["b"] if cancel_on_kill else [])


def test_a_job_that_completes_before_it_is_cancelled_is_fetched(night: Night) -> None:
    night.service.job("a", s21=DONE)
    night.service.cancel_seconds = 3.0
    item = submitted("a")
    night.run(item, deadline=19.5)
    assert item.state == COMPLETED
    assert night.service.cancelled == []


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_a_stuck_job_is_processed_again_then_fails_alone_and_is_cancelled(
    night: Night, cancel_on_kill: bool
) -> None:
    for key in "ab":
        night.service.job(key, s150=DONE if key == "b" else {"status": "RUNNING"})
    items = [Item("a"), Item("b")]
    assert night.run(*items, job_seconds=100.0, cancel_on_kill=cancel_on_kill) == []
    assert [key for _, key in night.steps.of("retry")] == ["a", "b"]
    assert [round(at) for at, _ in night.steps.of("retry")] == [100, 100]
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert (
        items[0].error == "Stuck for 2 min, and 2 min more after the service was asked to process it again."
    )
    assert not items[0].is_permanent_failure
    assert night.service.cancelled == (["a"] if cancel_on_kill else [])
    assert night.journal.flushes[-1] == pytest.approx(201, abs=2)


def test_a_stuck_job_that_has_ended_is_not_processed_again(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch is behind: only its own status says so."""
    night.service.job("a", s90=DONE)

    async def poll_late(kind: Any, ids: list[str], on_result: Any) -> None:
        for identifier in ids:
            on_result(identifier, RUNNING)

    monkeypatch.setattr(polled._Kind, "_poll", poll_late)
    item = Item("a")
    night.run(item, job_seconds=100.0)
    assert item.state == COMPLETED
    assert night.steps.of("retry") == []
    assert night.service.cancelled == []


def test_outage_longer_than_the_limit_of_a_job_is_not_asked_into_all_the_time(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def find_ended(kind: Any, client: Any, identifier: str) -> None:
        asked.append(identifier)
        raise AWAY

    monkeypatch.setattr(polled._Kind, "find_ended", find_ended)
    night.service.job("a", s300=DONE)
    item = Item("a")
    night.run(item, job_seconds=100.0)
    assert item.state == COMPLETED
    assert 15 < len(asked) <= 21  # every 10 s


def test_a_job_that_ends_before_it_is_given_up_is_fetched(night: Night) -> None:
    night.service.job("a", s200=DONE)
    item = Item("a")
    night.run(item, job_seconds=100.0, poll_interval=3600.0)
    assert item.state == COMPLETED
    assert night.service.cancelled == []


def test_a_job_that_replaces_a_stuck_one_is_waited_for_and_the_other_cancelled(night: Night) -> None:
    night.service.job("a")
    night.service.job("new", s120=DONE)
    night.outcome("retry", "a", {"uuid": "new", "status": "RUNNING"})
    item = Item("a")
    night.run(item, job_seconds=100.0)
    assert (item.state, item.job_id) == (COMPLETED, "new")
    assert night.service.cancelled == ["a"]


@pytest.mark.parametrize(
    ("age", "retry_count", "retries", "failed_at"), [(0, 0, [100], 200), (70, 0, [30], 130), (70, 1, [], 30)]
)
def test_the_time_of_a_job_counts_on_after_a_deferral(
    night: Night, age: float, retry_count: int, retries: list[int], failed_at: int
) -> None:
    night.service.job("a")
    item = submitted("a")
    item.submitted_at, item.retry_count = iso(time.time() - age), retry_count
    night.run(item, job_seconds=100.0)
    assert [at for at, _ in night.steps.of("retry")] == pytest.approx(retries, abs=2)
    assert night.journal.flushes[-1] == pytest.approx(failed_at, abs=4)
    assert "Stuck" in item.error


REFUSED = exc.ComplianceRefusedError("Still running.", status=409)


@pytest.mark.parametrize("error", [REFUSED, AWAY])
@pytest.mark.parametrize("completed_at", [105, 190, 1000])
def test_a_stuck_job_whose_refresh_is_refused_is_waited_for_as_long_again(
    night: Night, completed_at: int, error: Exception
) -> None:
    night.service.scripts["a"] = {0.0: {"status": "RUNNING"}, float(completed_at): DONE}
    night.outcome("retry", "a", error)
    item = Item("a")
    night.run(item, job_seconds=100.0)
    assert [round(at) for at, _ in night.steps.of("retry")] == [100]
    if completed_at < 200:
        assert (item.state, night.service.cancelled) == (COMPLETED, [])
    else:
        assert (item.state, night.service.cancelled) == (FAILED, ["a"])
        assert item.error.endswith(f"2 min more after the service was asked to process it again: {error}")
        assert night.journal.flushes[-1] == pytest.approx(201, abs=6)


def test_a_job_that_is_gone_after_a_long_time_is_submitted_again_not_stuck(night: Night) -> None:
    night.service.job("a", {"status": "UNKNOWN"})
    night.service.job("new", s60=DONE)
    night.outcome("submit", "a", {"uuid": "new", "status": "RUNNING"})
    item = submitted("a")
    item.submitted_at, item.is_resumed = iso(time.time() - 3600), True
    night.run(item, job_seconds=100.0)
    assert (item.state, item.job_id) == (COMPLETED, "new")
    assert night.steps.of("retry") == []


@pytest.mark.parametrize("end", [{"kill_after": 103.0}, {"deadline": 103.0}])
def test_stuck_jobs_that_wait_for_their_refresh_are_cancelled_with_the_others(
    night: Night, end: dict[str, float]
) -> None:
    keys = [f"{number}" for number in range(6)]
    for key in keys:
        night.service.job(key)
        night.outcome("retry", key, 60.0)
    items = [Item(key) for key in keys]
    with suppress(asyncio.CancelledError):
        night.run(*items, job_seconds=100.0, concurrency=2, **end)
    assert len(night.steps.of("retry")) == 2
    assert sorted(night.service.cancelled) == keys


@pytest.mark.parametrize("end", [{"kill_after": 120.0}, {"deadline": 120.0}])
def test_a_replaced_job_is_cancelled_even_if_the_task_ends_before_others_are_replaced(
    night: Night, end: dict[str, float]
) -> None:
    for key in ("a", "b", "new"):
        night.service.job(key)
    night.outcome("retry", "a", {"uuid": "new", "status": "RUNNING"})
    night.outcome("retry", "b", 60.0)
    with suppress(asyncio.CancelledError):
        night.run(Item("a"), Item("b"), job_seconds=100.0, **end)
    assert sorted(night.service.cancelled) == ["a", "b", "new"]


def test_a_task_does_not_end_before_a_replaced_job_is_cancelled(night: Night) -> None:
    night.service.job("a")
    night.service.job("new", s101=DONE)
    night.service.cancel_seconds = 10.0
    night.outcome("retry", "a", {"uuid": "new", "status": "RUNNING"})
    night.run(Item("a"), job_seconds=100.0, poll_interval=1.0)
    assert night.service.cancelled == ["a"]


def test_a_stuck_job_that_several_items_share_ends_for_all_of_them(night: Night) -> None:
    night.service.job("a", s150=DONE)
    items = [submitted("a"), Item("b", "a", SUBMITTED)]
    for item in items:
        item.submitted_at = iso(time.time())
    night.outcome("retry", "b", {"uuid": "a", "status": "RUNNING"})
    night.run(*items, job_seconds=100.0)
    assert [item.state for item in items] == [COMPLETED] * 2


def test_submits_in_flight_at_the_deadline_get_five_seconds(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    night.outcome("submit", "a", 24.0)
    night.outcome("submit", "b", 26.0)
    items = [Item("a"), Item("b")]
    night.run(*items, deadline=20.0)
    assert [item.attempts for item in items] == [1, 0]
    assert night.service.cancelled == ["a"]
    assert "Abandoning 1 submits in flight." in caplog.messages


def test_nothing_is_submitted_after_the_deadline(night: Night) -> None:
    night.outcome("submit", "a", 22.0)
    items = [Item("a"), Item("b")]
    night.run(*items, deadline=20.0, concurrency=1)
    assert night.steps.of("submit") == [(0, "a")]
    assert items[1].error == "Not finished in time: it was not submitted yet."


def test_results_get_a_minute_after_the_deadline(night: Night, caplog: pytest.LogCaptureFixture) -> None:
    for key, duration in (("a", 55.0), ("b", 65.0)):
        night.service.job(key, s19=DONE)
        night.outcome("fetch", key, duration)
    items = [submitted("a"), submitted("b")]
    night.run(*items, deadline=19.5, poll_interval=3600.0)
    assert [item.state for item in items] == [COMPLETED, FAILED]
    assert "Timed out after 60 s: what is not finished has failed." in caplog.messages


def test_a_result_in_backoff_is_fetched_at_once_after_the_deadline(night: Night) -> None:
    night.service.job("a", s16=DONE)
    night.outcome("fetch", "a", AWAY, AWAY)
    item = submitted("a")
    night.run(item, deadline=19.5, poll_interval=1.0)
    assert item.state == COMPLETED
    assert [at for at, _ in night.steps.of("fetch")] == [16, 18, 19.5]


def test_a_superseded_attempt_cancels_nothing_at_its_deadline(night: Night) -> None:
    night.service.job("a")
    night.journal.owner_error = exc.ComplianceSupersededError("Another attempt.")
    with pytest.raises(exc.ComplianceSupersededError):
        night.run(submitted("a"), deadline=5.0)
    assert night.service.cancelled == []
    assert night.journal.flushes == []  # the journal is the other attempt's now


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_a_killed_task_writes_its_journal_and_cancels_what_is_in_flight(
    night: Night, cancel_on_kill: bool
) -> None:
    night.service.job("a")
    night.service.job("b", s4=DONE)
    night.outcome("fetch", "b", 3600.0)
    items = [submitted("a"), submitted("b")]
    items[0].attempts = 1
    with pytest.raises(asyncio.CancelledError):
        night.run(*items, kill_after=5.0, cancel_on_kill=cancel_on_kill)
    assert night.service.cancelled == (["a"] if cancel_on_kill else [])
    assert night.journal.flushes == ([5, 5] if cancel_on_kill else [5])
    # The next attempt submits it again.
    assert night.journal.records == ([{"key": "a", "attempts": 1}] if cancel_on_kill else [])


@pytest.mark.parametrize("problem", ["owner_error", "flush_error"])
def test_a_killed_task_that_can_t_tell_whose_its_jobs_are_cancels_none(
    night: Night, caplog: pytest.LogCaptureFixture, problem: str
) -> None:
    night.service.job("a")
    setattr(night.journal, problem, exc.ComplianceStorageError("The store is away."))
    with pytest.raises(asyncio.CancelledError):
        night.run(submitted("a"), kill_after=5.0)
    assert night.service.cancelled == []
    assert "Could not cancel jobs in flight: The store is away." in caplog.messages


def test_a_killed_task_cancels_for_a_quarter_of_a_minute(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    night.service.job("a")
    night.service.cancel_seconds = 16.0
    with pytest.raises(asyncio.CancelledError):
        night.run(submitted("a"), kill_after=5.0)
    assert night.service.cancelled == []
    assert night.journal.flushes == [5, 20]
    assert "Could not cancel all jobs within 15 s." in caplog.messages


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_outdated_jobs_are_cancelled_at_the_start(night: Night, cancel_on_kill: bool) -> None:
    night.service.job("old")
    night.service.job("a", s3=DONE)
    night.run(submitted("a"), outdated=("old",), cancel_on_kill=cancel_on_kill)
    assert night.service.cancelled == (["old"] if cancel_on_kill else [])


@pytest.mark.parametrize("success", [None, "submit", "poll"])
def test_wrong_credentials_are_transient_if_they_have_worked(night: Night, success: str | None) -> None:
    night.outcome("submit", "b", 5.0, exc.ComplianceAuthError("A wrong password."))
    items = [Item("b")]
    if success == "submit":
        items.insert(0, Item("a"))
        night.service.job("a", AWAY)
    elif success == "poll":
        items.insert(0, submitted("a"))
        night.service.job("a")
    with pytest.raises(exc.ComplianceAuthError) as raised:
        night.run(*items)
    assert raised.value.transient is bool(success)
    assert night.journal.flushes == [5]


def test_a_journal_that_can_t_be_written_does_not_hide_the_error(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    night.outcome("submit", "a", exc.ComplianceConfigError("No host."))
    night.journal.flush_error = exc.ComplianceStorageError("The store is away.")
    with pytest.raises(exc.ComplianceConfigError):
        night.run(Item("a"))
    assert "Could not write the whole journal: The store is away." in caplog.messages


def test_as_many_items_as_wanted_are_processed_at_a_time(night: Night) -> None:
    items = [Item(str(number)) for number in range(6)]
    for each in items:
        night.outcome("submit", each.key, 10.0)
        night.service.job(each.key, DONE)
    night.run(*items, concurrency=3)
    assert [at for at, _ in night.steps.of("submit")][:4] == [0, 0, 0, 10]
