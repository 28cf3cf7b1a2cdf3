"""The deadline of an ingest: what is completed is kept, the rest has failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client import base as client_base
from airflow_provider.client.base import reset_shared_state
from airflow_provider.emulator import Emulator
from airflow_provider.nights.bulk import engine
from airflow_provider.runtime import event_loop
from airflow_provider.storage import sources
from airflow_provider.triggers import base as triggers
from airflow_provider.waiting import waits
from tests.nights.ingest.conftest import Corpus, Outcome, PassingTime, RunIngest, counts, ingest
from tests.support.attempts import Attempts
from tests.support.clock import DAY, Clock


def under_way(service: Emulator) -> list[str]:
    return [job["uuid"] for job in service.jobs() if job["status"] in ("PENDING", "RUNNING")]


def test_a_stuck_document_fails_after_a_refresh_in_deferrals_while_the_others_finish(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    passing: PassingTime,
) -> None:
    service.configure(jobs="manual")

    def let_time_pass(_: int) -> None:
        if finished := under_way(service)[1:]:
            service.finish_jobs(*finished)
        passing.ahead += 3700

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
    passing: PassingTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service.configure(jobs="manual")

    async def find_ended(*_: object) -> None:
        raise exc.ComplianceServerError("The service is away.", status=503)

    def let_time_pass(number: int) -> None:
        if number == 1:
            passing.ahead += 3700
        else:
            service.finish_jobs(*under_way(service))
        assert number <= 2

    attempts.while_deferred = let_time_pass
    task = ingest(corpus.sources[:3], outcome, deferrable=True, document_timeout=3600)
    monkeypatch.setattr(type(task.kind), "find_ended", find_ended)
    assert counts(attempts.run(task)) == (3, 0, 0)
    first, second = (deferral["timeout"] for deferral in attempts.deferrals)
    assert first == pytest.approx(3600, abs=60)
    assert second == pytest.approx(360, abs=60)


@pytest.fixture(params=[-DAY, DAY], ids=["behind", "ahead"])
def skew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """The clock of this machine: right, or wrong by a day."""
    wrong = SimpleNamespace(time=lambda: time.time() + request.param, monotonic=time.monotonic)

    def set_wrong(is_wrong: bool) -> None:
        reset_shared_state()  # another machine has heard nothing from the service yet
        for module in (client_base, triggers, waits):
            monkeypatch.setattr(module, "time", wrong if is_wrong else time)

    return set_wrong


@pytest.mark.parametrize("wrong", ["worker", "triggerer"])
def test_clocks_that_differ_by_a_day_end_no_wait(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    skew: Callable[[bool], None],
    caplog: pytest.LogCaptureFixture,
    wrong: str,
) -> None:
    service.configure(jobs="seconds:3")
    skew(wrong == "worker")
    attempts.while_deferred = lambda _: skew(wrong == "triggerer")
    result = attempts.run(ingest(corpus.sources[:4], outcome, deferrable=True, timeout=3600))
    assert counts(result) == (4, 0, 0)
    assert service.count("cancel") == service.count("refresh") == 0
    assert "The clock of this machine is 86400 s" in caplog.text


def test_an_attempt_whose_clock_was_wrong_leaves_no_jobs_that_seem_stuck(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    skew: Callable[[bool], None],
) -> None:
    service.configure(jobs="manual")
    skew(True)
    task = ingest(corpus.sources[:3], outcome, deferrable=True)
    attempts.while_deferred = stop
    with pytest.raises(StoppedError):
        attempts.run(task)
    skew(False)
    attempts.while_deferred = lambda _: service.finish_jobs(*under_way(service))
    assert counts(attempts.run(ingest(corpus.sources[:3], outcome, deferrable=True))) == (3, 0, 0)
    assert service.count("refresh") == 0
    assert len(service.jobs()) == 3


class StoppedError(Exception):
    """The worker of the attempt was killed."""


def stop(_: int) -> None:
    raise StoppedError


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
