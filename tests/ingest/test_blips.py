"""Transient errors and answers of gateways: no document is lost to them."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.bulk import backoff, pipeline
from airflow_provider.emulator import Emulator
from airflow_provider.ingest import documents
from airflow_provider.ingest.documents import Document, IngestSteps
from airflow_provider.waiting import rules
from tests.ingest.conftest import Corpus, Outcome, RunIngest, counts, ingest
from tests.support.attempts import Attempts, heard
from tests.support.speed import SPEED


@pytest.fixture
def _paced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No document is tried again before all were tried once."""
    monkeypatch.setattr(backoff, "FIRST_DELAY_SECONDS", 1.0 * SPEED)
    monkeypatch.setattr(backoff, "MAX_DELAY_SECONDS", 1.0 * SPEED)
    monkeypatch.setattr(backoff, "OUTAGE_RETRY_SECONDS", 300.0)


@pytest.mark.usefixtures("_paced")
@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("submit_*", {"status": 404}),
        ("submit_*", {"status": 403}),
        ("submit_*", {"status": 405}),
        ("submit_*", {"html": True}),
        ("submit_*", {"status": 302, "location": "/maintenance.html"}),
        ("get_statuses", {"status": 404}),
        ("get_statuses", {"status": 403}),
        ("get_content", {"status": 404}),
        ("get_content", {"status": 403}),
        ("get_content", {"html": True}),
        ("get_content", {"status": 302}),
    ],
    ids=str,
)
def test_a_blip_fails_no_document_and_ends_no_attempt(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, operation: str, fault: dict[str, Any]
) -> None:
    service.configure(jobs="seconds:0.2")
    service.fail(operation, times=len(corpus.sources), **fault)
    assert run_ingest(corpus.sources, concurrency=15) == (15, 0, 0)


@pytest.mark.parametrize("operation", ["submit_*", "get_statuses", "get_content"])
def test_credentials_that_are_refused_after_all_was_well_end_the_attempt_with_retries(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(rules, "OUTAGE_SECONDS", 0.5)
    monkeypatch.setattr(backoff, "OUTAGE_RETRY_SECONDS", 300.0)
    service.configure(jobs="seconds:0.2")
    fault = service.fail(operation, status=401, times=None, skip=2 if operation != "get_statuses" else 0)
    with pytest.raises(exc.ComplianceAuthError) as error:
        run_ingest(corpus.sources, concurrency=2)
    assert error.value.transient
    assert not isinstance(error.value, AirflowFailException)
    service.clear_faults(fault)
    assert run_ingest(corpus.sources) == (15, 0, 0)


def test_one_document_that_the_service_answers_with_404_is_a_row(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome
) -> None:
    service.fail("submit_url", status=404, times=None)
    page = corpus.sources[-1]
    result = attempts.run(ingest([page, *corpus.sources[:10]], outcome, max_failed=1, concurrency=2))
    assert counts(result) == (10, 1, 0)
    assert "404" in outcome.rows[page]["error"]


@pytest.mark.parametrize("status", [403, 404])
def test_a_refusal_of_all_submits_from_the_first_on_ends_the_task(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(rules, "REFUSAL_SECONDS", 0.3)
    monkeypatch.setattr(backoff, "OUTAGE_RETRY_SECONDS", 300.0)
    service.fail("submit_*", status=status, times=None)
    with pytest.raises(AirflowFailException, match=str(status)):
        run_ingest(corpus.sources, max_failed=15)
    service.clear_faults()
    assert run_ingest(corpus.sources) == (15, 0, 0)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_the_verdict_of_the_service_on_one_document_is_final_at_once(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, status: int
) -> None:
    service.fail("submit_url", status=status, times=None)
    page = corpus.sources[-1]
    assert run_ingest([*corpus.sources[:3], page], max_failed=1) == (3, 1, 0)
    assert service.count("submit_url") == 1


def test_every_submit_that_may_have_been_taken_is_counted(
    service: Emulator,
    corpus: Corpus,
    run_ingest: RunIngest,
    outcome: Outcome,
    appended: list[dict[str, Any]],
) -> None:
    service.fail("submit_url", reset="after", times=2)
    page = corpus.sources[-1]
    assert run_ingest([page]) == (1, 0, 0)
    assert outcome.rows[page]["attempts"] == 3 == len(service.jobs())
    assert [each["attempts"] for each in appended] == [1, 2, 3, 3]


def test_an_unexpected_error_of_one_document_is_a_row_and_a_traceback(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text_name = documents.text_name

    def odd(document: Document, template: str) -> str:
        if document.source in corpus.sources[:2]:
            raise KeyError("a bug")
        return text_name(document, template)

    monkeypatch.setattr(documents, "text_name", odd)
    task = heard(ingest(corpus.sources, outcome, max_failed=2))
    assert counts(attempts.run(task)) == (13, 2, 0)
    assert "KeyError: 'a bug'" in outcome.rows[corpus.sources[0]]["error"]
    assert caplog.text.count("Traceback") == 1


def test_an_unexpected_error_about_a_job_is_a_row(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_record = pipeline.Pipeline._on_record

    def odd(self: Any, document: Document, record: Any) -> None:
        if document.source == corpus.sources[0] and record["status"] == "COMPLETED":
            raise TypeError("can't subtract offset-naive and offset-aware datetimes")
        on_record(self, document, record)

    service.configure(jobs="seconds:0.2")
    monkeypatch.setattr(pipeline.Pipeline, "_on_record", odd)
    assert run_ingest(corpus.sources[:5], max_failed=1) == (4, 1, 0)


def test_a_document_whose_job_is_gone_before_its_text_was_fetched_is_submitted_again_by_a_retry(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service refuses its text for good while others succeed; a retry is worth it nevertheless."""
    lost, fetch = corpus.sources[0], IngestSteps.fetch

    async def fetch_too_late(self: Any, item: Document) -> None:
        if item.source == lost and any(job["uuid"] == item.job_id for job in service.jobs()):
            service.remove_job(item.job_id)
        await fetch(self, item)

    with monkeypatch.context() as patched:
        patched.setattr(IngestSteps, "fetch", fetch_too_late)
        with pytest.raises(exc.ComplianceIngestError) as error:
            run_ingest(corpus.sources[:5])
    assert not isinstance(error.value, AirflowFailException)
    assert run_ingest(corpus.sources[:5]) == (5, 0, 0)
    assert service.count("submit_file") == 5 + 1
