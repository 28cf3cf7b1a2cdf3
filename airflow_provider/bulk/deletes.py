"""Delete finished jobs at the service, and remember those that could not be deleted."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider.bulk.backoff import AdaptiveLimiter
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.bulk.pipeline import SYSTEMIC
from airflow_provider.client.models import JobStatus
from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceNotFoundError,
    ComplianceProtocolError,
    ComplianceSupersededError,
)
from airflow_provider.provenance import instance_of
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.nights import Night

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

MAX_DELETE_SECONDS = 600.0  # what is left then is deleted in the next night
MIN_ERRORS_IN_A_ROW = 4  # or `concurrency`, after which the rest is left to the next night
READ_AHEAD_BYTES = 1 << 20
SEPARATOR = "~"
FIRST = frozenset({"-1", "0", "loop0", "0.loop0"})  # of the instances of a task


@dataclass(frozen=True)
class StoredObject:
    """An object that must be in its store, as it was written, before a job is deleted."""

    path: str
    sha256: str | None = None
    bytes: int | None = None

    def is_intact(self) -> bool:
        """Tell whether it is there with the same bytes."""
        location, digest, size = Location(self.path), hashlib.sha256(), 0
        with storage_errors(location, "read"):
            try:
                file = location.fs.open(location.path, "rb", block_size=READ_AHEAD_BYTES)
            except FileNotFoundError:
                return False
            with file:
                while piece := file.read(READ_AHEAD_BYTES):
                    digest.update(piece)
                    size += len(piece)
        return self.bytes in (None, size) and self.sha256 in (None, "", digest.hexdigest())


@dataclass(frozen=True)
class FinishedJob:
    """A content job that is not needed any more, once what was made of it is in its store."""

    uuid: str
    stored: tuple[StoredObject, ...] = ()

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> FinishedJob:
        """Read a record."""
        return cls(str(record["uuid"]), tuple(StoredObject(**each) for each in record["stored"]))


class PendingDeletes:
    """The jobs that a task has still to delete: one small object for each task instance and run.

    A task takes over what its earlier runs have left. A shard takes what the same shard has left, and the
    first one also what is older than a day: that shard may not exist any more.

    :param folder: of all tasks
    """

    def __init__(self, folder: Location, ti: Any, night: Night) -> None:
        task = names.digest(json.dumps([ti.dag_id, ti.task_id]))
        self._folder = folder / names.safe(ti.dag_id) / f"{names.safe(ti.task_id)}-{task}"
        self._night = night
        self._at = names.safe(night.at)  # sorts like the night itself
        instance = instance_of(ti)
        self._instance = str(instance)
        self._is_first = self._instance in FIRST
        run = names.digest(json.dumps([ti.run_id, instance]))
        self._own = SEPARATOR.join((self._at, self._instance, f"{run}.json"))
        self._taken: list[str] = []  # objects that the next `write` replaces

    def read(self) -> list[FinishedJob]:
        """Read what earlier attempts and runs have left."""
        self._taken = [each for each in sorted(self._folder.list_names()) if self._is_ours(each)]
        return [job for name in self._taken for job in self._read(self._folder / name)]

    async def write(self, jobs: Iterable[FinishedJob]) -> None:
        """Remember these jobs, and no others."""
        records = [asdict(each) for each in jobs]
        if records:
            await put(self._folder / self._own, json.dumps(records).encode())
        await in_thread(self._remove, [each for each in self._taken if not records or each != self._own])
        self._taken = [self._own] if records else []

    def _is_ours(self, name: str) -> bool:
        if name == self._own:
            return True
        at, _, rest = name.partition(SEPARATOR)
        instance = rest.partition(SEPARATOR)[0]
        if not at < self._at:  # a later night, or another run of this one
            return False
        is_old = at[:10] < (date.fromisoformat(self._night.date) - timedelta(days=1)).isoformat()
        return instance == self._instance or (self._is_first and is_old)

    def _read(self, location: Location) -> list[FinishedJob]:
        content = location.read() or b""
        try:
            return [FinishedJob.parse(each) for each in json.loads(content)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return []  # taken by another task meanwhile, or damaged

    def _remove(self, taken: Iterable[str]) -> None:
        for name in taken:
            (self._folder / name).remove()


class JobDeleter:
    """Deletes the jobs of one task instance; an error is a warning, and the next night tries again.

    :param pending: remembers what is left, also after a crash
    :param checkpoint: of the task instance: an attempt that has lost its lease deletes nothing
    :param concurrency: maximum number of requests in flight
    """

    def __init__(
        self,
        client: AsyncComplianceClient,
        pending: PendingDeletes,
        checkpoint: Checkpoint,
        concurrency: int,
        log: Any,
    ) -> None:
        self._client = client
        self._pending = pending
        self._checkpoint = checkpoint
        self._concurrency = concurrency
        self._log = log
        self._limiter = AdaptiveLimiter(concurrency, lambda: client.throttlings)
        self._jobs: dict[str, FinishedJob] = {}
        self._deleted: set[str] = set()
        self._not_stored: dict[str, StoredObject] = {}
        self._last_error: ComplianceError | None = None
        self._errors_in_a_row = 0
        self._is_stopped = False
        self._is_not_found_confirmed = False

    async def delete(self, jobs: Iterable[FinishedJob], needed: Collection[str], seconds: float) -> int:
        """Delete jobs, and those that earlier runs have left; return how many are gone.

        :param needed: jobs that must not be deleted now, even if an earlier run has left them
        :param seconds: how long this may take
        """
        left = await in_thread(self._pending.read)
        self._jobs = {each.uuid: each for each in (*left, *jobs) if each.uuid not in needed}
        if not self._jobs:
            await self._pending.write(())
            return 0
        await self._checkpoint.check_owner()
        await self._pending.write(self._jobs.values())  # before the first one, for a crash
        try:
            async with asyncio.timeout(seconds):
                await for_each(self._delete, list(self._jobs), self._concurrency)
        except TimeoutError:
            self._is_stopped = True
        done = self._deleted | self._not_stored.keys()
        remaining = [job for uuid, job in self._jobs.items() if uuid not in done]
        await self._checkpoint.check_owner()
        await self._pending.write(remaining)
        self._report(remaining)
        return len(self._deleted)

    async def _delete(self, uuid: str) -> None:
        if self._is_stopped:
            return
        try:
            if not await self._is_stored(uuid):
                return
            await self._checkpoint.confirm_owner()
            async with self._limiter.request():
                await self._cancel(uuid)
        except ComplianceSupersededError:
            raise
        except ComplianceError as error:
            self._last_error = error
            self._errors_in_a_row += 1
            are_many = self._errors_in_a_row >= max(self._concurrency, MIN_ERRORS_IN_A_ROW)
            self._is_stopped = self._is_stopped or are_many or isinstance(error, SYSTEMIC)
        else:
            self._errors_in_a_row = 0
            self._deleted.add(uuid)

    async def _is_stored(self, uuid: str) -> bool:
        for each in self._jobs[uuid].stored:
            if not await in_thread(each.is_intact):
                self._not_stored[uuid] = each
                return False
        return True

    async def _cancel(self, uuid: str) -> None:
        try:
            await self._client.cancel(uuid)
        except ComplianceNotFoundError as error:
            await self._confirm_not_found(uuid, error)

    async def _confirm_not_found(self, uuid: str, error: ComplianceNotFoundError) -> None:
        """Raise if the job is still there, and only a gateway does not know the path of the request."""
        if self._is_not_found_confirmed:
            return
        with suppress(ComplianceNotFoundError):
            if (await self._client.get_status(uuid)).status != JobStatus.CANCELLED:
                raise ComplianceProtocolError(f"Job {uuid} is still at the service: {error}")
        self._is_not_found_confirmed = True

    def _report(self, remaining: Collection[FinishedJob]) -> None:
        if self._deleted:
            self._log.info("Deleted %s jobs at the service.", len(self._deleted))
        if remaining:
            reason = self._last_error or "There was no time left."
            self._log.warning(
                "%s jobs are still at the service; the next night tries to delete them again. %s",
                len(remaining),
                reason,
            )
        if self._not_stored:
            first = next(iter(self._not_stored.values()))
            self._log.warning(
                "%s jobs stay at the service, because what was made of them is not stored as recorded, such "
                "as '%s'.",
                len(self._not_stored),
                Location(first.path),
            )
