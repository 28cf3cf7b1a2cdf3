"""Work of a task on an event loop, and its end before its time."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceInterruptedError
from airflow_provider.runtime import event_loop
from airflow_provider.runtime.event_loop import EventLoop, for_each, in_thread
from tests.support.signals import signalled_when


class Ended(BaseException):
    """Not an Exception, as Airflow's own: no handler swallows it by accident."""


def test_work_runs_to_its_end_in_the_callers_context() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    async def work() -> tuple[str, bool]:
        return variable.get(), threading.current_thread() is threading.main_thread()

    assert EventLoop(1).run(work()) == ("set", False)


def test_an_error_comes_out_as_it_is() -> None:
    async def work() -> None:
        raise ValueError("so it is")

    with pytest.raises(ValueError, match="so it is"):
        EventLoop(1).run(work())


@pytest.fixture
def tidied() -> list[str]:
    return []


async def long_work(
    tidied: list[str], begun: threading.Event, tidying: threading.Event | None = None
) -> None:
    try:
        begun.set()
        await asyncio.sleep(60)
    finally:
        if tidying:
            tidying.set()
        await asyncio.sleep(0.05)
        tidied.append("tidied")


def test_a_signal_ends_the_work_after_it_has_tidied_up(tidied: list[str]) -> None:
    begun = threading.Event()

    def end() -> None:
        raise Ended

    with signalled_when(begun.is_set, end), pytest.raises(Ended):
        EventLoop(1).run(long_work(tidied, begun))
    assert tidied == ["tidied"]


@pytest.mark.parametrize("kills", [1, 2])
def test_cancel_from_other_threads_waits_until_all_is_tidy(tidied: list[str], kills: int) -> None:
    moments = [threading.Event(), threading.Event()]
    loop = EventLoop(1)
    seen: list[list[str]] = []

    def kill(moment: threading.Event) -> None:
        moment.wait(30)
        loop.cancel()
        seen.append(list(tidied))

    killers = [threading.Thread(target=kill, args=(moment,)) for moment in moments[:kills]]
    for killer in killers:
        killer.start()
    with pytest.raises(ComplianceInterruptedError, match="was stopped"):
        loop.run(long_work(tidied, *moments))
    for killer in killers:
        killer.join()
    assert seen == [["tidied"]] * kills


def test_work_that_is_cancelled_before_it_begins_never_does(tidied: list[str]) -> None:
    loop = EventLoop(1)
    loop.cancel()
    with pytest.raises(ComplianceInterruptedError):
        loop.run(long_work(tidied, threading.Event()))
    assert tidied == []


def test_cancel_after_the_end_does_nothing() -> None:
    loop = EventLoop(1)
    loop.run(asyncio.sleep(0))
    cancelling = threading.Thread(target=loop.cancel, daemon=True)
    cancelling.start()
    cancelling.join(240)
    assert not cancelling.is_alive()


@pytest.mark.parametrize("run", [asyncio.run, EventLoop(1).run], ids=["triggerer", "task"])
def test_a_cancelled_call_in_a_thread_is_seen_to_its_end(run: Callable[[Any], None]) -> None:
    done: list[str] = []
    may_end = threading.Event()

    def slow() -> None:
        may_end.wait(30)
        done.append("done")
        raise ValueError("ignored")

    async def work() -> None:
        task = asyncio.create_task(in_thread(slow))
        await asyncio.sleep(0.01)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["done"]

    run(work())


@pytest.mark.parametrize("run", [asyncio.run, EventLoop(1).run], ids=["triggerer", "task"])
def test_a_call_in_a_thread_returns_raises_and_sees_the_context_of_its_caller(
    run: Callable[[Any], None],
) -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    def fail() -> None:
        raise ValueError("so it is")

    async def work() -> None:
        variable.set("set")
        loop_thread = threading.get_ident()
        assert await in_thread(lambda: (variable.get(), threading.get_ident() != loop_thread)) == (
            "set",
            True,
        )
        with pytest.raises(ValueError, match="so it is"):
            await in_thread(fail)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await in_thread(next, iter(()))

    run(work())


def test_a_call_that_returns_after_its_loop_has_ended_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_loop, "SHUTDOWN_SECONDS", 0.0)
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    begun, may_end = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def slow() -> None:
        threads.append(threading.current_thread())
        begun.set()
        may_end.wait(30)

    async def work() -> None:
        asyncio.get_running_loop().run_in_executor(None, slow)
        await asyncio.to_thread(begun.wait, 30)

    EventLoop(2).run(work())
    may_end.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
    assert not errors


def test_as_many_calls_run_in_threads_as_were_asked_for() -> None:
    together = threading.Barrier(40)

    async def work() -> list[int]:
        return await asyncio.gather(*(in_thread(together.wait, 30) for _ in range(40)))

    assert sorted(EventLoop(40).run(work())) == [*range(40)]


def test_concurrency_of_work_on_keys_is_limited() -> None:
    busy = most = 0

    async def work(key: int) -> int:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.001)
        busy -= 1
        return key * key

    assert asyncio.run(for_each(work, range(50), 7)) == {key: key * key for key in range(50)}
    assert most == 7


def test_the_first_error_cancels_the_others_and_comes_out_alone() -> None:
    cancelled: list[int] = []

    async def work(key: int) -> None:
        if key == 2:
            raise ValueError("two")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(key)
            raise

    begin = time.monotonic()
    with pytest.raises(ValueError, match="two"):
        asyncio.run(for_each(work, range(10), 4))
    assert sorted(cancelled) == [0, 1, 3]
    assert time.monotonic() - begin < 55


def test_a_thread_that_hangs_holds_up_neither_the_loop_nor_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_loop, "SHUTDOWN_SECONDS", 0.1)
    release, threads = threading.Event(), []

    def hang() -> None:
        threads.append(threading.current_thread())
        release.wait(240)

    async def work() -> str:
        hanging = asyncio.create_task(asyncio.to_thread(hang))
        while not threads:  # noqa: ASYNC110 - the thread has no event to wait for
            await asyncio.sleep(0.01)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        return await asyncio.to_thread(lambda: "others go on")

    began = time.monotonic()
    assert EventLoop(2).run(work()) == "others go on"
    assert time.monotonic() - began < 120
    assert threads[0].daemon
    release.set()


def test_no_more_threads_than_asked_for_and_errors_come_out() -> None:
    names: set[str] = set()

    def call(number: int) -> int:
        names.add(threading.current_thread().name)
        time.sleep(0.005)
        if number == 7:
            raise ValueError("seven")
        return number

    async def work() -> list[object]:
        return await asyncio.gather(
            *(asyncio.to_thread(call, number) for number in range(20)), return_exceptions=True
        )

    results = EventLoop(3).run(work())
    assert [each for each in results if isinstance(each, int)] == [*range(7), *range(8, 20)]
    assert str(results[7]) == "seven"
    assert len(names) <= 3
