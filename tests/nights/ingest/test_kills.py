"""`kill -9` of the process that ingests, at random requests: nothing is lost, little is done twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.nights.bulk import checkpoint
from tests.nights.ingest.conftest import Outcome, ingest
from tests.support.attempts import Attempts
from tests.support.forking import Child, may_fork
from tests.support.signals import until

pytestmark = may_fork

DOCUMENTS, CONCURRENCY, KILLS = 60, 6, 5


def attempt(folder: Path, outcome: Outcome, **options: Any) -> Callable[[], Any]:
    """Return what makes one attempt: as with Airflow's own executors, in a fork."""
    return lambda: Attempts().run(ingest(f"{folder}/", outcome, concurrency=CONCURRENCY, **options))


@pytest.mark.once
@pytest.mark.parametrize(("seed", "merged"), [(7, checkpoint.MERGED_SEGMENTS), (8, 2)])
def test_five_kills_leave_one_row_and_one_whole_text_per_document(
    service: Emulator,
    outcome: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    merged: int,
) -> None:
    monkeypatch.setattr(checkpoint, "MERGED_SEGMENTS", merged)
    jitter = random.Random(seed)
    folder = tmp_path / "in"
    samples = write_samples(folder, pdfs=DOCUMENTS, docx=0, pages=0)
    service.configure(jobs="polls:2")
    for _ in range(KILLS):
        steps = jitter.randrange(1, 2 * DOCUMENTS // KILLS)
        goal = service.count() + steps
        hang = service.fail("*", delay=3600, skip=steps, times=None)  # it is killed before it ends
        child = Child(attempt(folder, outcome))
        until(lambda: service.count() >= goal)  # noqa: B023 - run now
        child.kill()
        assert not list(outcome.destination.glob("_ingest/*/*/*/manifest.jsonl"))
        service.clear_faults(hang)
    result = Child(attempt(folder, outcome)).result()
    assert (result["completed"], result["failed"]) == (DOCUMENTS, 0)
    assert outcome.texts == {str(sample.path): sample.text for sample in samples}
    # A kill in the middle of a write may leave the unnamed beginning of an object.
    assert len([name for name in outcome.files if not name.endswith(".part")]) == DOCUMENTS
    submits = service.count("submit_file")
    assert DOCUMENTS <= submits <= DOCUMENTS + KILLS * CONCURRENCY


@pytest.mark.once
def test_kills_while_jobs_are_deleted_leave_none_at_the_service(
    service: Emulator, outcome: Outcome, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    samples = write_samples(folder, pdfs=30, docx=0, pages=0)
    for goal in (1, 10):
        # Later ones hang: the attempt does not end before it is killed.
        hang = service.fail("cancel", delay=3600, skip=goal - service.count("cancel"), times=None)
        child = Child(attempt(folder, outcome, delete_after="fetch"))
        until(lambda: service.count("cancel") >= goal)  # noqa: B023 - run now
        child.kill()
        assert outcome.texts == {str(sample.path): sample.text for sample in samples}
        assert service.jobs()
        service.clear_faults(hang)
    result = Child(attempt(folder, outcome, delete_after="fetch")).result()
    assert (result["completed"], result["deleted"]) == (30, 30)
    assert (service.jobs(), service.count("submit_file")) == ([], 30)
    assert not list(outcome.destination.glob("_work/deletes/*/*/*"))


@pytest.mark.once
def test_kill_while_stuck_jobs_are_processed_again_costs_none_of_their_limits(
    service: Emulator, outcome: Outcome, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    samples = write_samples(folder, pdfs=3, docx=0, pages=0)
    service.configure(jobs="manual")
    limits: dict[str, Any] = {"document_timeout": 1.0, "max_failed": 1.0}
    hang = service.fail("refresh", delay=3600, skip=1, times=None)  # it is killed before it ends
    child = Child(attempt(folder, outcome, **limits))
    until(lambda: service.count("refresh") >= 1)
    child.kill()
    assert len(service.jobs()) == 3
    service.clear_faults(hang)
    result = Child(attempt(folder, outcome, **limits)).result()
    assert (result["completed"], result["failed"]) == (0, 3)
    assert all(row["error"].startswith("Stuck for ") for row in outcome.rows.values())
    assert (service.count("submit_file"), service.count("refresh")) == (3, 1 + 3)  # each once more
    assert service.jobs() == []  # cancelled
    service.configure(jobs="instant")
    result = Child(attempt(folder, outcome, **limits)).result()
    assert (result["completed"], service.count("submit_file")) == (3, 6)
    assert outcome.texts == {str(sample.path): sample.text for sample in samples}
