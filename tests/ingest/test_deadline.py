"""The end of the time of an ingest: what is completed is kept, what is not is given up."""

from __future__ import annotations

import time
from typing import Any

import pytest

from airflow_provider import event_loop
from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.ingest import engine, jobs, sources
from airflow_provider.operators import ingest as operator
from tests.ingest.conftest import Corpus, Outcome
from tests.ingest.test_operator import counts, ingest
from tests.support.attempts import Attempts, heard

DAY = 24 * 3600.0


def under_way(service: Emulator) -> list[str]:
    return [job["uuid"] for job in service.jobs() if job["status"] in ("PENDING", "RUNNING")]


@pytest.fixture
def _never_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a long poll_interval: only the last look finds anything."""
    monkeypatch.setattr(jobs, "next_poll_time", lambda moment, *_: moment + 3600)


def test_what_is_completed_before_the_deadline_of_a_deferred_ingest_is_fetched(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome
) -> None:
    service.configure(jobs="manual")

    def finish(_: int) -> None:
        service.finish_jobs(*under_way(service)[:4])  # less than half: the trigger waits for more

    attempts.while_deferred = finish
    task = ingest(corpus.sources[:10], outcome, deferrable=True, timeout=3, max_failed=6)
    assert counts(attempts.run(task)) == (4, 6, 0)
    assert len(outcome.texts) == 4
    assert [job["status"] for job in service.jobs()] == ["COMPLETED"] * 4  # the rest is cancelled
    errors = {row["error"] for row in outcome.rows.values() if row["status"] == "FAILED"}
    assert errors == {"Not finished in time."}


@pytest.mark.usefixtures("_never_polled")
def test_what_was_not_looked_at_lately_is_looked_at_when_the_time_is_up(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome
) -> None:
    service.configure(jobs="seconds:0.2")
    assert counts(attempts.run(ingest(corpus.sources, outcome, timeout=2))) == (15, 0, 0)
    assert service.count("cancel") == 0


@pytest.mark.usefixtures("_never_polled")
def test_a_job_that_completes_before_it_would_be_cancelled_is_kept_and_fetched(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service.configure(jobs="manual")
    poll = jobs.PendingJobs.poll_now

    async def then_one_completes(self: Any) -> None:
        await poll(self)
        service.finish_jobs(under_way(service)[0])

    monkeypatch.setattr(jobs.PendingJobs, "poll_now", then_one_completes)
    assert counts(attempts.run(ingest(corpus.sources[:3], outcome, timeout=1, max_failed=3))) == (1, 2, 0)
    assert [job["status"] for job in service.jobs()] == ["COMPLETED"]


@pytest.mark.usefixtures("_never_polled")
def test_what_can_t_be_looked_at_is_not_cancelled(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    service.configure(jobs="manual")
    service.fail("get_statuses", status=503, times=None)
    task = heard(ingest(corpus.sources[:3], outcome, timeout=1, max_failed=3))
    assert counts(attempts.run(task)) == (0, 3, 0)
    assert service.count("cancel") == 0
    assert "is not cancelled, it can't be looked at" in caplog.text


def test_a_text_that_was_not_fetched_in_time_is_fetched_by_a_retry(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "GRACE_SECONDS", 0.5)
    service.fail("get_content", status=503, times=None)
    monkeypatch.setattr("airflow_provider.bulk.retries.OUTAGE_RETRY_SECONDS", 60.0)
    with pytest.raises(exc.ComplianceIngestError, match="Not finished in time"):
        attempts.run(ingest(corpus.sources[:3], outcome, timeout=0.5))
    service.clear_faults()
    assert counts(attempts.run(ingest(corpus.sources[:3], outcome))) == (3, 0, 0)
    assert len(service.jobs()) == 3


class Jumping:
    """The module `time`, whose wall clock is set a day ahead at some moment."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> Jumping:
    clock = Jumping()
    for module in (operator, engine, jobs):
        monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_wall_clock_that_jumps_ahead_fails_and_cancels_nothing(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    wall_clock: Jumping,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service.configure(jobs="seconds:2")
    submit = engine.Ingest._submit

    async def jump(self: Any, document: Any) -> None:
        wall_clock.ahead = DAY
        await submit(self, document)

    monkeypatch.setattr(engine.Ingest, "_submit", jump)
    assert counts(attempts.run(ingest(corpus.sources[:3], outcome, timeout=3600))) == (3, 0, 0)
    assert service.count("cancel") == 0


def test_a_worker_whose_clock_is_a_day_ahead_goes_on_after_a_deferral(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome, wall_clock: Jumping
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
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SUBMIT_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(event_loop, "SHUTDOWN_SECONDS", 0.2)
    real = sources.SourceFile.open

    class Hanging:
        def __init__(self, file: Any) -> None:
            self.file = file

        def read(self, size: int = -1) -> bytes:
            time.sleep(20)
            return bytes(self.file.read(size))

        def close(self) -> None:
            raise AssertionError("closed while it is read")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    def slow(self: Any, mode: str) -> Any:
        return Hanging(real(self, mode)) if str(self) == corpus.sources[0] else real(self, mode)

    monkeypatch.setattr(sources.SourceFile, "open", slow)
    began = time.monotonic()
    assert counts(attempts.run(ingest(corpus.sources[:4], outcome, timeout=2, max_failed=1))) == (3, 1, 0)
    assert time.monotonic() - began < 15
    assert outcome.rows[corpus.sources[0]]["error"] == "Not finished in time."
