"""A trigger that watches the event loop that it runs in."""

from __future__ import annotations

import asyncio
import gc
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

    A second column leaves out the time of garbage collections, which are not the doing of who runs just then.

    :param file: where to
    """

    file: str

    def __post_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__qualname__}", asdict(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        collecting = Collecting()
        # Kept open: each line costs this loop microseconds.
        with Path(self.file).open("a", buffering=1) as sink:  # noqa: ASYNC230 - see above
            while True:
                worst, worst_own, until = 0.0, 0.0, time.monotonic() + 1
                while (begin := time.monotonic()) < until:
                    before = collecting.seconds
                    await asyncio.sleep(STEP)
                    late = time.monotonic() - begin - STEP
                    worst, worst_own = max(worst, late), max(worst_own, late - collecting.seconds + before)
                print(time.time(), worst, worst_own, file=sink)
        yield TriggerEvent(None)


class Collecting:
    """Sums up how long garbage collections take."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begin = time.monotonic()
        else:
            self.seconds += time.monotonic() - self._begin


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


@dataclass
class Lag:
    """The worst of one second.

    :param worst: all of it
    :param own: without garbage collections
    """

    worst: float
    own: float


def lags(file: Path, begin: float, end: float) -> list[Lag]:
    """Read the lags between two moments."""
    rows = [[float(field) for field in line.split()] for line in file.read_text().splitlines()]
    return [Lag(worst, own) for at, worst, own in rows if begin <= at - 1 and at <= end + 1]
