"""The engine of a bulk operator: it submits, polls and fetches at the same time, on one event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from airflow_provider.bulk.items import (
    COMPLETED,
    FAILED,
    PENDING,
    READY,
    RETRYING,
    SKIPPED,
    SUBMITTED,
    I,
    ItemState,
    now,
)
from airflow_provider.bulk.journal import Journal
from airflow_provider.bulk.lease import Lease
from airflow_provider.bulk.limiter import AdaptiveLimiter
from airflow_provider.bulk.progress import Counts, Progress
from airflow_provider.bulk.retries import RetryTracker
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceStorageDeniedError,
    ComplianceSupersededError,
    ComplianceTlsError,
    ComplianceUncertainError,
)
from airflow_provider.waiting.poller import Subscription, subscribe
from airflow_provider.waiting.results import FINAL, Record
from airflow_provider.waiting.rules import RefreshCheck

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.waiting.kinds import JobKind

IDLE_BEFORE_DEFER_SECONDS = 10.0
CLOCK_CHECK_SECONDS = 1.0
GRACE_SECONDS = 60.0  # after the deadline, to poll once more and to fetch the results of what is completed
SUBMIT_GRACE_SECONDS = 5.0  # of these, for submits in flight: else nobody would know their jobs
CANCEL_SECONDS = 15.0  # to cancel jobs; Airflow gives a killed task little time
UNCHANGED_SECONDS = 300.0  # after which an unchanged result counts as the result of a refresh

# What can be done with an item depends on its state; what is nearer to its end goes first.
PRIORITIES = {READY: 0, RETRYING: 1, PENDING: 2}
# All items would meet these errors, including later ones.
SYSTEMIC = (ComplianceAuthError, ComplianceConfigError, ComplianceTlsError)
# The service's verdict on one item; other refusals may come from a gateway, and be transient.
ITEM_STATUSES = frozenset({400, 413, 415, 422})


class Steps(ABC, Generic[I]):
    """What a bulk operator does with an item; the engine decides when, and retries on errors.

    :cvar kind: what the service does for an item
    :cvar noun: what the items are, in the plural
    """

    kind: ClassVar[JobKind]
    noun: ClassVar[str]

    async def skip(self, item: I) -> bool:
        """Tell whether the result of an earlier run is still valid; the item points to it then."""
        return False

    @abstractmethod
    async def submit(self, item: I) -> Record:
        """Submit it; return the record of its job."""

    async def retry(self, item: I) -> Record:
        """Have a failed job processed again; return its record, or that of another job."""
        return await self.submit(item)

    @abstractmethod
    async def fetch(self, item: I) -> None:
        """Store the result of its completed job."""

    async def remember(self, item: I) -> None:
        """Keep what `skip` of a later run needs."""


@dataclass(frozen=True)
class BulkOptions:
    """How to process items; see the parameters of the operators.

    :param deadline: on the clock of the engine
    :param may_defer: end when only waiting is left
    """

    concurrency: int
    retry_failed: int
    poll_interval: float
    deadline: float
    cancel_on_kill: bool
    may_defer: bool


class BulkEngine(Generic[I]):
    """Processes the items of one task.

    :param hook: for the poller
    :param client: for everything else
    :param items: all items, including finished ones
    :param outdated: jobs in flight that nobody waits for any more, to be canceled
    :param clock: returns monotonic time
    """

    def __init__(
        self,
        hook: ComplianceHook,
        client: AsyncComplianceClient,
        items: Iterable[I],
        steps: Steps[I],
        journal: Journal,
        lease: Lease,
        options: BulkOptions,
        log: Any,
        *,
        outdated: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hook = hook
        self._client = client
        self._items = list(items)
        self._steps = steps
        self._journal = journal
        self._lease = lease
        self._options = options
        self._log = log
        self._outdated = list(outdated)
        self._clock = clock
        self._limiter = AdaptiveLimiter(options.concurrency, lambda: client.throttlings)
        self._retries = RetryTracker(options.concurrency, clock)
        self._queue: asyncio.PriorityQueue[tuple[int, int, I]] = asyncio.PriorityQueue()
        self._order = itertools.count()
        self._jobs: dict[str, list[I]] = {}  # in flight; a service may give one job to equal items
        self._updates: Subscription
        self._refreshes = RefreshCheck({}, UNCHANGED_SECONDS)
        # After a crash, a submit that is not in the journal would be repeated.
        self._unwritten = asyncio.Semaphore(options.concurrency)
        self._submits_in_flight = 0
        self._active_at = clock()
        self._is_done = asyncio.Event()
        self._is_late = False  # from then on only results are fetched
        self._has_changed = asyncio.Event()
        self._has_logged_traceback = False
        self.counts = Counts(each.state for each in self._items)

    @property
    def job_ids(self) -> list[str]:
        """The jobs in flight."""
        return list(self._jobs)

    async def run(self) -> None:
        """Run until all items are done, the deadline has passed, or the rest may be left to a trigger."""
        progress = Progress(self.counts, len(self._items), self._steps.noun, self._log)
        try:
            async with subscribe(
                self._hook,
                self._steps.kind,
                (),
                self._options.poll_interval,
                self._refreshes.accepts,
                self._limiter.slot,
            ) as self._updates:
                self._start()
                await self._run(progress)
                if self._is_late:
                    for item in self._items:
                        if not item.state.is_final:
                            self._fail(item, self._late_error(item))
                    self._jobs.clear()
        except BaseExceptionGroup as errors:
            raise await self._on_fatal(errors.exceptions[0]) from None
        await self._journal.flush()
        await self._lease.check()
        self._log.info("%s", progress.line())

    def _start(self) -> None:
        for item in self._items:
            if item.job_id and item.state is not SKIPPED:
                self._retries.record_earlier_success(PENDING)
            if item.state is SUBMITTED:
                if item.retry_count and item.retried_from:
                    self._refreshes.restart(item.job_id, item.retried_from)
                self._jobs.setdefault(item.job_id, []).append(item)
            elif not item.state.is_final:
                self._enqueue(item)
        self._updates.add(self._jobs)
        self._check_done()

    async def _run(self, progress: Progress) -> None:
        background = (self._journal.run_writer(), progress.run(), self._receive(), self._cancel_outdated())
        workers = (self._work() for _ in range(self._options.concurrency))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (*background, *workers)]
            try:
                await self._wait_for_end()
                if self._is_late:
                    await self._finish_late()
            except asyncio.CancelledError:
                if not any(_has_failed(task) for task in tasks):  # else the group itself has cancelled us
                    self._is_late = True
                    for task in tasks[1:]:  # the journal is still written
                        task.cancel()
                    await _run_to_end(self._on_kill())
                raise
            for task in tasks:
                task.cancel()

    async def _on_fatal(self, error: BaseException) -> BaseException:
        """Write the journal before an error ends the attempt; return the error, as transient as it is."""
        if isinstance(error, SYSTEMIC) and (self._retries.has_any_success or self._updates.has_succeeded):
            error.transient = True
        if not isinstance(error, ComplianceSupersededError):
            try:
                await self._journal.flush()
            except ComplianceError as other:
                self._log.warning("The journal could not be written completely: %s", other)
        return error

    async def _on_kill(self) -> None:
        """Write the journal, then cancel: what matters most comes first."""
        try:
            await self._journal.flush()
            await self._lease.check()
        except ComplianceError as error:
            # Without knowing whose the jobs are, none is canceled.
            self._log.warning("No job is canceled: %s", error)
            return
        if self._options.cancel_on_kill:
            await self._cancel(self.job_ids)

    # Items on their way

    def _move(self, item: I, state: ItemState) -> None:
        self.counts[item.state] -= 1
        item.advance(state)
        self.counts[state] += 1

    def _enqueue(self, item: I) -> None:
        if not self._is_late or item.state is READY:
            self._queue.put_nowait((PRIORITIES[item.state], next(self._order), item))

    def _enqueue_later(self, delay: float, item: I) -> None:
        asyncio.get_running_loop().call_later(delay, self._enqueue, item)

    def _watch(self, item: I) -> None:
        """Wait for its job."""
        items = self._jobs.setdefault(item.job_id, [])
        items.append(item)
        if len(items) == 1:
            self._updates.add([item.job_id])

    def _complete(self, item: I, state: ItemState) -> None:
        self._move(item, state)
        self._journal.append(item)

    def _fail(self, item: I, error: object) -> None:
        self.counts[item.state] -= 1
        item.fail(error)
        self.counts[FAILED] += 1
        self._journal.append(item)

    async def _work(self) -> None:
        while True:
            _, _, item = await self._queue.get()
            state = item.state
            if self._is_late and state is not READY:
                continue
            if not self._is_late and (delay := self._retries.hold_seconds(state)):
                self._enqueue_later(delay, item)
                continue
            self._submits_in_flight += state is PENDING
            try:
                await self._process(item)
            finally:
                self._submits_in_flight -= state is PENDING
                self._active_at = self._clock()
                self._has_changed.set()
            self._check_done()

    async def _process(self, item: I) -> None:
        state, started_at = item.state, self._clock()
        try:
            if state is PENDING:
                await self._submit(item)
            elif state is RETRYING:
                await self._retry(item)
            else:
                await self._fetch(item)
        except ComplianceError as error:
            if self._is_systemic(state, error):
                raise
            self._on_error(item, error)
        except Exception as error:
            self._fail_unexpectedly(item, error)
        else:
            if item.state is not SKIPPED:  # for which the service was not asked
                self._retries.record_success(state, item.key, started_at)

    def _is_systemic(self, state: ItemState, error: ComplianceError) -> bool:
        """Tell whether all items would meet an error."""
        if isinstance(error, ComplianceStorageDeniedError):
            return state is READY and not self._retries.has_worked(state)
        return isinstance(error, SYSTEMIC) and not error.transient

    def _on_error(self, item: I, error: ComplianceError) -> None:
        """Retry after a delay, or give the item up."""
        delay = None
        if _is_retryable(item.state, error):
            delay = self._retries.next_delay(item.state, item.key, error)
        if delay is None:
            if item.state is READY:
                item.completed_at = None  # so that the next attempt does not rely on this job
            self._fail(item, error)
            return
        item.last_error = str(error)
        self._log.warning("'%s' is retried in %.0f s: %s", item.label, delay, error)
        self._enqueue_later(delay, item)

    def _fail_unexpectedly(self, item: I, error: Exception) -> None:
        """Fail one item for an unexpected error, which must not end the work on all others."""
        traceback = None if self._has_logged_traceback else error
        self._log.warning("'%s' has failed for an unexpected reason.", item.label, exc_info=traceback)
        self._has_logged_traceback = True
        self._fail(item, f"Unexpected {type(error).__name__}: {error}")

    async def _submit(self, item: I) -> None:
        if await self._steps.skip(item):
            self._complete(item, SKIPPED)
            return
        await self._unwritten.acquire()
        try:
            async with self._limiter.slot():
                record = await self._steps.submit(item)
        except ComplianceUncertainError:
            item.attempts += 1
            self._journal.append(item).add_done_callback(lambda _: self._unwritten.release())
            raise
        except BaseException:
            self._unwritten.release()
            raise
        item.job_id, item.submitted_at = record[self._steps.kind.id_name], now()
        item.completed_at, item.is_from_previous_attempt = None, False
        item.attempts += 1
        self._move(item, SUBMITTED)
        self._journal.append(item).add_done_callback(lambda _: self._unwritten.release())
        self._on_record(item, record)

    async def _retry(self, item: I) -> None:
        item.attempts += 1
        try:
            async with self._limiter.slot():
                record = await self._steps.retry(item)
        except ComplianceUncertainError:
            self._journal.append(item)
            raise
        except ComplianceError:
            item.attempts -= 1  # the service has not taken it
            raise
        item.retry_count += 1
        job_id = record[self._steps.kind.id_name]
        if job_id == item.job_id and item.retried_from:
            self._refreshes.restart(job_id, item.retried_from)
        item.job_id = job_id
        self._move(item, SUBMITTED)
        self._journal.append(item)
        if record["status"] == COMPLETED:
            self._on_record(item, record)
        else:
            self._watch(item)  # the answer may still be the failure from before

    async def _fetch(self, item: I) -> None:
        async with self._limiter.slot():
            await self._steps.fetch(item)
        await self._steps.remember(item)
        self._complete(item, COMPLETED)

    # Updates of the poller

    async def _receive(self) -> None:
        """Handle updates, for ever; an error that all jobs meet is raised here."""
        while True:
            self._on_update(*await self._updates.get())

    def _on_update(self, job_id: str, update: Record | Exception) -> None:
        items = self._jobs.pop(job_id, [])
        if isinstance(update, Exception):
            if self._updates.is_outage or not isinstance(update, ComplianceError):
                raise update
            for item in items:
                self._fail(item, update)
        else:
            self._active_at = self._clock()
            for item in items:
                try:
                    self._on_record(item, update)
                except Exception as error:
                    self._fail_unexpectedly(item, error)
        self._check_done()

    def _on_record(self, item: I, record: Record) -> None:
        """Continue with an item according to the record of its job."""
        status = record["status"]
        if status not in FINAL:
            self._watch(item)
        elif status == COMPLETED:
            at = record.get("completed_at")
            item.completed_at = datetime.fromisoformat(at).isoformat() if at else now()
            self._move(item, READY)
            self._enqueue(item)
        elif status == FAILED and item.retry_count < self._options.retry_failed and not self._is_late:
            kept = ("status", "completed_at", "fetched_at")
            item.retried_from = {name: record[name] for name in kept if name in record}
            self._move(item, RETRYING)
            self._enqueue(item)
        elif status == FAILED:
            self._fail(item, record.get("error") or "The service gave no reason.")
        elif item.is_from_previous_attempt:
            self._log.info("Job %s of an earlier attempt is gone: submitting again.", item.job_id)
            item.job_id = ""
            self._move(item, PENDING)
            self._enqueue(item)
        else:
            self._fail(item, f"The job was canceled, or is gone ({status}).")

    # The end

    def _check_done(self) -> None:
        if self.counts.done == len(self._items):
            self._is_done.set()

    async def _wait_for_end(self) -> None:
        """Wait until all items are done, the deadline has passed, or the rest may be left to a trigger."""
        while not self._is_done.is_set():
            remaining = self._options.deadline - self._clock()
            if remaining <= 0:
                self._is_late = True
                return
            is_idle = self._clock() - self._active_at > IDLE_BEFORE_DEFER_SECONDS
            if self._options.may_defer and is_idle and self._is_only_waiting():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(CLOCK_CHECK_SECONDS, max(0.01, remaining))):
                    await self._is_done.wait()

    def _is_only_waiting(self) -> bool:
        # A trigger would end at once with old results and unknown jobs, so they are settled here.
        is_settled = not self._refreshes.has_unconfirmed and not self._updates.has_unsettled
        return is_settled and self.counts.done + self.counts[SUBMITTED] == len(self._items)

    async def _finish_late(self) -> None:
        """After the deadline, poll once more and fetch what is completed, then cancel what is not."""
        await self._lease.check()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                for update in await self._updates.poll_now(self.job_ids):
                    self._on_update(*update)
                await self._wait_until(lambda: not self.counts[READY])
                try:
                    async with asyncio.timeout(SUBMIT_GRACE_SECONDS):
                        await self._wait_until(lambda: not self._submits_in_flight)
                except TimeoutError:
                    self._log.warning("%s submits in flight are abandoned.", self._submits_in_flight)
                if self._options.cancel_on_kill and self._jobs:
                    await self._lease.check()
                    for job_id, record in (await self._cancel(self.job_ids)).items():
                        self._on_update(job_id, record)
                    await self._wait_until(lambda: not self.counts[READY])
        except TimeoutError:
            self._log.warning("Not everything could be finished within %.0f s.", GRACE_SECONDS)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._has_changed.clear()
            await self._has_changed.wait()

    def _late_error(self, item: I) -> str:
        """Name the last known cause."""
        last = self._updates.last_result(item.job_id) if item.state is SUBMITTED else None
        if isinstance(last, ComplianceError):
            cause = f"the last poll of its job failed: {last}"
        elif item.state is SUBMITTED:
            cause = f"its job was {last['status'] if last else 'not polled yet'}"
        elif item.last_error:
            cause = f"the last error was: {item.last_error}"
        else:
            cause = {
                PENDING: "it was not submitted yet",
                RETRYING: "its job has failed and was not processed again yet",
            }.get(item.state, "its job is completed, but its result was not fetched yet")
        return f"Not finished in time: {cause.removesuffix('.')}."

    async def _cancel(self, job_ids: list[str]) -> dict[str, Record]:
        """Cancel jobs in flight; return the records of those that have ended."""
        ended: dict[str, Record] = {}
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._steps.kind.cancel_in_flight(
                    self._client, job_ids, self._limiter.max_limit, self._log, ended.__setitem__
                )
        except TimeoutError:
            self._log.warning("Not all jobs could be canceled within %.0f s.", CANCEL_SECONDS)
        return ended

    async def _cancel_outdated(self) -> None:
        if self._options.cancel_on_kill:
            await self._cancel(self._outdated)


def _is_retryable(state: ItemState, error: ComplianceError) -> bool:
    """Tell whether to retry; also a refusal may come from a gateway, and be transient."""
    if isinstance(error, ComplianceHttpError):
        return error.transient or error.status not in ITEM_STATUSES
    return error.transient or (state is READY and isinstance(error, ComplianceStorageDeniedError))


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


async def _run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Run something to its end in a task of its own, however often it is cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    task.result()
