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
from airflow_provider.waiting.rules import PollResult, may_cancel

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import Assessment, ContentJob
    from airflow_provider.hooks.compliance import ComplianceHook

MAX_REASON_CHARS = 500
POLL_CONCURRENCY = 8
MAX_ISOLATING_REQUESTS = 10  # of one poll, to find out which job of many is refused
POLLS_PER_SECOND = 20  # of new assessments; a short `poll_interval` may cause more

OnResult = Callable[[str, PollResult], None]


class JobKind(ABC):
    """One kind of job. `_sync` methods are for a worker, the others for an event loop."""

    noun: str
    id_name: str  # in a record

    def pace(self, count: int) -> float:
        """Return the shortest time in seconds between two polls of so many."""
        return 1.0

    @abstractmethod
    def poll_sync(self, hook: ComplianceHook, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll these, and report the result of each."""

    @abstractmethod
    async def poll(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll these, and report the result of each."""

    @abstractmethod
    def cancel_sync(self, hook: ComplianceHook, identifier: str) -> None:
        """Cancel one."""

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
                log.warning("%s %s could not be cancelled: %s", self.noun.capitalize(), identifier, error)
                return
            on_cancelled(identifier)

        size = client.settings.batch_size
        for start in range(0, len(ids), size):
            found: dict[str, PollResult] = {}
            await self.poll(client, ids[start : start + size], found.__setitem__)
            for each, result in found.items():
                if isinstance(result, ComplianceError):
                    log.warning(
                        "%s %s is not cancelled, it can't be polled: %s", self.noun.capitalize(), each, result
                    )
                elif result["status"] in FINAL and result["status"] != UNKNOWN:
                    on_ended(each, result)
            in_flight = [each for each, result in found.items() if may_cancel(result)]
            log.info("Cancelling %s %ss.", len(in_flight), self.noun)
            await for_each(cancel, in_flight, concurrency)


class Jobs(JobKind):
    """Content processing jobs, polled in batches."""

    noun = "job"
    id_name = "uuid"

    def poll_sync(self, hook: ComplianceHook, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll all together."""
        try:
            jobs = hook.get_statuses(ids)
        except ComplianceError as error:
            for uuid in ids:
                on_result(uuid, error)
        else:
            for uuid in ids:
                on_result(uuid, job_record(uuid, jobs.get(uuid)))

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

    def cancel_sync(self, hook: ComplianceHook, identifier: str) -> None:
        """Cancel a job."""
        hook.cancel(identifier)

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Cancel a job."""
        await client.cancel(identifier)


class Assessments(JobKind):
    """Assessments; the service has no batch endpoint for them, so each is one request."""

    noun = "assessment"
    id_name = "id"

    def pace(self, count: int) -> float:
        """Poll many less often: each poll is a request."""
        return max(1.0, count / POLLS_PER_SECOND)

    def poll_sync(self, hook: ComplianceHook, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll one after the other."""
        for each in ids:
            try:
                on_result(each, assessment_record(hook.get_assessment(each)))
            except ComplianceError as error:
                on_result(each, _unknown_or_error(each, error))

    async def poll(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll a few at a time."""

        async def poll_one(each: str) -> None:
            try:
                on_result(each, assessment_record(await client.get_assessment(each)))
            except ComplianceError as error:
                on_result(each, _unknown_or_error(each, error))

        await for_each(poll_one, ids, POLL_CONCURRENCY)

    def cancel_sync(self, hook: ComplianceHook, identifier: str) -> None:
        """Cancel an assessment."""
        hook.cancel_assessment(identifier)

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Cancel an assessment."""
        await client.cancel_assessment(identifier)


JOBS = Jobs()
ASSESSMENTS = Assessments()


def job_record(uuid: str, job: ContentJob | None) -> Record:
    """Return the record of a job; None is one that the service does not know."""
    return {"uuid": uuid, "status": UNKNOWN} if job is None else _record(job)


def assessment_record(assessment: Assessment) -> Record:
    """Return the record of an assessment, without the fields that the contract does not name."""
    return _record(assessment, exclude={"raw"})


def _record(model: Any, **how: Any) -> Record:
    record: Record = model.model_dump(mode="json", exclude_none=True, **how)
    if "error" in record:
        record["error"] = record["error"][:MAX_REASON_CHARS]
    return record


def _unknown_or_error(assessment_id: str, error: ComplianceError) -> PollResult:
    # The path is our assumption, so the reason is worth keeping.
    if isinstance(error, ComplianceNotFoundError):
        return {"id": assessment_id, "status": UNKNOWN, "error": str(error)}
    return error
