"""The ingest itself: submit, wait, fetch, all at the same time, on one event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceNotFoundError,
    ComplianceStorageDeniedError,
    ComplianceTlsError,
)
from airflow_provider.ingest.documents import COMPLETED, FAILED, Document, now
from airflow_provider.ingest.gate import Gate
from airflow_provider.ingest.journal import Journal
from airflow_provider.ingest.known import Known
from airflow_provider.ingest.progress import Progress
from airflow_provider.ingest.sources import SourceFile
from airflow_provider.storage.locations import Location
from airflow_provider.storage.texts import store_text
from airflow_provider.triggers.waiting import next_look

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import ContentJob

TRIES = 3  # so often a document meets passing faults until it counts as failed
LINGER = 10.0  # seconds without anything to do before the rest is left to the triggerer
KILL_SECONDS = 15.0
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


@dataclass
class Counts:
    """How many documents have come to which end."""

    completed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def done(self) -> int:
        """How many have come to an end."""
        return self.completed + self.failed + self.skipped

    def add(self, status: str) -> None:
        """Count one."""
        match status:
            case "COMPLETED":
                self.completed += 1
            case "SKIPPED":
                self.skipped += 1
            case _:
                self.failed += 1


@dataclass
class _Waiting:
    documents: list[Document]  # a service may give one job to equal documents
    since: float
    look_at: float


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
        self._waiting: dict[str, _Waiting] = {}
        self._has_waiting = asyncio.Event()
        # A submit that is not in the journal would be made again after a crash.
        self._unwritten = asyncio.Semaphore(habits.concurrency)
        self._busy = 0
        self._troubles = 0
        self._active_at = time.monotonic()
        self._over = asyncio.Event()
        self.counts = Counts()

    @property
    def waiting(self) -> list[str]:
        """The jobs that are still under way."""
        return list(self._waiting)

    async def run(self) -> None:
        """Work until all documents are done, the time is up, or only waiting is left that others can do."""
        for document in self._documents:
            self._enter(document)
        self._look_for_end()
        progress = Progress(self.counts, len(self._documents), self._log)
        keepers = (self._journal.keep(), progress.keep(), self._poll(), self._watch_time())
        workers = (self._work() for _ in range(self._habits.concurrency))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in (*keepers, *workers)]
                await self._over.wait()
                for task in tasks:
                    task.cancel()
        except asyncio.CancelledError:
            await self._tidy_up()
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
            self._wait_for(document)
        else:
            self._put(SUBMIT, self._submit, document)

    def _put(self, priority: int, step: Step, document: Document) -> None:
        self._queue.put_nowait((priority, next(self._order), step, document))

    async def _work(self) -> None:
        while True:
            _, _, step, document = await self._queue.get()
            self._busy += 1
            try:
                await step(document)
            except ComplianceError as error:
                if isinstance(error, SYSTEMIC.get(step.__name__, ALWAYS_SYSTEMIC)):
                    raise
                self._trouble(document, step, error)
            else:
                self._troubles = 0
            finally:
                self._busy -= 1
                self._active_at = time.monotonic()
            self._look_for_end()

    def _trouble(self, document: Document, step: Step, error: ComplianceError) -> None:
        """Try again what a passing fault was in the way of; but not when everything goes wrong."""
        document.troubles += 1
        if not error.transient or document.troubles >= TRIES:
            self._end(document, error)
        else:
            self._log.warning("'%s' has to be tried again: %s", document.source, error)
            self._put(SUBMIT, step, document)
        if error.transient:
            self._troubles += 1
            if self._troubles >= TRIES * self._habits.concurrency:
                raise error

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
        self._wait_for(document) if job.status == FAILED else self._see(document, job)

    async def _fetch(self, document: Document) -> None:
        target = self._target_of(document)
        async with self._gate.passage():
            written = await store_text(self._client, document.uuid, target)
        document.path, document.bytes, document.sha256 = target.uri, written.bytes, written.sha256
        document.status = COMPLETED
        if self._known:
            await self._known.remember(document)
        self._end(document)

    def _wait_for(self, document: Document) -> None:
        moment = time.monotonic()
        look_at = next_look(moment, moment, self._habits.poll_interval)
        entry = self._waiting.setdefault(document.uuid, _Waiting([], moment, look_at))
        entry.documents.append(document)
        self._has_waiting.set()

    async def _poll(self) -> None:
        while True:
            self._has_waiting.clear()
            if not self._waiting:
                await self._has_waiting.wait()
            moment = time.monotonic()
            due = [uuid for uuid, each in self._waiting.items() if each.look_at <= moment]
            if due:
                # Batch by batch, so that the first texts are fetched while the next jobs are looked at.
                for start in range(0, len(due), self._client.settings.batch_size):
                    await self._look_at(due[start : start + self._client.settings.batch_size])
            else:
                first = min(each.look_at for each in self._waiting.values())
                await asyncio.sleep(min(first - moment, 1.0))

    async def _look_at(self, uuids: list[str]) -> None:
        try:
            async with self._gate.passage():
                jobs = await self._client.get_statuses(uuids)
        except ComplianceError as error:
            if error.transient:
                self._log.warning("The jobs can't be looked at right now, going on: %s", error)
                jobs = None
            elif not isinstance(error, ComplianceHttpError):
                raise
            elif len(uuids) > 1:
                for uuid in uuids:  # one of them is the culprit; the others must not suffer
                    await self._look_at([uuid])
                return
            else:
                for document in self._waiting.pop(uuids[0]).documents:
                    self._end(document, error)
                self._look_for_end()
                return
        moment = time.monotonic()
        for uuid in uuids:
            entry = self._waiting[uuid]
            job = jobs.get(uuid) if jobs is not None else None
            if jobs is None or (job and not job.status.is_final):
                entry.look_at = next_look(moment, entry.since, self._habits.poll_interval)
            else:
                del self._waiting[uuid]
                self._active_at = moment
                for document in entry.documents:
                    self._see(document, job)
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
            self._wait_for(document)
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
            idle = not self._busy and self._queue.empty() and time.monotonic() - self._active_at > LINGER
            if time.time() >= self._habits.deadline or (idle and self._habits.may_leave):
                self._over.set()

    async def _give_up(self) -> None:
        """End what has not ended in time."""
        jobs = self.waiting
        for document in self._documents:
            if not document.status:
                self._end(document, "Not finished in time.")
        self._waiting.clear()
        if self._habits.cancel_on_kill:
            await self._cancel(jobs)

    async def _tidy_up(self) -> None:
        """Write down what is done, and cancel what is not, when the task is killed."""
        await self._journal.flush()
        if self._habits.cancel_on_kill:
            await self._cancel(self.waiting)

    async def _cancel(self, uuids: list[str]) -> None:
        async def cancel(uuid: str) -> None:
            try:
                await self._client.cancel(uuid)
            except ComplianceNotFoundError:
                pass
            except ComplianceError as error:
                self._log.warning("Job %s could not be cancelled: %s", uuid, error)

        if uuids:
            self._log.info("Cancelling %s jobs.", len(uuids))
            try:
                async with asyncio.timeout(KILL_SECONDS):
                    await for_each(cancel, uuids, self._habits.concurrency)
            except TimeoutError:
                self._log.warning("Not all jobs could be cancelled within %.0f s.", KILL_SECONDS)
