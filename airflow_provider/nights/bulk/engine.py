"""The engine of a bulk operator: runs its pipeline until it is done, killed, late, or may be deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceJobTimeoutError,
    ComplianceSupersededError,
)
from airflow_provider.nights.bulk.backoff import AdaptiveLimiter
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.nights.bulk.counts import Progress
from airflow_provider.nights.bulk.items import READY, BulkOptions, I, Steps
from airflow_provider.nights.bulk.pipeline import Pipeline
from airflow_provider.runtime.event_loop import for_each, run_to_end
from airflow_provider.waiting.poller import Subscription
from airflow_provider.waiting.results import UNKNOWN, Record
from airflow_provider.waiting.rules import SETUP_ERRORS

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.hooks.compliance import ComplianceHook

IDLE_BEFORE_DEFER_SECONDS = 10.0
CLOCK_CHECK_SECONDS = 1.0
GRACE_SECONDS = 60.0  # after the deadline, to poll once more and to fetch the results of what is completed
SUBMIT_GRACE_SECONDS = 5.0  # of these, for submits in flight: else their jobs would be unknown
CANCEL_SECONDS = 15.0  # to cancel jobs; Airflow gives a killed task little time


class BulkEngine(Generic[I]):
    """Processes the items of one task, on one event loop.

    :param hook: for the poller
    :param client: for everything else
    :param items: all items, including finished ones
    :param outdated: jobs in flight that no item waits for any more, to be cancelled
    :param clock: returns monotonic time
    """

    def __init__(
        self,
        hook: ComplianceHook,
        client: AsyncComplianceClient,
        items: Iterable[I],
        steps: Steps[I],
        checkpoint: Checkpoint,
        options: BulkOptions,
        log: Any,
        *,
        outdated: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hook = hook
        self._client = client
        self._steps = steps
        self._checkpoint = checkpoint
        self._options = options
        self._log = log
        self._outdated = list(outdated) if options.cancel_on_kill else []
        self._clock = clock
        self._limiter = AdaptiveLimiter(options.concurrency, lambda: client.throttlings)
        self._pipeline = Pipeline(
            items, steps, checkpoint, self._limiter, options, clock, client.clock.now, log
        )
        self._updates: Subscription

    async def run(self) -> list[str]:
        """Run until all items are done, the deadline has passed, or the rest may be left to a trigger.

        :return: the jobs in flight
        """
        pipeline = self._pipeline
        progress = Progress(pipeline.counts, len(pipeline.items), self._steps.noun, self._log)
        if self._outdated:  # before others are submitted
            await self._cancel(self._outdated)
        try:
            async with Subscription(
                self._hook,
                self._steps.kind,
                (),
                self._options.poll_interval,
                pipeline.refreshes.accepts,
                self._limiter,
                self._hook.account_digest,
            ) as self._updates:
                pipeline.start(self._updates)
                await self._run(progress)
                if pipeline.is_past_deadline:
                    pipeline.fail_unfinished()
        except BaseExceptionGroup as errors:
            error = await self._on_fatal(errors.exceptions[0])
            # One that many workers have met, such as a failed login, has the lines of each in its traceback.
            raise (error.with_traceback(None) if isinstance(error, ComplianceError) else error) from None
        finally:
            pipeline.retry_log.flush()
        await self._checkpoint.flush()
        await self._checkpoint.check_owner()
        self._log.info("%s", progress.line())
        return list(pipeline.jobs)

    async def _run(self, progress: Progress) -> None:
        pipeline, concurrency = self._pipeline, self._options.concurrency
        background: list[Coroutine[Any, Any, Any]] = [
            self._checkpoint.run_writer(),
            progress.run(),
            pipeline.receive(),
            self._end_stuck(),
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in background]
            tasks += [group.create_task(pipeline.work()) for _ in range(concurrency)]
            try:
                if await self._reaches_deadline():
                    self._end_attempt()
                    pipeline.on_deadline()
                    # Submits that stall keep their workers.
                    tasks += [group.create_task(pipeline.work()) for _ in range(concurrency)]
                    await self._finish_late()
            except asyncio.CancelledError:
                ended = (task for task in tasks if task.done() and not task.cancelled())
                if not any(task.exception() for task in ended):  # else the group itself has cancelled us
                    for task in tasks[1:]:  # the journal is still written
                        task.cancel()
                    await run_to_end(self._cancel_all())
                raise
            for task in tasks:
                task.cancel()

    def _end_attempt(self) -> None:
        """Leave jobs in flight to the next attempt if there is one: only the time of this one is over."""
        options, pipeline = self._options, self._pipeline
        if options.limit == "timeout":
            return
        done = f"{pipeline.counts.done} of {len(pipeline.items)} {self._steps.noun} are done"
        why = f"The {options.limit} of the task is over, and {done}: if it is too short, set a longer one."
        if not options.is_last_attempt:
            raise ComplianceJobTimeoutError(f"{why} Jobs in flight go on, and the next attempt resumes.")
        self._log.warning("%s What is not finished has failed.", why)

    async def _on_fatal(self, error: BaseException) -> BaseException:
        """Write the journal before an error ends the attempt; return the error, as transient as it is."""
        if isinstance(error, SETUP_ERRORS) and (
            self._pipeline.retries.has_any_success or self._updates.poller.has_succeeded
        ):
            error.transient = True
        if not isinstance(error, ComplianceSupersededError):
            try:
                await self._checkpoint.flush()
            except ComplianceError as other:
                self._log.warning("Could not write the whole journal: %s", other)
            else:
                is_final = isinstance(error, ComplianceError) and not error.transient
                is_over = is_final or self._options.is_last_attempt
                if is_over and self._pipeline.jobs and self._options.cancel_on_kill:
                    self._log.info("The task fails for good: its jobs in flight are cancelled.")
                    await run_to_end(self._cancel_all())
        return error

    async def _cancel_all(self) -> None:
        """Write the journal, then cancel: what matters most comes first."""
        try:
            await self._checkpoint.flush()
            await self._checkpoint.check_owner()  # without knowing whose the jobs are, none is cancelled
            if self._options.cancel_on_kill:
                for job_id, ended in (await self._cancel(list(self._pipeline.jobs))).items():
                    if not ended:
                        self._pipeline.forget_job(job_id)
                await self._checkpoint.flush()
        except ComplianceError as error:
            self._log.warning("Could not cancel jobs in flight: %s", error)

    async def _reaches_deadline(self) -> bool:
        """Wait until nothing is left to do but to wait; return whether the deadline came first."""
        while not self._pipeline.is_done:
            remaining = self._options.deadline - self._clock()
            if remaining <= 0:
                return True
            self._pipeline.find_stuck()
            is_idle = self._clock() - self._pipeline.active_at > IDLE_BEFORE_DEFER_SECONDS
            if self._options.may_defer and is_idle and self._pipeline.is_only_waiting:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(min(CLOCK_CHECK_SECONDS, max(0.01, remaining))):
                    await self._pipeline.wait_until(lambda: self._pipeline.is_done)
        return False

    async def _end_stuck(self) -> None:
        """Have stuck jobs processed again, forever; those replaced or stuck after that are cancelled."""
        pipeline, options = self._pipeline, self._options
        while True:
            await pipeline.wait_until(lambda: bool(pipeline.stuck))
            await self._checkpoint.check_owner()
            found = await for_each(self._process_again, pipeline.stuck, options.concurrency)
            given_up = [job_id for job_id, is_given_up in found.items() if is_given_up]
            ended = await self._cancel(given_up) if options.cancel_on_kill else {}
            for job_id in given_up:
                if record := ended.get(job_id):
                    pipeline.on_update(job_id, record)
                else:
                    pipeline.fail_stuck(job_id)
            pipeline.stuck = []
            pipeline.has_changed.set()

    async def _process_again(self, job_id: str) -> bool:
        """Have a stuck job processed again, unless it has ended, or that is not known."""
        try:
            ended = await self._steps.kind.find_ended(self._client, job_id)
        except ComplianceError:
            return False
        if ended is None:
            return await self._pipeline.process_again(job_id)
        if ended["status"] != UNKNOWN:
            self._pipeline.on_update(job_id, ended)
        return False

    async def _finish_late(self) -> None:
        """After the deadline, poll once more and fetch what is completed, then cancel what is not."""
        pipeline = self._pipeline
        await self._checkpoint.check_owner()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                for update in await self._updates.poll_now(list(pipeline.jobs)):
                    pipeline.on_update(*update)
                await pipeline.wait_until(lambda: not pipeline.counts[READY])
                try:
                    async with asyncio.timeout(SUBMIT_GRACE_SECONDS):
                        await pipeline.wait_until(lambda: not pipeline.sends_in_flight)
                except TimeoutError:
                    self._log.warning("Abandoning %s submits in flight.", pipeline.sends_in_flight)
                if self._options.cancel_on_kill and pipeline.jobs:
                    await self._checkpoint.check_owner()
                    pipeline.stop_polling()
                    for job_id, ended in (await self._cancel(list(pipeline.jobs))).items():
                        if ended:
                            pipeline.on_update(job_id, ended)
                    await pipeline.wait_until(lambda: not pipeline.counts[READY])
        except TimeoutError:
            self._log.warning("Timed out after %.0f s: what is not finished has failed.", GRACE_SECONDS)

    async def _cancel(self, job_ids: list[str]) -> dict[str, Record | None]:
        """Cancel jobs in flight; return the records of those that had ended, None for cancelled ones."""
        return await self._steps.kind.cancel_in_flight(
            self._client, job_ids, self._options.concurrency, self._log, CANCEL_SECONDS
        )
