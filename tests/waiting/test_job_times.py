"""How long jobs usually take, and when a new one is polled first."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from airflow_provider.waiting import poller as poller_module
from airflow_provider.waiting.job_times import JobTimes
from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS
from airflow_provider.waiting.poller import subscribe
from tests.support import virtual_time
from tests.support.polled import COMPLETED, PolledService
from tests.support.virtual_time import seconds


def took(duration: float) -> dict[str, Any]:
    """Return a record with the times of the service."""
    begin, end = (f"2026-01-01T00:00:{second:06.3f}+00:00" for second in (10.0, 10.0 + duration))
    return {"status": "COMPLETED", "created_at": begin, "completed_at": end}


def learned(*durations: float, quantile: float = 0.25, at: float = 0.0) -> JobTimes:
    times = JobTimes(quantile, 0.25)
    for each in durations:
        times.on_ended(took(each), at, age=100.0, running_at=0.0)
    return times


def test_before_anything_is_known_a_job_is_polled_soon() -> None:
    assert JobTimes(0.25, 0.25).first_poll(0.0) == 0.25
    assert JobTimes(0.9, 0.0).first_poll(0.0) == 0.0


def test_jobs_that_were_seen_running_put_off_the_first_poll_of_others() -> None:
    times = JobTimes(0.25, 0.25)
    found = []
    for age in (0.1, 0.3, 0.2, 0.5, 3600.0):
        times.on_running(age)
        found.append(times.first_poll(0.0))
    assert found == [0.25, 0.6, 0.6, 0.0, 0.0]


def test_a_few_jobs_are_not_enough_to_learn_from() -> None:
    assert learned(2.0, 2.0).first_poll(0.0) == 0.25
    assert learned(2.0, 2.0, 2.0).first_poll(0.0) == 2.0


def test_single_slow_or_fast_jobs_change_nothing() -> None:
    usual = [2.0] * 20
    assert learned(*usual, 0.1, 0.1, 50.0, 40.0).first_poll(0.0) == 2.0


def test_the_quantile_is_that_of_the_kind() -> None:
    durations = [number / 10 for number in range(11, 22)]
    assert learned(*durations, quantile=0.25).first_poll(0.0) == pytest.approx(1.3)
    assert learned(*durations, quantile=0.9).first_poll(0.0) == pytest.approx(2.0)
    assert JOBS.first_poll_quantile < ASSESSMENTS.first_poll_quantile


def test_the_first_poll_is_neither_at_once_nor_after_a_long_time() -> None:
    assert learned(0.0, 0.0, 0.0).first_poll(0.0) == 0.1
    assert learned(50.0, 50.0, 50.0).first_poll(0.0) == 8.0


def test_old_jobs_are_forgotten() -> None:
    times = learned(5.0, 5.0, 5.0)
    assert times.first_poll(900.0) == 5.0
    assert times.first_poll(901.0) == 0.25


def test_the_latest_jobs_count() -> None:
    assert learned(*[5.0] * 100, *[1.0] * 100).first_poll(0.0) == 1.0


@pytest.mark.parametrize(
    "record",
    [
        COMPLETED,
        COMPLETED | {"created_at": "2026-01-01T00:00:00+00:00"},
        COMPLETED | {"created_at": "soon", "completed_at": "late"},
        took(3.0),  # it began before the wait
        took(0.5),  # but it was seen running later
        took(-3.0),
    ],
)
def test_without_usable_times_of_the_service_a_job_ended_between_two_polls(record: Any) -> None:
    times = JobTimes(0.25, 0.25)
    for _ in range(3):
        times.on_ended(record, 0.0, age=2.0, running_at=1.0)
    assert times.first_poll(0.0) == 1.5


def short_jobs(service: PolledService) -> Any:
    """Return a kind that is polled like content jobs."""
    kind = service.kind()
    kind.first_poll_quantile, kind.first_poll_seconds = JOBS.first_poll_quantile, JOBS.first_poll_seconds
    kind.min_interval = JOBS.min_interval
    return kind


def test_a_short_job_is_found_soon_also_the_first_one() -> None:
    service = PolledService()
    service.job("a", **{"s0.2": COMPLETED})

    async def story() -> float:
        async with subscribe(service.hook(), short_jobs(service), ["a"], 30.0) as updates:
            await updates.get()
            return seconds()

    assert virtual_time.run(story()) < 0.5


def test_the_usual_time_outlives_the_poller() -> None:
    """In a triggerer, the next task may come when nobody waits any more."""
    service = PolledService()

    async def story() -> list[float]:
        hook, kind, found = service.hook(), short_jobs(service), []
        for number in range(8):
            begin = 10.0 * number
            await asyncio.sleep(begin - seconds())
            service.scripts[str(number)] = {0.0: {"status": "RUNNING"}, begin + 3.0: COMPLETED}
            async with subscribe(hook, kind, [str(number)], 30.0) as updates:
                polls = len(service.polls)
                await updates.get()
                found.append(round(seconds() - begin, 3))
            found[-1] = len(service.polls) - polls
        return found

    polls = virtual_time.run(story())
    assert polls[0] > 3
    assert polls[-1] <= 2  # when it is done, and at most once before


def test_results_from_before_a_refresh_teach_nothing() -> None:
    service = PolledService()
    for name in "abc":
        service.job(name, took(0.1), s40=COMPLETED)

    async def story() -> float:
        kind = short_jobs(service)
        accepts = lambda *_: seconds() > 40  # noqa: E731 - the check of refreshes
        async with subscribe(service.hook(), kind, list("abc"), 30.0, accepts) as updates:
            await asyncio.sleep(30)
            return updates.poller._times.first_poll(asyncio.get_running_loop().time())

    assert virtual_time.run(story()) == 0.25


def test_pollers_begin_at_random_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the phase of all tests
    monkeypatch.setattr(random, "uniform", lambda low, high: low + 0.4)
    service = PolledService()
    service.job("a")

    async def story() -> None:
        async with subscribe(service.hook(), service.kind(), ["a"], 30.0):
            await asyncio.sleep(3)

    virtual_time.run(story())
    assert service.poll_times == [0.4, 1.4, 2.4]
    assert poller_module.PHASE_SECONDS >= 86_400


def test_polls_of_many_assessments_are_spread_over_the_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is a request of its own, so no two need the same time."""
    phases = iter([0.0, *(number / 100 for number in range(1000))])
    monkeypatch.setattr(poller_module, "_random_phase", lambda: next(phases))
    service = PolledService()
    names = [service.job(f"a{number}") for number in range(1000)]
    kind = service.kind()
    monkeypatch.setattr(kind, "min_interval", ASSESSMENTS.min_interval, raising=False)

    async def story() -> None:
        async with subscribe(service.hook(), kind, names, 5.0):
            await asyncio.sleep(5.005)

    virtual_time.run(story())
    assert not kind.has_batches
    assert {len(ids) for _, ids in service.polls} == {2}  # of 1,000 in 5 s, two every 0.01 s
    assert sorted(each for _, ids in service.polls for each in ids) == sorted(names)
