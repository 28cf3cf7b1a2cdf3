"""Transient errors and answers of gateways: no document is lost to them."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.nights.bulk import backoff
from airflow_provider.nights.bulk.backoff import AdaptiveLimiter
from airflow_provider.nights.ingest.documents import Document, IngestSteps
from airflow_provider.waiting import rules
from tests.nights.ingest.conftest import Corpus, Outcome, RunIngest, counts, ingest
from tests.support.attempts import Attempts
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
        ("submit_*", {"html": True}),
        ("get_statuses", {"status": 403}),
        ("get_content", {"status": 404}),
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


def test_a_job_that_is_gone_after_each_deferral_is_submitted_again_once(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome
) -> None:
    service.configure(jobs="manual")

    def cancel(_: int) -> None:
        for uuid in attempts.deferrals[-1]["uuids"]:
            ComplianceHook().cancel(uuid)

    attempts.while_deferred = cancel
    task = ingest(corpus.sources[:1], outcome, deferrable=True, max_failed=1)
    assert counts(attempts.run(task)) == (0, 1, 0)
    assert service.count("submit_file") == 2
    assert "gone" in outcome.rows[corpus.sources[0]]["error"]


def test_a_429_that_the_client_meets_halves_the_requests_of_an_ingest(
    compliance_service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []
    adapt = AdaptiveLimiter._adapt

    def kept(self: AdaptiveLimiter) -> None:
        adapt(self)
        limits.append(self.limit)

    monkeypatch.setattr(AdaptiveLimiter, "_adapt", kept)
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", compliance_service.connection_json)
    compliance_service.fail("submit_*", status=429, retry_after=0, times=1)
    assert counts(attempts.run(ingest(corpus.sources, outcome, concurrency=8))) == (15, 0, 0)
    assert min(limits) == 4
