"""A text on its way into a store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.storage import texts
from airflow_provider.storage.locations import Location


class SlowFile:
    """A file of a store that takes its time, then fails."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def write(self, data: Any) -> None:
        self.begun.set()
        self.may_end.wait(5)
        self.events.append("written")
        raise OSError("The store is full.")

    def discard(self) -> None:
        self.events.append("discarded")


async def endless() -> AsyncIterator[bytes]:
    for _ in range(2):
        yield bytes(texts.BATCH_BYTES)
    await asyncio.sleep(60)


def test_what_is_cancelled_is_discarded_when_the_thread_that_writes_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, complaints = SlowFile(), []
    monkeypatch.setattr(texts, "create", lambda _: file)

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
        storing = asyncio.create_task(texts._store(endless(), Location(f"{tmp_path}/x"), compress=False))
        await asyncio.to_thread(file.begun.wait, 30)
        for _ in range(2):  # Airflow may ask more than once
            storing.cancel()
            await asyncio.sleep(0.05)
        assert file.events == []
        file.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await storing

    asyncio.run(scenario())
    assert file.events == ["written", "discarded"]
    assert complaints == []  # of an error that nobody has seen
