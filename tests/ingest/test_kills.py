"""`kill -9` of the process that ingests, at random moments: nothing is lost, little is done twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.bulk.checkpoint import MERGED_SEGMENTS
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from tests.ingest.conftest import Outcome

DOCUMENTS, CONCURRENCY, KILLS = 120, 6, 5
# Airflow is loaded once, and each attempt is a fork, as with Airflow's own executors.
WORKER = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Airflow's log
from airflow_provider.bulk import checkpoint
from airflow_provider.operators.ingest import ComplianceIngestOperator
from tests.support.attempts import Attempts

checkpoint.MERGED_SEGMENTS = int(sys.argv[5])

def answer(value):
    print(json.dumps(value), file=answers, flush=True)

for _ in sys.stdin:
    if child := os.fork():
        answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    else:
        answer(os.getpid())
        answer(Attempts().run(ComplianceIngestOperator(
            task_id="t", sources=sys.argv[1], destination=sys.argv[2], concurrency=int(sys.argv[3]),
            **json.loads(sys.argv[4]),
        )))
        os._exit(0)
"""


class Worker:
    """A process that makes attempts, one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self) -> int:
        """Begin an attempt; return the id of its process."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self.answer())

    def answer(self) -> Any:
        """Return what comes next: the result of an attempt, then its exit code."""
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())


@contextmanager
def working(
    folder: Path, outcome: Outcome, merged: int = MERGED_SEGMENTS, **options: Any
) -> Iterator[Worker]:
    arguments = [f"{folder}/", f"{outcome.destination}/", str(CONCURRENCY), json.dumps(options), str(merged)]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WORKER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield Worker(process)


@pytest.mark.once
@pytest.mark.parametrize(("seed", "merged"), [(7, MERGED_SEGMENTS), (8, 2)])
def test_five_kills_and_every_document_has_one_row_and_one_whole_text(
    service: Emulator, outcome: Outcome, tmp_path: Path, seed: int, merged: int
) -> None:
    jitter = random.Random(seed)
    folder = tmp_path / "in"
    samples = write_samples(folder, pdfs=DOCUMENTS, docx=0, pages=0)
    service.configure(jobs="seconds:0.5", latency=0.02)
    with working(folder, outcome, merged) as worker:
        for _ in range(KILLS):
            steps = jitter.randrange(1, 2 * DOCUMENTS // KILLS)
            goal = service.count() + steps
            hang = service.fail("*", delay=3600, skip=steps, times=None)  # it is killed before it ends
            attempt = worker.start()
            deadline = time.monotonic() + 240
            while service.count() < goal:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            os.kill(attempt, signal.SIGKILL)
            assert worker.answer() == -signal.SIGKILL
            assert not list(outcome.destination.glob("_ingest/*/*/*/manifest.jsonl"))
            service.clear_faults(hang)
        worker.start()
        result = worker.answer()
    assert (result["completed"], result["failed"]) == (DOCUMENTS, 0)
    assert outcome.texts == {str(sample.path): sample.text for sample in samples}
    assert len(outcome.files) == DOCUMENTS
    submits = service.count("submit_file")
    assert DOCUMENTS <= submits <= DOCUMENTS + KILLS * CONCURRENCY


@pytest.mark.once
def test_a_kill_while_jobs_are_deleted_leaves_none_at_the_service(
    service: Emulator, outcome: Outcome, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    samples = write_samples(folder, pdfs=30, docx=0, pages=0)
    with working(folder, outcome, delete_after="fetch") as worker:
        for goal in (1, 10):
            # Those after it hang: the attempt does not end before it is killed.
            hang = service.fail("cancel", delay=3600, skip=goal - service.count("cancel"), times=None)
            attempt = worker.start()
            deadline = time.monotonic() + 240
            while service.count("cancel") < goal:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            os.kill(attempt, signal.SIGKILL)
            assert worker.answer() == -signal.SIGKILL
            assert outcome.texts == {str(sample.path): sample.text for sample in samples}
            assert service.jobs()
            service.clear_faults(hang)
        worker.start()
        result = worker.answer()
    assert (result["completed"], result["deleted"]) == (30, 30)
    assert (service.jobs(), service.count("submit_file")) == ([], 30)
    assert not list(outcome.destination.glob("_work/deletes/*/*/*"))
