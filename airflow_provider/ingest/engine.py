"""The ingest itself: submit, wait, fetch, all at the same time, on one event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceError,
    ComplianceNotFoundError,
    ComplianceStorageDeniedError,
    ComplianceTlsError,
)
from airflow_provider.ingest.documents import COMPLETED, FAILED, SKIPPED, Document, now
from airflow_provider.ingest.gate import Gate
from airflow_provider.ingest.jobs import JobsUnderWay
from airflow_provider.ingest.journal import Journal
from airflow_provider.ingest.known import Known
from airflow_provider.ingest.progress import Counts, Progress
from airflow_provider.ingest.sources import SourceFile
from airflow_provider.ingest.troubles import Troubles
from airflow_provider.storage.locations import Location
from airflow_provider.storage.texts import store_text

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import ContentJob
    from airflow_provider.triggers.work import JobNews

LINGER = 10.0  # seconds without anything to do before the rest is left to the triggerer
FETCH, REFRESH, SUBMIT = range(3)  # what is nearer to its end goes first

# Not the fault of one document: all others would end the same way.
ALWAYS_SYSTEMIC = (ComplianceAuthError, ComplianceConfigError, ComplianceTlsError)
SYSTEMIC = {
    "_submit": (*ALWAYS_SYSTEMIC, ComplianceNotFoundError),
    "_fetch": (*ALWAYS_SYSTEMIC, ComplianceStorageDeniedError),
}


@dataclass
class Habits:
    """How to ingest; see the parameters of the operator."""

    concurrency: int
    retry_failed: int
    poll_interval: float
    deadline: float
    cancel_on_kill: bool
    may_leave: bool


Step = Callable[[Document], Awaitable[None]]


class Ingest:
    """One ingest in progress.

    :param client: the service
    :param documents: all documents; those with a status are done
    :param target_of: where the text of a document goes
    :param journal: where to write down what is done
    :param known: documents of earlier runs, where unchanged ones are skipped
    """

    def __init__(
        self,
        client: AsyncComplianceClient,
        documents: Iterable[Document],
        target_of: Callable[[Document], Location],
        journal: Journal,
        habits: Habits,
        log: Any,
        known: Known | None = None,
    ) -> None:
        self._client = client
        self._target_of = target_of
        self._journal = journal
        self._habits = habits
        self._log = log
        self._known = known
        self._documents = list(documents)
        self._gate = Gate(habits.concurrency, lambda: client.throttlings)
        self._queue: asyncio.PriorityQueue[tuple[int, int, Step, Document]] = asyncio.PriorityQueue()
        self._order = itertools.count()
        self._jobs = JobsUnderWay(client, self._gate, habits.poll_interval, self._hear, log)
        # A submit that is not in the journal would be made again after a crash.
        self._unwritten = asyncio.Semaphore(habits.concurrency)
        self._troubles = Troubles(habits.concurrency)
        self._active_at = time.monotonic()
        self._over = asyncio.Event()
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
        progress = Progress(self.counts, len(self._documents), self._log)
        keepers = (self._journal.keep(), progress.keep(), self._jobs.keep(), self._watch_time())
        workers = (self._work() for _ in range(self._habits.concurrency))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in (*keepers, *workers)]
                await self._over.wait()
                for task in tasks:
                    task.cancel()
        except asyncio.CancelledError:  # the task is killed
            await self._journal.flush()
            await self._cancel()
            raise
        except BaseExceptionGroup as errors:
            await self._journal.flush()
            raise errors.exceptions[0] from None
        if time.time() >= self._habits.deadline:
            await self._give_up()
        await self._journal.flush()
        self._log.info("%s", progress.line())

    def _enter(self, document: Document) -> None:
        if document.status:
            self.counts.add(document.status)
        elif document.uuid:
            self._jobs.add(document)
        else:
            self._put(SUBMIT, self._submit, document)

    def _put(self, priority: int, step: Step, document: Document) -> None:
        self._queue.put_nowait((priority, next(self._order), step, document))

    async def _work(self) -> None:
        while True:
            _, _, step, document = await self._queue.get()
            began = time.monotonic()
            try:
                await step(document)
            except ComplianceError as error:
                if isinstance(error, SYSTEMIC.get(step.__name__, ALWAYS_SYSTEMIC)):
                    raise
                self._meet(error, step, document)
            else:
                if document.status != SKIPPED:  # which nobody was asked for
                    self._troubles.over(step.__name__, document.source, began)
            finally:
                self._active_at = time.monotonic()
            self._look_for_end()

    def _meet(self, error: ComplianceError, step: Step, document: Document) -> None:
        """Try again, after a pause, what a passing fault was in the way of."""
        pause = self._troubles.pause(step.__name__, document.source, error) if error.transient else None
        if pause is None:
            self._end(document, error)
            return
        self._log.warning("'%s' is tried again in %.0f s: %s", document.label, pause, error)
        asyncio.get_running_loop().call_later(pause, self._put, SUBMIT, step, document)

    async def _submit(self, document: Document) -> None:
        if self._known is not None and await in_thread(self._known.skip, document):
            self._end(document)
            return
        await self._unwritten.acquire()
        try:
            async with self._gate.passage():
                job = await self._send(document)
        except BaseException:
            self._unwritten.release()
            raise
        document.uuid, document.submitted_at, document.is_inherited = job.uuid, now(), False
        document.attempts += 1
        self._journal.note(document).add_done_callback(lambda _: self._unwritten.release())
        self._see(document, job)

    async def _send(self, document: Document) -> ContentJob:
        if document.is_page:
            return await self._client.submit_url(document.source)
        return await self._client.submit_file(SourceFile(document.source))

    async def _refresh(self, document: Document) -> None:
        async with self._gate.passage():
            job = await self._client.refresh(document.uuid)
        document.refreshed += 1
        document.attempts += 1
        self._journal.note(document)
        if job.status == FAILED:  # as it was before: the service has not begun yet
            self._jobs.add(document)
        else:
            self._see(document, job)

    async def _fetch(self, document: Document) -> None:
        target = self._target_of(document)
        async with self._gate.passage():
            written = await store_text(self._client, document.uuid, target)
        document.path, document.bytes, document.sha256 = target.uri, written.bytes, written.sha256
        document.status = COMPLETED
        if self._known:
            await self._known.remember(document)
        self._end(document)

    def _hear(self, document: Document, news: JobNews) -> None:
        """Take what the look at a job has brought."""
        if isinstance(news, ComplianceError):
            self._end(document, news)
        else:
            self._active_at = time.monotonic()
            self._see(document, news)
        self._look_for_end()

    def _see(self, document: Document, job: ContentJob | None) -> None:
        """Go on with a document as the state of its job says."""
        state = job.status.value if job else "UNKNOWN"
        if job and state == COMPLETED:
            document.completed_at = job.completed_at.isoformat() if job.completed_at else now()
            self._put(FETCH, self._fetch, document)
        elif job and state == FAILED:
            if document.refreshed < self._habits.retry_failed:
                self._put(REFRESH, self._refresh, document)
            else:
                self._end(document, job.error or "The service gave no reason.")
        elif job and not job.status.is_final:
            self._jobs.add(document)
        elif document.is_inherited:
            self._log.info("Job %s of an earlier attempt is gone: submitting anew.", document.uuid)
            document.uuid = ""
            self._put(SUBMIT, self._submit, document)
        else:
            self._end(document, f"The job was cancelled, or is gone ({state}).")

    def _end(self, document: Document, error: object = None) -> None:
        if error is not None:
            document.fail(error)
        self.counts.add(document.status)
        self._journal.note(document)

    def _look_for_end(self) -> None:
        if self.counts.done == len(self._documents):
            self._over.set()

    async def _watch_time(self) -> None:
        while not self._over.is_set():
            await asyncio.sleep(min(1.0, max(0.01, self._habits.deadline - time.time())))
            only_waits = self.counts.done + self._jobs.documents == len(self._documents)
            may_leave = self._habits.may_leave and only_waits and time.monotonic() - self._active_at > LINGER
            if time.time() >= self._habits.deadline or may_leave:
                self._over.set()

    async def _give_up(self) -> None:
        """End what has not ended in time."""
        for document in self._documents:
            if not document.status:
                self._end(document, "Not finished in time.")
        await self._cancel()
        self._jobs.clear()

    async def _cancel(self) -> None:
        if self._habits.cancel_on_kill:
            await self._jobs.cancel()
