"""`kill -9` of the process that ingests, at random moments: nothing is lost, little is done twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from tests.ingest.conftest import Outcome

DOCUMENTS, CONCURRENCY, KILLS = 120, 6, 5
WORKER = """
import json, sys
from airflow_provider.operators.ingest import ComplianceIngestOperator
from tests.support.attempts import Attempts
print(json.dumps(Attempts().run(ComplianceIngestOperator(
    task_id="t", sources=sys.argv[1], destination=sys.argv[2], concurrency=int(sys.argv[3]),
))))
"""


def start(folder: Path, outcome: Outcome) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        WORKER,
        f"{folder}/",
        f"{outcome.destination}/",
        str(CONCURRENCY),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.once
@pytest.mark.parametrize("seed", [7])
def test_five_kills_and_every_document_has_one_row_and_one_whole_text(
    service: Emulator, outcome: Outcome, tmp_path: Path, seed: int
) -> None:
    jitter = random.Random(seed)
    folder = tmp_path / "in"
    samples = write_samples(folder, pdfs=DOCUMENTS, docx=0, pages=0)
    service.configure(jobs="seconds:0.5", latency=0.02)
    for _ in range(KILLS):
        goal = service.count() + jitter.randrange(1, 2 * DOCUMENTS // KILLS)
        with start(folder, outcome) as worker:
            deadline = time.monotonic() + 60
            while service.count() < goal and worker.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            worker.kill()
        assert worker.returncode == -signal.SIGKILL
        assert not list(outcome.destination.glob("_ingest/*/*/*/manifest.jsonl"))
    with start(folder, outcome) as worker:
        result, _ = worker.communicate(timeout=120)
    assert '"completed": 120, "failed": 0' in result
    assert outcome.texts == {str(sample.path): sample.text for sample in samples}
    assert len(outcome.files) == DOCUMENTS
    submits = service.count("submit_file")
    assert DOCUMENTS <= submits <= DOCUMENTS + KILLS * CONCURRENCY
