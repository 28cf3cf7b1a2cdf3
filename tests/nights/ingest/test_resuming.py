"""What a retry or a clear does again: what is missing or has changed, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, READY, RETRYING, SKIPPED, SUBMITTED
from airflow_provider.nights.ingest.documents import Document, check_rows
from airflow_provider.nights.ingest.earlier import EarlierDocuments
from tests.nights.ingest.conftest import Corpus, Outcome, RunIngest, ingest
from tests.support.attempts import Attempts
from tests.support.signals import signalled_when


def correct(corpus: Corpus, number: int) -> None:
    """Put another document in the place of one."""
    corpus.samples[number].path.write_bytes(corpus.samples[number + 1].path.read_bytes())
    os.utime(corpus.samples[number].path, (1, 1))


def test_a_retry_submits_a_document_again_that_was_corrected_while_its_job_was_under_way(
    service: Emulator, attempts: Attempts, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome
) -> None:
    service.configure(jobs="manual")
    task = ingest(corpus.sources[:3], outcome, cancel_on_kill=False)

    def are_journaled() -> bool:
        segments = outcome.destination.glob("_work/ingest/**/journal-*.jsonl")
        return sum(segment.read_text().count('"uuid"') for segment in segments) >= 3

    with signalled_when(are_journaled, task.on_kill), pytest.raises(exc.ComplianceInterruptedError):
        attempts.run(task)
    before = {job["uuid"] for job in service.jobs()}
    correct(corpus, 0)

    def finish() -> None:
        service.configure(jobs="instant")
        service.finish_jobs()

    with signalled_when(lambda: service.count("cancel") == 1, finish):
        assert run_ingest(corpus.sources[:3]) == (3, 0, 0)
    assert service.count("submit_file") == 3 + 1
    assert service.count("cancel") == 1  # of the job that would have processed the document as it was
    assert len(before & {job["uuid"] for job in service.jobs()}) == 2
    assert outcome.texts[corpus.sources[0]] == corpus.texts[corpus.sources[1]]


GOOD = [
    Document("a", "1", COMPLETED, path="/a.txt"),
    Document("b", "2", FAILED),
    Document("c", "3", SKIPPED, path="/a.txt"),
]


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        (GOOD[:2], "2 rows for 3 items"),
        ([*GOOD, GOOD[0]], "4 rows for 3 items"),
        ([GOOD[0], GOOD[0], GOOD[1]], "or rows of other items"),
        ([*GOOD[:2], Document("c")], "1 are not finished, such as 'c'"),
        ([*GOOD[:2], Document("c", "3", SUBMITTED)], "1 are not finished, such as 'c'"),
        ([*GOOD[:2], Document("c", "3", RETRYING)], "1 are not finished, such as 'c'"),
        ([*GOOD[:2], Document("c", "3", READY)], "1 are not finished, such as 'c'"),
        ([*GOOD[:2], Document("c", "3", COMPLETED, path="/a.txt")], "such as '/a.txt'"),
        ([*GOOD[:2], Document("c", "3", COMPLETED)], "more than one document or to none"),
    ],
)
def test_rows_that_are_not_right_are_never_a_success(documents: list[Document], problem: str) -> None:
    check_rows(GOOD, ["a", "b", "c"])
    # A service may give one job to equal documents, which then have one text.
    check_rows([*GOOD[:2], Document("c", "1", COMPLETED, path="/a.txt")], ["a", "b", "c"])
    with pytest.raises(exc.ComplianceIngestError, match=problem):
        check_rows(documents, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        (Document("a", source_sha256="1"), Document("b", source_sha256="1"), True),
        (Document("a", source_sha256="1"), Document("b", source_sha256="2"), False),
        (Document("a"), Document("b"), False),
        (Document("https://h/#a"), Document("https://h/#b"), True),
        (Document("https://h/a"), Document("https://h/b"), False),
    ],
)
def test_only_documents_of_equal_bytes_may_share_a_job(
    one: Document, other: Document, is_equal: bool
) -> None:
    assert (one.input == other.input) is is_equal


def test_a_task_whose_rows_are_not_right_fails_before_it_writes_a_manifest(
    service: Emulator,
    corpus: Corpus,
    run_ingest: RunIngest,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow_provider.nights.bulk.pipeline import Pipeline

    move = Pipeline._move

    def forgetful(self: Any, document: Document, state: Any) -> None:
        move(self, document, state)
        if state is COMPLETED and document.source == corpus.sources[0]:
            document.state = READY

    monkeypatch.setattr(Pipeline, "_move", forgetful)
    with pytest.raises(exc.ComplianceIngestError, match="1 are not finished"):
        run_ingest(corpus.sources[:3], max_failed=3)
    assert not list(outcome.destination.rglob("manifest.jsonl"))


# -- documents that the service could not process twice


@pytest.mark.parametrize(
    ("damaged", "step", "sent"),
    [
        (1, "retry", 0),
        (1, "clear", 1),
        (1, "correct", 1),
        (3, "retry", 0),
        (4, "retry", 4),  # of six: that is about the service
    ],
)
def test_a_retry_does_not_send_again_what_the_service_could_not_process_twice(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    damaged: int,
    step: str,
    sent: int,
) -> None:
    attempts.retries = attempts.max_tries = 3
    for sample in corpus.samples[:damaged]:
        service.fail_jobs(match=sample.path.name, times=2)
    task = ingest(corpus.sources[:6], outcome, max_failed=6)
    assert attempts.run(task)["failed"] == damaged
    assert service.count("refresh") == damaged
    if step == "clear":
        attempts.clear()
    elif step == "correct":
        correct(corpus, 0)
    assert attempts.run(task)["failed"] == damaged - sent
    assert service.count("submit_file") == 6 + sent


def test_a_clear_counts_until_its_attempt_has_sent_the_documents(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: Any) -> None:
        raise exc.ComplianceServerError("The service is away.")

    attempts.retries = attempts.max_tries = 3
    service.fail_jobs(match=corpus.samples[0].path.name, times=2)
    task = ingest(corpus.sources[:6], outcome, max_failed=6)
    assert attempts.run(task)["failed"] == 1
    attempts.clear()
    with monkeypatch.context() as away:
        away.setattr(EarlierDocuments, "decide", stop)
        with pytest.raises(exc.ComplianceServerError):
            attempts.run(task)
    assert attempts.run(task)["failed"] == 0
    assert service.count("submit_file") == 6 + 1


def test_a_task_ends_without_a_retry_if_too_many_documents_are_damaged(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome
) -> None:
    service.fail_jobs(match=corpus.samples[0].path.name, times=2)
    with pytest.raises(AirflowFailException, match="1 of 6 documents failed"):
        run_ingest(corpus.sources[:6])
    row = outcome.rows[corpus.sources[0]]
    assert (row["status"], row["failure_kind"]) == ("FAILED", "failed")


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5, "10", True])
def test_a_limit_of_bytes_is_a_whole_number(outcome: Outcome, max_bytes: Any) -> None:
    with pytest.raises(ValueError, match="max_bytes must be a whole number"):
        ingest(["a.pdf"], outcome, max_bytes=max_bytes)


def test_a_file_that_is_too_large_is_not_sent(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome
) -> None:
    sizes = {source: Path(source).stat().st_size for source in corpus.sources[:6]}
    largest = max(sizes.values())
    too_large = [source for source, size in sizes.items() if size == largest]
    assert run_ingest(list(sizes), max_bytes=largest - 1, max_failed=6)[1] == len(too_large)
    assert service.count("submit_file") == 6 - len(too_large)
    assert {outcome.rows[source]["failure_kind"] for source in too_large} == {"too_large"}
    for source in too_large:  # without its own size, so that reports count such files as one reason
        assert outcome.rows[source]["error"] == f"'{source}' is larger than max_bytes={largest - 1:,} allows."


# -- scratch that is deleted, such as by a lifecycle rule


def kinds(outcome: Outcome, folder: str) -> set[str]:
    return {
        path.name.partition("-")[0] for path in (outcome.destination / folder).rglob("*") if path.is_file()
    }


def test_outputs_and_scratch_are_apart(
    service: Emulator, attempts: Attempts, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome
) -> None:
    service.configure(jobs="manual")
    attempts.while_deferred = lambda _: (
        service.finish_jobs() if {"journal", "lease.json"} == kinds(outcome, "_work") else None
    )
    assert run_ingest(corpus.sources[:3], deferrable=True) == (3, 0, 0)
    assert kinds(outcome, "_work") == {"lease.json"}
    assert kinds(outcome, "_ingest") == {"manifest.jsonl", "report.html"}
    assert {path.name for path in outcome.destination.iterdir() if path.is_dir()} == {
        "_ingest", "_nights", "_work"
    }  # fmt: skip


def test_without_its_scratch_a_finished_task_does_nothing_again(
    service: Emulator, attempts: Attempts, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome
) -> None:
    assert run_ingest(corpus.sources) == (15, 0, 0)
    rows, jobs = outcome.rows, service.jobs()
    shutil.rmtree(outcome.destination / "_work")
    attempts.clear()
    assert run_ingest(corpus.sources) == (15, 0, 0)
    assert (outcome.rows, service.jobs()) == (rows, jobs)


def test_a_deferred_task_whose_scratch_is_deleted_submits_again_and_is_right(
    service: Emulator, attempts: Attempts, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome
) -> None:
    service.configure(jobs="manual")

    def delete(_: int) -> None:
        shutil.rmtree(outcome.destination / "_work")
        service.configure(jobs="instant")
        service.finish_jobs()

    attempts.while_deferred = delete
    assert run_ingest(corpus.sources[:3], deferrable=True) == (3, 0, 0)
    assert len(outcome.rows) == 3
    assert outcome.texts == {source: corpus.texts[source] for source in corpus.sources[:3]}
