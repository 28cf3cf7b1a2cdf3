"""Two attempts of one task instance at once: the newer one does the work, the older one stops."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.nights.bulk import checkpoint
from airflow_provider.nights.bulk.checkpoint import LEASE, Checkpoint
from airflow_provider.nights.ingest.documents import Document, IngestSteps
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import MANIFEST
from tests.nights.ingest.conftest import Corpus, Outcome, counts, ingest
from tests.support.attempts import Attempts, TaskInstance, allow_tasks_in_thread
from tests.support.signals import until

DOCUMENTS, CONCURRENCY = 20, 4


def checkpoint_in(folder: Path, *attempt: Any) -> Checkpoint:
    place = Location(str(folder))
    return Checkpoint(place / "work", place / "out", MANIFEST, *attempt)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path / "twenty", pdfs=DOCUMENTS, docx=0, pages=0)
    return tmp_path / "twenty"


class Process:
    """An attempt in a thread, as another worker would make it."""

    def __init__(self, folder: Path, outcome: Outcome, try_number: int) -> None:
        self.task = ingest(f"{folder}/", outcome, concurrency=CONCURRENCY)
        self.context: Any = {"ti": TaskInstance(try_number=try_number)}
        self.result: Future[dict[str, Any]] = Future()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        allow_tasks_in_thread()
        try:
            self.result.set_result(self.task.execute(self.context))
        except BaseException as error:
            self.result.set_exception(error)


@pytest.mark.parametrize(("lead", "merged"), [(1, 2), (9, 2), (DOCUMENTS, checkpoint.MERGED_SEGMENTS)])
def test_of_two_attempts_at_once_the_older_one_stops_and_the_newer_one_is_right(
    service: Emulator,
    outcome: Outcome,
    folder: Path,
    lead: int,
    merged: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "MERGED_SEGMENTS", merged)
    service.configure(jobs="manual", latency=0.05)
    older = Process(folder, outcome, 1)
    until(lambda: service.count("submit_file") >= lead)
    newer = Process(folder, outcome, 2)
    until(lambda: _owner(outcome) == 2)  # else the older one may finish first
    until(lambda: len({job["name"] for job in service.jobs()}) == DOCUMENTS)
    service.configure(jobs="instant")
    service.finish_jobs()
    assert counts(newer.result.result(240)) == (DOCUMENTS, 0, 0)
    with pytest.raises(exc.ComplianceSupersededError, match="Attempt 2 of this task has taken over") as error:
        older.result.result(240)
    assert isinstance(error.value, AirflowFailException)  # a retry would only disturb
    assert len(service.jobs()) <= DOCUMENTS + CONCURRENCY
    assert len(outcome.texts) == DOCUMENTS
    assert {row["status"] for row in outcome.rows.values()} == {"COMPLETED"}
    assert service.count("cancel") == 0


def _owner(outcome: Outcome) -> int:
    found = [path.read_text() for path in outcome.destination.rglob(LEASE)]
    return int(json.loads(found[0])["try_number"]) if found and found[0] else 0


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_an_attempt_that_has_lost_its_lease_writes_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """It may have hung while it fetched the text of a file that was corrected meanwhile."""
    monkeypatch.setattr(checkpoint, "OWNER_CHECK_SECONDS", 0.0)
    older, newer = (checkpoint_in(tmp_path, number) for number in (1, 2))
    older.acquire()
    text = tmp_path / "text.txt"

    class Client:
        @asynccontextmanager
        async def stream_content(self, uuid: str) -> AsyncIterator[AsyncIterator[bytes]]:
            async def pieces() -> AsyncIterator[bytes]:
                yield b"o" * size
                newer.acquire()
                text.write_bytes(b"new")

            yield pieces()

    steps = IngestSteps(Client(), lambda _: Location(str(text)), confirm=older.confirm_owner)  # type: ignore[arg-type] # all that it needs
    with pytest.raises(exc.ComplianceSupersededError):
        asyncio.run(steps.fetch(Document("s", "u")))
    assert text.read_bytes() == b"new"


def test_a_deferred_task_continues_under_a_lease_of_its_own(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome
) -> None:
    service.configure(jobs="manual")
    tokens: set[str] = set()

    def check(_: int) -> None:
        (place,) = outcome.destination.rglob(LEASE)
        tokens.add(json.loads(place.read_text())["token"])
        service.finish_jobs()

    attempts.while_deferred = check
    assert counts(attempts.run(ingest(corpus.sources[:3], outcome, deferrable=True))) == (3, 0, 0)
    check(0)
    assert len(tokens) > 1


def test_a_task_instance_without_a_try_number_works(
    service: Emulator, corpus: Corpus, outcome: Outcome
) -> None:
    class Bare:
        dag_id, task_id, run_id, map_index, start_date = "d", "t", "r", -1, None

        def xcom_push(self, key: str, value: Any) -> None:
            pass

    context: Any = {"ti": Bare()}
    assert counts(ingest(corpus.sources[:2], outcome).execute(context)) == (2, 0, 0)
