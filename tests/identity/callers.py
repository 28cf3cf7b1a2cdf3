"""Both clients behind one face, so that one test proves a behaviour on each."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.client.base import SharedState
from airflow_provider.client.settings import Settings
from airflow_provider.client.sync import ComplianceClient


class Caller(Protocol):
    """A client that makes one and the same call of the service."""

    shared: SharedState

    def call(self) -> Any:
        """Make the call."""

    def crowd(self, size: int) -> list[Any]:
        """Make the call that often at once; errors are returned."""

    def close(self) -> None:
        """Close the client."""


class SyncCaller:
    """Calls from threads."""

    def __init__(self, settings: Settings, shared: SharedState) -> None:
        self.shared = shared
        self._client = ComplianceClient(settings, shared=shared)

    def call(self) -> Any:
        return self._client.list_frameworks()

    def crowd(self, size: int) -> list[Any]:
        def attempt(_: int) -> Any:
            try:
                return self.call()
            except Exception as error:
                return error

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(attempt, range(size)))

    def close(self) -> None:
        self._client.close()


class AsyncCaller:
    """Calls from tasks of one event loop."""

    def __init__(self, settings: Settings, shared: SharedState) -> None:
        self.shared = shared
        self.runner = asyncio.Runner()
        self._client = AsyncComplianceClient(settings, shared=shared)
        self.runner.run(self._client.__aenter__())

    def call(self) -> Any:
        return self.runner.run(self.one())

    def crowd(self, size: int) -> list[Any]:
        async def gather() -> list[Any]:
            return await asyncio.gather(*(self.one() for _ in range(size)), return_exceptions=True)

        return self.runner.run(gather())

    def close(self) -> None:
        self.runner.run(self._client.__aexit__())
        self.runner.close()

    async def one(self) -> Any:
        """Make the call, inside of the runner."""
        return await self._client.list_frameworks()


CALLERS: dict[str, type[SyncCaller] | type[AsyncCaller]] = {"requests": SyncCaller, "aiohttp": AsyncCaller}
