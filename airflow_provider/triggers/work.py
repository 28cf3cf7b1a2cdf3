"""What can be waited for: content processing jobs and assessments, and how to ask the service for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import ComplianceError, ComplianceHttpError, ComplianceNotFoundError
from airflow_provider.triggers.waiting import UNKNOWN, Record, may_pass

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import Assessment, ContentJob
    from airflow_provider.hooks.compliance import ComplianceHook

REASON_SHOWN = 500
LOOKS_AT_A_TIME = 8
LOOKS_PER_SECOND = 20  # at young assessments; `poll_interval` may ask for more

Sighting = Record | ComplianceError
"""What a look has found: the record, or why it found nothing."""

See = Callable[[str, Sighting], None]


class Work(ABC):
    """One kind of work that the service does. `_now` is for a task, the others are for an event loop."""

    noun: str

    def pace(self, count: int) -> float:
        """Return the shortest time in seconds between two looks at so many."""
        return 1.0

    @abstractmethod
    def look_now(self, hook: ComplianceHook, ids: Sequence[str], see: See) -> None:
        """Ask for these, and say of each what was found."""

    @abstractmethod
    async def look(self, client: AsyncComplianceClient, ids: Sequence[str], see: See) -> None:
        """Ask for these, and say of each what was found."""

    @abstractmethod
    def cancel_now(self, hook: ComplianceHook, identifier: str) -> None:
        """Cancel one."""

    @abstractmethod
    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Cancel one."""


class Jobs(Work):
    """Content processing jobs, asked for in batches."""

    noun = "job"

    def look_now(self, hook: ComplianceHook, ids: Sequence[str], see: See) -> None:
        """Ask for all together."""
        try:
            jobs = hook.get_statuses(ids)
        except ComplianceError as error:
            _see_all(ids, error, see)
        else:
            _see_jobs(ids, jobs, see)

    async def look(self, client: AsyncComplianceClient, ids: Sequence[str], see: See) -> None:
        """Ask for all together; if they are refused, one by one."""
        try:
            jobs = await client.get_statuses(ids)
        except ComplianceError as error:
            if may_pass(error) or not isinstance(error, ComplianceHttpError) or len(ids) == 1:
                _see_all(ids, error, see)
                return
            # One of them is the culprit; the others must not suffer.
            for uuid in ids:
                await self.look(client, [uuid], see)
        else:
            _see_jobs(ids, jobs, see)

    def cancel_now(self, hook: ComplianceHook, identifier: str) -> None:
        """Cancel a job."""
        hook.cancel(identifier)

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Cancel a job."""
        await client.cancel(identifier)


class Assessments(Work):
    """Assessments; the service has no batch for them, so each is one request."""

    noun = "assessment"

    def pace(self, count: int) -> float:
        """Look less often at many: each look is a request."""
        return max(1.0, count / LOOKS_PER_SECOND)

    def look_now(self, hook: ComplianceHook, ids: Sequence[str], see: See) -> None:
        """Ask for one after the other."""
        for each in ids:
            try:
                see(each, record_of_assessment(hook.get_assessment(each)))
            except ComplianceError as error:
                see(each, _without(each, error))

    async def look(self, client: AsyncComplianceClient, ids: Sequence[str], see: See) -> None:
        """Ask for a few at a time."""

        async def look_at(each: str) -> None:
            try:
                see(each, record_of_assessment(await client.get_assessment(each)))
            except ComplianceError as error:
                see(each, _without(each, error))

        await for_each(look_at, ids, LOOKS_AT_A_TIME)

    def cancel_now(self, hook: ComplianceHook, identifier: str) -> None:
        """Cancel an assessment."""
        hook.cancel_assessment(identifier)

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Cancel an assessment."""
        await client.cancel_assessment(identifier)


JOBS = Jobs()
ASSESSMENTS = Assessments()


def record_of(uuid: str, job: ContentJob | None) -> Record:
    """Return what a wait keeps of a job; None is one that the service does not know."""
    return {"uuid": uuid, "status": UNKNOWN} if job is None else _record(job)


def record_of_assessment(assessment: Assessment) -> Record:
    """Return what a wait keeps of an assessment: nothing of the fields that the contract does not name."""
    return _record(assessment, exclude={"raw"})


def _record(model: Any, **how: Any) -> Record:
    record: Record = model.model_dump(mode="json", exclude_none=True, **how)
    if "error" in record:
        record["error"] = record["error"][:REASON_SHOWN]
    return record


def _without(assessment_id: str, error: ComplianceError) -> Sighting:
    # The path is a guess of ours, so the reason is worth keeping.
    if isinstance(error, ComplianceNotFoundError):
        return {"id": assessment_id, "status": UNKNOWN, "error": str(error)}
    return error


def _see_jobs(uuids: Sequence[str], jobs: dict[str, ContentJob], see: See) -> None:
    for uuid in uuids:
        see(uuid, record_of(uuid, jobs.get(uuid)))


def _see_all(ids: Sequence[str], error: ComplianceError, see: See) -> None:
    for each in ids:
        see(each, error)
