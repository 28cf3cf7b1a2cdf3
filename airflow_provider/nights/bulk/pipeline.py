"""The pipeline of a bulk operator: takes items from state to state, many at the same time."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic

from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceJobError,
    ComplianceJobTimeoutError,
    ComplianceProtocolError,
    ComplianceUncertainError,
    FailureKind,
)
from airflow_provider.nights.bulk.backoff import HOLD_CHECK_SECONDS, AdaptiveLimiter, RetryTracker
from airflow_provider.nights.bulk.counts import Counts, RetryLog, format_duration
from airflow_provider.nights.bulk.items import (
    COMPLETED,
    FAILED,
    LATE,
    PENDING,
    READY,
    RETRYING,
    SKIPPED,
    SUBMITTED,
    I,
    ItemState,
    Steps,
)
from airflow_provider.waiting.poller import Subscription
from airflow_provider.waiting.results import FINAL, Record
from airflow_provider.waiting.rules import RefreshCheck

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.nights.bulk.engine import BulkRun
    from airflow_provider.waiting.results import PollResult

MAX_RESUBMITS = 1  # per attempt, of an item whose job is gone
UNCHANGED_SECONDS = 300.0  # after which an unchanged result counts as the result of a refresh

RESULTS_PER_SUBMIT = 2
MAX_REASON_CHARS = 200  # of a failed job that is processed again
UNFINISHED_JOB = "Not finished in time: its job was "  # the error of an item whose job was in flight


class Pipeline(Generic[I]):
    """Submits items, waits for their jobs and fetches their results.

    Each of `concurrency` workers processes one item at a time, and takes the next one when the submit is in
    the journal: after a crash, at most that many are submitted again.

    :param client: tells the time at the service, which all attempts share
    :param items: all items, including finished ones
    """

    def __init__(
        self,
        run: BulkRun,
        client: AsyncComplianceClient,
        items: Iterable[I],
        steps: Steps[I],
        limiter: AdaptiveLimiter,
    ) -> None:
        self._run = run
        limit = client.settings.max_in_flight
        self._max_in_flight = math.inf if limit is None else limit
        self._service_time = client.clock.now
        self.items = list(items)
        self.counts = Counts(item.state for item in self.items)
        self.jobs: dict[str, list[I]] = {}  # in flight; a service may give one job to equal items
        self.refreshes = RefreshCheck({}, UNCHANGED_SECONDS)
        self.retries = RetryTracker(run.concurrency, run.clock, is_last_attempt=run.is_last_attempt)
        self.retry_log = RetryLog(steps.noun, run.log)
        self.is_past_deadline = False  # from the deadline on only results are fetched
        self.is_ending = False  # from an error that all items would meet, nothing more is begun
        self.has_changed = asyncio.Event()
        self.sends_in_flight = 0
        self.active_at = run.clock()
        self.stuck: list[str] = []  # jobs that take too long, until the engine has dealt with all of them
        self._next_stuck_at = 0.0
        self._steps = steps
        self._limiter = limiter
        self._inputs: defaultdict[str, set[Hashable]] = defaultdict(set)  # inputs of the items of each job
        self._last_results: dict[str, PollResult | None] = {}  # by job, once it is not polled any more
        self._updates: Subscription
        self._results: deque[I] = deque()  # to be fetched
        self._sends: deque[I] = deque()  # to be submitted, or processed again
        self._results_in_row = 0  # taken since the last submit
        self._backoffs: dict[str, tuple[asyncio.TimerHandle, I]] = {}
        self._has_logged_traceback = False

    def start(self, updates: Subscription) -> None:
        """Start with all items in their current states."""
        self._updates = updates
        for job_id, made_of in self._steps.earlier_inputs.items():
            self._inputs[job_id].add(made_of)
        for item in self.items:
            if item.job_id:
                self._inputs[item.job_id].add(item.input)
            if item.job_id and item.state is not SKIPPED:
                self.retries.record_earlier_success(PENDING)
            if item.state is COMPLETED:
                self.retries.record_earlier_success(READY)
            if item.state is SUBMITTED:
                if item.retry_count and item.retried_from:
                    self.refreshes.restart(item.job_id, item.retried_from)
                self.jobs.setdefault(item.job_id, []).append(item)
            elif not item.state.is_final:
                self._enqueue(item)
        self._updates.add(self.jobs)

    @property
    def is_done(self) -> bool:
        """Whether all items are in a final state, and all stuck jobs are dealt with."""
        return not self.stuck and self.counts.done == len(self.items)

    @property
    def is_only_waiting(self) -> bool:
        """Whether nothing is left to do but to wait for jobs."""
        # A trigger would end at once with old results and unknown jobs, so they are settled here.
        is_settled = not self.refreshes.has_pending_refreshes and not self._updates.has_pending_updates
        return not self.stuck and is_settled and self.counts.done + self.counts[SUBMITTED] == len(self.items)

    def find_stuck(self) -> None:
        """Find the jobs that take too long."""
        at, limit = self._service_time(), self._run.job_seconds
        if self.stuck or at < self._next_stuck_at:
            return
        for job_id, items in self.jobs.items():
            is_late = min(item.stuck_at(limit) for item in items) <= at
            if is_late and self._updates.poller.is_in_flight(job_id):
                self.stuck.append(job_id)
                self.has_changed.set()
        soonest = at + self._run.stuck_pause if self.stuck else 0.0
        self._next_stuck_at = max(soonest, min([at + limit, *(item.stuck_at(limit) for item in self.items)]))

    def find_stuck_in(self) -> float:
        """Return after how many seconds to look for stuck jobs."""
        stuck_at = min((item.stuck_at(self._run.job_seconds) for item in self.items), default=math.inf)
        seconds = stuck_at - self._service_time()
        return seconds if seconds > 0 else self._run.stuck_pause  # it could not be asked for: an outage

    async def process_again(self, job_id: str) -> bool:
        """Ask once to process a stuck job again, refused or not; return whether the job is to be given up."""
        if self.is_past_deadline or not self._updates.poller.is_in_flight(job_id):
            return False
        self._updates.remove([job_id])  # its current result does not count if the service accepts
        items = self.jobs[job_id]
        if any(item.retry_count for item in items):
            return True
        self.sends_in_flight += 1
        for item in list(items):
            self._run.log.warning(
                "Job %s of '%s' takes too long: asking the service to process it again.", job_id, item.label
            )
            item.retried_from, item.last_error = None, ""
            try:
                written = await self._send(item)
            except Exception as error:
                item.last_error = item.describe(error)
                self._run.log.warning("Still waiting for job %s: %s", job_id, item.last_error)
                item.retry_count += 1
                item.submitted_at = self._now()
                written = self._run.checkpoint.append(item)
            if written:
                await written
        self.sends_in_flight -= 1
        self.has_changed.set()
        self._updates.remove([job_id])  # one that several items share may be polled already
        self._updates.add([job_id] if items else [])
        return not items  # another one replaces it

    def fail_stuck(self, job_id: str) -> None:
        """Give up a job that was stuck twice or is replaced, and its items."""
        limit = format_duration(self._run.job_seconds)
        for item in self.jobs.pop(job_id, []):
            error = f"Stuck for {limit}, and {limit} more after the service was asked to process it again"
            error = f"{error}: {item.last_error}" if item.last_error else f"{error}."
            self._fail(item, ComplianceJobTimeoutError(error))
        self.has_changed.set()

    def on_deadline(self) -> None:
        """From now on, only fetch completed results, without further delay."""
        self.is_past_deadline = True
        self._limiter.lift()  # submits that stall count as requests
        self._retry_now([item.key for item in self.items if item.state is READY])

    def forget_job(self, job_id: str) -> None:
        """Let the next attempt submit the items of a job again that was cancelled."""
        for item in self.jobs.pop(job_id, []):
            self._run.checkpoint.append(item.reset())

    def stop_polling(self) -> None:
        """Keep the results of the last polls: a job that is cancelled next would look unknown."""
        self._last_results = {job_id: self._updates.poller.last_result(job_id) for job_id in self.jobs}
        self._updates.remove(self._last_results)

    def fail_unfinished(self) -> None:
        """Fail unfinished items after the deadline, with the last known cause."""
        for item in self.items:
            if not item.state.is_final:
                self._fail(item, ComplianceJobTimeoutError(self._late_error(item)))
        self.jobs.clear()

    def _late_error(self, item: I) -> str:
        if item.state is SUBMITTED:
            last = self._last_results.get(item.job_id) or self._updates.poller.last_result(item.job_id)
            if not isinstance(last, ComplianceError):
                return f"{UNFINISHED_JOB}{last['status'] if last else 'not polled yet'}."
            cause = f"the last poll of its job failed: {last}"
        elif item.last_error:
            cause = f"the last error was: {item.last_error}"
        elif item.state is not READY and self._max_in_flight < math.inf:
            cause = f"max_in_flight of the connection is {self._max_in_flight}, and as many were in flight"
        else:
            cause = LATE[item.state]
        return f"Not finished in time: {cause.removesuffix('.')}."

    def _move(self, item: I, state: ItemState) -> None:
        self.counts[item.state] -= 1
        item.advance(state)
        self.counts[state] += 1

    def _now(self) -> str:
        return datetime.fromtimestamp(self._service_time(), UTC).isoformat(timespec="milliseconds")

    def _enqueue(self, item: I) -> None:
        self._backoffs.pop(item.key, None)
        if item.state is READY:
            self._results.append(item)
        elif item.state is RETRYING:
            self._sends.appendleft(item)
        else:
            self._sends.append(item)
        self.has_changed.set()

    def _enqueue_later(self, delay: float, item: I) -> None:
        self._backoffs[item.key] = asyncio.get_running_loop().call_later(delay, self._enqueue, item), item

    def _retry_now(self, keys: Iterable[str]) -> None:
        for timer, item in [self._backoffs[key] for key in keys if key in self._backoffs]:
            timer.cancel()
            self._enqueue(item)

    def _watch(self, item: I) -> None:
        """Wait for its job."""
        self.jobs.setdefault(item.job_id, []).append(item)
        self._updates.add([item.job_id])

    def _fail(self, item: I, error: object) -> None:
        if isinstance(error, (ComplianceHttpError, ComplianceAuthError)):
            _set_kind(error, item.state)
        self._move(item, FAILED)
        item.set_error(error)
        self._run.checkpoint.append(item)

    async def work(self) -> None:
        """Process items, forever."""
        while True:
            await self.wait_until(lambda: bool(self._results) or self._can_send())
            item = self._take()
            state = item.state
            if not self.is_past_deadline and (delay := self.retries.pause_seconds(state)):
                self._enqueue_later(min(delay, HOLD_CHECK_SECONDS), item)
                continue
            self.sends_in_flight += state is not READY
            try:
                await self._process(item)
            finally:
                self.sends_in_flight -= state is not READY
                self.active_at = self._run.clock()
                self.has_changed.set()

    def _can_send(self) -> bool:
        """Return whether an item waits to be sent, with room for its job."""
        has_room = len(self.jobs) + self.sends_in_flight < self._max_in_flight
        return bool(self._sends) and has_room and not self.is_past_deadline

    def _take(self) -> I:
        """Return the next item: results first, but while all goes well no submit waits for all of them."""
        is_turn = self._results_in_row >= RESULTS_PER_SUBMIT and self._can_send() and not self._backoffs
        if self._results and not is_turn:
            self._results_in_row += 1
            return self._results.popleft()
        self._results_in_row = 0
        return self._sends.popleft()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a change makes a condition true."""
        while not condition():
            self.has_changed.clear()
            await self.has_changed.wait()

    async def _process(self, item: I) -> None:
        state, started_at, written = item.state, self._run.clock(), None
        try:
            if state is READY:
                await self._fetch(item)
            else:
                written = await self._send(item)
        except ComplianceError as error:
            self._on_error(item, error)
        except Exception as error:
            self._fail_unexpectedly(item, error)
        else:
            if item.state is not state:  # else the service was not asked
                self._retry_now(self.retries.record_success(state, item.key, started_at))
            if written:
                await written

    def _on_error(self, item: I, error: ComplianceError) -> None:
        """Retry after a delay, or give the item up; what all items would meet is raised."""
        delay = self.retries.next_delay(item.state, item.key, error)
        if delay is None:
            if item.state is not PENDING:
                item.completed_at = None  # so that the next attempt does not rely on this job
                if item.state is RETRYING and item.retried_from and (why := item.retried_from.get("error")):
                    error.args = (f"{why} Processing it again failed: {error}",)
                if isinstance(error, ComplianceHttpError):
                    error.transient = True  # it is about this job, and the next attempt submits again
            self._fail(item, error)
            return
        item.last_error = item.describe(error)
        self.retry_log.add(item, delay)
        self._enqueue_later(delay, item)

    def _fail_unexpectedly(self, item: I, error: Exception) -> None:
        """Fail one item for an unexpected error, which must not end the work on all others."""
        traceback = None if self._has_logged_traceback else error
        self._run.log.warning("Failing '%s' because of an unexpected error.", item.label, exc_info=traceback)
        self._has_logged_traceback = True
        self._fail(item, f"Unexpected {type(error).__name__}: {error}")

    async def _send(self, item: I) -> asyncio.Future[None] | None:
        """Submit an item, or have its job processed again; the returned future waits for the journal."""
        state, is_retry = item.state, item.state is not PENDING
        async with self._limiter:
            if self.is_past_deadline or self.is_ending:
                return None
            try:
                record = await (self._steps.retry if is_retry else self._steps.submit)(item)
            except ComplianceUncertainError:
                item.attempts += 1  # the service may have received it
                self._run.checkpoint.append(item)
                raise
        if item.state is not state:  # a stuck job that ended after the deadline
            return None
        item.attempts += 1
        job_id = record[self._steps.kind.id_name]
        item.submitted_at = self._now()
        if not is_retry:
            item.completed_at, item.is_resumed = None, False
        elif item.retried_from and job_id == item.job_id:
            self.refreshes.restart(job_id, item.retried_from)
        item.retry_count += is_retry
        if state is SUBMITTED:
            self.jobs[item.job_id].remove(item)
        else:
            self._move(item, SUBMITTED)
        item.job_id = job_id
        if not self._is_shared(job_id):
            self._inputs[job_id].add(item.input)
            if self._is_shared(job_id):  # its text may also belong to this item
                self._fail_shared(one for one in self.items if (one.job_id, one.state) == (job_id, COMPLETED))
        written = self._run.checkpoint.append(item)
        if state is SUBMITTED or (is_retry and record["status"] != COMPLETED):
            self._watch(item)  # the response may still be the failure from before
        else:
            if is_retry:
                self.refreshes.forget(job_id)
            self._on_record(item, record)
        return written

    async def _fetch(self, item: I) -> None:
        if not self._is_shared(item.job_id):
            async with self._limiter:
                await self._steps.fetch(item)
        if self._is_shared(item.job_id):  # perhaps since the request
            self._fail_shared([item])
            return
        self._move(item, COMPLETED)
        self._run.checkpoint.append(item)

    def _is_shared(self, job_id: str) -> bool:
        """Return whether a job was given to different inputs, so nobody knows whose result it has."""
        return len(self._inputs[job_id]) > 1

    def _fail_shared(self, items: Iterable[I]) -> None:
        for item in items:
            item.completed_at = None  # the next attempt submits again
            what = f"The service gave the same {self._steps.kind.noun}, {item.job_id}, to different inputs"
            self._fail(item, ComplianceProtocolError(f"{what}: check for a cache in front of it."))

    async def receive(self) -> None:
        """Handle updates, forever; an error that all jobs meet is raised here."""
        while True:
            self.on_update(*await self._updates.get())

    def on_update(self, job_id: str, update: Record | Exception) -> None:
        """Handle an update of the poller."""
        items = self.jobs.pop(job_id, [])
        if isinstance(update, Exception):
            if not isinstance(update, ComplianceError) or not update.concerns_one_job:
                raise update
            self.refreshes.forget(job_id)
            for item in items:
                self._fail(item, update)
        else:
            self.active_at = self._run.clock()
            self.retries.record_answer()
            for item in items:
                try:
                    self._on_record(item, update)
                except Exception as error:
                    self._fail_unexpectedly(item, error)
        self.has_changed.set()

    def _on_record(self, item: I, record: Record) -> None:
        """Continue with an item according to the record of its job."""
        status = record["status"]
        item.failed_jobs += status == FAILED
        if status not in FINAL:
            self._watch(item)
        elif status == COMPLETED:
            at = record.get("completed_at")
            item.completed_at = datetime.fromisoformat(at).isoformat() if at else self._now()
            self._move(item, READY)
            self._enqueue(item)
        elif status != FAILED:
            self._on_gone(item, status)
        elif item.retry_count < self._run.retry_failed and not self.is_past_deadline:
            kept = ("status", "completed_at", "fetched_at")
            why = item.describe(record.get("error") or "")[:MAX_REASON_CHARS]
            item.retried_from = {"error": why} | {name: record[name] for name in kept if name in record}
            self._move(item, RETRYING)
            self._enqueue(item)
        else:
            self._fail(item, ComplianceJobError(record.get("error") or "The service gave no reason."))

    def _on_gone(self, item: I, status: str) -> None:
        """Submit an item again whose job was cancelled or is gone, if that was submitted before a resume."""
        if item.is_resumed and item.resubmit_count < MAX_RESUBMITS and not self.is_past_deadline:
            item.resubmit_count += 1
            self._run.log.info("Submitting '%s' again: job %s no longer exists.", item.label, item.job_id)
            item.job_id = ""
            self._move(item, PENDING)
            self._enqueue(item)
        else:
            error = ComplianceJobError(f"The job was cancelled, or is gone ({status}).")
            self._fail(item, error.of_kind(FailureKind.GONE))


def _set_kind(error: ComplianceError, state: ItemState) -> None:
    """Let a refusal be about the document only where the service refuses that."""
    if state is PENDING and error.failure_kind is not FailureKind.TOO_LARGE:
        error.failure_kind = FailureKind.SERVICE if error.transient else FailureKind.REJECTED
    elif state is not PENDING and error.failure_kind.group == "document":  # which it had accepted
        error.failure_kind = FailureKind.FAILED if state is RETRYING else FailureKind.SERVICE
