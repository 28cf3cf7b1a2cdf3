"""Throttling by the service, met by a bulk operator."""

from __future__ import annotations

import pytest

from airflow_provider.bulk.backoff import AdaptiveLimiter
from airflow_provider.emulator import Emulator
from tests.ingest.conftest import Corpus, Outcome, counts, ingest
from tests.support.attempts import Attempts


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
