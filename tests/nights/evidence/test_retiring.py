"""Documents that have vanished from the sources are retired, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.nights.evidence.erasing import Erasure
from airflow_provider.nights.evidence.holds import place_hold
from airflow_provider.nights.evidence.jobs import ErasedJobs
from tests.nights.evidence.erasable import ANNA, BERT, Tree


@pytest.fixture
def _no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ErasedJobs, "check", lambda self: None)
    monkeypatch.setattr(ErasedJobs, "delete", lambda self, jobs: [])


def close_with(tree: Tree, day: int, *sources: str, **parameters: Any) -> None:
    tree.nights.close(day, **tree.write_night(day, *sources), **{"retire_after": 2, **parameters})


@pytest.mark.usefixtures("_no_service")
def test_vanished_document_is_retired_after_some_nights(tree: Tree) -> None:
    for day in (1, 2):
        close_with(tree, day, ANNA, BERT)
    close_with(tree, 3, BERT)
    assert tree.find_traces(ANNA) != []  # one night without it
    close_with(tree, 4, BERT)
    assert tree.find_traces(ANNA) == []
    record = next(check.record for check in tree.verify() if check.record.get("kind") == "erasure")
    assert record["reason"] == "Not among the documents of the latest 2 nights"
    assert set(tree.statuses().split()) == {"ERASED", "OK"}


@pytest.mark.usefixtures("_no_service")
@pytest.mark.parametrize(
    "case", ["off", "back", "held", "incomplete", "backfill", "too many", "another series", "lost"]
)
def test_document_is_not_retired(tree: Tree, case: str) -> None:
    for day in (5, 6):
        close_with(tree, day, ANNA, BERT)
    close_with(tree, 7, *([ANNA] if case == "back" else []), BERT)
    last: dict[str, Any] = {"retire_after": None} if case == "off" else {}
    if case == "held":
        place_hold(tree.root, "*Anna*", "A lawsuit", "the lawyer")
    elif case == "backfill":
        close_with(tree, 9, ANNA, BERT, states={"other": "failed"})
    elif case == "incomplete":
        last["states"] = {"other": "failed"}
    elif case == "too many":
        last["max_vanished"] = 0
    elif case == "another series":
        tree.nights.close(8, **tree.write_night(8, ANNA), identity={"dag_id": "other", "run_id": "other"})
    elif case == "lost":
        (tree.path / "dt=2026-03-07/_ingest/d/run/ingest/manifest.jsonl").unlink()
    close_with(tree, 8 if case == "backfill" else 10, BERT, **last)
    assert tree.find_traces(ANNA) != []
    assert not any(check.record.get("kind") == "erasure" for check in tree.verify())


@pytest.mark.usefixtures("_no_service")
def test_nights_with_a_sample_do_not_count(tree: Tree) -> None:
    for day in (1, 2):
        close_with(tree, day, ANNA, BERT)
    for day in (3, 4):
        close_with(tree, day, BERT, sample_of=2)
    close_with(tree, 5, BERT)
    assert tree.verify()[-1].record["totals"]["vanished"] == 1  # since the night of all documents
    assert tree.find_traces(ANNA) != []  # one night without it
    close_with(tree, 6, BERT)
    assert tree.find_traces(ANNA) == []


@pytest.mark.usefixtures("_no_service")
@pytest.mark.parametrize("case", ["incomplete", "backfill", "rare"])
def test_document_of_another_series_is_not_retired(
    tree: Tree, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its latest complete night counts, even if another one was closed since, or long ago."""
    monkeypatch.setattr("airflow_provider.nights.evidence.history.TREND_NIGHTS", 2)

    def close_other(day: int, *sources: str, **parameters: Any) -> None:
        identity = {"dag_id": "other", "run_id": f"other-{day}"}
        tree.nights.close(day, **tree.write_night(day, *sources), identity=identity, **parameters)

    close_other(3, ANNA, BERT)
    if case == "incomplete":
        close_other(4, BERT, states={"other": "failed"})
    elif case == "backfill":
        close_other(2, BERT)
    for day in (5, 6):
        close_with(tree, day, ANNA, BERT)
    for day in (7, 8):
        close_with(tree, day, BERT)
    assert tree.find_traces(ANNA) != []
    close_other(9, BERT)
    close_with(tree, 10, BERT)
    assert tree.find_traces(ANNA) == []


def test_retry_of_closing_completes_what_it_has_begun_to_retire(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ComplianceStorageError("The store is down.")

    for day in (1, 2):
        close_with(tree, day, ANNA, BERT)
    close_with(tree, 3, BERT)
    with monkeypatch.context() as patch:
        patch.setattr(Erasure, "_render_again", fail)
        parameters = {**tree.write_night(4, BERT), "retire_after": 2}
        with pytest.raises(ComplianceStorageError):
            tree.nights.close(4, **parameters)
    tree.nights.close(4, **parameters, identity={"try_number": 2})
    assert tree.find_traces(ANNA) == []
    assert set(tree.statuses().split()) == {"ERASED", "OK"}


def test_connection_that_does_not_work_leaves_jobs_and_retires_all_the_same(tree: Tree) -> None:
    for day in (1, 2):
        close_with(tree, day, ANNA, BERT)
    for day in (3, 4):
        close_with(tree, day, BERT, conn_id="mistyped")
    assert tree.find_traces(ANNA) == []
    assert len(tree.verify()[-1].record["left"]) == 2
    close_with(tree, 5, BERT, conn_id="mistyped")
