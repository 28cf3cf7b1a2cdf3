"""When a bulk task ends: done, late, killed, deferred, or for an error; in virtual time."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, SUBMITTED, Item
from tests.support import polled
from tests.support.bulk import Night, iso
from tests.support.polled import COMPLETED as DONE
from tests.support.polled import RUNNING

AWAY = exc.ComplianceServerError("The service is away.", status=503)
REFUSED = exc.ComplianceRefusedError("Still running.", status=409)
ANOTHER = exc.ComplianceSupersededError("Another attempt.")
NO_STORE = exc.ComplianceStorageError("The store is away.")


def submitted(key: str, **fields: Any) -> Item:
    return Item(key, key, SUBMITTED, **fields)


def test_a_task_ends_when_all_is_done_with_one_line(night: Night, caplog: pytest.LogCaptureFixture) -> None:
    night.script({"a": {3: DONE}})
    assert night.run(submitted("a"), may_defer=True) == []
    assert caplog.messages[-1].startswith("1 of 1 items: 1 completed")
    assert (night.journal.flushes, night.journal.checks) == ([3], 1)


@pytest.mark.parametrize(
    ("job", "submit", "may_defer", "ends_at"),
    [
        ({}, [], True, 11),  # after ten seconds; the engine looks at its clock every second
        ({60: DONE}, [], False, 60),
        ({}, [50.0], True, 61),  # something is left to do
        ({0: {"status": "UNKNOWN"}, 25: RUNNING}, [], True, 29),  # a trigger would end at once
    ],
)
def test_a_task_may_be_deferred_when_it_only_waits_for_ten_seconds(
    night: Night, job: Any, submit: list[Any], may_defer: bool, ends_at: int
) -> None:
    night.script({"a": job, "b": {} if may_defer else {9: DONE}}, {"submit b": submit})
    items = [submitted("a"), Item("b")]
    assert night.run(*items, may_defer=may_defer) == (["a", "b"] if may_defer else [])
    assert night.journal.flushes == [pytest.approx(ends_at, abs=1)]


@pytest.mark.parametrize(("job", "options"), [(DONE, {}), (RUNNING, {"deadline": 5.0})])
def test_an_attempt_that_was_superseded_does_not_end_well_and_cancels_nothing(
    night: Night, job: Any, options: Any
) -> None:
    night.script({"a": {0: job}})
    night.journal.owner_error = ANOTHER
    with pytest.raises(exc.ComplianceSupersededError):
        night.run(submitted("a"), **options)
    assert night.service.cancelled == []
    assert bool(night.journal.flushes) is (job == DONE)  # later, the journal is the other attempt's


# -- the deadline


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_after_the_deadline_what_is_completed_is_fetched_and_the_rest_cancelled(
    night: Night, cancel_on_kill: bool
) -> None:
    night.script({"a": {19: DONE}, "b": {}})
    items = [submitted("a"), submitted("b")]
    assert night.run(*items, deadline=19.5, poll_interval=3600.0, cancel_on_kill=cancel_on_kill) == []
    assert [item.state for item in items] == [COMPLETED, FAILED]
    assert items[1].error == "Not finished in time: its job was RUNNING."
    assert night.service.polls[-1] == (19.5, ["a", "b"])
    assert night.service.cancelled == (["b"] if cancel_on_kill else [])


def test_a_job_that_completes_before_it_is_cancelled_is_fetched(night: Night) -> None:
    night.script({"a": {21: DONE}})
    night.service.cancel_seconds = 3.0
    item = submitted("a")
    night.run(item, deadline=19.5)
    assert (item.state, night.service.cancelled) == (COMPLETED, [])


def test_submits_in_flight_at_the_deadline_get_five_seconds(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    night.script({}, {"submit a": [24.0], "submit b": [26.0]})
    items = [Item("a"), Item("b")]
    night.run(*items, deadline=20.0)
    assert [item.attempts for item in items] == [1, 0]
    assert night.service.cancelled == ["a"]
    assert "1 submits in flight" in caplog.text


def test_nothing_is_submitted_after_the_deadline(night: Night) -> None:
    night.outcome("submit", "a", 22.0)
    night.run(Item("a"), Item("b"), deadline=20.0, concurrency=1)
    assert str(night.steps) == "submit@0"


@pytest.mark.parametrize("is_last_attempt", [False, True])
def test_end_of_the_execution_timeout_keeps_jobs_in_flight_for_the_next_attempt(
    night: Night, is_last_attempt: bool, caplog: pytest.LogCaptureFixture
) -> None:
    night.script({"a": {16: DONE}, "b": {}})
    items = [submitted("a"), submitted("b")]
    limits: dict[str, Any] = {
        "deadline": 19.5,
        "limit": "execution_timeout",
        "is_last_attempt": is_last_attempt,
    }
    why = "The execution_timeout of the task is over, and 1 of 2 items are done"
    if is_last_attempt:
        night.run(*items, **limits)
        assert why in caplog.text
    else:
        with pytest.raises(exc.ComplianceJobTimeoutError, match=why):
            night.run(*items, **limits)
    assert items[1].state is (FAILED if is_last_attempt else SUBMITTED)
    assert night.service.cancelled == (["b"] if is_last_attempt else [])


def test_results_get_a_minute_after_the_deadline(night: Night, caplog: pytest.LogCaptureFixture) -> None:
    night.script({"a": {19: DONE}, "b": {19: DONE}}, {"fetch a": [55.0], "fetch b": [65.0]})
    items = [submitted("a"), submitted("b")]
    night.run(*items, deadline=19.5, poll_interval=3600.0)
    assert [item.state for item in items] == [COMPLETED, FAILED]
    assert "Timed out after 60 s: unfinished items failed." in caplog.messages


def test_a_result_in_backoff_is_fetched_at_once_after_the_deadline(night: Night) -> None:
    night.script({"a": {16: DONE}}, {"fetch a": [AWAY, AWAY]})
    item = submitted("a")
    night.run(item, deadline=19.5, poll_interval=1.0)
    assert (item.state, str(night.steps)) == (COMPLETED, "fetch@16 fetch@18 fetch@19.5")


# -- stuck jobs


STUCK = "Stuck for 100 s, and 100 s more after the service was asked to process it again"
REPLACED: dict[str, list[Any]] = {"retry a": [{"uuid": "new", "status": "RUNNING"}]}


@pytest.mark.parametrize(
    ("job", "steps", "job_id", "error", "cancelled", "ends_at"),
    [
        ({150: DONE}, {}, "a", "", [], 150),
        ({}, {}, "a", f"{STUCK}.", ["a"], 201),
        ({200: DONE}, {}, "a", "", [], 200),  # just before it is given up
        ({}, REPLACED, "new", "", ["a"], 120),
        # A refused refresh is not repeated; the job has as much time again.
        *(
            ({end: DONE}, {"retry a": [error]}, "a", reason and f"{STUCK}: {error}", gone, min(end, 201))
            for error in (REFUSED, AWAY)
            for end, reason, gone in ((105, "", []), (190, "", []), (1000, STUCK, ["a"]))
        ),
    ],
)
def test_a_stuck_job_is_processed_again_once(
    night: Night, job: Any, steps: Any, job_id: str, error: str, cancelled: list[str], ends_at: int
) -> None:
    night.script({"a": job, "new": {120: DONE}}, steps)
    item = Item("a")
    night.run(item, job_seconds=100.0, poll_interval=1.0)
    assert [at for at, _ in night.steps.of("retry")] == pytest.approx([100], abs=1)
    assert (item.state, item.job_id, item.error) == (FAILED if error else COMPLETED, job_id, error)
    assert not item.is_permanent_failure
    assert night.service.cancelled == cancelled
    assert night.journal.flushes[-1] == pytest.approx(ends_at, abs=2)


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_a_job_that_is_stuck_twice_fails_alone(night: Night, cancel_on_kill: bool) -> None:
    night.script({"a": {}, "b": {150: DONE}})
    items = [Item("a"), Item("b")]
    assert night.run(*items, job_seconds=100.0, cancel_on_kill=cancel_on_kill) == []
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert night.service.cancelled == (["a"] if cancel_on_kill else [])


def test_a_stuck_job_that_has_ended_is_not_processed_again(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch is behind: only its own status says so."""

    async def poll_late(kind: Any, ids: list[str], on_result: Any) -> None:
        for identifier in ids:
            on_result(identifier, RUNNING)

    monkeypatch.setattr(polled._Kind, "_poll", poll_late)
    night.script({"a": {90: DONE}})
    item = Item("a")
    night.run(item, job_seconds=100.0)
    assert (item.state, night.steps.of("retry"), night.service.cancelled) == (COMPLETED, [], [])


def test_outage_longer_than_the_limit_of_a_job_is_not_asked_into_all_the_time(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def find_ended(kind: Any, client: Any, identifier: str) -> None:
        asked.append(identifier)
        raise AWAY

    monkeypatch.setattr(polled._Kind, "find_ended", find_ended)
    night.script({"a": {300: DONE}})
    item = Item("a")
    night.run(item, job_seconds=100.0)
    assert item.state == COMPLETED
    assert 15 < len(asked) <= 21  # every 10 s


@pytest.mark.parametrize(
    ("age", "retry_count", "retries", "failed_at"), [(0, 0, [100], 200), (70, 0, [30], 130), (70, 1, [], 30)]
)
def test_the_time_of_a_job_counts_on_after_a_deferral(
    night: Night, age: float, retry_count: int, retries: list[int], failed_at: int
) -> None:
    night.script({"a": {}})
    item = submitted("a", submitted_at=iso(time.time() - age), retry_count=retry_count)
    night.run(item, job_seconds=100.0)
    assert [at for at, _ in night.steps.of("retry")] == pytest.approx(retries, abs=2)
    assert night.journal.flushes[-1] == pytest.approx(failed_at, abs=4)
    assert "Stuck" in item.error


def test_a_job_that_is_gone_after_a_long_time_is_submitted_again_not_stuck(night: Night) -> None:
    night.script(
        {"a": {0: {"status": "UNKNOWN"}}, "new": {60: DONE}},
        {"submit a": [{"uuid": "new", "status": "RUNNING"}]},
    )
    item = submitted("a", submitted_at=iso(time.time() - 3600), is_resumed=True)
    night.run(item, job_seconds=100.0)
    assert (item.state, item.job_id, night.steps.of("retry")) == (COMPLETED, "new", [])


@pytest.mark.parametrize("end", ["kill_after", "deadline"])
def test_stuck_jobs_that_wait_for_their_refresh_are_cancelled_with_the_others(night: Night, end: str) -> None:
    keys = [f"{number}" for number in range(6)]
    night.script({key: {} for key in keys}, {f"retry {key}": [60.0] for key in keys})
    with suppress(asyncio.CancelledError):
        night.run(*map(Item, keys), job_seconds=100.0, concurrency=2, **{end: 103.0})
    assert len(night.steps.of("retry")) == 2
    assert sorted(night.service.cancelled) == keys


@pytest.mark.parametrize("end", ["kill_after", "deadline"])
def test_a_replaced_job_is_cancelled_even_if_the_task_ends_before_others_are_replaced(
    night: Night, end: str
) -> None:
    night.script({"a": {}, "b": {}, "new": {}}, {**REPLACED, "retry b": [60.0]})
    with suppress(asyncio.CancelledError):
        night.run(Item("a"), Item("b"), job_seconds=100.0, **{end: 120.0})
    assert sorted(night.service.cancelled) == ["a", "b", "new"]


def test_a_task_does_not_end_before_a_replaced_job_is_cancelled(night: Night) -> None:
    night.script({"a": {}, "new": {101: DONE}}, REPLACED)
    night.service.cancel_seconds = 10.0
    night.run(Item("a"), job_seconds=100.0, poll_interval=1.0)
    assert night.service.cancelled == ["a"]


def test_a_stuck_job_that_several_items_share_ends_for_all_of_them(night: Night) -> None:
    night.script({"a": {150: DONE}}, {"retry b": [{"uuid": "a", "status": "RUNNING"}]})
    items = [Item(key, "a", SUBMITTED, submitted_at=iso(time.time())) for key in "ab"]
    night.run(*items, job_seconds=100.0)
    assert [item.state for item in items] == [COMPLETED] * 2


# -- kills and errors


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_a_killed_task_writes_its_journal_and_cancels_what_is_in_flight(
    night: Night, cancel_on_kill: bool
) -> None:
    night.script({"a": {}, "b": {4: DONE}}, {"fetch b": [3600.0]})
    items = [submitted("a", attempts=1), submitted("b")]
    with pytest.raises(asyncio.CancelledError):
        night.run(*items, kill_after=5.0, cancel_on_kill=cancel_on_kill)
    assert night.service.cancelled == (["a"] if cancel_on_kill else [])
    assert night.journal.flushes == ([5, 5] if cancel_on_kill else [5])
    # The next attempt submits it again.
    assert night.journal.records == ([{"key": "a", "attempts": 1}] if cancel_on_kill else [])


@pytest.mark.parametrize(
    ("problem", "error"), [("owner_error", NO_STORE), ("flush_error", NO_STORE), ("owner_error", ANOTHER)]
)
def test_a_killed_task_that_can_t_tell_whose_its_jobs_are_cancels_none(
    night: Night, caplog: pytest.LogCaptureFixture, problem: str, error: Exception
) -> None:
    night.script({"a": {}})
    setattr(night.journal, problem, error)
    with pytest.raises(asyncio.CancelledError):
        night.run(submitted("a"), kill_after=5.0)
    assert night.service.cancelled == []
    assert f"Could not cancel jobs in flight: {error}" in caplog.messages


def test_a_killed_task_cancels_for_a_quarter_of_a_minute_after_the_journal_is_written(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    night.script({"a": {}})
    night.service.cancel_seconds = 16.0
    with pytest.raises(asyncio.CancelledError):
        night.run(submitted("a"), kill_after=5.0)
    assert (night.service.cancelled, night.journal.flushes) == ([], [5, 20])
    assert "Timed out after 15 s." in caplog.text


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_outdated_jobs_are_cancelled_before_others_are_submitted(night: Night, cancel_on_kill: bool) -> None:
    night.script({"old": {20: DONE}, "a": {5: DONE}})
    night.service.cancel_seconds = 3.0
    night.run(Item("a"), outdated=("old",), cancel_on_kill=cancel_on_kill)
    assert night.service.cancelled == (["old"] if cancel_on_kill else [])
    assert night.steps.of("submit")[0][0] == (3 if cancel_on_kill else 0)


@pytest.mark.parametrize(
    ("options", "error", "cancelled"),
    [
        ({"is_last_attempt": False}, AWAY, []),
        ({"is_last_attempt": True}, AWAY, ["a"]),
        ({"is_last_attempt": True, "cancel_on_kill": False}, AWAY, []),
        ({"is_last_attempt": True}, ANOTHER, []),
        ({"is_last_attempt": False}, exc.ComplianceConfigError("No host."), ["a"]),  # non-retryable
    ],
)
def test_an_error_in_the_last_attempt_leaves_no_jobs_behind(
    night: Night, options: dict[str, Any], error: Exception, cancelled: list[str]
) -> None:
    night.script({"a": {}}, {f"submit {number}": [error] for number in range(20)})
    with pytest.raises(type(error)):
        night.run(submitted("a"), *(Item(str(number)) for number in range(20)), **options)
    assert night.service.cancelled == cancelled
    assert [record["key"] for record in night.journal.records] == cancelled


@pytest.mark.parametrize("success", [None, "submit", "poll"])
def test_wrong_credentials_are_transient_if_they_have_worked(night: Night, success: str | None) -> None:
    night.script(
        {"a": {0: AWAY if success == "submit" else RUNNING}},
        {"submit b": [5.0, exc.ComplianceAuthError("A wrong password.")]},
    )
    items = {None: [], "submit": [Item("a")], "poll": [submitted("a")]}[success]
    with pytest.raises(exc.ComplianceAuthError) as raised:
        night.run(*items, Item("b"))
    assert raised.value.transient is bool(success)
    assert night.journal.flushes == [5]


def test_a_journal_that_can_t_be_written_does_not_hide_the_error(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    night.outcome("submit", "a", exc.ComplianceConfigError("No host."))
    night.journal.flush_error = NO_STORE
    with pytest.raises(exc.ComplianceConfigError):
        night.run(Item("a"))
    assert "The store is away." in caplog.text
