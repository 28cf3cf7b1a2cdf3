"""Calls that are repeated while the service refuses them, by the same rule as polls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider.exceptions import ComplianceError, ComplianceHttpError
from airflow_provider.waiting.rules import Refusals, is_refusal

if TYPE_CHECKING:
    from airflow_provider.client.base import BaseClient

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0  # between two tries

T = TypeVar("T")
log = logging.getLogger(__name__)


class _Retries:
    """The tries of one call: how long to pause before the next one."""

    def __init__(self, client: BaseClient, log: Any, clock: Callable[[], float]) -> None:
        self._client = client
        self._log = log
        self._clock = clock
        self._refusals = Refusals()
        self._pause = FIRST_PAUSE_SECONDS

    def next_pause(self, error: ComplianceError) -> float:
        """Return how many seconds to wait before the next try; raise the error if it counts."""
        if not is_refusal(error):
            raise error
        if counted := self._refusals.observe(error, self._clock(), self._client.has_worked):
            raise counted from error
        pause, self._pause = self._pause, min(2 * self._pause, MAX_PAUSE_SECONDS)
        self._log.warning("Refused, trying again in %.0f s: %s", pause, error)
        return pause


async def outlast_refusals(
    call: Callable[[], Awaitable[T]],
    client: BaseClient,
    log: Any = log,
    confirm: Callable[[], Awaitable[bool]] | None = None,
) -> T:
    """Call the service and return its result; repeat a refused call until the refusal counts.

    For example `await outlast_refusals(lambda: client.list_frameworks(), client, self.log)`. Any other error
    is raised at once; the client retried transient ones. A 404 is also a refusal.

    :param confirm: returns whether the service itself confirms, in another call, that the object does not
        exist; then a 404 or 409 counts at once
    """
    retries = _Retries(client, log, asyncio.get_running_loop().time)
    while True:
        try:
            return await call()
        except ComplianceError as error:
            if confirm and _is_about_job(error) and await confirm():
                raise
            await asyncio.sleep(retries.next_pause(error))


def outlast_refusals_sync(
    call: Callable[[], T], client: BaseClient, log: Any = log, confirm: Callable[[], bool] | None = None
) -> T:
    """Do the same without an event loop: `outlast_refusals_sync(hook.list_frameworks, hook.get_conn())`."""
    retries = _Retries(client, log, time.monotonic)
    while True:
        try:
            return call()
        except ComplianceError as error:
            if confirm and _is_about_job(error) and confirm():
                raise
            time.sleep(retries.next_pause(error))


def _is_about_job(error: ComplianceError) -> bool:
    return isinstance(error, ComplianceHttpError) and error.status in (404, 409)
