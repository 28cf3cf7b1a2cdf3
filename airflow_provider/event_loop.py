"""An event loop for the work of one task."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from airflow_provider.exceptions import ComplianceInterruptedError

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

CANCEL_GRACE_SECONDS = (
    20.0  # seconds for cancelled work to tidy up; Airflow kills a task some time after it asked it to end
)

WAKE_UP_SECONDS = 1.0  # seconds
SHUTDOWN_SECONDS = 2.0  # seconds that the end of an event loop waits for threads that may hang


class EventLoop:
    """Runs a coroutine in a thread of its own while the task's thread waits.

    Airflow ends tasks and their time by signals, whose handlers run in the main thread. There they may raise
    in the middle of an event loop and get lost in it. Here they interrupt a wait, and the work is cancelled,
    and tidies up, before the task ends.

    :param threads: how many blocking calls the work makes at a time
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self._over = threading.Event()
        self._over.set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, in a context like the caller's."""
        result: Future[T] = Future()
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(self._serve, work, result), name="compliance-loop", daemon=True
        )
        try:
            self._over.clear()
            thread.start()
            while not result.done():
                # Not for ever: a signal that reaches another thread is handled when this one wakes up.
                wait([result], timeout=WAKE_UP_SECONDS)
            return result.result()
        except CancelledError:
            raise ComplianceInterruptedError("The task was ended before its work was done.") from None
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel the work and give it time to tidy up; for `on_kill`, which runs in a signal handler."""
        is_first, self._is_cancelled = not self._is_cancelled, True  # also for work that has not begun
        loop, work = self._loop, self._work
        if is_first and loop and work and not self._over.is_set():  # once: it is tidying up
            with suppress(RuntimeError):  # it has just come to its end
                loop.call_soon_threadsafe(work.cancel)
        self._over.wait(CANCEL_GRACE_SECONDS)

    def _serve(self, work: Coroutine[Any, Any, T], result: Future[T]) -> None:
        async def main() -> T:
            self._work = asyncio.current_task()
            if self._is_cancelled:
                work.close()
                raise asyncio.CancelledError
            return await work

        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                self._loop.set_default_executor(_DaemonThreadPool(self._threads, "compliance"))
                value = runner.run(main())
        except asyncio.CancelledError:
            self._over.set()
            result.set_exception(CancelledError())
        except BaseException as error:  # the task's thread raises it
            self._over.set()
            result.set_exception(error)
        else:
            self._over.set()
            result.set_result(value)
        finally:
            self._loop = self._work = None


class _DaemonThreadPool(ThreadPoolExecutor):
    """Threads that can be left behind when one hangs, as in a read of a file that never comes.

    Those of the standard library hold up the end of the event loop, and then that of the process. asyncio
    takes only executors of this class, of which nothing else is used.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, name)
        self._most, self._name = most, name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._free = threading.Semaphore(0)
        self._started: list[threading.Thread] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in one of the threads."""
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # for whoever asked
                future.set_exception(error)
            else:
                future.set_result(result)

        self._calls.put(call)
        if not self._free.acquire(blocking=False) and len(self._started) < self._most:
            name = f"{self._name}_{len(self._started)}"
            self._started.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._started[-1].start()
        return future

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # and with it what its result holds
            self._free.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads; one that hangs is left behind."""
        for _ in self._started:
            self._calls.put(None)
        until = time.monotonic() + SHUTDOWN_SECONDS
        for thread in self._started if wait else ():
            thread.join(max(0.0, until - time.monotonic()))


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread, and see its end also when cancelled: nobody else may touch its things."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])  # unlike a bare await, does not pass a cancellation on
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        running.exception()  # seen, so that asyncio does not complain of it
        raise cancelled
    return running.result()


async def for_each(
    work: Callable[[K], Coroutine[Any, Any, T]], keys: Iterable[K], concurrency: int
) -> dict[K, T]:
    """Do something for each key, so many at a time; the first error cancels what is under way."""
    results: dict[K, T] = {}
    left = iter(keys)

    async def worker() -> None:
        for key in left:
            results[key] = await work(key)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return results
