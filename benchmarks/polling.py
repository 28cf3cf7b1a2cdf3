"""How many requests polling takes, and how late the end of a job is noticed, in virtual time.

`python -m benchmarks.polling` takes some seconds and gives the same numbers on every machine: the poller is
the real one, but its clock jumps, and the service is a function that takes 20 ms. Beside it, in the same run,
the fixed rule: a first poll at the next whole second, then every second, and batches of 100.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from airflow_provider.client.batches import BatchLimit, get_statuses
from airflow_provider.client.models import ContentJob, JobStatus
from airflow_provider.waiting.job_times import JobTimes
from airflow_provider.waiting.kinds import Jobs
from airflow_provider.waiting.poller import subscribe
from tests.support import virtual_time

LATENCY = 0.02
POLL = 30.0
WAITERS, WAITERS_POLL = 10_000, 5.0
MORE_REQUESTS = 3.0  # per job, at most, than the fixed rule


@dataclass
class Result:
    """What it took."""

    requests: float
    lateness: float


class Fixed(Jobs):
    """Polls every second at first."""

    def min_interval(self, count: int) -> float:
        """Return the same for all jobs."""
        return 1.0


class Simulated:
    """Hook and client of a service whose jobs take as long as told."""

    conn_id = "simulated"
    has_worked = is_logged_in = True

    def __init__(self, maximum: int) -> None:
        self.ends: dict[str, float] = {}
        self.requests = 0
        self._limit = BatchLimit(maximum, _now)

    async def get_async_conn(self, **_: Any) -> Any:
        return self

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @property
    def batch_size(self) -> int:
        return self._limit.size

    async def get_statuses(self, uuids: Sequence[str]) -> dict[str, ContentJob]:
        flow = get_statuses(uuids, self._limit)
        try:
            call = next(flow)
            while True:
                self.requests += 1
                await asyncio.sleep(LATENCY)
                call = flow.send([self._job(uuid) for uuid in call.json["uuids"]])
        except StopIteration as end:
            found: dict[str, ContentJob] = end.value
            return found

    def _job(self, uuid: str) -> ContentJob:
        is_over = _now() >= self.ends[uuid]
        return ContentJob(uuid=uuid, status=JobStatus.COMPLETED if is_over else JobStatus.RUNNING)


async def _jobs(is_fixed: bool, durations: Sequence[float], per_second: float) -> Result:
    """Submit jobs at a rate, and wait for all; the service gives no times."""
    service: Any = Simulated(100 if is_fixed else 500)
    late: list[float] = []
    async with subscribe(service, Fixed() if is_fixed else Jobs(), (), POLL) as updates:

        async def submit() -> None:
            for number, duration in enumerate(durations):
                service.ends[str(number)] = _now() + duration
                updates.add([str(number)])
                await asyncio.sleep(1 / per_second)

        submitting = asyncio.create_task(submit())
        for _ in durations:
            identifier, _record = await updates.get()
            late.append(_now() - service.ends[identifier])
        await submitting
    return Result(service.requests / len(durations), statistics.mean(late))


async def _waiters(is_fixed: bool) -> float:
    """Return the requests per second for many jobs that are not done."""
    service: Any = Simulated(100 if is_fixed else 500)
    ids = [str(number) for number in range(WAITERS)]
    service.ends = dict.fromkeys(ids, float("inf"))
    async with subscribe(service, Fixed() if is_fixed else Jobs(), ids, WAITERS_POLL):
        await asyncio.sleep(120)
        before: int = service.requests
        await asyncio.sleep(60)
        after: int = service.requests
    return (after - before) / 60


def main(arguments: Sequence[str] = ()) -> int:
    """Simulate and print; the result says whether the targets were met."""
    argparse.ArgumentParser(description="Requests of polling").parse_args(arguments)
    virtual_time.MAX_TURNS = 10**9
    random = Random(1)
    mixed = [random.choice((0.2, 0.2, 2.0, 60.0)) for _ in range(500)]
    cases = {
        "100 jobs of 0.2 s, 300 a second": ([0.2] * 100, 300.0),
        "1,000 jobs of 0.2 s, 300 a second": ([0.2] * 1000, 300.0),
        "100 jobs of 0.2 s, one a second": ([0.2] * 100, 1.0),
        "1,000 jobs of 2 s, 300 a second": ([2.0] * 1000, 300.0),
        "100 jobs of 60 s, one a second": ([60.0] * 100, 1.0),
        "1,000 jobs of 60 s, 300 a second": ([60.0] * 1000, 300.0),
        "500 jobs of 0.2, 2 and 60 s, 5 a second": (mixed, 5.0),
        "100 of 0.2 s, then 100 of 60 s, 5 a second": ([0.2] * 100 + [60.0] * 100, 5.0),
    }
    met = True
    print(f"{'':<44}{'requests per job':>20}{'noticed late by':>22}")
    print(f"{'':<44}{'fixed':>10}{'now':>10}{'fixed':>12}{'now':>10}")
    for name, (durations, rate) in cases.items():
        story = partial(_jobs, durations=durations, per_second=rate)
        fixed, now = _run(True, story), _run(False, story)
        met = met and now.requests <= fixed.requests + MORE_REQUESTS
        print(f"{name:<44}{fixed.requests:>10.2f}{now.requests:>10.2f}"
              f"{fixed.lateness:>10.2f} s{now.lateness:>8.2f} s")  # fmt: skip
    fixed, now = _run(True, _waiters), _run(False, _waiters)
    what = f"{WAITERS:,} waiters, one poll every {WAITERS_POLL:g} s"
    print(f"{what}: {fixed:.1f} requests per second, {now:.1f} now")
    return 0 if met and now <= fixed / 4 else 1


def _run(is_fixed: bool, story: Callable[[bool], Any]) -> Any:
    rule: AbstractContextManager[Any] = nullcontext()
    if is_fixed:
        rule = patch.object(JobTimes, "first_poll", lambda *_: 0.0)
    with rule, patch("airflow_provider.waiting.poller._random_phase", lambda: 0.3):
        return virtual_time.run(story(is_fixed))


def _now() -> float:
    return asyncio.get_running_loop().time()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
