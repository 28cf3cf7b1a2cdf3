"""Random histories of one task instance: attempts that write, hang, are killed, take over, and publish.

Every job has a higher number than all before it. Whatever happens, a reader finds for each document the last
job whose record counts, or a later one: no record is lost, and none that was replaced comes back.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider.bulk import checkpoint as module
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.exceptions import ComplianceStorageError, ComplianceSupersededError
from airflow_provider.ingest.documents import Document
from airflow_provider.storage.atomic import put
from airflow_provider.storage.layout import MANIFEST
from airflow_provider.storage.locations import Location

SOURCES = st.sampled_from(["a", "b", "c"])
FAULTS = st.sampled_from(
    [None, None, None, "store is down", "killed before", "killed after", "killed at removal"]
)


class KilledError(BaseException):
    """The process ends here."""


class Process:
    """An attempt, with what it knows of each document."""

    def __init__(self, folder: Path, number: int) -> None:
        place = Location(str(folder / "work"))
        self.checkpoint = Checkpoint(place, Location(str(folder / "out")), MANIFEST, number, float(number))
        self.known: dict[str, int] = {}

    def start(self) -> None:
        self.checkpoint.acquire()
        self.known = read(self.checkpoint)


def read(checkpoint: Checkpoint) -> dict[str, int]:
    return {key: int(each.job_id) for key, each in checkpoint.read(Document).items()}


async def append(checkpoint: Checkpoint, document: Document) -> None:
    checkpoint.append(document)
    await checkpoint.flush()


class Histories(RuleBasedStateMachine):
    """Attempts of one task instance; the last one that has started is the owner."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.processes: list[Process] = []
        self.owner: Process | None = None
        self.started = self.jobs = 0
        self.confirmed: dict[str, int] = {}
        self.sent: dict[str, set[int]] = defaultdict(set)
        self.patches = patch.object(module, "MERGED_SEGMENTS", 3)
        self.patches.start()

    def teardown(self) -> None:
        self.patches.stop()
        shutil.rmtree(self.folder)

    @rule()
    def start(self) -> None:
        self.started += 1
        self.owner = Process(self.folder, self.started)
        self.owner.start()
        self.processes.append(self.owner)
        self.confirmed |= self.owner.known

    @precondition(lambda self: self.started > 1)
    @rule()
    def start_late(self) -> None:
        """An attempt that hung before it took the lease does not take it from a newer one."""
        late = Process(self.folder, self.started - 1)
        with pytest.raises(ComplianceSupersededError):
            late.start()

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), source=SOURCES, fault=FAULTS, removed=st.integers(0, 3))
    def write(self, data: st.DataObject, source: str, fault: str | None, removed: int) -> None:
        process = data.draw(st.sampled_from(self.processes))
        self.jobs += 1
        self.sent[source].add(self.jobs)
        document = Document.from_record({"source": source, "uuid": f"{self.jobs}"})
        try:
            with faulty(fault, removed):
                asyncio.run(append(process.checkpoint, document))
        except ComplianceStorageError:
            process.known[source] = self.jobs  # it is written with the next record
        except (KilledError, ComplianceSupersededError) as error:
            assert process is not self.owner or isinstance(error, KilledError)
            self.end(process)
        else:
            assert process is self.owner
            process.known[source] = self.jobs
            self.confirmed |= process.known

    @precondition(lambda self: self.owner)
    @rule(fault=FAULTS, removed=st.integers(0, 9))
    def publish(self, fault: str | None, removed: int) -> None:
        process = self.owner
        assert process is not None
        rows = [
            Document.from_record({"source": key, "uuid": f"{job}"}).row()
            for key, job in process.known.items()
        ]
        try:
            with faulty(fault, removed):
                asyncio.run(process.checkpoint.flush())
                asyncio.run(process.checkpoint.publish(rows))
        except ComplianceStorageError:
            pass
        except KilledError:
            self.end(process)
        else:
            self.confirmed |= process.known

    def end(self, process: Process) -> None:
        self.processes.remove(process)
        if process is self.owner:
            self.owner = None

    @invariant()
    def no_record_is_lost_and_none_comes_back(self) -> None:
        found = read(Process(self.folder, 0).checkpoint)
        assert found.keys() >= self.confirmed.keys()
        for source, job in found.items():
            assert job in self.sent[source]
            assert job >= self.confirmed.get(source, 0)


def faulty(fault: str | None, removed: int) -> Any:
    """Return what lets one write or removal go wrong."""
    if fault is None:
        return patch.object(module, "put", put)
    if fault == "killed at removal":

        def remove(self: Checkpoint, paths: list[str]) -> None:
            for path in paths[:removed]:
                Path(path).unlink(missing_ok=True)
            raise KilledError

        return patch.object(Checkpoint, "_remove", remove)

    async def write(location: Location, data: bytes) -> None:
        if fault == "store is down":
            raise ComplianceStorageError("down")
        if fault == "killed after":
            await put(location, data)
        raise KilledError

    return patch.object(module, "put", write)


Histories.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestHistories = Histories.TestCase
