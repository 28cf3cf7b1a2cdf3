"""How many jobs a bulk task has at the service, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, SUBMITTED, Item
from tests.support.bulk import Night, ScriptedSteps
from tests.support.polled import COMPLETED as DONE
from tests.support.polled import RUNNING
from tests.support.virtual_time import seconds

JOB_FAILED = {"status": "FAILED", "completed_at": "2026-01-01T00:00:00+00:00"}


class TimedSteps(ScriptedSteps):
    """Each job takes some seconds from its submit on, and the service counts how many run at a time."""

    job_seconds = 5.0

    def _record(self, item: Item) -> Any:
        self.service.scripts[item.key] = {0.0: RUNNING, seconds() + self.job_seconds: DONE}
        jobs = [self.service.result(key) for key in self.service.scripts]
        self.service.peak = max(self.service.peak, sum(job == RUNNING for job in jobs))
        return {"uuid": item.key, "status": "RUNNING"}


@pytest.fixture
def night(night: Night) -> Night:
    night.steps = type("S", (TimedSteps,), {"kind": night.service.kind()})(night.service)
    return night


def items(count: int) -> list[Item]:
    return [Item(f"{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("count", "limit", "concurrency"),
    [*((8, limit, concurrency) for limit in (1, 3, 100) for concurrency in (1, 4, 16)), (1000, 100, 4)],
)
def test_a_task_never_has_more_jobs_at_the_service_than_allowed(
    night: Night, count: int, limit: int, concurrency: int
) -> None:
    """Nor is there a busy loop while a thousand wait, which the event loop would notice."""
    some = items(count)
    night.run(*some, max_in_flight=limit, concurrency=concurrency)
    assert {item.state for item in some} == {COMPLETED}
    assert night.service.peak == min(limit, count)


def test_jobs_of_an_earlier_attempt_count(night: Night) -> None:
    # More than allowed: there may have been no limit.
    night.script({"a": {20: DONE}, "b": {21: DONE}, "c": {22: DONE}})
    some = [Item(key, key, SUBMITTED) for key in "abc"] + items(2)
    night.run(*some, max_in_flight=2, poll_interval=1.0)
    assert {item.state for item in some} == {COMPLETED}
    first, second = (at for at, _ in night.steps.of("submit"))
    assert 21 <= first < 22 <= second  # when one is left, and when none is


def test_a_failed_job_is_processed_again_before_others_are_submitted(night: Night) -> None:
    night.script({"0": {3: JOB_FAILED}}, {"submit 0": [{"uuid": "0", "status": "RUNNING"}]})
    night.run(*items(3), max_in_flight=1, retry_failed=1, concurrency=2)
    order = [(step, key) for _, step, key in night.steps.calls if step != "fetch"]
    assert order == [("submit", "0"), ("retry", "0"), ("submit", "1"), ("submit", "2")]
    assert night.service.peak == 1


def test_results_are_fetched_while_all_else_waits(night: Night) -> None:
    night.script({"old": {3: DONE}, "long": {100: DONE}})
    some = [Item("old", "old", SUBMITTED), Item("long", "long", SUBMITTED), *items(20)]
    night.run(*some, max_in_flight=1, concurrency=1)
    assert night.steps.calls[0][1:] == ("fetch", "old")
    assert night.steps.calls[0][0] < 10
    assert night.steps.calls[1][0] >= 100


def test_a_submit_that_fails_makes_room_for_others(night: Night) -> None:
    away = exc.ComplianceServerError("The service is away.", status=503)
    night.outcome("submit", "0", away, away)
    some = items(2)
    night.run(*some, max_in_flight=1)
    assert {item.state for item in some} == {COMPLETED}
    assert night.steps.of("submit")[:2] == [(0, "0"), (0, "1")]
    assert night.service.peak == 1


@pytest.mark.parametrize(("step", "limit"), [("submit", 2), ("retry", 1)])
def test_while_all_are_refused_no_room_is_lost(night: Night, step: str, limit: int) -> None:
    some = items(20)
    for item in some:
        night.outcome(step, item.key, exc.ComplianceRefusedError("Forbidden.", status=403))
        if step == "retry":
            item.job_id, item.state = item.key, SUBMITTED
            night.script({item.key: {0: JOB_FAILED}})
    night.run(*some, max_in_flight=limit, retry_failed=1, deadline=10_000.0)
    assert {item.state for item in some} == {COMPLETED}
    assert night.service.peak == limit


def test_equal_documents_that_share_a_job_count_once(night: Night) -> None:
    night.script({"j": {20: DONE}}, {f"submit {key}": [{"uuid": "j", "status": "RUNNING"}] for key in "ab"})
    some = [Item("a"), Item("b"), Item("c")]
    night.run(*some, max_in_flight=2)
    assert {item.state for item in some} == {COMPLETED}
    assert all(at < 5 for at, _ in night.steps.of("submit"))


def test_a_task_stays_in_the_worker_while_something_is_left_to_submit(night: Night) -> None:
    """Else a limit of 1 would mean a deferral for each document."""
    night.steps.job_seconds = 100.0  # type: ignore[attr-defined] # of TimedSteps
    some = items(5)
    assert night.run(*some, max_in_flight=2, may_defer=True) == ["4"]
    assert [item.state for item in some] == [COMPLETED] * 4 + [SUBMITTED]


def test_after_the_deadline_the_error_names_the_limit(night: Night) -> None:
    night.script({"long": {}})
    some = [Item("long", "long", SUBMITTED), *items(2)]
    night.run(*some, max_in_flight=1, deadline=20.0)
    assert [item.state for item in some] == [FAILED] * 3
    assert some[1].error == (
        "Not finished in time: max_in_flight of the connection is 1, and as many were in flight."
    )
    assert night.steps.of("submit") == []
