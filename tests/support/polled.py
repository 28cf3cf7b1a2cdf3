"""A service without HTTP, for tests of polling in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from airflow_provider.exceptions import ComplianceError
from airflow_provider.runtime.event_loop import for_each
from airflow_provider.waiting.kinds import NO_LIMITER, JobKind, Limiter, OnResult
from airflow_provider.waiting.results import FINAL
from tests.support.virtual_time import seconds

RUNNING = {"status": "RUNNING"}
COMPLETED = {"status": "COMPLETED"}


class Settings(str):
    """Of a connection: its account, and perhaps what else has changed, after a comma."""

    __slots__ = ()

    @property
    def account_digest(self) -> str:
        return self.partition(",")[0]


class Client:
    """An open connection to the service."""

    def __init__(self, service: PolledService, settings: str) -> None:
        self.service = service
        self.settings = Settings(settings)
        self.clock = service.clock
        self.is_open = False

    @property
    def has_worked(self) -> bool:
        return self.service.has_worked

    @property
    def is_logged_in(self) -> bool:
        return self.service.is_logged_in

    async def __aenter__(self) -> Client:
        self.is_open = True
        self.service.clients.append(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(self.service.close_seconds)
        self.is_open = False


class PolledService:
    """Says what each job is, depending on the time.

    :ivar polls: when what was polled
    """

    def __init__(self) -> None:
        self.scripts: dict[str, dict[float, Any]] = {}
        self.polls: list[tuple[float, list[str]]] = []
        self.clients: list[Client] = []
        self.reads: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        self.cancel_concurrency = 0
        self.settings = "first"
        self.connection_errors: list[Exception] = []
        self.connection_error: Exception | None = None
        self.read_seconds = 0.0
        self.has_worked = self.is_logged_in = False
        self.clock = SimpleNamespace(is_known=False)
        self.peak = 0  # of jobs in flight, where a test counts them
        self.poll_seconds = self.cancel_seconds = self.close_seconds = 0.0

    def job(self, identifier: str, *first: Any, **later: Any) -> str:
        """Add a job: what it is at first, and what it is from `s10` on, the tenth second."""
        self.scripts[identifier] = {0.0: first[0] if first else RUNNING} | {
            float(name[1:]): found for name, found in later.items()
        }
        return identifier

    def result(self, identifier: str) -> Any:
        script = self.scripts[identifier]
        return script[max(each for each in script if each <= seconds())]

    @property
    def poll_times(self) -> list[float]:
        return [at for at, _ in self.polls]

    def hook(self, conn_id: str = "c") -> Any:
        return type("Hook", (_Hook,), {"service": self})(conn_id)

    def kind(self) -> Any:
        return _Kind(self)


class _Hook:
    service: ClassVar[PolledService]

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id

    def get_conn(self) -> None:
        if error := self.service.connection_error:
            raise error

    @property
    def account_digest(self) -> str:
        self.get_conn()
        return self.service.settings

    async def get_async_conn(self, **changes: Any) -> Client:
        self.service.reads.append(changes)
        if self.service.read_seconds:
            await asyncio.sleep(self.service.read_seconds)
        if self.service.connection_errors:
            raise self.service.connection_errors.pop(0)
        if error := self.service.connection_error:
            raise error
        return Client(self.service, self.service.settings)


class _Kind(JobKind):
    noun = "job"
    id_name = "uuid"
    has_batches = True

    def __init__(self, service: PolledService) -> None:
        self._service = service

    async def poll(
        self, client: Any, ids: Iterable[str], on_result: OnResult, limiter: Limiter = NO_LIMITER
    ) -> bool:
        assert client.is_open
        if self.has_batches:
            async with limiter:
                await self._poll(sorted(ids), on_result)
        else:

            async def poll(identifier: str) -> None:
                async with limiter:
                    await self._poll([identifier], on_result)

            await for_each(poll, ids, limiter.polls)
        return True

    async def _get(self, client: Any, identifier: str) -> Any:
        raise NotImplementedError

    async def _poll(self, ids: list[str], on_result: OnResult) -> None:
        self._service.polls.append((round(seconds(), 3), ids))
        await asyncio.sleep(self._service.poll_seconds)
        for each in ids:
            found = self._service.result(each)
            if isinstance(found, Exception) and not isinstance(found, ComplianceError):
                raise found
            on_result(each, found)

    async def find_ended(self, client: Any, identifier: str) -> Any:
        found = self._service.result(identifier)
        if isinstance(found, Exception):
            raise found
        return found if found["status"] in FINAL else None

    async def _send_delete(self, client: Any, identifier: str) -> None:
        self._service.cancelled.append(identifier)

    async def cancel_in_flight(
        self, client: Any, ids: Sequence[str], concurrency: int, log: Any, seconds: float | None = None
    ) -> dict[str, Any]:
        self._service.cancel_concurrency = concurrency
        return await super().cancel_in_flight(client, ids, concurrency, log, seconds)

    async def cancel(self, client: Any, identifier: str) -> Any:
        await asyncio.sleep(self._service.cancel_seconds)
        found = self._service.result(identifier)
        if isinstance(found, Exception):
            raise found
        if found["status"] != "RUNNING":
            return found
        await self._send_delete(client, identifier)
        return None
