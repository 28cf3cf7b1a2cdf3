"""The jobs of an ingest that are under way: looking at them until they end, and cancelling them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.bulk.limiter import AdaptiveLimiter
from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceNotFoundError,
)
from airflow_provider.ingest.documents import Document
from airflow_provider.waiting.kinds import JobUpdate, poll_jobs
from airflow_provider.waiting.rules import next_poll_time

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.models import ContentJob

KILL_SECONDS = 15.0
UNKNOWN_SECONDS = 30.0  # in which a job stays unknown, or refused alone, until that is believed
OUTAGE_SECONDS = 900.0  # in which no job can be polled until the attempt ends
LONGEST_PAUSE = 60.0  # seconds between two polls in an outage, unless poll_interval is longer
SHORTEST_INTERVAL = 0.1  # seconds


@dataclass
class _Entry:
    documents: list[Document]  # a service may give one job to equal documents
    since: float
    look_at: float
    lost_since: float | None = None  # unknown, or refused while others are not


class PendingJobs:
    """Looks at jobs, young ones more often than old ones, until they end.

    :param client: the service
    :param gate: how many requests at a time
    :param poll_interval: longest time between two looks
    :param tell: called for each document of a job that has ended
    """

    def __init__(
        self,
        client: AsyncComplianceClient,
        gate: AdaptiveLimiter,
        poll_interval: float,
        tell: Callable[[Document, JobUpdate], None],
        log: Any,
    ) -> None:
        self._client = client
        self._gate = gate
        self._poll_interval = max(poll_interval, SHORTEST_INTERVAL)
        self._tell = tell
        self._log = log
        self._entries: dict[str, _Entry] = {}
        self._are_there = asyncio.Event()
        self._went_well_at = time.monotonic()
        self._failures = 0
        self.has_worked = False

    @property
    def uuids(self) -> list[str]:
        """All of them."""
        return list(self._entries)

    @property
    def documents(self) -> int:
        """How many documents wait for them."""
        return sum(len(each.documents) for each in self._entries.values())

    @property
    def has_unknown(self) -> bool:
        """Some are unknown to the service, but not for so long that it can be believed."""
        return any(each.lost_since is not None for each in self._entries.values())

    def add(self, document: Document) -> None:
        """Look at the job of a document from now on."""
        moment = time.monotonic()
        look_at = next_poll_time(moment, moment, self._poll_interval)
        entry = self._entries.setdefault(document.uuid, _Entry([], moment, look_at))
        entry.documents.append(document)
        self._are_there.set()

    def clear(self) -> None:
        """Look at none of them any more."""
        self._entries.clear()

    async def poll(self) -> None:
        """Look at them, for ever; an error that all would meet comes out here."""
        while True:
            self._are_there.clear()
            if not self._entries:
                await self._are_there.wait()
            moment = time.monotonic()
            due = [uuid for uuid, each in self._entries.items() if each.look_at <= moment]
            if due:
                await self._poll(due)
            else:
                first = min(each.look_at for each in self._entries.values())
                await asyncio.sleep(min(first - moment, 1.0))

    async def poll_now(self) -> None:
        """Look at all of them once."""
        await self._poll(self.uuids)

    async def cancel(self, uuids: Iterable[str]) -> dict[str, ContentJob]:
        """Cancel jobs that are under way, as far as that goes in a short time; return those that had ended.

        Whoever cancels a job deletes it, so none is cancelled that could not be looked at just before.
        """
        ended: dict[str, ContentJob] = {}

        async def cancel(uuid: str) -> None:
            try:
                await self._client.cancel(uuid)
            except ComplianceNotFoundError:
                pass
            except ComplianceError as error:
                self._log.warning("Job %s could not be cancelled: %s", uuid, error)

        async def cancel_batch(batch: list[str]) -> None:
            found = await poll_jobs(self._client, batch)
            running = []
            for uuid, news in found.items():
                if isinstance(news, ComplianceError):
                    self._log.warning("Job %s is not cancelled, it can't be looked at: %s", uuid, news)
                elif news and news.status.is_final:
                    ended[uuid] = news
                elif news:
                    running.append(uuid)
            self._log.info("Cancelling %s jobs.", len(running))
            await for_each(cancel, running, self._gate.most)

        try:
            async with asyncio.timeout(KILL_SECONDS):
                for batch in self._batches(list(uuids)):
                    await cancel_batch(batch)
        except TimeoutError:
            self._log.warning("Not all jobs could be cancelled within %.0f s.", KILL_SECONDS)
        return ended

    def end(self, uuid: str, news: JobUpdate) -> None:
        """Tell what became of a job, and look at it no more."""
        if entry := self._entries.pop(uuid, None):
            for document in entry.documents:
                self._tell(document, news)

    def _batches(self, uuids: list[str]) -> Iterable[list[str]]:
        size = self._client.settings.batch_size
        return (uuids[start : start + size] for start in range(0, len(uuids), size))

    async def _poll(self, uuids: list[str]) -> None:
        # Batch by batch, so that the first texts are fetched while the next jobs are looked at.
        for batch in self._batches(uuids):
            async with self._gate.slot():
                found = await poll_jobs(self._client, batch)
            self._take(found)

    def _take(self, found: dict[str, JobUpdate]) -> None:
        moment = time.monotonic()
        errors = [news for news in found.values() if isinstance(news, ComplianceError)]
        if len(errors) < len(found):
            self._went_well_at, self._failures, self.has_worked = moment, 0, True
        else:
            self._failures += 1
        for error in errors:
            if not error.transient and not isinstance(error, ComplianceHttpError):
                raise error  # of credentials, connection or certificates: all would meet it
        if errors:
            self._log.warning("%s jobs can't be looked at right now, going on: %s", len(errors), errors[-1])
            last = errors[-1]
            is_refusal = not last.transient or isinstance(last, ComplianceAuthError)
            if is_refusal and moment - self._went_well_at >= OUTAGE_SECONDS:
                last.transient = True  # it has worked, or the jobs would not be there
                raise last
        for uuid, news in found.items():
            if uuid in self._entries:
                self._take_one(uuid, news, moment)

    def _take_one(self, uuid: str, news: JobUpdate, moment: float) -> None:
        entry = self._entries[uuid]
        is_lost = news is None or (
            isinstance(news, ComplianceError) and not news.transient and not self._failures
        )
        if is_lost and entry.lost_since is not None and moment - entry.lost_since >= UNKNOWN_SECONDS:
            self.end(uuid, news)
            return
        if is_lost:
            entry.lost_since = moment if entry.lost_since is None else entry.lost_since
        elif not isinstance(news, ComplianceError):
            entry.lost_since = None
            if news and news.status.is_final:
                self.end(uuid, news)
                return
        pause = min(LONGEST_PAUSE, 2.0 ** (self._failures - 1)) if self._failures else 0.0
        look_at = next_poll_time(moment, entry.since, self._poll_interval)
        entry.look_at = max(look_at, moment + pause)
