"""The limiter: how many requests may be in flight."""

from __future__ import annotations

import asyncio

import pytest

from airflow_provider.bulk.backoff import AdaptiveLimiter
from tests.support import virtual_time


class Service:
    def __init__(self) -> None:
        self.throttlings = 0
        self.busy = self.most = 0

    async def request(self, limiter: AdaptiveLimiter, throttled: bool = False) -> None:
        async with limiter.request():
            self.busy += 1
            self.most = max(self.most, self.busy)
            await asyncio.sleep(0.001)
            self.throttlings += throttled
            self.busy -= 1


def test_never_more_than_the_maximum_are_in_flight() -> None:
    async def crowd() -> None:
        await asyncio.gather(*(service.request(limiter) for _ in range(100)))

    service = Service()
    limiter = AdaptiveLimiter(7, lambda: service.throttlings)
    virtual_time.run(crowd())
    assert service.most == 7
    assert limiter.limit == 7


def test_a_crowd_that_is_throttled_together_halves_the_limit_once() -> None:
    async def crowd() -> None:
        await asyncio.gather(*(service.request(limiter, throttled=True) for _ in range(16)))

    service = Service()
    limiter = AdaptiveLimiter(16, lambda: service.throttlings)
    virtual_time.run(crowd())
    assert limiter.limit == 8


def test_the_limit_falls_to_one_at_least_and_recovers() -> None:
    async def story() -> list[float]:
        limits = []
        for _ in range(8):
            await service.request(limiter, throttled=True)
        limits.append(limiter.limit)
        for _ in range(100):
            await service.request(limiter)
        limits.append(limiter.limit)
        return limits

    service = Service()
    limiter = AdaptiveLimiter(10, lambda: service.throttlings)
    assert virtual_time.run(story()) == [1.0, 10.0]


def test_waiters_are_served_in_order() -> None:
    async def hold(name: str, times: int) -> None:
        for _ in range(times):
            async with limiter.request():
                order.append(name)
                await asyncio.sleep(0)

    async def story() -> None:
        await asyncio.gather(hold("worker", 5), hold("poller", 1))

    limiter, order = AdaptiveLimiter(1, lambda: 0), list[str]()
    virtual_time.run(story())
    assert order[:2] == ["worker", "poller"]


def test_a_lifted_limit_lets_every_waiter_pass() -> None:
    async def story() -> None:
        async with limiter.request():
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
                async with limiter.request():
                    raise ValueError
            except ValueError:
                pass
        assert limiter.in_flight == 0

    virtual_time.run(story())


def test_after_a_round_without_throttling_the_limit_is_one_more() -> None:
    async def story() -> list[float]:
        limits = [limiter.limit]
        await service.request(limiter, throttled=True)
        for _ in range(3):
            limits.append(limiter.limit)
            await service.request(limiter)
        return limits

    service = Service()
    limiter = AdaptiveLimiter(8, lambda: service.throttlings)
    assert virtual_time.run(story()) == pytest.approx([8, 4, 4.25, 4.25 + 1 / 4.25])


def test_throttlings_from_before_do_not_count() -> None:
    limiter = AdaptiveLimiter(8, lambda: 5)

    async def story() -> None:
        async with limiter.request():
            assert limiter.in_flight == 1

    virtual_time.run(story())
    assert (limiter.limit, limiter.in_flight) == (8, 0)


def test_requests_after_a_throttled_crowd_count_again() -> None:
    async def story() -> list[float]:
        await asyncio.gather(*(service.request(limiter, throttled=True) for _ in range(4)))
        limits = [limiter.limit]
        await service.request(limiter, throttled=True)
        return [*limits, limiter.limit]

    service = Service()
    limiter = AdaptiveLimiter(16, lambda: service.throttlings)
    assert virtual_time.run(story()) == [8, 4]


def test_a_waiter_gets_the_slot_that_is_released() -> None:
    async def story() -> list[str]:
        order: list[str] = []

        async def hold(name: str) -> None:
            async with limiter.request():
                order.append(name)
                await asyncio.sleep(0)
                order.append(f"-{name}")

        async with asyncio.timeout(240):
            await asyncio.gather(*map(hold, "abc"))
        return order

    limiter = AdaptiveLimiter(1, lambda: 0)
    assert virtual_time.run(story()) == ["a", "-a", "b", "-b", "c", "-c"]
