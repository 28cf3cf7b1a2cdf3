"""Delete finished jobs at the service, and remember failed deletes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import ComplianceError, ComplianceSupersededError
from airflow_provider.nights.bulk.backoff import AdaptiveLimiter
from airflow_provider.nights.index.nights import Night
from airflow_provider.runtime.event_loop import for_each, in_thread
from airflow_provider.runtime.provenance import instance_of
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put
from airflow_provider.storage.jsonl import read_valid_rows, to_lines
from airflow_provider.storage.locations import Location
from airflow_provider.waiting.kinds import JOBS
from airflow_provider.waiting.rules import SETUP_ERRORS

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.nights.bulk.engine import BulkRun

MAX_DELETE_SECONDS = 600.0  # the rest is deleted in the next night
MIN_ERRORS_IN_A_ROW = 4  # or `concurrency`, after which the rest is left to the next night
SEPARATOR = "~"


@dataclass(frozen=True)
class StoredObject:
    """An object that must be in its store, as it was recorded, before a job is deleted."""

    path: str
    sha256: str | None = None
    bytes: int | None = None

    def is_stored(self) -> bool:
        """Return whether it was recorded with a hash, and is there with its size, or else its hash."""
        if not self.path or not self.sha256:
            return False
        location = Location(self.path)
        location.fs.invalidate_cache(location.path)
        return location.sha256() == self.sha256 if self.bytes is None else location.size() == self.bytes


@dataclass(frozen=True)
class FinishedJob:
    """A content job that is not needed any more, once its outputs are stored.

    :param sources: the sources of its documents: a service may give one job to equal ones
    """

    uuid: str
    stored: tuple[StoredObject, ...] = ()
    sources: tuple[str, ...] = ()

    def find_missing(self) -> StoredObject | None:
        """Return the first output that is missing or differs."""
        return next((stored for stored in self.stored or (StoredObject(""),) if not stored.is_stored()), None)


def collect_finished(
    outputs: Iterable[tuple[str, str, Sequence[StoredObject] | None]],
) -> tuple[list[FinishedJob], set[str]]:
    """Return the finished jobs, and the jobs that are needed again.

    :param outputs: each document, its job, and its stored outputs; None if the job is needed again
    """
    finished: dict[str, FinishedJob] = {}
    needed: set[str] = set()
    for source, uuid, objects in outputs:
        if objects is None:
            needed.add(uuid)
        else:
            _merge(finished, FinishedJob(uuid, tuple(objects), (source,)))
    return [job for uuid, job in finished.items() if uuid not in needed], needed


def _merge(jobs: dict[str, FinishedJob], job: FinishedJob) -> None:
    known = jobs.get(job.uuid, FinishedJob(job.uuid))
    jobs[job.uuid] = FinishedJob(job.uuid, known.stored + job.stored, known.sources + job.sources)


class PendingDeletes:
    """The jobs that a task has still to delete: one small table for each task instance and run.

    A task instance takes over leftovers of its own earlier runs, after a day also leftovers of other
    instances of its task, which may no longer exist; never jobs of another account.

    :param folder: the folder of all tasks
    :param account: whose jobs these are
    """

    def __init__(self, folder: Location, ti: Any, night: Night, account: str) -> None:
        task = names.digest(json.dumps([ti.dag_id, ti.task_id]))
        self._folder = folder / names.safe(ti.dag_id) / f"{names.safe(ti.task_id)}-{task}"
        self._night = night
        self._at = names.safe(night.at)  # sorts like the night itself
        self._instance, self._account = str(instance_of(ti)), account
        run = names.digest(json.dumps([ti.run_id, self._instance]))
        self._own = SEPARATOR.join((self._at, self._instance, account, f"{run}.jsonl"))
        self._taken: list[str] = []  # objects that the next `write` replaces

    def read(self) -> list[FinishedJob]:
        """Read what earlier attempts and runs left."""
        self._taken = [name for name in self._folder.list_names() if self._is_ours(name)]
        return [job for name in self._taken for job in self._read(self._folder / name)]

    async def write(self, jobs: Iterable[FinishedJob]) -> None:
        """Remember these jobs, and no others."""
        rows = [
            {"source": source, "uuid": job.uuid, "stored": [astuple(stored) for stored in job.stored]}
            for job in jobs
            for source in job.sources or ("",)
        ]
        if rows:
            await put(self._folder / self._own, to_lines(rows))
        for name in self._taken:
            if not rows or name != self._own:
                await in_thread((self._folder / name).remove)
        self._taken = [self._own] if rows else []

    def _is_ours(self, name: str) -> bool:
        at, instance, account, _ = (*name.split(SEPARATOR), "", "", "", "")[:4]
        if name == self._own or account != self._account or not at < self._at:
            return name == self._own  # else of another account, a later night, or another run of this one
        day_before = (date.fromisoformat(self._night.date) - timedelta(days=1)).isoformat()
        return instance == self._instance or at[:10] < day_before

    def _read(self, location: Location) -> Iterable[FinishedJob]:
        found: dict[str, FinishedJob] = {}
        for row in read_valid_rows(location):  # none if another task took it meanwhile
            stored = tuple(StoredObject(*fields) for fields in row["stored"])
            if row["uuid"] in found:  # equal documents, each with everything that is stored
                stored = ()
            _merge(found, FinishedJob(row["uuid"], stored, (row["source"],)))
        return found.values()


class JobDeleter:
    """Deletes the jobs of one task instance; an error is a warning, and the next night tries again.

    :param run: an attempt that lost its lease deletes nothing
    :param pending: remembers the remaining jobs, even after a crash
    :param is_held: returns whether a document is held: its job is kept until it is released
    """

    def __init__(
        self,
        run: BulkRun,
        client: AsyncComplianceClient,
        pending: PendingDeletes,
        is_held: Callable[[str], bool],
    ) -> None:
        self._run = run
        self._client = client
        self._pending = pending
        self._is_held = is_held
        self._held: set[str] = set()
        self._limiter = AdaptiveLimiter(run.concurrency, lambda: client.throttlings)
        self._jobs: dict[str, FinishedJob] = {}
        self._deleted: set[str] = set()
        self._not_stored: dict[str, StoredObject] = {}
        self._last_error: ComplianceError | None = None
        self._errors_in_a_row = 0
        self._is_stopped = False

    async def delete(self, jobs: Iterable[FinishedJob], needed: Collection[str], seconds: float) -> int:
        """Delete jobs, and leftovers of earlier runs; return how many are gone.

        :param needed: jobs that must not be deleted now, even if an earlier run left them
        :param seconds: how long this may take
        """
        left = await in_thread(self._pending.read)
        self._jobs = {job.uuid: job for job in (*left, *jobs) if job.uuid not in needed}
        self._held = {uuid for uuid, job in self._jobs.items() if any(map(self._is_held, job.sources))}
        if not self._jobs:
            await self._pending.write(())
            return 0
        await self._run.checkpoint.check_owner()
        await self._pending.write(self._jobs.values())  # before the first one, for a crash
        try:
            async with asyncio.timeout(seconds):
                await for_each(self._delete, self._jobs.keys() - self._held, self._run.concurrency)
        except TimeoutError:
            self._is_stopped = True
        done = self._deleted | self._not_stored.keys()
        remaining = [job for uuid, job in self._jobs.items() if uuid not in done]
        await self._run.checkpoint.check_owner()
        await self._pending.write(remaining)
        self._report(len(remaining) - len(self._held))
        return len(self._deleted)

    async def _delete(self, uuid: str) -> None:
        if self._is_stopped:
            return
        try:
            if missing := await in_thread(self._jobs[uuid].find_missing):
                self._not_stored[uuid] = missing
                return
            await self._run.checkpoint.confirm_owner()
            async with self._limiter:
                await JOBS.delete(self._client, uuid)  # one that the service says is gone is deleted
        except ComplianceSupersededError:
            raise
        except ComplianceError as error:
            self._last_error = error
            self._errors_in_a_row += 1
            are_many = self._errors_in_a_row >= max(self._run.concurrency, MIN_ERRORS_IN_A_ROW)
            self._is_stopped = self._is_stopped or are_many or isinstance(error, SETUP_ERRORS)
        else:
            self._errors_in_a_row = 0
            self._deleted.add(uuid)

    def _report(self, remaining: int) -> None:
        if self._deleted:
            self._run.log.info("Deleted %s jobs at the service.", len(self._deleted))
        if remaining:
            self._run.log.warning(
                "%s jobs are still at the service; the next night tries to delete them again. %s",
                remaining,
                self._last_error or "Ran out of time.",
            )
        if self._held:
            self._run.log.info("Kept %s jobs of documents that are held.", len(self._held))
        if self._not_stored:
            first = next(iter(self._not_stored.values())).path
            self._run.log.warning(
                "Kept %s jobs: their stored output does not match the manifest, such as '%s'.",
                len(self._not_stored),
                Location(first) if first else "an output without a path",
            )
