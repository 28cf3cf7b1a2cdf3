"""The kinds of jobs that can be waited for: content processing jobs and assessments."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceHttpError,
    ComplianceNotFoundError,
    ComplianceProtocolError,
    ComplianceThrottledError,
)
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import mask_address
from airflow_provider.runtime.event_loop import for_each
from airflow_provider.waiting.results import CANCELLED, FINAL, UNKNOWN, PollResult, Record

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient as Client
    from airflow_provider.client.models import Assessment, ContentJob

MAX_REASON_CHARS = 500
MAX_IDS_SHOWN = 100  # in a warning about what may still be running
MAX_PROBES = 2  # jobs of a batch that fails, to tell an outage from a job at fault
MAX_POLLED_ALONE = 100  # jobs of batches that fail, in one round
MAX_POLLS = 64  # in flight

OnResult = Callable[[str, PollResult], None]


class Limiter:
    """How many requests may be in flight, at least one; this one limits polls only."""

    limit = 8.0

    @property
    def polls(self) -> int:
        """How many of them may be polls."""
        return int(min(self.limit, MAX_POLLS))

    async def __aenter__(self) -> None:
        """Wait until a request may be sent; entered while it is in flight."""

    async def __aexit__(self, *_: object) -> None:
        """Count the request as answered."""


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

    async def poll(
        self, client: Client, ids: Iterable[str], on_result: OnResult, limiter: Limiter = NO_LIMITER
    ) -> bool:
        """Poll each by a request of its own, and report the results; return whether the service is there.

        A 404 means unknown if the service answers for others or lists frameworks: it may be a gateway's.
        """
        not_found: dict[str, ComplianceNotFoundError] = {}

        async def poll_one(identifier: str) -> bool:
            try:
                async with limiter:
                    found = await self._get(client, identifier)
                on_result(identifier, to_record(found))
            except ComplianceNotFoundError as error:
                not_found[identifier] = error
            except ComplianceError as error:
                on_result(identifier, error)
            else:
                return True
            return False

        is_there = any((await for_each(poll_one, ids, limiter.polls)).values())
        if not_found and not is_there:
            with suppress(ComplianceError):
                is_there = bool(await client.list_frameworks() or True)
        for identifier, error in not_found.items():
            on_result(identifier, self._unknown(identifier, error) if is_there else error)
        return is_there

    @abstractmethod
    async def _get(self, client: Client, identifier: str) -> ContentJob | Assessment:
        """Send the request."""

    def _unknown(self, identifier: str, error: ComplianceError) -> Record:
        # The path of assessments is our assumption, so the reason is worth keeping.
        return {self.id_name: identifier, "status": UNKNOWN, "error": str(error)}

    async def poll_one(self, client: Client, identifier: str) -> PollResult:
        """Return the result of polling one job."""
        found: dict[str, PollResult] = {}
        await self.poll(client, [identifier], found.__setitem__)
        return found[identifier]

    async def is_gone(self, client: Client, identifier: str) -> bool:
        """Return whether the service itself says that one is gone.

        A 404 of another call, such as a delete, may come from a gateway or from a missing route.
        """
        found = await self.poll_one(client, identifier)
        return not isinstance(found, ComplianceError) and found["status"] in (CANCELLED, UNKNOWN)

    async def delete(self, client: Client, identifier: str) -> bool:
        """Cancel and delete one, in any state; return False if the service says that it is gone already."""
        try:
            await self._send_delete(client, identifier)
        except ComplianceNotFoundError:
            if not await self.is_gone(client, identifier):
                raise
            return False
        return True

    @abstractmethod
    async def _send_delete(self, client: Client, identifier: str) -> None:
        """Send the request."""

    async def cancel(self, client: Client, identifier: str) -> Record | None:
        """Cancel one if it is in flight; return its record if it ended.

        To cancel is to delete, so it is polled just before, and left alone where that fails.
        """
        ended = await self.find_ended(client, identifier)
        if ended is None:
            await self.delete(client, identifier)
        return ended

    async def find_ended(self, client: Client, identifier: str) -> Record | None:
        """Return the record of one that ended, None for one in flight; by its own status."""
        found = await self.poll_one(client, identifier)
        if isinstance(found, ComplianceError):
            raise found
        return found if found["status"] in FINAL else None

    async def cancel_in_flight(
        self, client: Client, ids: Sequence[str], concurrency: int, log: Any, seconds: float | None = None
    ) -> dict[str, Record | None]:
        """Cancel the jobs in flight among these, and warn about jobs that may still be running.

        :param seconds: how long this may take
        :return: the record of each job that ended before, None for each cancelled one
        """

        async def cancel(identifier: str) -> None:
            try:
                done[identifier] = await self.cancel(client, identifier)
            except ComplianceError as error:
                errors.append(error)

        done: dict[str, Record | None] = {}
        errors: list[Exception] = []
        if ids:
            log.info("Cancelling %s, if in flight.", self.describe(ids))
        try:
            async with asyncio.timeout(seconds):
                await for_each(cancel, ids, concurrency)
        except TimeoutError:
            errors.append(TimeoutError(f"Timed out after {seconds:.0f} s."))
        self.warn_left([each for each in ids if each not in done], errors, log)
        return {each: ended for each, ended in done.items() if not ended or ended["status"] != UNKNOWN}

    def warn_left(self, ids: Sequence[str], errors: Sequence[object], log: Any) -> None:
        """Warn about what could not be cancelled, by id: no attempt may know it any more."""
        if ids:
            more = f" and {len(ids) - MAX_IDS_SHOWN} more, see `python -m airflow_provider jobs`"
            named = ", ".join(ids[:MAX_IDS_SHOWN]) + (more if len(ids) > MAX_IDS_SHOWN else "")
            noun = self.noun if len(ids) == 1 else f"{self.noun}s"
            log.warning("Could not cancel the %s %s, which may still be running: %s", noun, named, errors[0])


class Jobs(JobKind):
    """Content processing jobs, polled in batches, so that a poll too early costs little."""

    noun = "job"
    id_name = "uuid"
    has_batches = True
    min_interval = 0.25  # some take less than a second

    async def poll(
        self, client: Client, ids: Iterable[str], on_result: OnResult, limiter: Limiter = NO_LIMITER
    ) -> bool:
        """Poll batch by batch; if one fails because of one of its jobs, poll these alone."""
        # Shuffled, so that the same jobs do not share a batch with the one at fault every time.
        rest = [*ids]
        random.shuffle(rest)
        is_there, alone_left = False, MAX_POLLED_ALONE
        while rest:
            size = client.batch_size
            batch, rest = rest[:size], rest[size:]
            try:
                async with limiter:
                    jobs = await client.get_statuses(batch)
            except ComplianceError as error:
                if _may_concern_one_job(error):
                    if not is_there:  # one of these may be the one at fault
                        probes, batch = batch[:MAX_PROBES], batch[MAX_PROBES:]
                        alone_left -= len(probes)
                        is_there = await super().poll(client, probes, on_result, limiter)
                    if is_there:
                        alone, batch = batch[:alone_left], batch[alone_left:]
                        alone_left -= len(alone)
                        await super().poll(client, alone, on_result, limiter)
                failed, rest = (batch, rest) if is_there else ([*batch, *rest], [])  # an outage of all
                for uuid in failed:
                    on_result(uuid, error)
            else:
                is_there = True
                for uuid in batch:
                    on_result(uuid, job_record(uuid, jobs.get(uuid)))
        return is_there

    async def _get(self, client: Client, identifier: str) -> ContentJob:
        return await client.get_status(identifier)

    def _unknown(self, identifier: str, error: ComplianceError) -> Record:
        return job_record(identifier, None)

    async def find_ended(self, client: Client, identifier: str) -> Record | None:
        """Ask for the status of the job itself: a batch may lag."""
        try:
            single = to_record(await client.get_status(identifier))
        except ComplianceNotFoundError:
            if not await self.is_gone(client, identifier):
                raise
            return job_record(identifier, None)
        if single["status"] not in FINAL:
            return None
        found = await self.poll_one(client, identifier)  # with its times, which its own status does not have
        return single if isinstance(found, ComplianceError) or found["status"] not in FINAL else found

    async def _send_delete(self, client: Client, identifier: str) -> None:
        await client.cancel(identifier)


class Assessments(JobKind):
    """Assessments; the service has no batch endpoint for them, so each is one request."""

    noun = "assessment"
    id_name = "id"

    async def _get(self, client: Client, identifier: str) -> Assessment:
        return await client.get_assessment(identifier)

    async def _send_delete(self, client: Client, identifier: str) -> None:
        await client.cancel_assessment(identifier)


def _may_concern_one_job(error: ComplianceError) -> bool:
    """Return whether the service responded with an error that may be specific to this job."""
    is_answer = isinstance(error, ComplianceHttpError | ComplianceProtocolError)
    return is_answer and not isinstance(error, ComplianceThrottledError)


JOBS = Jobs()
ASSESSMENTS = Assessments()


def job_record(uuid: str, job: ContentJob | None) -> Record:
    """Return the record of a job, while it is in flight without details; None is one that is not known."""
    if job is None or not job.status.is_final:
        return {"uuid": uuid, "status": job.status.value if job else UNKNOWN}
    return to_record(job)


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
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "_" for letter in text)
