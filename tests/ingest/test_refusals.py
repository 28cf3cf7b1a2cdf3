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
from tests.support.signals import signalled_when


@pytest.fixture
def _sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proportions of production, but a hundredth of the time."""
    monkeypatch.setattr(backoff, "FIRST_DELAY_SECONDS", 0.02)
    monkeypatch.setattr(backoff, "MAX_DELAY_SECONDS", 1.2)
    monkeypatch.setattr(rules, "REFUSAL_SECONDS", 0.3)
    monkeypatch.setattr(backoff, "OUTAGE_RETRY_SECONDS", 3.0)


@pytest.mark.usefixtures("_sooner")
@pytest.mark.parametrize("status", [403, 404, 405, 409])
def test_a_refused_refresh_fails_its_document_alone(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome, status: int
) -> None:
    broken = corpus.folder / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 no")
    service.fail("refresh", status=status, times=None)
    task = ingest([*corpus.sources, str(broken)], outcome, max_failed=1)
    assert counts(attempts.run(task)) == (15, 1, 0)
    assert str(status) in outcome.rows[str(broken)]["error"]


@pytest.mark.usefixtures("_sooner")
def test_a_refused_text_of_the_only_new_document_fails_it_alone(
    service: Emulator, attempts: Attempts, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome
) -> None:
    run_ingest(corpus.sources)
    attempts.clear()
    extra = corpus.folder / "extra.pdf"
    extra.write_bytes(corpus.samples[0].path.read_bytes())
    service.fail("get_content", status=403, times=None)
    task = ingest([*corpus.sources, str(extra)], outcome, max_failed=1)
    assert counts(attempts.run(task)) == (15, 1, 0)


@pytest.fixture
def run_again(service: Emulator, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Somebody else has the job of the first document processed again before its text is fetched."""
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


@pytest.mark.usefixtures("_sooner")
def test_a_text_that_is_refused_while_its_job_runs_again_is_fetched_afterwards(
    service: Emulator,
    corpus: Corpus,
    run_ingest: RunIngest,
    run_again: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "REFUSAL_SECONDS", 300.0)

    def finish() -> None:
        service.set_job(run_again[0], status="COMPLETED")

    with signalled_when(lambda: len(run_again) >= 3, finish):
        assert run_ingest(corpus.sources[:1]) == (1, 0, 0)
    assert len(service.jobs()) == 1


@pytest.mark.usefixtures("_sooner", "run_again")
def test_a_text_that_is_refused_for_long_while_its_job_runs_again_is_worth_a_retry(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest
) -> None:
    with pytest.raises(exc.ComplianceIngestError) as error:
        run_ingest(corpus.sources[:5])
    assert not isinstance(error.value, AirflowFailException)
    assert run_ingest(corpus.sources[:5]) == (5, 0, 0)
    assert service.count("submit_file") == 5 + 1


@pytest.mark.parametrize("deferrable", [False, True], ids=["in the worker", "deferred"])
def test_a_job_whose_status_is_refused_fails_its_document_alone(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
    deferrable: bool,
) -> None:
    monkeypatch.setattr(rules, "OUTAGE_SECONDS", 3.0)
    refused: set[str] = set()
    submit, poll = AsyncComplianceClient.submit_file, AsyncComplianceClient.get_statuses

    async def submit_and_note(self: Any, file: Any, *rest: Any) -> Any:
        job = await submit(self, file, *rest)
        if str(file) == corpus.sources[0]:
            refused.add(job.uuid)
        return job

    async def refuse_one(self: Any, uuids: Any) -> Any:
        if refused & set(uuids):
            raise exc.ComplianceRefusedError("This job is refused.", status=403)
        return await poll(self, uuids)

    monkeypatch.setattr(AsyncComplianceClient, "submit_file", submit_and_note)
    monkeypatch.setattr(AsyncComplianceClient, "get_statuses", refuse_one)
    service.configure(jobs="seconds:0.5")
    task = ingest(corpus.sources, outcome, max_failed=1, deferrable=deferrable, poll_interval=0.2)
    assert counts(attempts.run(task)) == (14, 1, 0)


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
