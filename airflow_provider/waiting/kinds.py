"""The kinds of jobs that can be waited for: content processing jobs and assessments."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceHttpError,
    ComplianceNotFoundError,
    ComplianceProtocolError,
    ComplianceThrottledError,
)
from airflow_provider.text import mask_address, redact
from airflow_provider.waiting.results import CANCELLED, FINAL, UNKNOWN, Record
from airflow_provider.waiting.rules import MISSED_POLL_STEP_SECONDS, PollResult

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import Assessment, ContentJob

MAX_REASON_CHARS = 500
POLL_CONCURRENCY = 8
MAX_ISOLATING_REQUESTS = 18  # of one poll, to find out which job of a batch of 500 is refused
MAX_UNBATCHED = 100  # jobs that one poll asks for alone, where a service knows none of a batch
POLLS_PER_SECOND = 200  # of new assessments; a short `poll_interval` may cause more

OnResult = Callable[[str, PollResult], None]


class JobKind(ABC):
    """One kind of job.

    :cvar id_name: the field of its id, in models and records
    :cvar has_batches: many are polled in one request, so at the same times
    :cvar first_poll_quantile: the share of jobs that should have ended when they are first polled
    :cvar first_poll_seconds: when to poll first as long as no job has ended; 0 is the next regular poll
    """

    noun: str
    id_name: str
    has_batches = False
    first_poll_quantile = 0.9
    first_poll_seconds = 0.0

    def min_interval(self, count: int) -> float:
        """Return the shortest time in seconds between two polls of so many."""
        return 1.0

    def describe(self, ids: Sequence[str]) -> str:
        """Name one job by its id, and many by their number."""
        return f"{self.noun} {ids[0]}" if len(ids) == 1 else f"{len(ids)} {self.noun}s"

    @abstractmethod
    async def poll(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll these, and report the result of each."""

    async def is_gone(self, client: AsyncComplianceClient, identifier: str) -> bool:
        """Return whether the service itself says that one is gone; raise the error if it does not answer.

        A 404 of another call, such as a delete, may come from a gateway or from a missing route.
        """
        found: dict[str, PollResult] = {}
        await self.poll(client, [identifier], found.__setitem__)
        result = found[identifier]
        if isinstance(result, ComplianceError):
            raise result
        return result["status"] in (CANCELLED, UNKNOWN)

    async def delete(self, client: AsyncComplianceClient, identifier: str) -> bool:
        """Cancel and delete one, in any state; return False if the service says that it is gone already."""
        try:
            await self._send_delete(client, identifier)
        except ComplianceNotFoundError:
            if not await self.is_gone(client, identifier):
                raise
            return False
        return True

    @abstractmethod
    async def _send_delete(self, client: AsyncComplianceClient, identifier: str) -> None:
        """Send the request."""

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> bool:
        """Cancel one, and return True; return False if it is left alone, because it has ended meanwhile."""
        await self.delete(client, identifier)
        return True

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
                is_cancelled = await self.cancel(client, identifier)
            except ComplianceError as error:
                failed[identifier] = error
                return
            if is_cancelled:
                on_cancelled(identifier)

        failed: dict[str, ComplianceError] = {}
        if ids:
            log.info("Cancelling %s, if in flight.", self.describe(ids))
        # In groups that are cancelled at once: a job may complete while it waits for others to be cancelled.
        size = min(client.batch_size, concurrency)
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
    """Content processing jobs, polled in batches, so that a poll too early costs little."""

    noun = "job"
    id_name = "uuid"
    has_batches = True
    first_poll_quantile = 0.25
    first_poll_seconds = 0.25

    def min_interval(self, count: int) -> float:
        """Poll jobs of less than a second more often."""
        return MISSED_POLL_STEP_SECONDS

    async def poll(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll batch by batch; split a batch that fails while others do not, to isolate the job at fault."""
        await _BatchPoll(client, ids, on_result).run()

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> bool:
        """Cancel a job, unless its own status says that it has ended: that of a batch may be behind."""
        if (await client.get_status(identifier)).status.is_final:
            return False
        return await super().cancel(client, identifier)

    async def _send_delete(self, client: AsyncComplianceClient, identifier: str) -> None:
        await client.cancel(identifier)


class Assessments(JobKind):
    """Assessments; the service has no batch endpoint for them, so each is one request."""

    noun = "assessment"
    id_name = "id"

    def min_interval(self, count: int) -> float:
        """Poll many less often: each poll is a request."""
        return max(1.0, count / POLLS_PER_SECOND)

    async def poll(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        """Poll a few at a time; a 404 means unknown if the service answers for others or lists frameworks."""
        not_found: dict[str, ComplianceNotFoundError] = {}

        async def poll_one(each: str) -> bool:
            try:
                on_result(each, to_record(await client.get_assessment(each)))
            except ComplianceNotFoundError as error:
                not_found[each] = error
            except ComplianceError as error:
                on_result(each, error)
            else:
                return True
            return False

        has_worked = any((await for_each(poll_one, ids, POLL_CONCURRENCY)).values())
        is_there = not not_found or has_worked or await _lists_frameworks(client)
        for each, error in not_found.items():
            # The path is our assumption, so the reason is worth keeping.
            on_result(each, {"id": each, "status": UNKNOWN, "error": str(error)} if is_there else error)

    async def _send_delete(self, client: AsyncComplianceClient, identifier: str) -> None:
        await client.cancel_assessment(identifier)


class _BatchPoll:
    """One poll of many jobs.

    :ivar _suspects: parts of batches that failed, to be polled when the rest is
    """

    def __init__(self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult) -> None:
        self._client = client
        # Shuffled, so that the same jobs do not share a group with the one at fault every time.
        self._rest = random.sample(ids, len(ids))
        self._suspects = deque[list[str]]()
        self._budget = MAX_ISOLATING_REQUESTS
        self._unbatched = MAX_UNBATCHED
        self._has_worked = False
        self._on_result = on_result

    async def run(self) -> None:
        while group := self._next_group():
            await self._poll(group)

    def _next_group(self) -> list[str]:
        if not self._rest:
            return self._suspects.popleft() if self._suspects else []
        size = self._client.batch_size  # grows with each full batch at first
        group, self._rest = self._rest[:size], self._rest[size:]
        return group

    async def _poll(self, group: list[str]) -> None:
        try:
            jobs = await self._client.get_statuses(group)
        except ComplianceError as error:
            await self._on_error(group, error)
        else:
            self._has_worked = True
            for uuid in group:
                self._on_result(uuid, job_record(uuid, jobs.get(uuid)))

    async def _on_error(self, group: list[str], error: ComplianceError) -> None:
        is_refused = isinstance(error, ComplianceHttpError) and not error.transient
        if len(group) > 1 and not is_refused and not self._has_worked and _may_be_one_job(error):
            await self._poll_alone(group.pop())  # tells whether all are concerned
        if not is_refused and not self._has_worked:  # an outage: the others would wait just as long
            self._report([*group, *self._rest, *chain.from_iterable(self._suspects)], error)
            self._rest, self._suspects = [], deque()
        elif len(group) > 1 and self._budget >= 2:
            self._budget -= 2
            half = len(group) // 2
            self._suspects += [group[:half], group[half:]]
        elif isinstance(error, ComplianceNotFoundError):
            await self._poll_unbatched(group, error)
        else:
            self._report(group, error)

    async def _poll_alone(self, uuid: str) -> None:
        """Poll one job of a batch that failed."""
        try:
            jobs = await self._client.get_statuses([uuid])
        except ComplianceError as error:
            self._on_result(uuid, error)
        else:
            self._has_worked = True
            self._on_result(uuid, job_record(uuid, jobs.get(uuid)))

    async def _poll_unbatched(self, group: list[str], error: ComplianceError) -> None:
        """Poll jobs for which a batch was answered with 404: the service may not know them."""
        await self._poll_one(group.pop())
        count = self._unbatched if self._has_worked else 0  # else it is an outage
        self._unbatched -= min(count, len(group))
        await for_each(self._poll_one, group[:count], POLL_CONCURRENCY)
        self._report(group[count:], error)

    async def _poll_one(self, uuid: str) -> None:
        try:
            record = to_record(await self._client.get_status(uuid))
        except ComplianceNotFoundError as error:
            self._on_result(uuid, job_record(uuid, None) if await self._is_service_there() else error)
        except ComplianceError as error:
            self._on_result(uuid, error)
        else:
            self._has_worked = True
            self._on_result(uuid, record)

    async def _is_service_there(self) -> bool:
        """Tell whether a 404 comes from the service: it knows other jobs, or at least its frameworks."""
        self._has_worked = self._has_worked or await _lists_frameworks(self._client)
        return self._has_worked

    def _report(self, uuids: Sequence[str], error: ComplianceError) -> None:
        for uuid in uuids:
            self._on_result(uuid, error)


async def _lists_frameworks(client: AsyncComplianceClient) -> bool:
    """Tell whether the service is there: a gateway may answer 404 for everything."""
    try:
        await client.list_frameworks()
    except ComplianceError:
        return False
    return True


def _may_be_one_job(error: ComplianceError) -> bool:
    """Tell whether the service is there, so that not an outage but one job of a batch may be at fault."""
    is_answer = isinstance(error, ComplianceHttpError | ComplianceProtocolError)
    return is_answer and not isinstance(error, ComplianceThrottledError)


JOBS = Jobs()
ASSESSMENTS = Assessments()


def job_record(uuid: str, job: ContentJob | None) -> Record:
    """Return the record of a job; None is one that the service does not know."""
    return {"uuid": uuid, "status": UNKNOWN} if job is None else to_record(job)


def to_record(model: ContentJob | Assessment) -> Record:
    """Return the record of a job or assessment, without secrets and unknown fields."""
    record: Record = model.model_dump(mode="json", exclude_none=True, exclude={"raw"})
    address = record.get("source_url", "")
    if "error" in record:
        record["error"] = mask_address(record["error"], address)[:MAX_REASON_CHARS]
    if address:
        record["source_url"] = redact(address)
    return record
