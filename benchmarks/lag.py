"""What a benchmark puts into a triggerer; as a command, deferred task instances in Airflow's database."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

STEP = 0.02
DAG, TASK = "waiting", "wait"


class _Trigger(BaseTrigger):
    def __post_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", asdict(self)  # type: ignore[call-overload] # both are dataclasses


@dataclass(eq=False, repr=False)
class LagTrigger(_Trigger):
    """Writes down, for each second, by how much its short sleeps were too long at worst.

    It leaves out the time of garbage collections, which are not the doing of who runs just then.

    :param file: where to
    """

    file: str

    async def run(self) -> AsyncIterator[TriggerEvent]:
        collecting = Collecting()
        # Kept open: each line costs this loop microseconds.
        with Path(self.file).open("a", buffering=1) as sink:  # noqa: ASYNC230 - see above
            while True:
                worst, until = 0.0, time.monotonic() + 1
                while (begin := time.monotonic()) < until:
                    before = collecting.seconds
                    await asyncio.sleep(STEP)
                    late = time.monotonic() - begin - STEP
                    worst = max(worst, late - collecting.seconds + before)
                print(time.time(), worst, file=sink)
        yield TriggerEvent(None)


class Collecting:
    """Sums up how long garbage collections take."""

    def __init__(self) -> None:
        self.seconds = self._begin = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begin = time.monotonic()
        else:
            self.seconds += time.monotonic() - self._begin


@dataclass(eq=False, repr=False)
class SleepTrigger(_Trigger):
    """Does nothing for a long time.

    :param uuids: for a row in the database like that of others
    :param deadline: until when
    """

    uuids: list[str]
    deadline: float

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(self.deadline - time.time())
        yield TriggerEvent(None)


def worst_lag(file: Path, begin: float) -> float:
    """Return the worst lag since a moment."""
    rows = ([float(field) for field in line.split()] for line in file.read_text().splitlines())
    return max((worst for at, worst in rows if begin <= at - 1), default=float("nan"))


def defer() -> None:
    """Put an instance for each trigger into the latest run; triggers come as JSON on standard input.

    What a scheduler, an executor and a worker would have written down after minutes is written down at once;
    the triggerer can't tell the difference.
    """
    from airflow.models.dagbag import DBDagBag
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    with create_session() as session:
        dag = DBDagBag().get_latest_version_of_dag(DAG, session=session)
        assert dag
        of_task = TaskInstance.dag_id == DAG
        template = session.scalars(select(TaskInstance).where(of_task).limit(1)).one()
        last = session.scalar(select(func.max(TaskInstance.map_index)).where(of_task)) or 0
        for number, (path, kwargs) in enumerate(json.load(sys.stdin), last + 1):
            run = template.dag_version_id, template.run_id
            instance = TaskInstance(dag.get_task(TASK), *run, "deferred", number)
            instance.trigger = Trigger(path, kwargs)
            session.add(instance)


if __name__ == "__main__":
    defer()
