"""The kinds of jobs that can be waited for: content processing jobs and assessments."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
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
from airflow_provider.waiting.rules import Limiter, PollResult

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import Assessment, ContentJob

MAX_REASON_CHARS = 500
MAX_PROBES = 2  # jobs of a batch that fails, to tell an outage from a job at fault
MAX_POLLED_ALONE = 100  # jobs of batches that fail, in one round

OnResult = Callable[[str, PollResult], None]
NO_LIMITER = Limiter()


class JobKind(ABC):
    """One kind of job.

    :cvar id_name: the field of its id, in models and records
    :cvar has_batches: many are polled in one request, so at the same times
    :cvar min_interval: shortest time between two polls, in seconds
    """

    noun: str
    id_name: str
    has_batches = False
    min_interval = 1.0

    def describe(self, ids: Sequence[str]) -> str:
        """Name one job by its id, and many by their number."""
        return f"{self.noun} {ids[0]}" if len(ids) == 1 else f"{len(ids)} {self.noun}s"

    @abstractmethod
    async def poll(
        self,
        client: AsyncComplianceClient,
        ids: Iterable[str],
        on_result: OnResult,
        limiter: Limiter = NO_LIMITER,
    ) -> None:
        """Poll these, and report the result of each."""

    async def poll_one(self, client: AsyncComplianceClient, identifier: str) -> PollResult:
        """Return what a poll of one finds."""
        found: dict[str, PollResult] = {}
        await self.poll(client, [identifier], found.__setitem__)
        return found[identifier]

    async def is_gone(self, client: AsyncComplianceClient, identifier: str) -> bool:
        """Return whether the service itself says that one is gone.

        A 404 of another call, such as a delete, may come from a gateway or from a missing route.
        """
        found = await self.poll_one(client, identifier)
        return not isinstance(found, ComplianceError) and found["status"] in (CANCELLED, UNKNOWN)

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

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> Record | None:
        """Cancel one if it is in flight; return its record if it has ended.

        To cancel is to delete, so it is polled just before, and left alone where that fails.
        """
        found = await self.poll_one(client, identifier)
        if isinstance(found, ComplianceError):
            raise found
        if found["status"] in FINAL:
            return found
        await self.delete(client, identifier)
        return None

    async def cancel_in_flight(
        self,
        client: AsyncComplianceClient,
        ids: Sequence[str],
        concurrency: int,
        log: Any,
        on_done: Callable[[str, Record | None], None] = lambda *_: None,
    ) -> None:
        """Cancel those of these that are in flight.

        :param on_done: called with the record of each that had ended, None for each that was cancelled
        """

        async def cancel(identifier: str) -> None:
            try:
                ended = await self.cancel(client, identifier)
            except ComplianceError as error:
                failed[identifier] = error
            else:
                if ended is None or ended["status"] != UNKNOWN:
                    on_done(identifier, ended)

        failed: dict[str, ComplianceError] = {}
        if ids:
            log.info("Cancelling %s, if in flight.", self.describe(ids))
        await for_each(cancel, ids, concurrency)
        if failed:
            log.warning("Could not cancel %s: %s", self.describe(list(failed)), next(iter(failed.values())))


class Jobs(JobKind):
    """Content processing jobs, polled in batches, so that a poll too early costs little."""

    noun = "job"
    id_name = "uuid"
    has_batches = True
    min_interval = 0.25  # some take less than a second

    async def poll(
        self,
        client: AsyncComplianceClient,
        ids: Iterable[str],
        on_result: OnResult,
        limiter: Limiter = NO_LIMITER,
    ) -> None:
        """Poll batch by batch; if one fails because of one of its jobs, poll these alone."""
        async with limiter.request():
            await self._poll_batches(client, [*ids], on_result)

    async def _poll_batches(
        self, client: AsyncComplianceClient, ids: Sequence[str], on_result: OnResult
    ) -> None:
        # Shuffled, so that the same jobs do not share a batch with the one at fault every time.
        rest, single = random.sample(ids, len(ids)), _SinglePolls(client, on_result)
        while rest:
            size = client.batch_size  # grows with each full batch at first
            batch, rest = rest[:size], rest[size:]
            try:
                jobs = await client.get_statuses(batch)
            except ComplianceError as error:
                is_answer = isinstance(error, ComplianceHttpError | ComplianceProtocolError)
                is_alone = len(batch) == 1 and not isinstance(error, ComplianceNotFoundError)
                if is_answer and not is_alone and not isinstance(error, ComplianceThrottledError):
                    for _ in range(MAX_PROBES):  # tell whether all are concerned; one may be the one at fault
                        if batch and not single.has_worked:
                            await single.poll([batch.pop()])
                if not single.has_worked:  # an outage: the others would wait just as long
                    single.report([*batch, *rest], error)
                    return
                single.report(batch if is_alone else await single.poll(batch), error)
            else:
                single.has_worked = True
                for uuid in batch:
                    on_result(uuid, job_record(uuid, jobs.get(uuid)))

    async def cancel(self, client: AsyncComplianceClient, identifier: str) -> Record | None:
        """Cancel a job, unless its own status says that it has ended: that of a batch may be behind."""
        try:
            single = to_record(await client.get_status(identifier))
        except ComplianceNotFoundError:
            if not await self.is_gone(client, identifier):
                raise
            return job_record(identifier, None)
        if single["status"] not in FINAL:
            await self.delete(client, identifier)
            return None
        found = await self.poll_one(client, identifier)  # with its times, which its own status does not have
        return single if isinstance(found, ComplianceError) or found["status"] not in FINAL else found

    async def _send_delete(self, client: AsyncComplianceClient, identifier: str) -> None:
        await client.cancel(identifier)


class Assessments(JobKind):
    """Assessments; the service has no batch endpoint for them, so each is one request."""

    noun = "assessment"
    id_name = "id"

    async def poll(
        self,
        client: AsyncComplianceClient,
        ids: Iterable[str],
        on_result: OnResult,
        limiter: Limiter = NO_LIMITER,
    ) -> None:
        """Poll a few at a time; a 404 means unknown if the service answers for others or lists frameworks."""
        not_found: dict[str, ComplianceNotFoundError] = {}

        async def poll_one(each: str) -> bool:
            try:
                async with limiter.request():
                    assessment = await client.get_assessment(each)
                on_result(each, to_record(assessment))
            except ComplianceNotFoundError as error:
                not_found[each] = error
            except ComplianceError as error:
                on_result(each, error)
            else:
                return True
            return False

        has_worked = any((await for_each(poll_one, ids, limiter.polls)).values())
        is_there = not not_found or has_worked or await _lists_frameworks(client)
        for each, error in not_found.items():
            # The path is our assumption, so the reason is worth keeping.
            on_result(each, {"id": each, "status": UNKNOWN, "error": str(error)} if is_there else error)

    async def _send_delete(self, client: AsyncComplianceClient, identifier: str) -> None:
        await client.cancel_assessment(identifier)


class _SinglePolls:
    """Polls jobs alone whose batch has failed.

    :ivar has_worked: the service has answered for a job in this round
    """

    def __init__(self, client: AsyncComplianceClient, on_result: OnResult) -> None:
        self._client = client
        self._on_result = on_result
        self._left = MAX_POLLED_ALONE
        self.has_worked = False

    async def poll(self, uuids: list[str]) -> list[str]:
        """Poll jobs, and return those that are too many for this round."""
        count, self._left = self._left, max(0, self._left - len(uuids))
        await for_each(self._poll_one, uuids[:count], NO_LIMITER.polls)
        return uuids[count:]

    def report(self, uuids: Sequence[str], error: ComplianceError) -> None:
        for uuid in uuids:
            self._on_result(uuid, error)

    async def _poll_one(self, uuid: str) -> None:
        try:
            found: PollResult = job_record(uuid, (await self._client.get_statuses([uuid])).get(uuid))
            self.has_worked = True
        except ComplianceNotFoundError:
            found = await self._poll_unbatched(uuid)
        except ComplianceError as error:
            found = error
        self._on_result(uuid, found)

    async def _poll_unbatched(self, uuid: str) -> PollResult:
        """Poll a job for which a batch of it alone was answered with 404: the service may not know it."""
        try:
            record = to_record(await self._client.get_status(uuid))
        except ComplianceNotFoundError as error:
            # It comes from the service if that knows other jobs, or at least its frameworks.
            self.has_worked = self.has_worked or await _lists_frameworks(self._client)
            return job_record(uuid, None) if self.has_worked else error
        except ComplianceError as error:
            return error
        self.has_worked = True
        return record


async def _lists_frameworks(client: AsyncComplianceClient) -> bool:
    """Return whether the service is there: a gateway may answer 404 for everything."""
    try:
        await client.list_frameworks()
    except ComplianceError:
        return False
    return True


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
    for name in ("file_name", "source_type"):
        if name in record:
            record[name] = _printable(mask_address(redact(record[name]), address))
    if address:
        record["source_url"] = _printable(redact(address))
    return record


def _printable(text: str) -> str:
    """Return a name on one line; not with escapes, whose backslash would separate it as in a path."""
    return "".join(letter if letter.isprintable() else "_" for letter in text)
