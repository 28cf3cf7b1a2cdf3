"""The kinds of jobs that can be waited for: content processing jobs and assessments."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import ComplianceError, ComplianceHttpError, ComplianceNotFoundError
from airflow_provider.waiting.results import FINAL, UNKNOWN, Record
from airflow_provider.waiting.rules import PollResult

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import Assessment, ContentJob

MAX_REASON_CHARS = 500
POLL_CONCURRENCY = 8
MAX_ISOLATING_REQUESTS = 10  # of one poll, to find out which job of many is refused
POLLS_PER_SECOND = 20  # of new assessments; a short `poll_interval` may cause more

OnResult = Callable[[str, PollResult], None]


class JobKind(ABC):
    """One kind of job.

    :cvar id_name: the field of its id, in models and records
    """

    noun: str
    id_name: str

    def min_interval(self, count: int) -> float:
        """Return the shortest time in seconds between two polls of so many."""
        return 1.0

    def describe(self, ids: Sequence[str]) -> str:
        """Name one job by its id, and many by their number."""
        return f"{self.noun} {ids[0]}" if len(ids) == 1 else f"{len(ids)} {self.noun}s"

    @abstractmethod
    async def poll(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll these, and report the result of each."""

    @abstractmethod
    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Cancel one."""

    async def cancel_in_flight(
        self,
        client: AsyncComplianceClient,
        ids: Sequence[str],
        concurrency: int,
        log: Any,
        on_ended: Callable[[str, Record], None] = lambda *_: None,
        on_cancelled: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Cancel those of these that are in flight.

        To cancel is to delete, so each is polled just before, and left alone where that fails.

        :param on_ended: called with the record of each that had ended
        :param on_cancelled: called with the id of each that was cancelled
        """

        async def cancel(identifier: str) -> None:
            try:
                await self.cancel(client, identifier)
            except ComplianceNotFoundError:
                pass
            except ComplianceError as error:
                failed[identifier] = error
                return
            on_cancelled(identifier)

        failed: dict[str, ComplianceError] = {}
        if ids:
            log.info("Cancelling %s, where in flight.", self.describe(ids))
        # In groups that are cancelled at once: a job may complete while it waits for others to be cancelled.
        size = min(client.settings.batch_size, concurrency)
        for start in range(0, len(ids), size):
            found: dict[str, PollResult] = {}
            await self.poll(client, ids[start : start + size], found.__setitem__)
            in_flight = []
            for each, result in found.items():
                if isinstance(result, ComplianceError):
                    failed[each] = result
                elif result["status"] not in FINAL:
                    in_flight.append(each)
                elif result["status"] != UNKNOWN:
                    on_ended(each, result)
            await for_each(cancel, in_flight, concurrency)
        if failed:
            log.warning("Could not cancel %s: %s", self.describe(list(failed)), next(iter(failed.values())))


class Jobs(JobKind):
    """Content processing jobs, polled in batches."""

    noun = "job"
    id_name = "uuid"

    async def poll(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll batch by batch; split a batch that is refused, to isolate the job at fault."""
        # Shuffled, so that the same jobs do not share a group with the one at fault every time.
        shuffled, size = random.sample(ids, len(ids)), client.settings.batch_size
        groups = [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
        budget = MAX_ISOLATING_REQUESTS
        while groups:
            group = groups.pop(0)
            try:
                jobs = await client.get_statuses(group)
            except ComplianceError as error:
                is_refused = isinstance(error, ComplianceHttpError) and not error.transient
                if is_refused and len(group) > 1 and budget >= 2:
                    budget -= 2
                    groups += [group[: len(group) // 2], group[len(group) // 2 :]]
                    continue
                if not is_refused:  # an outage: the other batches would wait just as long
                    group, groups = [*group, *chain.from_iterable(groups)], []
                for uuid in group:
                    on_result(uuid, error)
            else:
                for uuid in group:
                    on_result(uuid, job_record(uuid, jobs.get(uuid)))

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Cancel a job."""
        await client.cancel(identifier)


class Assessments(JobKind):
    """Assessments; the service has no batch endpoint for them, so each is one request."""

    noun = "assessment"
    id_name = "id"

    def min_interval(self, count: int) -> float:
        """Poll many less often: each poll is a request."""
        return max(1.0, count / POLLS_PER_SECOND)

    async def poll(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll a few at a time."""

        async def poll_one(each: str) -> None:
            try:
                on_result(each, to_record(await client.get_assessment(each)))
            except ComplianceNotFoundError as error:
                # The path is our assumption, so the reason is worth keeping.
                on_result(each, {"id": each, "status": UNKNOWN, "error": str(error)})
            except ComplianceError as error:
                on_result(each, error)

        await for_each(poll_one, ids, POLL_CONCURRENCY)

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Cancel an assessment."""
        await client.cancel_assessment(identifier)


JOBS = Jobs()
ASSESSMENTS = Assessments()


def job_record(uuid: str, job: ContentJob | None) -> Record:
    """Return the record of a job; None is one that the service does not know."""
    return {"uuid": uuid, "status": UNKNOWN} if job is None else to_record(job)


def to_record(model: ContentJob | Assessment) -> Record:
    """Return the record of a job or assessment, without the fields that the contract does not name."""
    record: Record = model.model_dump(mode="json", exclude_none=True, exclude={"raw"})
    if "error" in record:
        record["error"] = record["error"][:MAX_REASON_CHARS]
    return record
