"""The engine of a bulk operator: runs its pipeline until it is done, killed, late, or may be deferred."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from airflow_provider.exceptions import ComplianceError, ComplianceJobTimeoutError, ComplianceSupersededError
from airflow_provider.nights.bulk.backoff import AdaptiveLimiter
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.nights.bulk.counts import Progress, find_damaged
from airflow_provider.nights.bulk.items import FAILED, READY, I, Item, Steps
from airflow_provider.nights.bulk.pipeline import Pipeline
from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey
from airflow_provider.redaction.text import plural
from airflow_provider.runtime.event_loop import for_each, in_thread, run_to_end
from airflow_provider.runtime.params import MaxFailed
from airflow_provider.runtime.provenance import describe_attempt, read_provenance
from airflow_provider.storage.jsonl import TableFile
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import task_folder
from airflow_provider.waiting.poller import Subscription
from airflow_provider.waiting.results import UNKNOWN, Record
from airflow_provider.waiting.rules import SETUP_ERRORS
from airflow_provider.waiting.waits import Deadline

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.hooks.compliance import ComplianceHook

IDLE_BEFORE_DEFER_SECONDS = 10.0
CLOCK_CHECK_SECONDS = 1.0
GRACE_SECONDS = 60.0  # after the deadline, to poll once more and to fetch completed results
SUBMIT_GRACE_SECONDS = 5.0  # for submits in flight: otherwise their jobs would be unknown
ERROR_GRACE_SECONDS = 30.0  # likewise, if an error ends the attempt long before its deadline
CANCEL_SECONDS = 15.0  # to cancel jobs; Airflow gives a killed task little time


@dataclass(eq=False, kw_only=True)
class BulkRun:
    """An attempt of a bulk operator, from its start or since it was deferred.

    See the operators for parameters that are theirs.

    :param root: the common prefix of the destinations of all nights
    :param ends_at: the deadline on our clock
    :param is_new_attempt: failed items are processed again; not so after a deferral
    :param is_last_attempt: Airflow has no retry left
    :param retry_failed: how often a failed job is processed again
    :param job_seconds: after which a job is stuck
    :param may_defer: end when only waiting is left
    :param clock: returns monotonic time
    :ivar checkpoint: of the task instance
    :ivar nights: earlier nights, and where this one is published
    :ivar stuck_in: seconds until the first of the jobs in flight is stuck
    """

    hook: ComplianceHook
    log: Any
    context: Any
    destination: Location
    root: Location
    night: Night
    deadline: Deadline
    ends_at: float
    started_at: str
    is_new_attempt: bool
    concurrency: int
    poll_interval: float
    retry_failed: int = 0
    cancel_on_kill: bool = True
    may_defer: bool = False
    is_last_attempt: bool = False
    job_seconds: float = math.inf
    max_submitted: MaxFailed | None = None
    delete_after: str | None = None
    clock: Callable[[], float] = time.monotonic
    checkpoint: Checkpoint = field(init=False)
    nights: EarlierNights = field(init=False)
    stuck_in: float = field(default=math.inf, init=False)

    def open(self, kind: str, folder: str, work_folder: str, manifest: str, sources: Collection[str]) -> None:
        """Open the checkpoint of the task instance, and earlier nights; in the task's own thread.

        :param kind: the kind of the entries in the index of nights
        :param sources: the documents of the task
        """
        ti = self.context["ti"]
        self.checkpoint = Checkpoint(
            self.destination / task_folder(ti, work_folder),
            self.destination / task_folder(ti, folder),
            manifest,
            **describe_attempt(ti),
            expires_at=self.deadline.at,
            max_tries=getattr(ti, "max_tries", None),
        )
        self.checkpoint.provenance = read_provenance({"ti": ti})
        self.checkpoint.account = self.hook.account_digest
        self.nights = EarlierNights(
            self.root, kind, self.night, TaskKey.of(ti), self.checkpoint.account, sources
        )

    def find_damaged(self, known: Collection[Item]) -> Set[str]:
        """Return the keys of known items that a retry does not send again; a clear sends all."""
        checkpoint = self.checkpoint
        for item in known:
            if item.state is FAILED and (checkpoint.is_first or item.try_number < checkpoint.first_try):
                item.failed_jobs = 0  # from before a clear
        damaged = find_damaged(known) if self.is_new_attempt else frozenset()
        if damaged:
            what = "Not sending %s of %s again: the service could not process them twice. A clear sends them."
            self.log.info(what, len(damaged), plural(len(known), "item"))
        return damaged

    async def publish(
        self,
        manifest: TableFile,
        keys: Iterable[str],
        table: str,
        tables: Mapping[str, Table] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the manifest, then the entry by which later nights find it.

        :param table: the name of the manifest in the entry
        :param tables: what else is published
        """
        await self.checkpoint.publish(manifest)
        published = {table: Table.of(manifest.location, manifest.sha256), **(tables or {})}
        await self.checkpoint.check_owner()
        await in_thread(self.nights.publish, published, keys, facts)

    @property
    def stuck_pause(self) -> float:
        """After how many seconds to deal again with stuck jobs that could not be asked for."""
        return self.job_seconds / 10


class BulkEngine(Generic[I]):
    """Processes the items of one task, on one event loop.

    :param client: for everything but polls
    :param items: all items, including finished ones
    :param outdated: jobs in flight that no item waits for any more, to be cancelled
    """

    def __init__(
        self,
        run: BulkRun,
        client: AsyncComplianceClient,
        items: Iterable[I],
        steps: Steps[I],
        outdated: Iterable[str] = (),
    ) -> None:
        self._run = run
        self._client = client
        self._steps = steps
        self._outdated = list(outdated) if run.cancel_on_kill else []
        self._limiter = AdaptiveLimiter(run.concurrency, lambda: client.throttlings)
        self._pipeline = Pipeline(run, client, items, steps, self._limiter)
        self._updates: Subscription

    async def run(self) -> list[str]:
        """Run until all items are done, the deadline passed, or a trigger can wait for the rest.

        :return: the jobs in flight
        """
        pipeline = self._pipeline
        progress = Progress(pipeline.counts, len(pipeline.items), self._steps.noun, self._run.log)
        if self._outdated:  # before others are submitted
            await self._cancel(self._outdated)
        try:
            async with Subscription(
                self._run.hook,
                self._steps.kind,
                (),
                self._run.poll_interval,
                pipeline.refreshes.accepts,
                self._limiter,
                self._run.hook.account_digest,
            ) as self._updates:
                pipeline.start(self._updates)
                await self._work(progress)
                if pipeline.is_past_deadline:
                    pipeline.fail_unfinished()
        except BaseExceptionGroup as errors:
            error = await self._on_fatal(errors.exceptions[0])
            # One that many workers met, such as a failed login, has the lines of each in its traceback.
            raise (error.with_traceback(None) if isinstance(error, ComplianceError) else error) from None
        finally:
            pipeline.retry_log.flush()
        await self._run.checkpoint.flush()
        await self._run.checkpoint.check_owner()
        self._run.log.info("%s", progress.line())
        self._run.stuck_in = pipeline.find_stuck_in()
        return list(pipeline.jobs)

    async def _work(self, progress: Progress) -> None:
        pipeline, concurrency = self._pipeline, self._run.concurrency
        background: list[Coroutine[Any, Any, Any]] = [
            self._run.checkpoint.run_writer(),
            progress.run(),
            self._settle(pipeline.receive),
            self._settle(self._end_stuck),
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in background]
            tasks += [group.create_task(self._settle(pipeline.work)) for _ in range(concurrency)]
            try:
                if await self._reaches_deadline():
                    self._end_attempt()
                    pipeline.on_deadline()
                    # Submits that stall keep their workers.
                    tasks += [group.create_task(self._settle(pipeline.work)) for _ in range(concurrency)]
                    await self._finish_late()
            except asyncio.CancelledError:
                ended = (task for task in tasks if task.done() and not task.cancelled())
                if not any(task.exception() for task in ended):  # else the group itself cancelled us
                    for task in tasks[1:]:  # the journal is still written
                        task.cancel()
                    await run_to_end(self._cancel_all())
                raise
            for task in tasks:
                task.cancel()

    async def _settle(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do some work; before its error ends all other work, wait for the answers to submits in flight."""
        pipeline = self._pipeline
        try:
            await work()
        except ComplianceSupersededError:
            raise
        except Exception:
            pipeline.is_ending = True
            with suppress(TimeoutError):
                async with asyncio.timeout(ERROR_GRACE_SECONDS):
                    await pipeline.wait_until(lambda: not pipeline.sends_in_flight)
            raise

    def _end_attempt(self) -> None:
        """Leave jobs in flight to the next attempt, if any: only the time of this one is over."""
        limit, pipeline = self._run.deadline.name, self._pipeline
        if limit == "timeout":
            return
        done = f"{pipeline.counts.done} of {len(pipeline.items)} {self._steps.noun} are done"
        why = f"The {limit} of the task is over, and {done}: if it is too short, set a longer one."
        if not self._run.is_last_attempt:
            raise ComplianceJobTimeoutError(f"{why} Jobs in flight go on, and the next attempt resumes.")
        self._run.log.warning("%s Unfinished items failed.", why)

    async def _on_fatal(self, error: BaseException) -> BaseException:
        """Write the journal before an error ends the attempt; return the error, as transient as it is."""
        if isinstance(error, SETUP_ERRORS) and (
            self._pipeline.retries.has_any_success or self._updates.poller.has_succeeded
        ):
            error.transient = True
        if not isinstance(error, ComplianceSupersededError):
            try:
                await self._run.checkpoint.flush()
            except ComplianceError as other:
                self._run.log.warning("Could not write the whole checkpoint: %s", other)
            else:
                is_final = isinstance(error, ComplianceError) and not error.transient
                is_over = is_final or self._run.is_last_attempt
                if is_over and self._pipeline.jobs and self._run.cancel_on_kill:
                    self._run.log.info("The task fails for good, so its jobs in flight are cancelled.")
                    await run_to_end(self._cancel_all())
        return error

    async def _cancel_all(self) -> None:
        """Write the journal, then cancel: what matters most comes first."""
        try:
            await self._run.checkpoint.flush()
            await self._run.checkpoint.check_owner()  # without knowing whose the jobs are, none is cancelled
            if self._run.cancel_on_kill:
                for job_id, ended in (await self._cancel(list(self._pipeline.jobs))).items():
                    if not ended:
                        self._pipeline.forget_job(job_id)
                await self._run.checkpoint.flush()
        except ComplianceError as error:
            self._run.log.warning("Could not cancel jobs in flight: %s", error)

    async def _reaches_deadline(self) -> bool:
        """Wait until nothing is left to do but to wait; return whether the deadline came first."""
        while not self._pipeline.is_done:
            remaining = self._run.ends_at - self._run.clock()
            if remaining <= 0:
                return True
            self._pipeline.find_stuck()
            is_idle = self._run.clock() - self._pipeline.active_at > IDLE_BEFORE_DEFER_SECONDS
            if self._run.may_defer and is_idle and self._pipeline.is_only_waiting:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(min(CLOCK_CHECK_SECONDS, max(0.01, remaining))):
                    await self._pipeline.wait_until(lambda: self._pipeline.is_done)
        return False

    async def _end_stuck(self) -> None:
        """Have stuck jobs processed again, forever; those replaced or stuck after that are cancelled."""
        pipeline, options = self._pipeline, self._run
        while True:
            await pipeline.wait_until(lambda: bool(pipeline.stuck))
            await self._run.checkpoint.check_owner()
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
        """Have a stuck job processed again, unless it ended, or that is not known."""
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
        """After the deadline, poll once more, fetch completed results, then cancel the rest."""
        pipeline = self._pipeline
        await self._run.checkpoint.check_owner()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                for update in await self._updates.poll_now(list(pipeline.jobs)):
                    pipeline.on_update(*update)
                await pipeline.wait_until(lambda: not pipeline.counts[READY])
                try:
                    async with asyncio.timeout(SUBMIT_GRACE_SECONDS):
                        await pipeline.wait_until(lambda: not pipeline.sends_in_flight)
                except TimeoutError:
                    self._run.log.warning("Giving up on %s submits in flight.", pipeline.sends_in_flight)
                if self._run.cancel_on_kill and pipeline.jobs:
                    await self._run.checkpoint.check_owner()
                    pipeline.stop_polling()
                    for job_id, ended in (await self._cancel(list(pipeline.jobs))).items():
                        if ended:
                            pipeline.on_update(job_id, ended)
                    await pipeline.wait_until(lambda: not pipeline.counts[READY])
        except TimeoutError:
            self._run.log.warning("Timed out after %.0f s: unfinished items failed.", GRACE_SECONDS)

    async def _cancel(self, job_ids: list[str]) -> dict[str, Record | None]:
        """Cancel jobs in flight; return the records of finished ones, None for cancelled ones."""
        return await self._steps.kind.cancel_in_flight(
            self._client, job_ids, self._run.concurrency, self._run.log, CANCEL_SECONDS
        )
