"""An ingest never has more jobs at the service than `max_in_flight`; the emulator counts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from airflow_provider.emulator import Emulator
from tests.ingest.conftest import Corpus, Outcome, RunIngest
from tests.support.in_flight import JobsInFlight
from tests.support.signals import signalled_when

SetLimit = Callable[[int], JobsInFlight]


@pytest.fixture
def set_limit(service: Emulator, monkeypatch: pytest.MonkeyPatch) -> SetLimit:
    """Set the limit of the connection, and count what the emulator has in flight."""

    def configure(limit: int) -> JobsInFlight:
        connection = service.connection()
        connection["extra"] |= {"max_retries": 0, "max_in_flight": limit}
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
        return JobsInFlight(service)

    return configure


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_the_service_never_has_more_jobs_than_allowed(
    service: Emulator,
    corpus: Corpus,
    outcome: Outcome,
    run_ingest: RunIngest,
    set_limit: SetLimit,
    limit: int,
) -> None:
    service.configure(jobs="manual")
    jobs, most = set_limit(limit), min(limit, 6)
    sources = corpus.sources[:3] + corpus.sources[-3:]
    with signalled_when(lambda: jobs.peak >= most, lambda: service.configure(jobs="instant")):
        assert run_ingest(sources) == (6, 0, 0)
    assert jobs.peak == most
    assert service.count("submit_file") + service.count("submit_url") == 6
    assert outcome.texts == {source: corpus.texts[source] for source in sources}
