"""Which attempt has finished a row, as manifest and journal say, whichever attempt writes them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import __version__
from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.runtime import provenance
from airflow_provider.runtime.provenance import PROVENANCE_COLUMNS, read_provenance
from tests.nights.ingest.conftest import Corpus, Outcome, RunIngest
from tests.support.attempts import Attempts, TaskInstance


@pytest.mark.parametrize(
    ("ti", "context", "version"),
    [
        ({}, {}, None),  # Airflow 2.11
        ({"bundle_instance": SimpleNamespace(version=None)}, {}, None),  # a bundle without versions
        ({"bundle_instance": SimpleNamespace(version="4fe3")}, {"dag_run": SimpleNamespace()}, "4fe3"),
        ({}, {"dag_run": SimpleNamespace(bundle_version="4fe3")}, "4fe3"),
        ({}, {"dag_run": None}, None),
    ],
)
def test_provenance_is_read_on_every_airflow(
    ti: dict[str, Any], context: dict[str, Any], version: str | None
) -> None:
    instance = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=3, try_number=2, **ti)
    found = read_provenance({"ti": instance, **context})
    assert tuple(found) == PROVENANCE_COLUMNS
    assert list(found.values()) == ["d", "r", "t", 3, 2, version, __version__]
    assert json.loads(json.dumps(found)) == found


def test_each_row_has_the_attempt_that_has_finished_it(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    run_ingest: RunIngest,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad, *_ = corpus.sources
    service.fail_jobs(match=f"*{bad.rpartition('/')[2]}*", times=2)
    with pytest.raises(exc.ComplianceIngestError):
        run_ingest([good, bad, "missing.pdf"])
    assert [row["try_number"] for row in outcome.rows.values()] == [1, 1, 1]
    monkeypatch.setattr(provenance, "__version__", "99")
    monkeypatch.setattr(TaskInstance, "bundle_instance", SimpleNamespace(version="4fe3"), raising=False)
    attempts.clear()
    assert run_ingest([good, bad, "missing.pdf"], max_failed=1) == (2, 1, 0)
    rows = [[row[name] for name in PROVENANCE_COLUMNS] for row in outcome.rows.values()]
    assert rows == [
        ["d", "r", "t", -1, 1, None, __version__],  # by the version that has completed it
        ["d", "r", "t", -1, 2, "4fe3", "99"],
        ["d", "r", "t", -1, 2, "4fe3", "99"],
    ]


def test_a_text_that_is_fetched_again_is_of_the_attempt_that_did_so(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome
) -> None:
    run_ingest(corpus.sources[:2])
    Path(outcome.rows[corpus.sources[0]]["path"]).unlink()
    run_ingest(corpus.sources[:2])
    assert [row["try_number"] for row in outcome.rows.values()] == [2, 1]
