"""Who may work on a task instance: the process that started last.

Airflow may take an attempt for dead that still runs, and start the next one beside it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from datetime import UTC, datetime
from typing import Any

from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceSupersededError
from airflow_provider.storage.errors import storage_errors
from airflow_provider.storage.files import put_sync
from airflow_provider.storage.locations import Location

LEASE = "lease.json"


class Lease:
    """A small object that every process overwrites when it starts: the last writer is the owner.

    :param folder: the folder of the task instance
    :param try_number: of the task, for people; the owner is told by a random token
    """

    def __init__(self, folder: Location, try_number: int) -> None:
        self._place = folder / LEASE
        self._try_number = try_number
        self._token = secrets.token_hex(8)

    def acquire(self) -> None:
        """Take it, whoever has it; in the task's own thread, before the journal is read."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = {"token": self._token, "try_number": self._try_number, "at": at}
        put_sync(self._place, json.dumps(record).encode())

    async def check(self) -> None:
        """Raise if another process has taken it; one that was removed says nothing of another process."""
        with storage_errors(self._place, "read"):
            try:
                found = json.loads(await self._read())
            except (FileNotFoundError, ValueError):
                return
        if isinstance(found, dict) and found.get("token", self._token) != self._token:
            raise ComplianceSupersededError(
                f"Attempt {found.get('try_number')} of this task has taken over at {found.get('at')}: this "
                f"process (attempt {self._try_number}) stops, and cancels and removes nothing. Look there."
            )

    async def _read(self) -> Any:
        fs = self._place.fs
        if not fs.async_impl:
            return await in_thread(fs.cat_file, self._place.path)
        # On the event loop of the store's own library, as the journal is written.
        call = fs._cat_file(self._place.path)  # noqa: SLF001 - fsspec's names of coroutines
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, fs.loop))
