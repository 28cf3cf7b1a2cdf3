"""Two attempts of one task instance at once: the newer one does the work, the older one stops."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.bulk import checkpoint
from airflow_provider.bulk.checkpoint import LEASE, Checkpoint
from airflow_provider.bulk.items import COMPLETED
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.ingest.documents import Document, IngestSteps
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.layout import MANIFEST
from airflow_provider.storage.locations import Location
from tests.ingest.conftest import Corpus, Outcome, counts, ingest
from tests.support.attempts import Attempts, TaskInstance, allow_tasks_in_thread
from tests.support.attempts import until as attempts_until
from tests.support.clock import Clock
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

    def __init__(self, folder: Path, outcome: Outcome, try_number: int, clock: Clock | None = None) -> None:
        self.task = ingest(f"{folder}/", outcome, concurrency=CONCURRENCY)
        self.task.clock = clock or Clock()  # type: ignore[method-assign] # of this attempt alone
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


@pytest.mark.parametrize("merged", [2, checkpoint.MERGED_SEGMENTS])
@pytest.mark.parametrize("lead", [1, 9, DOCUMENTS])
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


def test_an_older_attempt_that_is_killed_cancels_nothing_of_the_newer_one(
    service: Emulator, outcome: Outcome, folder: Path
) -> None:
    service.configure(jobs="manual")
    older = Process(folder, outcome, 1)
    until(lambda: len(service.jobs()) == DOCUMENTS and not _unwritten(outcome, DOCUMENTS))
    newer = Process(folder, outcome, 2)
    until(lambda: _owner(outcome) == 2)
    older.task.on_kill()
    # It may have noticed the newer attempt by itself just before.
    with pytest.raises((exc.ComplianceInterruptedError, exc.ComplianceSupersededError)):
        older.result.result(240)
    assert service.count("cancel") == 0
    service.finish_jobs()
    assert counts(newer.result.result(240)) == (DOCUMENTS, 0, 0)
    assert len(service.jobs()) == DOCUMENTS


def test_an_older_attempt_whose_deadline_passes_cancels_nothing_of_the_newer_one(
    service: Emulator, outcome: Outcome, folder: Path
) -> None:
    service.configure(jobs="manual")
    older = Process(folder, outcome, 1, Clock(lambda: _owner(outcome) == 2))
    until(lambda: len(service.jobs()) == DOCUMENTS and not _unwritten(outcome, DOCUMENTS))
    newer = Process(folder, outcome, 2)
    with pytest.raises(exc.ComplianceSupersededError):
        older.result.result(240)
    assert service.count("cancel") == 0
    service.finish_jobs()
    assert counts(newer.result.result(240)) == (DOCUMENTS, 0, 0)


def _unwritten(outcome: Outcome, most: int) -> int:
    lines = [
        line for path in outcome.destination.rglob("journal-*") for line in path.read_text().splitlines()
    ]
    return most - len(lines)


def _owner(outcome: Outcome) -> int:
    found = [path.read_text() for path in outcome.destination.rglob(LEASE)]
    return int(json.loads(found[0])["try_number"]) if found and found[0] else 0


def test_the_end_of_both_attempts_at_once_fails_neither_by_the_journal(
    service: Emulator, outcome: Outcome, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that another attempt has removed between the list and the removal are gone."""
    place = Location(str(outcome.destination / "j"))
    asyncio.run(_write(Checkpoint(place, place, MANIFEST), 3))
    find = type(place.fs).find

    def then_gone(self: Any, path: str, **kwargs: Any) -> Any:
        found = find(self, path, **kwargs)
        next(outcome.destination.rglob("journal-*")).unlink()
        return found

    monkeypatch.setattr(type(place.fs), "find", then_gone)
    asyncio.run(Checkpoint(place, place, MANIFEST).publish([]))
    assert not list(outcome.destination.rglob("journal-*"))


def test_segments_that_vanish_while_they_are_read_are_in_the_manifest(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Location(str(outcome.destination / "j"))
    asyncio.run(_write(Checkpoint(place, place, MANIFEST), 3))
    done = [Document(f"s{number}", f"u{number}", COMPLETED) for number in range(3)]
    find = type(place.fs).find
    finds: list[int] = []

    def then_published(self: Any, path: str, **kwargs: Any) -> Any:
        found = find(self, path, **kwargs)
        if not finds:
            finds.append(1)
            asyncio.run(Checkpoint(place, place, MANIFEST).publish(each.row() for each in done))
        return found

    monkeypatch.setattr(type(place.fs), "find", then_published)
    found = Checkpoint(place, place, MANIFEST).read(Document)
    assert {each.state for each in found.values()} == {COMPLETED}
    assert len(found) == 3


async def _write(written: Checkpoint, segments: int) -> None:
    for number in range(segments):
        written.append(Document(f"s{number}", f"u{number}"))
        await written.flush()


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"token": '])
def test_a_lease_that_is_missing_or_invalid_stops_nobody(tmp_path: Path, content: bytes | None) -> None:
    own = checkpoint_in(tmp_path, 1)
    own.acquire()
    if content is None:
        (tmp_path / "work" / LEASE).unlink()
    else:
        (tmp_path / "work" / LEASE).write_bytes(content)
    asyncio.run(_write(own, 2))
    assert [*own.read(Document)] == ["s0", "s1"]


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"token": '])
def test_a_lease_that_was_deleted_is_restored_and_still_goes_to_the_next_attempt(
    tmp_path: Path, content: bytes | None
) -> None:
    older, newer = checkpoint_in(tmp_path, 1), checkpoint_in(tmp_path, 2)
    older.acquire()
    before = lease_in(tmp_path)
    (tmp_path / "work" / LEASE).unlink()
    if content is not None:
        (tmp_path / "work" / LEASE).write_bytes(content)
    asyncio.run(older.check_owner())
    assert lease_in(tmp_path)["token"] == before["token"]
    newer.acquire()
    with pytest.raises(exc.ComplianceSupersededError, match="Attempt 2"):
        asyncio.run(older.check_owner())


def test_an_attempt_that_never_had_the_lease_writes_none(tmp_path: Path) -> None:
    asyncio.run(checkpoint_in(tmp_path, 1).check_owner())
    assert not (tmp_path / "work").exists()


DAY = 24 * 3600


@pytest.mark.parametrize(("hours", "stops"), [(23.9, False), (24, True), (240, True)])
def test_an_attempt_that_hung_stops_if_the_lease_of_a_newer_one_may_have_been_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float, stops: bool
) -> None:
    """Else it would overwrite what the newer attempt has published."""
    own, started = checkpoint_in(tmp_path, 1), time.time()
    own.acquire()
    (tmp_path / "work" / LEASE).unlink()
    monkeypatch.setattr(time, "time", lambda: started + hours * 3600 + 1)
    if stops:
        with pytest.raises(exc.ComplianceSupersededError, match="was deleted while this process"):
            asyncio.run(own.check_owner())
        assert not list((tmp_path / "work").iterdir())
    else:
        asyncio.run(own.check_owner())
        assert lease_in(tmp_path)["try_number"] == 1


def test_an_attempt_that_runs_for_days_keeps_its_lease_whenever_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, started = checkpoint_in(tmp_path, 1), time.time()
    own.acquire()
    for day in range(5):
        if day % 2:
            (tmp_path / "work" / LEASE).unlink()
        monkeypatch.setattr(time, "time", lambda day=day: started + 0.9 * day * DAY)
        asyncio.run(own.check_owner())
        assert lease_in(tmp_path)["try_number"] == 1


def test_an_attempt_with_nothing_to_write_checks_its_lease_from_time_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for days for a job, and must not be taken for one that hung."""
    monkeypatch.setattr(checkpoint, "OWNER_CHECK_WAITING_SECONDS", 0.02)
    older, newer = checkpoint_in(tmp_path, 1), checkpoint_in(tmp_path, 2)
    older.acquire()
    lease, aside = tmp_path / "work" / LEASE, tmp_path / "aside"

    async def wait() -> None:
        writer = asyncio.create_task(older.run_writer())
        lease.unlink()
        await attempts_until(lease.exists)
        (tmp_path / "work").rename(aside)
        (tmp_path / "work").write_text("The store is not available.")
        await asyncio.sleep(0.2)
        assert not writer.done()
        (tmp_path / "work").unlink()
        aside.rename(tmp_path / "work")
        newer.acquire()
        with pytest.raises(exc.ComplianceSupersededError):
            await asyncio.wait_for(writer, 240)

    asyncio.run(wait())


def lease_in(folder: Path) -> dict[str, Any]:
    lease: dict[str, Any] = json.loads((folder / "work" / LEASE).read_text())
    return lease


def test_the_first_attempt_of_a_run_that_was_created_again_takes_the_lease(tmp_path: Path) -> None:
    first, second = (checkpoint_in(tmp_path, *attempt) for attempt in ((5, 100.0), (1, 200.0)))
    first.acquire()
    asyncio.run(first.check_owner())
    second.acquire()
    asyncio.run(second.check_owner())
    with pytest.raises(exc.ComplianceSupersededError):
        asyncio.run(first.check_owner())


def test_an_older_attempt_that_comes_late_does_not_take_the_lease_of_the_newer_one(tmp_path: Path) -> None:
    older, newer, again = (
        checkpoint_in(tmp_path, number, started_at)
        for number, started_at in ((1, 100.0), (2, 400.0), (1, 500.0))
    )
    newer.acquire()
    with pytest.raises(exc.ComplianceSupersededError, match="Attempt 2 of this task has taken over"):
        older.acquire()
    asyncio.run(newer.check_owner())
    again.acquire()  # of a run that was deleted and created again
    asyncio.run(again.check_owner())


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


def test_an_attempt_that_has_lost_its_lease_while_it_fetches_ends(
    service: Emulator, attempts: Attempts, outcome: Outcome, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(self: Checkpoint) -> None:
        raise exc.ComplianceSupersededError("Attempt 2 of this task has taken over.")

    monkeypatch.setattr(Checkpoint, "confirm_owner", lost)
    with pytest.raises(exc.ComplianceSupersededError) as error:
        attempts.run(ingest(corpus.sources[:3], outcome))
    assert isinstance(error.value, AirflowFailException)
    assert not list(outcome.destination.glob("*.txt"))


def test_a_check_of_the_lease_counts_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "OWNER_CHECK_SECONDS", 3600.0)
    first, second = (checkpoint_in(tmp_path, number) for number in (1, 2))
    first.acquire()

    async def confirm() -> None:
        await first.confirm_owner()
        second.acquire()
        await first.confirm_owner()
        monkeypatch.setattr(checkpoint, "OWNER_CHECK_SECONDS", 0.0)
        with pytest.raises(exc.ComplianceSupersededError):
            await first.confirm_owner()

    asyncio.run(confirm())


def test_a_store_that_can_t_be_asked_for_the_lease_is_an_error_of_the_store(tmp_path: Path) -> None:
    own = checkpoint_in(tmp_path, 1)
    (tmp_path / "work" / LEASE).mkdir(parents=True)
    with pytest.raises(exc.ComplianceStorageError):
        asyncio.run(own.check_owner())


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


def test_five_attempts_at_once_leave_one_right_manifest(
    service: Emulator, outcome: Outcome, folder: Path
) -> None:
    service.configure(jobs="seconds:0.5", latency=0.02)

    def attempt(number: int) -> str:
        task = ComplianceIngestOperator(
            task_id="t", sources=f"{folder}/", destination=f"{outcome.destination}/", concurrency=2
        )
        context: Any = {"ti": TaskInstance(try_number=number)}
        allow_tasks_in_thread()
        try:
            return str(counts(task.execute(context)))
        except exc.ComplianceSupersededError:
            return "superseded"

    with ThreadPoolExecutor(5) as pool:
        ends = list(pool.map(attempt, range(5)))
    assert set(ends) <= {"(20, 0, 0)", "superseded"}
    assert "(20, 0, 0)" in ends
    assert len(outcome.texts) == DOCUMENTS
