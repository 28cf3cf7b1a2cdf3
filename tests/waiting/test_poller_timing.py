"""When the poller polls what, and who hears of it, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.waiting import poller as poller_module
from airflow_provider.waiting import rules
from airflow_provider.waiting.kinds import Limiter
from airflow_provider.waiting.poller import Subscription
from airflow_provider.waiting.rules import accept_any
from tests.support.polled import COMPLETED, RUNNING, PolledService
from tests.support.virtual_time import seconds

THROTTLED = exc.ComplianceThrottledError("Too many requests.", status=429)
AWAY = exc.ComplianceServerError("The service is away.", status=503)
ID = "3f0c2f5e-1c1b-4f59-9c39-5a3a63a1b9a1"
REFUSED = exc.ComplianceRefusedError("Forbidden.", status=403)
UNAUTHORIZED = exc.ComplianceAuthError("A wrong password.")
UNKNOWN = {"status": "UNKNOWN"}


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch, _soon_sure: None) -> None:
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 30.0)


@pytest.fixture
def service() -> PolledService:
    return PolledService()


def subscribed(service: PolledService, *ids: str, interval: float = 5.0, **options: Any) -> Any:
    options = {"account": service.settings, **options}
    return Subscription(service.hook(), service.kind(), ids, interval, **options)


def shared(service: PolledService) -> Any:
    """Return what subscribes with one hook and kind, as many tasks of one connection do."""
    hook, kind = service.hook(), service.kind()

    def join(*ids: str, interval: float = 5.0, **options: Any) -> Any:
        return Subscription(hook, kind, ids, interval, **{"account": service.settings, **options})

    return join


async def updates_until(updates: Subscription, end: float) -> list[tuple[float, Any, Any]]:
    """Return when which updates came."""
    found = []
    try:
        async with asyncio.timeout(end - seconds()):
            while True:
                identifier, update = await updates.get()
                found.append((round(seconds(), 3), identifier, update))
    except TimeoutError:
        return found


async def test_a_job_is_polled_less_often_as_it_gets_older(service: PolledService) -> None:
    service.job("a")
    async with subscribed(service, "a", interval=4.0):
        await asyncio.sleep(30)
    assert service.poll_times == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28]


async def test_due_jobs_are_polled_together_and_others_are_not(service: PolledService) -> None:
    service.job("old", s12=COMPLETED)
    service.job("new")
    join = shared(service)
    async with join("old", interval=4.0) as old:
        await asyncio.sleep(9)
        async with join("new") as new:
            assert new.poller is old.poller
            await asyncio.sleep(4.5)
    assert service.polls[-4:-1] == [(10, ["new", "old"]), (11, ["new"]), (12, ["new", "old"])]


async def test_the_shorter_of_two_intervals_counts(service: PolledService) -> None:
    service.job("a")
    join = shared(service)
    async with join("a", interval=64.0):
        await asyncio.sleep(1000)
        service.polls.clear()
        async with join("a", interval=2.0):
            await asyncio.sleep(7)
    assert service.poll_times == [1002, 1004, 1006]


async def test_all_who_wait_for_a_job_get_its_result(service: PolledService) -> None:
    service.job("a", s3=COMPLETED)
    join = shared(service)
    async with join("a") as one, join("a") as other:
        for updates in (one, other):
            assert await updates.get() == ("a", COMPLETED)
        assert one.poller.is_idle
        assert not one.poller.is_over
    assert service.poll_times == [1, 2, 3]


async def test_a_record_goes_to_those_who_accept_it_and_the_others_stay(service: PolledService) -> None:
    service.job("a", s5=COMPLETED)
    join = shared(service)
    async with join("a", accepts=accept_any) as any_state, join("a") as final:
        assert await updates_until(any_state, 4) == [(1, "a", RUNNING)]
        assert await updates_until(final, 10) == [(5, "a", COMPLETED)]
        assert any_state.queue.empty()
    assert service.poll_times == [1, 2, 3, 4, 5]


async def test_the_last_who_leaves_closes_the_connection(service: PolledService) -> None:
    service.job("a")
    join = shared(service)
    async with join("a") as first:
        async with join("a"):
            await asyncio.sleep(2)
        assert not first.poller.is_over
        await asyncio.sleep(2)
    assert first.poller.is_over
    assert first.poller._task.done()
    assert not poller_module._pollers[asyncio.get_running_loop()]
    polls = len(service.polls)
    await asyncio.sleep(60)
    assert len(service.polls) == polls == 3
    assert [each.is_open for each in service.clients] == [False]
    assert service.reads == [{"max_retries": 1, "retry_seconds": 30.0}]


async def test_connections_and_kinds_have_pollers_of_their_own(service: PolledService) -> None:
    service.job("a")
    other = PolledService()
    other.job("a")
    hook, kind, other_kind = service.hook("c"), service.kind(), service.kind()
    other_kind.noun = "assessment"
    pairs = [(hook, kind), (service.hook("d"), kind), (other.hook("c"), kind), (hook, other_kind)]
    async with AsyncExitStack() as stack:
        subscribed = [Subscription(hook, kind, ["a"], 5.0) for hook, kind in pairs]
        found = [await stack.enter_async_context(each) for each in subscribed]
        assert len({each.poller for each in found}) == 4


async def test_ids_that_are_removed_are_not_polled(service: PolledService) -> None:
    service.job("a")
    service.job("b")
    async with subscribed(service, "a", "b") as updates:
        await asyncio.sleep(1.5)
        updates.remove(["a", "unknown"])
        assert updates.poller.last_result("a") is None
        assert updates.poller.last_result("b") == RUNNING
        await asyncio.sleep(1)
    assert service.polls == [(1, ["a", "b"]), (2, ["b"])]


async def test_a_poll_without_delay_returns_all_updates(service: PolledService) -> None:
    service.job("a", COMPLETED)
    service.job("b", COMPLETED)
    service.job("c")
    async with subscribed(service, "a", "b", "c") as updates:
        await asyncio.sleep(0.5)
        assert sorted(await updates.poll_now(["a", "b", "c", "unknown"])) == [
            ("a", COMPLETED),
            ("b", COMPLETED),
        ]
        assert await updates.poll_now([]) == []
        assert seconds() == pytest.approx(0.5)
    assert service.polls == [(0.5, ["a", "b", "c"])]


async def test_a_poll_without_delay_waits_for_one_minute_at_most(service: PolledService) -> None:
    service.job("a")
    service.poll_seconds = 3600.0
    async with subscribed(service, "a") as updates:
        assert await updates.poll_now(["a"]) == []
        assert seconds() == pytest.approx(60)


async def test_a_poll_without_delay_that_comes_during_a_poll_is_made_after_it(service: PolledService) -> None:
    service.job("a", **{"s1.5": COMPLETED})
    service.poll_seconds = 0.3
    async with subscribed(service, "a", accepts=lambda *_: seconds() > 1.5) as updates:
        await asyncio.sleep(1.1)
        assert await updates.poll_now(["a"]) == [("a", COMPLETED)]
        assert seconds() == pytest.approx(1.6)
    assert service.poll_times == [1, 1.3]


async def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    service: PolledService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, poller_module.__name__)
    service.job("a", AWAY, s4=RUNNING)
    service.job("b", AWAY, s6=RUNNING)
    async with subscribed(service, "a", "b") as updates:
        assert await updates_until(updates, 20) == []
    assert caplog.messages == [
        "Polling the jobs of 'c' failed, retrying: The service is away.",
        "Polling the jobs of 'c' works again, after 5 s.",
    ]


async def test_an_unknown_job_is_published_after_half_a_minute(service: PolledService) -> None:
    service.job("a", UNKNOWN)
    async with subscribed(service, "a", accepts=accept_any) as updates:
        await asyncio.sleep(1.5)
        assert updates.has_pending_updates
        found = await updates_until(updates, 100)
    assert [(identifier, record) for _, identifier, record in found] == [("a", UNKNOWN)]
    assert 31 <= found[0][0] <= 40


@pytest.mark.parametrize("sign", ["has_worked", "is_logged_in", None])
async def test_credentials_that_never_worked_end_all_waits(service: PolledService, sign: str | None) -> None:
    service.job("a", UNAUTHORIZED, s20=COMPLETED)
    if sign:
        setattr(service, sign, True)
    async with subscribed(service, "a") as updates:
        found = await updates_until(updates, 60)
    assert len(found) == 1
    assert found[0][2] == (COMPLETED if sign else UNAUTHORIZED)


async def test_credentials_that_have_worked_once_are_good_for_the_poller(service: PolledService) -> None:
    service.job("a", s3=UNAUTHORIZED, s20=COMPLETED)
    service.has_worked = True
    async with subscribed(service, "a") as updates:
        await asyncio.sleep(2.5)
        service.has_worked = False  # another client, of a connection that has changed
        found = await updates_until(updates, 60)
    assert [update for _, _, update in found] == [COMPLETED]


@pytest.mark.parametrize("is_alone", [False, True])
async def test_an_error_that_ends_a_wait_tells_whether_others_meet_it(
    service: PolledService, is_alone: bool
) -> None:
    service.has_worked = True
    service.job("a", s3=REFUSED)
    service.job("b", *([] if is_alone else [RUNNING]), **({} if is_alone else {"s3": REFUSED}))
    async with subscribed(service, "a", "b") as updates:
        await asyncio.sleep(10)
        assert updates.has_pending_updates is is_alone
        identifier, error = await updates.get()
        assert isinstance(error, exc.ComplianceRefusedError)
        assert error.concerns_one_job is is_alone
        assert error.transient
        if is_alone:
            assert identifier == "a"
        assert 903 <= seconds() <= 1000


async def test_an_outage_that_begins_within_a_round_concerns_all(service: PolledService) -> None:
    service.has_worked = True
    service.job("a", s3=REFUSED)
    service.job("b", s4=REFUSED)
    async with subscribed(service, "a", "b") as updates:
        await asyncio.sleep(10)
        assert not updates.has_pending_updates
        identifier, error = await updates.get()
        assert identifier == "a"
        assert error.concerns_one_job is False


async def test_a_connection_that_does_not_close_is_left_after_five_seconds(service: PolledService) -> None:
    service.job("a")
    service.close_seconds = 3600.0
    join = shared(service)
    async with join("a") as updates:
        await asyncio.sleep(1.5)
    assert seconds() == pytest.approx(6.5)
    assert updates.poller.is_over
    updates.poller._task.cancel()


async def test_before_anything_could_be_polled_all_is_unsettled(service: PolledService) -> None:
    service.job("a", AWAY)
    async with subscribed(service, "a") as updates:
        assert updates.has_pending_updates
        await asyncio.sleep(1.5)
        assert not updates.has_pending_updates
        assert not updates.poller.has_succeeded


async def test_jobs_of_others_are_not_unsettled_for_a_subscription(service: PolledService) -> None:
    service.job("a")
    service.job("b", UNKNOWN)
    join = shared(service)
    async with join("a") as mine, join("b") as others:
        await asyncio.sleep(1.5)
        assert not mine.has_pending_updates
        assert others.has_pending_updates
        assert mine.poller.has_succeeded


async def test_a_changed_connection_is_used_after_a_refusal(
    service: PolledService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, poller_module.__name__)
    service.has_worked = True
    service.job(ID, s3=REFUSED, **{"s3.001": COMPLETED})
    async with subscribed(service, ID) as updates:
        await asyncio.sleep(2.5)
        service.settings = "first, rotated"
        service.poll_seconds = 0.001
        await asyncio.sleep(0.6)
        assert [each.is_open for each in service.clients] == [False, True]
        assert await updates.get() == (ID, COMPLETED)
    assert "The connection of jobs of 'c' changed: using the new one." in caplog.messages
    assert [each.settings for each in service.clients] == ["first", "first, rotated"]
    assert not service.clients[1].is_open
    # Polled again at once, not with the delay of what fails.
    assert service.poll_times[-1] < 3.1


@pytest.mark.parametrize(("error", "reads"), [(AWAY, 1 + 4), (REFUSED, 1 + 4), (THROTTLED, 1)])
async def test_the_connection_is_read_again_after_each_error_unless_it_is_throttled(
    service: PolledService, error: Exception, reads: int
) -> None:
    service.has_worked = True
    service.job("a", error, s5=COMPLETED)
    async with subscribed(service, "a") as updates:
        await updates.get()
        assert [client.is_open for client in service.clients] == [True]  # it has not changed
    assert len(service.reads) == reads


@pytest.mark.parametrize("is_edited_before", [True, False])
@pytest.mark.parametrize("identifier", ["7", ID])
async def test_a_job_of_another_service_with_the_same_id_is_not_taken(
    service: PolledService, identifier: str, is_edited_before: bool
) -> None:
    service.job(identifier, AWAY, s5=COMPLETED)
    if is_edited_before:
        service.settings = "second"
    async with shared(service)(identifier, account="first") as updates:
        await asyncio.sleep(1.5)
        service.settings = "second"
        found, update = await updates.get()
        assert found == identifier
        assert "leads to another service or account now" in str(update)
    assert bool(service.polls) is not is_edited_before


@pytest.mark.parametrize("problem", ["refused", "hangs"])
async def test_a_connection_that_became_unusable_is_not_used(service: PolledService, problem: str) -> None:
    service.has_worked = True
    service.job("a", s2=REFUSED, s100=COMPLETED)
    async with subscribed(service, "a") as updates:
        await asyncio.sleep(1.5)
        if problem == "refused":
            service.connection_error = exc.ComplianceConfigError("No host.")
        else:
            service.read_seconds = 3600.0
        assert await updates.get() == ("a", COMPLETED)
    assert len(service.clients) == 1


async def test_an_unreadable_connection_is_outlasted(service: PolledService) -> None:
    service.job("a", COMPLETED)
    service.connection_errors = [RuntimeError("The API server is away.") for _ in range(3)]
    async with subscribed(service, "a") as updates:
        await asyncio.sleep(1.5)
        last = str(updates.poller.last_result("a"))
        assert await updates.get() == ("a", COMPLETED)
    assert last == "The Airflow connection 'c' can't be read: RuntimeError: The API server is away."


async def test_an_invalid_connection_is_said_as_it_is(service: PolledService) -> None:
    service.job("a")
    service.connection_error = error = exc.ComplianceConfigError("No host.")
    async with subscribed(service, "a") as updates:
        found = (await updates.get())[1]
    assert found is error


async def test_a_bug_ends_all_waits_and_the_next_one_gets_a_new_poller(service: PolledService) -> None:
    service.job("a", bug := RuntimeError("a bug"), s5=COMPLETED)
    service.job("b")
    join = shared(service)
    async with join("a") as one, join("b") as other:
        assert await one.get() == ("a", bug)
        assert await other.get() == ("b", bug)
        await asyncio.sleep(4)
        assert one.poller.is_over
        one.add(["a"])
        assert one.poller is not other.poller
        assert await one.get() == ("a", COMPLETED)
    assert [each.is_open for each in service.clients] == [False, False]


class Counting(Limiter):
    """Counts what is in flight."""

    limit = 3.0

    def __init__(self) -> None:
        self.in_flight = self.peak = self.requests = 0

    async def __aenter__(self) -> None:
        self.requests += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    async def __aexit__(self, *_: object) -> None:
        self.in_flight -= 1


@pytest.mark.parametrize("has_batches", [True, False])
async def test_each_request_of_a_poll_counts_for_the_limiter_of_the_task(
    service: PolledService, has_batches: bool
) -> None:
    ids = [service.job(name) for name in "abcdefg"]
    kind, limiter = service.kind(), Counting()
    kind.has_batches = has_batches
    service.poll_seconds = 0.01
    async with Subscription(service.hook(), kind, ids, 5.0, limiter=limiter, account="first"):
        await asyncio.sleep(1.5)
    assert (limiter.requests, limiter.peak) == ((1, 1) if has_batches else (len(service.polls), 3))


async def test_a_job_that_is_left_during_its_poll_is_ignored(service: PolledService) -> None:
    service.job("a", COMPLETED)
    service.job("b", AWAY)
    service.job("c")
    service.poll_seconds = 0.5
    async with subscribed(service, "a", "b", "c") as updates:
        await asyncio.sleep(1.2)
        updates.remove(["a", "b"])
        await asyncio.sleep(0.5)
        assert updates.queue.empty()


async def test_pollers_begin_at_random_times(service: PolledService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the phase of all tests
    monkeypatch.setattr(random, "uniform", lambda low, high: low + 0.4)
    service.job("a")
    async with subscribed(service, "a", interval=30.0):
        await asyncio.sleep(3)
    assert service.poll_times == [0.4, 1.4, 2.4]


@pytest.fixture
def assessments(service: PolledService) -> Any:
    """A kind of which each poll is a request of its own, which takes 20 ms."""
    kind = service.kind()
    kind.has_batches = False
    service.poll_seconds = 0.02
    return kind


def submitted(updates: Subscription, service: PolledService, count: int, duration: float, rate: float) -> Any:
    """Submit assessments that each take as long, at a constant rate."""

    async def submit() -> None:
        for number in range(count):
            at = seconds() + duration
            updates.add([service.job(f"{number:04}", **{f"s{at}": COMPLETED})])
            await asyncio.sleep(1 / rate)

    return asyncio.create_task(submit())


@pytest.mark.parametrize(("duration", "delay"), [(0.5, 1.0), (1.5, 0.5), (30.0, 2.5), (300.0, 30.5)])
async def test_most_of_many_assessments_are_polled_once_soon_after_their_end(
    service: PolledService, assessments: Any, duration: float, delay: float
) -> None:
    count, rate = 1000, 200.0
    async with Subscription(service.hook(), assessments, [], 30.0, account="first") as updates:
        submitting = submitted(updates, service, count, duration, rate)
        for _ in range(count):
            await updates.get()
        await submitting
        took = seconds()
    assert took < count / rate + duration + delay
    assert len(service.polls) < (1.4 if duration <= 30 else 12) * count


async def test_a_short_assessment_is_found_among_many_long_ones(
    service: PolledService, assessments: Any
) -> None:
    names = [service.job(f"{number}") for number in range(500)]
    async with Subscription(service.hook(), assessments, names, 30.0, account="first") as updates:
        await asyncio.sleep(100)
        service.polls.clear()
        at = seconds()
        updates.add([service.job("short", **{f"s{at + 1.0}": COMPLETED})])
        assert await updates.get() == ("short", COMPLETED)
        took = seconds() - at
    assert took < 31
    assert len(service.polls) < 2 * 500  # about once in `poll_interval`


async def test_one_assessment_is_polled_when_it_is_due(service: PolledService, assessments: Any) -> None:
    service.job("a")
    service.poll_seconds = 0.0
    async with Subscription(service.hook(), assessments, ["a"], 4.0, account="first"):
        await asyncio.sleep(30)
    assert service.poll_times == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28]


async def test_a_poll_without_delay_is_not_held_up_by_the_pace(
    service: PolledService, assessments: Any
) -> None:
    names = [service.job(f"{number}", s10=COMPLETED) for number in range(100)]
    async with Subscription(service.hook(), assessments, names, 30.0, account="first") as updates:
        await asyncio.sleep(10.001)
        assert len(await updates.poll_now(names)) == 100
        assert seconds() < 10.5


async def test_a_connection_that_was_edited_has_a_poller_of_its_own(service: PolledService) -> None:
    """One task waits at the first service; the next one has submitted to the second."""
    service.job("a", s20=COMPLETED)
    service.job("b", s10=COMPLETED)
    join = shared(service)
    async with join("a") as first:
        await asyncio.sleep(5)
        service.settings = "second"
        async with join("b") as second:
            assert (await second.get())[0] == "b"
        async with join("b", account="first") as third:
            assert third.poller is first.poller
        assert (await first.get())[0] == "a"
    assert [client.settings for client in service.clients] == ["first", "second"]


async def test_nothing_is_added_to_a_poller_whose_connection_leads_elsewhere_now(
    service: PolledService,
) -> None:
    service.job("a", REFUSED, s20=COMPLETED)
    service.job("b", COMPLETED)
    join = shared(service)
    async with join("a", account="first") as first:
        await asyncio.sleep(1.5)
        service.settings = "second"
        await asyncio.sleep(5)
        service.settings = "first"  # edited back
        async with join("b", account="first") as second:
            assert second.poller is not first.poller
            await second.get()
    assert [client.settings for client in service.clients][:3] == ["first", "second", "first"]


async def test_a_failing_job_is_polled_apart_from_others(service: PolledService) -> None:
    service.job("a", AWAY, s30=COMPLETED)
    service.job("b")
    async with subscribed(service, "a", "b", interval=1.0) as updates:
        await updates.get()
    first, *later = (ids for _, ids in service.polls)
    assert first == ["a", "b"]
    assert ["a", "b"] not in later
