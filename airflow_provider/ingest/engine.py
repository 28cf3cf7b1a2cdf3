"""The ingest itself: submit, wait, fetch, all at the same time, on one event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

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
from airflow_provider.ingest.documents import COMPLETED, FAILED, SKIPPED, Document, now
from airflow_provider.ingest.jobs import PendingJobs
from airflow_provider.ingest.reading import SubmittedFile
from airflow_provider.ingest.unchanged import UnchangedIndex
from airflow_provider.storage.locations import Location
from airflow_provider.storage.texts import store_text

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import ContentJob
    from airflow_provider.waiting.kinds import JobUpdate

IDLE_BEFORE_DEFER_SECONDS = 10.0  # seconds without anything to do before the rest is left to the triggerer
GRACE_SECONDS = 60.0  # after the deadline, to poll once more and to fetch the texts of what is completed
SUBMIT_GRACE_SECONDS = 5.0  # of these, for submits that are under way: else nobody would know their jobs
STALE_SECONDS = 300.0  # in which the state of before a refresh is not taken for its result
LATE = "Not finished in time."


class Step(IntEnum):
    """What can be done with a document; what is nearer to its end goes first."""

    FETCH = 0
    REFRESH = 1
    SUBMIT = 2


# All documents would meet the same, also those that come later.
SYSTEMIC = (ComplianceAuthError, ComplianceConfigError, ComplianceTlsError)
# What the service says of one document; other refusals may come from something before the service, and pass.
OF_THE_DOCUMENT = frozenset({400, 413, 415, 422})


@dataclass
class IngestOptions:
    """How to ingest; see the parameters of the operator. The deadline is of the monotonic clock."""

    concurrency: int
    retry_failed: int
    poll_interval: float
    deadline: float
    cancel_on_kill: bool
    may_leave: bool


class Ingest:
    """One ingest in progress.

    :param client: the service
    :param documents: all documents; those with a status are done
    :param target_of: where the text of a document goes
    :param journal: where to write down what is done
    :param lease: tells whether the task instance is still ours
    :param known: documents of earlier runs, where unchanged ones are skipped
    :param superseded: jobs under way that nobody waits for any more
    """

    def __init__(
        self,
        client: AsyncComplianceClient,
        documents: Iterable[Document],
        target_of: Callable[[Document], Location],
        journal: Journal,
        lease: Lease,
        options: IngestOptions,
        log: Any,
        known: UnchangedIndex | None = None,
        superseded: Iterable[str] = (),
    ) -> None:
        self._client = client
        self._target_of = target_of
        self._journal = journal
        self._lease = lease
        self._options = options
        self._log = log
        self._unchanged = known
        self._superseded = list(superseded)
        self._documents = list(documents)
        self._gate = AdaptiveLimiter(options.concurrency, lambda: client.throttlings)
        self._queue: asyncio.PriorityQueue[tuple[Step, int, Document]] = asyncio.PriorityQueue()
        self._order = itertools.count()
        self._jobs = PendingJobs(client, self._gate, options.poll_interval, self._hear, log)
        # A submit that is not in the journal would be made again after a crash.
        self._unwritten = asyncio.Semaphore(options.concurrency)
        self._retries = RetryTracker(options.concurrency)
        self._active_at = time.monotonic()
        self._over = asyncio.Event()
        self._is_late = False  # from then on nothing is begun but fetching texts
        self._submitting = 0  # documents that are being submitted
        self._fetching: set[str] = set()  # sources whose jobs are completed and whose texts are not here yet
        self._settled = asyncio.Event()  # one of these has become less
        self._stale: set[str] = set()  # sources whose jobs show the state of before their refresh
        self._has_logged_traceback = False
        self.counts = Counts()

    @property
    def waiting(self) -> list[str]:
        """The jobs that are still under way."""
        return self._jobs.uuids

    async def run(self) -> None:
        """Work until all documents are done, the time is up, or only waiting is left that others can do."""
        for document in self._documents:
            self._enter(document)
        self._look_for_end()
        self._look_at_clock()
        progress = Progress(self.counts, len(self._documents), self._log)
        keepers = (
            self._journal.run_writer(),
            progress.run(),
            self._jobs.poll(),
            self._watch_time(),
            self._supersede(),
        )
        workers = (self._work() for _ in range(self._options.concurrency))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in (*keepers, *workers)]
                try:
                    await self._over.wait()
                    if self._is_late:
                        await self._finish_late()
                except asyncio.CancelledError:
                    if not any(_has_failed(task) for task in tasks):  # else the group ends its own work
                        self._is_late = True
                        for task in tasks[1:]:
                            task.cancel()
                        await _to_its_end(self._stop_killed())
                    raise
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise await self._failed(errors.exceptions[0]) from None
        for document in self._documents:
            if self._is_late and not document.status:
                self._end(document, LATE)
        if self._is_late:
            self._jobs.clear()
        await self._journal.flush()
        await self._lease.check()
        self._log.info("%s", progress.line())

    async def _failed(self, error: BaseException) -> BaseException:
        """Write down what is done before an error ends the attempt, and say whether a retry may help."""
        if isinstance(error, SYSTEMIC) and (self._retries.any_went_well or self._jobs.has_worked):
            error.transient = True
        if not isinstance(error, ComplianceSupersededError):
            try:
                await self._journal.flush()
            except ComplianceError as other:
                self._log.warning("Not all that is done could be written down: %s", other)
        return error

    async def _stop_killed(self) -> None:
        """Do what matters most first: Airflow gives a killed task a few seconds."""
        try:
            await self._journal.flush()
            await self._lease.check()
        except ComplianceSupersededError as error:
            self._log.warning("Nothing is cancelled: %s", error)
            return
        except ComplianceError as error:
            # Without knowing whose the jobs are, none is cancelled.
            self._log.warning("Jobs are not cancelled, and not all is written down: %s", error)
            return
        if self._options.cancel_on_kill and self._jobs.uuids:
            await self._jobs.cancel(self._jobs.uuids)

    def _enter(self, document: Document) -> None:
        if document.uuid and document.status != SKIPPED:
            self._retries.worked_before(Step.SUBMIT)
        if document.status:
            self.counts.add(document.status)
        elif document.uuid:
            self._jobs.add(document)
        else:
            self._put(Step.SUBMIT, document)

    def _put(self, step: Step, document: Document) -> None:
        self._queue.put_nowait((step, next(self._order), document))

    def _put_later(self, delay: float, step: Step, document: Document) -> None:
        asyncio.get_running_loop().call_later(delay, self._put, step, document)

    async def _work(self) -> None:
        while True:
            step, _, document = await self._queue.get()
            if self._is_late and step is not Step.FETCH:
                continue
            if not self._is_late and (delay := self._retries.hold_seconds(step)):
                self._put_later(delay, step, document)
                continue
            self._submitting += step is Step.SUBMIT
            try:
                await self._do(step, document)
            finally:
                self._submitting -= step is Step.SUBMIT
                self._active_at = time.monotonic()
                self._settled.set()
            self._look_for_end()

    async def _do(self, step: Step, document: Document) -> None:
        began = time.monotonic()
        try:
            match step:
                case Step.FETCH:
                    await self._fetch(document)
                case Step.REFRESH:
                    await self._refresh(document)
                case Step.SUBMIT:
                    await self._submit(document)
        except ComplianceError as error:
            if self._is_systemic(step, error):
                raise
            self._meet(error, step, document)
        except Exception as error:
            self._end(document, self._unexpected(error, document))
        else:
            if document.status != SKIPPED:  # which nobody was asked for
                self._retries.record_success(step, document.source, began)

    def _is_systemic(self, step: Step, error: ComplianceError) -> bool:
        """Tell whether an error is not the fault of one document: all others would end the same way."""
        if isinstance(error, ComplianceStorageDeniedError):
            return step is Step.FETCH and not self._retries.has_worked(step)
        return isinstance(error, SYSTEMIC) and not error.transient

    def _meet(self, error: ComplianceError, step: Step, document: Document) -> None:
        """Try again, after a pause, what a passing fault was in the way of."""
        delay = self._retries.next_delay(step, document.source, error) if _may_pass(step, error) else None
        if delay is None:
            if step is Step.FETCH:
                document.completed_at = None  # so that a retry does not rely on this job
            self._end(document, error)
            return
        self._log.warning("'%s' is tried again in %.0f s: %s", document.label, delay, error)
        self._put_later(delay, step, document)

    def _unexpected(self, error: Exception, document: Document) -> str:
        """Name an error that nobody has thought of, which must not end the work on all others."""
        self._log.warning(
            "'%s' has failed for an unexpected reason.", document.label,
            exc_info=None if self._has_logged_traceback else error,
        )  # fmt: skip
        self._has_logged_traceback = True
        return f"Unexpected {type(error).__name__}: {error}"

    async def _submit(self, document: Document) -> None:
        if self._unchanged is not None and await self._unchanged.skip(document):
            self._end(document)
            return
        await self._unwritten.acquire()
        try:
            async with self._gate.slot():
                job = await self._send(document)
        except ComplianceUncertainError:
            document.attempts += 1
            self._journal.append(document).add_done_callback(lambda _: self._unwritten.release())
            raise
        except BaseException:
            self._unwritten.release()
            raise
        document.uuid, document.submitted_at, document.from_previous_attempt = job.uuid, now(), False
        document.completed_at = None  # of an earlier job
        document.attempts += 1
        self._journal.append(document).add_done_callback(lambda _: self._unwritten.release())
        self._see(document, job)

    async def _send(self, document: Document) -> ContentJob:
        if document.is_page:
            return await self._client.submit_url(document.source)
        file = SubmittedFile(document.source)
        try:
            return await self._client.submit_file(file)
        finally:
            document.source_version = file.version or document.source_version

    async def _refresh(self, document: Document) -> None:
        document.attempts += 1
        try:
            async with self._gate.slot():
                job = await self._client.refresh(document.uuid)
        except ComplianceUncertainError:
            self._journal.append(document)
            raise
        except ComplianceError:
            document.attempts -= 1  # it was not taken
            raise
        document.refresh_count += 1
        document.refreshed_at = time.monotonic()
        self._journal.append(document)
        if job.status == FAILED:  # as it was before: the service has not begun yet
            self._jobs.add(document)
        else:
            self._see(document, job)

    async def _fetch(self, document: Document) -> None:
        target = self._target_of(document)
        async with self._gate.slot():
            written = await store_text(self._client, document.uuid, target)
        document.path, document.bytes, document.sha256 = target.uri, written.bytes, written.sha256
        if self._unchanged:
            await self._unchanged.remember(document)
        document.status = COMPLETED
        self._end(document)

    def _hear(self, document: Document, news: JobUpdate) -> None:
        """Take what the look at a job has brought."""
        try:
            if isinstance(news, ComplianceError):
                self._end(document, news)
            else:
                self._active_at = time.monotonic()
                self._see(document, news)
        except Exception as error:
            self._end(document, self._unexpected(error, document))
        self._look_for_end()

    def _see(self, document: Document, job: ContentJob | None) -> None:
        """Go on with a document as the state of its job says."""
        if job and job.status.is_final and self._is_stale(document, job):
            self._stale.add(document.source)
            self._jobs.add(document)
            return
        self._stale.discard(document.source)
        state = job.status.value if job else "UNKNOWN"
        if job and state == COMPLETED:
            document.completed_at = job.completed_at.isoformat() if job.completed_at else now()
            self._fetching.add(document.source)
            self._put(Step.FETCH, document)
        elif job and state == FAILED:
            if document.refresh_count < self._options.retry_failed and not self._is_late:
                document.refreshed_from, document.refreshed_at = _stamp(job), None
                self._put(Step.REFRESH, document)
            else:
                self._end(document, job.error or "The service gave no reason.")
        elif job and not job.status.is_final:
            self._jobs.add(document)
        elif document.from_previous_attempt:
            self._log.info("Job %s of an earlier attempt is gone: submitting anew.", document.uuid)
            document.uuid = ""
            self._put(Step.SUBMIT, document)
        else:
            self._end(document, f"The job was cancelled, or is gone ({state}).")

    def _is_stale(self, document: Document, job: ContentJob) -> bool:
        """Tell whether a job still shows how it ended before it was refreshed."""
        if (
            not document.refresh_count
            or not document.refreshed_from
            or _stamp(job) != document.refreshed_from
        ):
            return False
        if document.refreshed_at is None:  # refreshed before the task deferred
            document.refreshed_at = time.monotonic()
        return time.monotonic() - document.refreshed_at < STALE_SECONDS

    def _end(self, document: Document, error: object = None) -> None:
        if error is not None:
            document.fail(error)
        self._fetching.discard(document.source)
        self.counts.add(document.status)
        self._journal.append(document)

    def _look_for_end(self) -> None:
        if self.counts.done == len(self._documents):
            self._over.set()

    def _look_at_clock(self) -> None:
        if time.monotonic() >= self._options.deadline and not self._over.is_set():
            self._is_late = True
            self._over.set()

    async def _watch_time(self) -> None:
        while not self._over.is_set():
            await asyncio.sleep(min(1.0, max(0.01, self._options.deadline - time.monotonic())))
            self._look_at_clock()
            only_waits = self.counts.done + self._jobs.documents == len(self._documents) and not self._stale
            # A trigger comes back at once with what is unknown, so that is found out here.
            may_leave = self._options.may_leave and only_waits and not self._jobs.has_unknown
            if may_leave and time.monotonic() - self._active_at > IDLE_BEFORE_DEFER_SECONDS:
                self._over.set()

    async def _finish_late(self) -> None:
        """Look once more when the time is up: fetch what is completed, then cancel what is not."""
        await self._lease.check()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await self._jobs.poll_now()
                await self._until(lambda: not self._fetching)
                try:
                    async with asyncio.timeout(SUBMIT_GRACE_SECONDS):
                        await self._until(lambda: not self._submitting)
                except TimeoutError:
                    self._log.warning("%s submits are given up, answered or not.", self._submitting)
                if self._options.cancel_on_kill and self._jobs.uuids:
                    await self._lease.check()
                    for uuid, job in (await self._jobs.cancel(self._jobs.uuids)).items():
                        self._jobs.end(uuid, job)
                    await self._until(lambda: not self._fetching)
        except TimeoutError:
            self._log.warning("Not all could be brought to an end within %.0f s.", GRACE_SECONDS)

    async def _until(self, is_settled: Callable[[], bool]) -> None:
        while not is_settled():
            self._settled.clear()
            await self._settled.wait()

    async def _supersede(self) -> None:
        if self._superseded and self._options.cancel_on_kill:
            await self._jobs.cancel(self._superseded)


def _may_pass(step: Step, error: ComplianceError) -> bool:
    """Tell whether to try again: also a refusal may come from something before the service, and pass."""
    if isinstance(error, ComplianceHttpError):
        return error.transient or error.status not in OF_THE_DOCUMENT
    return error.transient or (step is Step.FETCH and isinstance(error, ComplianceStorageDeniedError))


def _stamp(job: ContentJob) -> str:
    """Tell one end of a job from another; empty where the service gives no times."""
    times = [each.isoformat() for each in (job.completed_at, job.fetched_at) if each]
    return " ".join(times)


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


async def _to_its_end(work: Any) -> None:
    """Do something in a task of its own, to its end, however often that is cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    task.result()
