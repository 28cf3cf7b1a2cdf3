"""Both clients behind one face, so that one test proves a behaviour on each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.client.base import SharedState
from airflow_provider.client.settings import Settings
from airflow_provider.client.sync import ComplianceClient


class SyncCaller:
    """Calls methods of ComplianceClient."""

    def __init__(self, settings: Settings, shared: SharedState | None = None) -> None:
        self._client = ComplianceClient(settings, shared=shared)

    def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._client, method)(*args, **kwargs)

    def crowd(self, size: int, method: str, *args: Any) -> list[Any]:
        """Make the same call from many threads at once; errors are returned."""

        def attempt(_: int) -> Any:
            try:
                return self(method, *args)
            except Exception as error:
                return error

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(attempt, range(size)))

    def close(self) -> None:
        self._client.close()


class AsyncCaller:
    """Calls methods of AsyncComplianceClient, on one event loop."""

    def __init__(self, settings: Settings, shared: SharedState | None = None) -> None:
        self._runner = asyncio.Runner()
        self.loop = self._runner.get_loop()
        try:
            self._client = AsyncComplianceClient(settings, shared=shared)
            self._runner.run(self._client.__aenter__())
        except BaseException:
            self._runner.close()
            raise

    def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._runner.run(getattr(self._client, method)(*args, **kwargs))

    def crowd(self, size: int, method: str, *args: Any) -> list[Any]:
        """Make the same call from many tasks at once; errors are returned."""

        async def gather() -> list[Any]:
            calls = [getattr(self._client, method)(*args) for _ in range(size)]
            return list(await asyncio.gather(*calls, return_exceptions=True))

        return self._runner.run(gather())

    def close(self) -> None:
        self._runner.run(self._client.__aexit__())
        self._runner.close()


CALLERS: dict[str, Callable[..., SyncCaller | AsyncCaller]] = {
    "requests": SyncCaller,
    "aiohttp": AsyncCaller,
}
