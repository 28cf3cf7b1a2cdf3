"""Refusals that concern one document never end the work on the others."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.bulk import backoff
from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.ingest.documents import Document, IngestSteps
from airflow_provider.waiting import rules
from tests.ingest.conftest import Corpus, Outcome, RunIngest, counts, ingest
from tests.support.attempts import Attempts


@pytest.fixture
def _sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proportions of production, but a hundredth of the time."""
    monkeypatch.setattr(backoff, "FIRST_DELAY_SECONDS", 0.02)
    monkeypatch.setattr(backoff, "MAX_DELAY_SECONDS", 1.2)
    monkeypatch.setattr(rules, "REFUSAL_SECONDS", 0.3)
    monkeypatch.setattr(backoff, "OUTAGE_RETRY_SECONDS", 3.0)


@pytest.fixture
def run_again(service: Emulator, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Another client has the job of the first document processed again before its text is fetched."""
    fetch = IngestSteps.fetch
    fetched: list[str] = []

    async def fetch_too_early(self: Any, item: Document) -> None:
        if item.source == corpus.sources[0]:
            if not fetched:
                service.set_job(item.job_id, status="RUNNING")
            fetched.append(item.job_id)
        await fetch(self, item)

    monkeypatch.setattr(IngestSteps, "fetch", fetch_too_early)
    return fetched


@pytest.mark.usefixtures("_sooner", "run_again")
def test_a_text_that_is_refused_for_long_while_its_job_runs_again_is_worth_a_retry(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest
) -> None:
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


def test_equal_documents_that_share_a_job_share_its_text(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit = AsyncComplianceClient.submit_file
    jobs: list[Any] = []

    async def submit_once(self: Any, file: Any, *rest: Any) -> Any:
        if not jobs:
            jobs.append(await submit(self, file, *rest))
        return jobs[0]

    monkeypatch.setattr(AsyncComplianceClient, "submit_file", submit_once)
    task = ingest(corpus.sources[:2], outcome, file_name_template="{uuid}.txt", concurrency=1)
    assert counts(attempts.run(task)) == (2, 0, 0)
    assert len({row["path"] for row in outcome.rows.values()}) == 1
