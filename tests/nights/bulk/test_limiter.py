"""The limiter: how many requests may be in flight."""

from __future__ import annotations

import asyncio

import pytest

from airflow_provider.nights.bulk.backoff import AdaptiveLimiter
from tests.support import virtual_time


class Service:
    def __init__(self) -> None:
        self.throttlings = 0
        self.busy = self.most = 0

    async def request(self, limiter: AdaptiveLimiter, throttled: bool = False) -> None:
        async with limiter:
            self.busy += 1
            self.most = max(self.most, self.busy)
            await asyncio.sleep(0.001)
            self.throttlings += throttled
            self.busy -= 1


@pytest.mark.parametrize(
    ("maximum", "crowds", "limits"),
    [
        (7, [(100, False)], [7]),
        (16, [(16, True)], [8]),  # those that are throttled together count once
        (16, [(4, True), (1, True)], [8, 4]),  # the next ones count again
        (8, [(1, True), (1, False), (1, False)], [4, 4.25, 4.25 + 1 / 4.25]),  # one more after each round
        (10, [*[(1, True)] * 8, *[(1, False)] * 100], [5, 2.5, 1.25, 1, 1, 1, 1, 1, 2, 2.5]),  # one at least
    ],
)
def test_throttling_halves_the_limit_which_recovers(
    maximum: int, crowds: list[tuple[int, bool]], limits: list[float]
) -> None:
    async def story() -> list[float]:
        found = []
        for size, throttled in crowds:
            await asyncio.gather(*(service.request(limiter, throttled) for _ in range(size)))
            found.append(limiter.limit)
        return found

    service = Service()
    limiter = AdaptiveLimiter(maximum, lambda: service.throttlings)
    found = virtual_time.run(story())
    assert found[: len(limits)] == pytest.approx(limits)
    assert found[-1] == maximum or len(found) == len(limits)
    assert service.most == min(maximum, max(size for size, _ in crowds))
    assert limiter.in_flight == 0


def test_a_lifted_limit_lets_every_waiter_pass() -> None:
    async def story() -> None:
        async with limiter:
            waiting = asyncio.create_task(service.request(limiter, throttled=True))
            await asyncio.sleep(0.01)
            assert not service.most
            limiter.lift()
            await waiting
            await service.request(limiter)

    service = Service()
    limiter = AdaptiveLimiter(1, lambda: service.throttlings)
    virtual_time.run(story())
    assert service.most == 1


def test_an_error_ends_the_request() -> None:
    async def story() -> None:
        limiter = AdaptiveLimiter(1, lambda: 0)
        for _ in range(3):
            try:
                async with limiter:
                    raise ValueError
            except ValueError:
                pass
        assert limiter.in_flight == 0

    virtual_time.run(story())


def test_throttlings_from_before_do_not_count() -> None:
    limiter = AdaptiveLimiter(8, lambda: 5)

    async def story() -> None:
        async with limiter:
            assert limiter.in_flight == 1

    virtual_time.run(story())
    assert (limiter.limit, limiter.in_flight) == (8, 0)


def test_waiters_are_served_in_order_one_after_the_other() -> None:
    """Else a busy worker would starve the poller."""

    async def hold(name: str, times: int) -> None:
        for _ in range(times):
            async with limiter:
                order.append(name)
                await asyncio.sleep(0)
                order.append(f"-{name}")

    async def story() -> None:
        await asyncio.gather(hold("worker", 2), hold("poller", 1))

    limiter, order = AdaptiveLimiter(1, lambda: 0), list[str]()
    virtual_time.run(story())
    assert order == ["worker", "-worker", "poller", "-poller", "worker", "-worker"]
