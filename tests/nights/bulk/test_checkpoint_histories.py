"""Random histories of one task instance: attempts that write, hang, are killed, take over, and publish.

Every job has a higher number than all before it. In any history, a reader finds for each document the last
job whose record counts, or a later one: no record is lost, and none that was replaced comes back.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider.exceptions import ComplianceStorageError, ComplianceSupersededError
from airflow_provider.nights.bulk import checkpoint as module
from airflow_provider.nights.bulk.checkpoint import LEASE, SEGMENT, Checkpoint
from airflow_provider.nights.ingest.documents import Document
from airflow_provider.storage import jsonl
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import MANIFEST
from tests.support.clock import DAY

MERGED = 3
SOURCES = st.text("abc", min_size=1, max_size=2 * MERGED)
FAULTS = st.sampled_from(
    [
        *[None] * 4, "store is down", "killed before", "killed after", "killed at removal", "not removed",
    ]
)  # fmt: skip
SKEWS = st.sampled_from([0.0, 0.0, -7200.0, 7200.0])  # of the clock of a worker


class KilledError(BaseException):
    """The process ends here."""


class Process:
    """An attempt, with what it knows of each document."""

    def __init__(self, folder: Path, number: int, skew: float = 0.0) -> None:
        place = Location(str(folder))
        self.skew = skew  # of the clock of its worker, in seconds
        self.checkpoint = Checkpoint(place / "work", place / "out", MANIFEST, number, float(number))
        self.checkpoint._token = f"{number * 7919 % 10007:016}"  # in no order, but the same in every run
        self.known: dict[str, int] = {}
        self.has_hung = False  # for so long that its lease was deleted

    def start(self) -> None:
        self.checkpoint.acquire()
        self.known = read(self.checkpoint)

    async def write(self, source: str, job: int) -> None:
        self.known[source] = job
        self.checkpoint.append(Document.from_record({"source": source, "uuid": f"{job}"}))
        await self.checkpoint.flush()

    async def check(self) -> None:
        await self.checkpoint.check_owner()

    async def publish(self) -> None:
        """Publish a manifest, which has another name if it has other rows."""
        rows = [
            Document.from_record({"source": key, "uuid": f"{job}"}).row() for key, job in self.known.items()
        ]
        await self.checkpoint.flush()
        await self.checkpoint.publish(self.checkpoint.stage(rows))


def read(checkpoint: Checkpoint) -> dict[str, int]:
    return {key: int(document.job_id) for key, document in checkpoint.read(Document).items()}


class Histories(RuleBasedStateMachine):
    """Attempts of one task instance; the last one that has started is the owner."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.processes: list[Process] = []
        self.owner: Process | None = None
        self.started = self.jobs = 0
        self.confirmed: dict[str, int] = {}
        self.sent: dict[str, set[int]] = defaultdict(set)
        self.replaced: dict[Path, bytes] = {}  # segments that were merged, and not published yet
        self.seconds_ahead = self.skew = 0.0
        self.patches: list[Any] = [
            patch.object(module, "MERGED_SEGMENTS", MERGED),
            patch.object(time, "time", lambda now=time.time: now() + self.seconds_ahead + self.skew),
        ]
        for each in self.patches:
            each.start()

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()
        self.runner.close()
        shutil.rmtree(self.folder)

    @rule(skew=SKEWS)
    def start(self, skew: float) -> None:
        self.started += 1
        self.owner = Process(self.folder, self.started, skew)
        self.skew = skew
        self.owner.start()
        self.processes.append(self.owner)
        self.confirmed |= self.owner.known

    @precondition(lambda self: self.started > 1 and (self.folder / "work" / LEASE).exists())
    @rule()
    def start_late(self) -> None:
        """An attempt that hung before it took the lease does not take it from a newer one."""
        with pytest.raises(ComplianceSupersededError):
            Process(self.folder, self.started - 1).start()

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), sources=SOURCES, fault=FAULTS, removed=st.integers(0, 3))
    def write(self, data: st.DataObject, sources: str, fault: str | None, removed: int) -> None:
        self.write_segments(data.draw(st.sampled_from(self.processes)), sources, fault, removed)

    @precondition(lambda self: self.owner)
    @rule(skew=SKEWS, sources=SOURCES, late=SOURCES, is_published=st.booleans(), fault=FAULTS)
    def overtake(self, skew: float, sources: str, late: str, is_published: bool, fault: str | None) -> None:
        """The next attempt starts, works and maybe ends before the owner writes once more."""
        older = self.owner
        assert older is not None
        if fault:
            self.write_segments(older, late[:1], "store is down")
        self.start(skew)
        assert self.owner is not None
        self.write_segments(self.owner, sources)
        if is_published:
            self.publish(fault, 2)
        self.write_segments(older, late)

    def write_segments(
        self, process: Process, sources: str, fault: str | None = None, removed: int = 0
    ) -> None:
        """Write a segment for each source; the fault is one of the last."""
        for number, source in enumerate(sources, 1):
            if process in self.processes:
                write = partial(process.write, source, self.next_job(source))
                self.do(process, write, fault if number == len(sources) else None, removed)

    @precondition(lambda self: self.owner)
    @rule(fault=FAULTS, removed=st.integers(0, 9))
    def publish(self, fault: str | None, removed: int) -> None:
        assert self.owner is not None
        self.replaced.clear()
        self.do(self.owner, self.owner.publish, fault, removed)

    @precondition(lambda self: self.owner)
    @rule(sources=SOURCES, is_published=st.booleans())
    def read_meanwhile(self, sources: str, is_published: bool) -> None:
        """A reader has listed the journal when the owner merges it, or replaces it by the manifest."""
        process, list_names, lists = self.owner, Location.list_names, 0
        assert process is not None
        before = dict(self.confirmed)

        def then_changed(location: Location) -> list[str]:
            nonlocal lists
            lists += 1
            found = list_names(location)
            if lists == 1:
                self.write_segments(process, sources)
                if is_published and process in self.processes:
                    self.replaced.clear()
                    self.do(process, process.publish)
            return found

        with patch.object(Location, "list_names", then_changed):
            found = read(Process(self.folder, 0).checkpoint)
        self.check(found, before)

    @precondition(lambda self: self.replaced)
    @rule(data=st.data())
    def write_arrives_late(self, data: st.DataObject) -> None:
        """A request that a client has given up may still reach the store."""
        path = data.draw(st.sampled_from(sorted(self.replaced)))
        path.write_bytes(self.replaced[path])

    @precondition(lambda self: (self.folder / "work" / LEASE).exists())
    @rule(hangs=st.booleans())
    def delete_lease(self, hangs: bool) -> None:
        """A lifecycle rule deletes the lease after a day, in which each attempt checks it, or hangs."""
        self.seconds_ahead += DAY - 60
        for process in list(self.processes):
            process.has_hung = process.has_hung or hangs
            if not hangs:
                self.do(process, process.check)
        self.seconds_ahead += 60
        (self.folder / "work" / LEASE).unlink()

    def do(
        self,
        process: Process,
        action: Callable[[], Coroutine[Any, Any, None]],
        fault: str | None = None,
        removed: int = 0,
    ) -> None:
        """Let an attempt do something; only the owner succeeds, unless it has hung."""
        work, self.skew = self.folder / "work", process.skew
        before = {path: path.read_bytes() for path in work.glob(f"{SEGMENT}*")}
        try:
            with faulty(fault, removed):
                self.runner.run(action())
        except ComplianceStorageError:
            pass  # it is written with the next record
        except (KilledError, ComplianceSupersededError) as error:
            is_killed = isinstance(error, KilledError)
            assert is_killed or process is not self.owner or process.has_hung
            self.processes.remove(process)
            self.owner = None if process is self.owner else self.owner
        else:
            assert process is self.owner
            process.has_hung = False
            if action != process.check:  # which writes nothing that an outage of the store has held up
                self.confirmed |= process.known
            if action != process.publish:
                self.replaced |= {path: data for path, data in before.items() if not path.exists()}

    def next_job(self, source: str) -> int:
        self.jobs += 1
        self.sent[source].add(self.jobs)
        return self.jobs

    @invariant()
    def no_record_is_lost_and_none_comes_back(self) -> None:
        self.check(read(Process(self.folder, 0).checkpoint), self.confirmed)

    def check(self, found: dict[str, int], confirmed: dict[str, int]) -> None:
        assert found.keys() >= confirmed.keys()
        for source, job in found.items():
            assert job in self.sent[source]
            assert job >= confirmed.get(source, 0)


def faulty(fault: str | None, removed: int) -> Any:
    """Return what lets one write or removal go wrong."""
    if fault is None:
        return nullcontext()
    if fault in ("killed at removal", "not removed"):

        def remove(self: Checkpoint, paths: list[str]) -> None:
            for path in paths[:removed]:
                Path(path).unlink(missing_ok=True)
            raise KilledError if fault == "killed at removal" else PermissionError("no")

        return patch.object(Checkpoint, "_remove", remove)

    def fail(original: Callable[[], None]) -> None:
        if fault == "store is down":
            raise ComplianceStorageError("down")
        if fault == "killed after":
            original()
        raise KilledError

    async def write(location: Location, data: bytes) -> None:
        fail(lambda: put_sync(location, data))

    faults, publish = ExitStack(), jsonl.TableFile.publish
    faults.enter_context(patch.object(module, "put", write))
    faults.enter_context(patch.object(jsonl.TableFile, "publish", lambda table: fail(lambda: publish(table))))
    return faults


Histories.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a failure is shown at once, not made smaller for minutes
    suppress_health_check=[HealthCheck.too_slow],
)
TestHistories = Histories.TestCase
