"""A trigger that watches the event loop that it runs in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

STEP = 0.02


@dataclass(eq=False, repr=False)
class LagTrigger(BaseTrigger):
    """Writes down, for each second, by how much its short sleeps were too long at worst.

    :param file: where to
    """

    file: str

    def __post_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__qualname__}", asdict(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # Kept open: each line costs this loop microseconds.
        with Path(self.file).open("a", buffering=1) as sink:  # noqa: ASYNC230 - see above
            while True:
                worst, until = 0.0, time.monotonic() + 1
                while (begin := time.monotonic()) < until:
                    await asyncio.sleep(STEP)
                    worst = max(worst, time.monotonic() - begin - STEP)
                print(time.time(), worst, file=sink)
        yield TriggerEvent(None)


@dataclass(eq=False, repr=False)
class SleepTrigger(BaseTrigger):
    """Does nothing for a long time.

    :param uuids: for a row in the database like that of others
    :param deadline: until when
    """

    uuids: list[str]
    deadline: float

    def __post_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__qualname__}", asdict(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(self.deadline - time.time())
        yield TriggerEvent(None)


def lags(file: Path, begin: float, end: float) -> list[float]:
    """Read the lags between two moments."""
    rows = [line.split() for line in file.read_text().splitlines()]
    return [float(row[1]) for row in rows if begin <= float(row[0]) - 1 and float(row[0]) <= end + 1]
