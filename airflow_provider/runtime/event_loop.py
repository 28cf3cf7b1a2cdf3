"""Run the async work of a task in its own event loop."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from airflow_provider.exceptions import ComplianceInterruptedError

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

CANCEL_GRACE_SECONDS = 20.0  # for cancelled work to clean up; Airflow kills the task some time after that
WAKE_UP_SECONDS = 1.0
SHUTDOWN_SECONDS = 2.0  # how long the end of the loop waits for threads, which may hang

_is_in_task: contextvars.ContextVar[bool] = contextvars.ContextVar("is_in_task", default=False)


def is_in_task() -> bool:
    """Return whether this runs in the event loop of a task; otherwise it is a triggerer's."""
    return _is_in_task.get()


class EventLoop:
    """Runs a coroutine in its own thread while the task's thread waits.

    Airflow kills and times out tasks by signals, whose handlers raise in the main thread. Inside an event
    loop, such an error could get lost. Here it interrupts a wait, and the work is cancelled and cleans up
    before the task ends.

    :param threads: maximum number of concurrent blocking calls
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self._finished = threading.Event()
        self._finished.set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to completion, in a copy of the caller's context."""
        result: Future[T] = Future()
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(self._serve, work, result), name="compliance-loop", daemon=True
        )
        try:
            self._finished.clear()
            thread.start()
            while not result.done():
                # With a timeout: a signal that reaches another thread is handled when this one wakes up.
                wait([result], timeout=WAKE_UP_SECONDS)
            return result.result()
        except asyncio.CancelledError:
            raise ComplianceInterruptedError("The task was stopped before it was done.") from None
        except BaseException:
            if not result.done():  # else it is an error of the work itself
                self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel the work and give it time to clean up; for `on_kill`, which runs in a signal handler."""
        is_first, self._is_cancelled = not self._is_cancelled, True  # even before the work starts
        loop, work = self._loop, self._work
        if is_first and loop and work and not self._finished.is_set():  # only once: it is cleaning up
            with suppress(RuntimeError):  # it has just finished
                loop.call_soon_threadsafe(work.cancel)
        self._finished.wait(CANCEL_GRACE_SECONDS)

    def _serve(self, work: Coroutine[Any, Any, T], result: Future[T]) -> None:
        _is_in_task.set(True)

        async def main() -> T:
            self._work = asyncio.current_task()
            if self._is_cancelled:
                work.close()
                raise asyncio.CancelledError
            return await work

        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                _pools[self._loop] = pool = _DaemonThreadPool(self._threads, "compliance")
                self._loop.set_default_executor(pool)
                value = runner.run(main())
        except BaseException as error:  # re-raised in the task's thread
            self._finished.set()
            result.set_exception(error)
        else:
            self._finished.set()
            result.set_result(value)
        finally:
            self._loop = self._work = None


class _DaemonThreadPool(ThreadPoolExecutor):
    """An executor whose hanging threads, such as in a read that never returns, can be abandoned.

    Threads of the standard library's executor block the end of the event loop, and then of the process.
    asyncio accepts only a ThreadPoolExecutor, but uses nothing else of it.
    """

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size, name)
        self._size, self._name = size, name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._workers: list[threading.Thread] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in one of the threads."""
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # for the caller
                future.set_exception(error)
            else:
                future.set_result(result)

        self.start(call)
        return future

    def start(self, call: Callable[[], None]) -> None:
        """Call a function that raises nothing in one of the threads."""
        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and len(self._workers) < self._size:
            name = f"{self._name}_{len(self._workers)}"
            self._workers.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._workers[-1].start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # and with it the references that it holds
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the threads; abandon hanging ones."""
        for _ in self._workers:
            self._calls.put(None)
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        for thread in self._workers if wait else ():
            thread.join(max(0.0, deadline - time.monotonic()))


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _DaemonThreadPool] = WeakKeyDictionary()


class _UncancellableFuture(asyncio.Future[T]):
    """Ignores cancellation, so that asyncio cancels a task that waits for it only once it is done."""

    def cancel(self, msg: Any = None) -> bool:
        """Refuse."""
        return False


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread; even if cancelled, wait until it returns."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[T] = _UncancellableFuture(loop=loop)

    def call() -> None:
        try:
            report = partial(future.set_result, context.run(function, *args, **kwargs))
        except StopIteration as error:  # which no future takes
            report = partial(future.set_exception, RuntimeError(repr(error)))
        except BaseException as error:  # for the caller
            report = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop ended without it
            loop.call_soon_threadsafe(report)

    if pool := _pools.get(loop):
        pool.start(call)  # several times as fast as an executor, whose futures are made for threads
    else:
        loop.run_in_executor(None, call)
    return await future


async def run_to_end(work: Awaitable[T]) -> T:
    """Run something to its end in a task of its own, however often this is cancelled."""
    running = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])  # unlike a bare await, does not propagate a cancellation
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        running.exception()  # retrieved, so that asyncio does not log it
        raise cancelled
    return running.result()


async def for_each(
    work: Callable[[K], Coroutine[Any, Any, T]], keys: Iterable[K], concurrency: int
) -> dict[K, T]:
    """Run `work` for each key with limited concurrency; the first error cancels the rest."""
    results: dict[K, T] = {}
    remaining = iter(keys)

    async def worker() -> None:
        for key in remaining:
            results[key] = await work(key)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return results
