"""The jobs of an ingest that are under way: looking at them until they end, and cancelling them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import ComplianceError, ComplianceHttpError, ComplianceNotFoundError
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.gate import Gate
from airflow_provider.triggers.waiting import may_pass, next_look
from airflow_provider.triggers.work import JobNews, news_of_jobs

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

KILL_SECONDS = 15.0


@dataclass
class _Entry:
    documents: list[Document]  # a service may give one job to equal documents
    since: float
    look_at: float


class JobsUnderWay:
    """Looks at jobs, young ones more often than old ones, until they end.

    :param client: the service
    :param gate: how many requests at a time
    :param poll_interval: longest time between two looks
    :param tell: called for each document of a job that has ended
    """

    def __init__(
        self,
        client: AsyncComplianceClient,
        gate: Gate,
        poll_interval: float,
        tell: Callable[[Document, JobNews], None],
        log: Any,
    ) -> None:
        self._client = client
        self._gate = gate
        self._poll_interval = poll_interval
        self._tell = tell
        self._log = log
        self._entries: dict[str, _Entry] = {}
        self._are_there = asyncio.Event()

    @property
    def uuids(self) -> list[str]:
        """All of them."""
        return list(self._entries)

    @property
    def documents(self) -> int:
        """How many documents wait for them."""
        return sum(len(each.documents) for each in self._entries.values())

    def add(self, document: Document) -> None:
        """Look at the job of a document from now on."""
        moment = time.monotonic()
        look_at = next_look(moment, moment, self._poll_interval)
        entry = self._entries.setdefault(document.uuid, _Entry([], moment, look_at))
        entry.documents.append(document)
        self._are_there.set()

    def clear(self) -> None:
        """Look at none of them any more."""
        self._entries.clear()

    async def keep(self) -> None:
        """Look at them, for ever; an error that all would meet comes out here."""
        while True:
            self._are_there.clear()
            if not self._entries:
                await self._are_there.wait()
            moment = time.monotonic()
            due = [uuid for uuid, each in self._entries.items() if each.look_at <= moment]
            if due:
                # Batch by batch, so that the first texts are fetched while the next jobs are looked at.
                for start in range(0, len(due), self._client.settings.batch_size):
                    await self._look_at(due[start : start + self._client.settings.batch_size])
            else:
                first = min(each.look_at for each in self._entries.values())
                await asyncio.sleep(min(first - moment, 1.0))

    async def cancel(self) -> None:
        """Cancel them all, as far as that goes in a short time."""

        async def cancel(uuid: str) -> None:
            try:
                await self._client.cancel(uuid)
            except ComplianceNotFoundError:
                pass
            except ComplianceError as error:
                self._log.warning("Job %s could not be cancelled: %s", uuid, error)

        if not self._entries:
            return
        self._log.info("Cancelling %s jobs.", len(self._entries))
        try:
            async with asyncio.timeout(KILL_SECONDS):
                await for_each(cancel, self.uuids, self._gate.most)
        except TimeoutError:
            self._log.warning("Not all jobs could be cancelled within %.0f s.", KILL_SECONDS)

    async def _look_at(self, uuids: list[str]) -> None:
        async with self._gate.passage():
            found = await news_of_jobs(self._client, uuids)
        passing: ComplianceError | None = None
        for uuid, news in found.items():
            if isinstance(news, ComplianceError):
                if may_pass(news):
                    passing = news
                    self._look_later(uuid)
                elif isinstance(news, ComplianceHttpError):
                    self._end(uuid, news)
                else:
                    raise news
            elif news and not news.status.is_final:
                self._look_later(uuid)
            else:
                self._end(uuid, news)
        if passing:
            self._log.warning("Jobs can't be looked at right now, going on: %s", passing)

    def _look_later(self, uuid: str) -> None:
        entry = self._entries[uuid]
        entry.look_at = next_look(time.monotonic(), entry.since, self._poll_interval)

    def _end(self, uuid: str, news: JobNews) -> None:
        for document in self._entries.pop(uuid).documents:
            self._tell(document, news)
