"""The deadline of an ingest: what is completed is kept, the rest has failed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.nights.bulk import engine, pipeline
from airflow_provider.runtime import event_loop
from airflow_provider.storage import sources
from airflow_provider.waiting import waits
from tests.nights.ingest.conftest import Corpus, Outcome, RunIngest, WallClock, counts, ingest
from tests.support.attempts import Attempts
from tests.support.clock import DAY, Clock


def under_way(service: Emulator) -> list[str]:
    return [job["uuid"] for job in service.jobs() if job["status"] in ("PENDING", "RUNNING")]


def test_a_stuck_document_fails_after_a_refresh_in_deferrals_while_the_others_finish(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    wall_clock: WallClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "time", wall_clock)
    service.configure(jobs="manual")

    def let_time_pass(_: int) -> None:
        if finished := under_way(service)[1:]:
            service.finish_jobs(*finished)
        wall_clock.ahead += 3700

    attempts.while_deferred = let_time_pass
    task = ingest(corpus.sources[:3], outcome, deferrable=True, document_timeout=3600, max_failed=1)
    assert counts(attempts.run(task)) == (2, 1, 0)
    (error,) = (row["error"] for row in outcome.rows.values() if row["status"] == "FAILED")
    assert error == "Stuck for 60 min, and 60 min more after the service was asked to process it again."
    assert service.count("refresh") == 1
    assert len(attempts.deferrals) == 2
    assert [job["status"] for job in service.jobs()] == ["COMPLETED"] * 2  # the stuck one is cancelled


def test_outage_longer_than_document_timeout_does_not_defer_again_and_again(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    wall_clock: WallClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "time", wall_clock)
    service.configure(jobs="manual")

    async def find_ended(*_: object) -> None:
        raise exc.ComplianceServerError("The service is away.", status=503)

    started = wall_clock.time()

    def let_time_pass(number: int) -> None:
        if number == 1:
            wall_clock.ahead += 3700
        else:
            service.finish_jobs(*under_way(service))
        assert number <= 2

    attempts.while_deferred = let_time_pass
    task = ingest(corpus.sources[:3], outcome, deferrable=True, document_timeout=3600)
    monkeypatch.setattr(type(task.kind), "find_ended", find_ended)
    assert counts(attempts.run(task)) == (3, 0, 0)
    first, second = (deferral["deadline"] - started for deferral in attempts.deferrals)
    assert first == pytest.approx(3600, abs=60)
    assert second == pytest.approx(3700 + 360, abs=60)


def test_a_wall_clock_that_jumps_ahead_fails_and_cancels_nothing(
    service: Emulator,
    corpus: Corpus,
    run_ingest: RunIngest,
    wall_clock: WallClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service.configure(jobs="seconds:0.5")
    send = pipeline.Pipeline._send

    async def jump(self: Any, document: Any) -> None:
        wall_clock.ahead = DAY
        await send(self, document)

    monkeypatch.setattr(pipeline.Pipeline, "_send", jump)
    assert run_ingest(corpus.sources[:3], timeout=3600) == (3, 0, 0)
    assert service.count("cancel") == 0


def test_a_worker_whose_clock_is_a_day_ahead_continues_after_a_deferral(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome, wall_clock: WallClock
) -> None:
    service.configure(jobs="manual")
    sources = corpus.sources[:4]

    def finish(number: int) -> None:
        service.finish_jobs(*under_way(service)[:2])
        wall_clock.ahead = DAY if number == 1 else 0.0

    attempts.while_deferred = finish
    result = attempts.run(ingest(sources, outcome, deferrable=True, timeout=3600, max_failed=4))
    assert counts(result) == (4, 0, 0)
    assert service.count("cancel") == 0


def test_a_source_that_hangs_does_not_hold_the_task_past_its_deadline(
    service: Emulator,
    corpus: Corpus,
    run_ingest: RunIngest,
    outcome: Outcome,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SUBMIT_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(event_loop, "SHUTDOWN_SECONDS", 0.2)
    real, is_over = sources.SourceFile.open, threading.Event()

    class Hanging:
        def __init__(self, file: Any) -> None:
            self.file = file

        def read(self, size: int = -1) -> bytes:
            is_over.wait(600)
            return bytes(self.file.read(size))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    def slow(self: Any, mode: str) -> Any:
        return Hanging(real(self, mode)) if str(self) == corpus.sources[0] else real(self, mode)

    monkeypatch.setattr(sources.SourceFile, "open", slow)
    clock.is_over = lambda: service.count("get_content") >= 3
    assert run_ingest(corpus.sources[:4], max_failed=1) == (3, 1, 0)  # while it hangs
    is_over.set()
    assert outcome.rows[corpus.sources[0]]["error"] == "Not finished in time: it was not submitted yet."
