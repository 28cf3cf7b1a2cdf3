"""The operator around closing: parameters, link, events, lineage."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, Asset, BaseOperator

from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.links import REPORT_URL
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.runtime import compat
from airflow_provider.runtime.compat import HAS_FORMS
from tests.support.attempts import TaskInstance, heard
from tests.support.nights import Nights, NightTask, context_of


def run(nights: Nights, day: int = 1, **parameters: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    parameters = {"ingested": nights.ingested(str(day), a="COMPLETED"), **parameters}
    task = ComplianceCloseNightOperator(task_id="close", destination=nights.destination(day), **parameters)
    context: Any = context_of(day)
    return heard(task).execute(context), context


PAGE = "/compliance/reports/d/run-1/close/-1" if HAS_FORMS else ""


@pytest.mark.parametrize(
    ("urls", "link"),
    [
        ("", PAGE),
        ("https://files.example.com", PAGE),  # not a JSON object
        ("[1]", PAGE),
        ('{"BASE": "ftp://files.example.com"}', PAGE),
        ('{"s3://elsewhere/": "https://files.example.com"}', PAGE),
        ('{"BASE": "https://files.example.com/"}', "https://files.example.com/dt=2026-03-01/_night/NAME"),
        ('{"file:///": "https://x", "BASE": "https://y/a"}', "https://y/a/dt=2026-03-01/_night/NAME"),
    ],
)
def test_configured_urls_decide_the_link_to_the_report(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, urls: str, link: str
) -> None:
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__REPORT_URLS", urls.replace("BASE", nights.base))
    result, context = run(nights)
    name = result["report"].rpartition("/")[2]
    assert context["ti"].xcoms[REPORT_URL] == link.replace("NAME", name)


def test_each_asset_gets_one_event_with_the_result(nights: Nights) -> None:
    assets = [Asset("file:///one"), Asset("file:///two")]
    result, context = run(nights, outlets=assets)
    for asset in assets:
        extra = context["outlet_events"][asset].extra
        assert extra == {**result, "destination": nights.destination(1)}


def test_a_mapped_task_is_named_by_its_destination(nights: Nights) -> None:
    task = ComplianceCloseNightOperator(task_id="close", destination=f"s3://b/{'x' * 200}")
    assert (len(task.title), task.title[-1]) == (100, "…")


@pytest.mark.parametrize(
    ("document", "base_url", "level", "line"),
    [
        ("COMPLETED", "", "INFO", "Of 1 document, 1 is new or changed. Report: REPORT"),
        ("FAILED", "", "WARNING", "Of 1 document, 1 failed. Report: REPORT"),
        pytest.param(
            "FAILED",
            "https://airflow.example.com/a/",
            "WARNING",
            "Of 1 document, 1 failed. Report: https://airflow.example.com/a/compliance/reports/d/run-1/close/-1",
            marks=pytest.mark.skipif(not HAS_FORMS, reason="there are no pages before Airflow 3.1"),
        ),
    ],
)
def test_log_has_the_headline_and_the_address_of_the_report(
    nights: Nights,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    document: str,
    base_url: str,
    level: str,
    line: str,
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    for _ in ("closed", "closed already"):
        with caplog.at_level("INFO"):
            result, _ = run(nights, ingested=nights.ingested("given", a=document))
        logged = caplog.records[-1]
        assert (logged.levelname, logged.message) == (level, line.replace("REPORT", result["report"]))
        assert line.startswith(result["headline"])


# -- states of tasks


def test_states_come_one_task_at_a_time_so_that_names_are_unambiguous() -> None:
    ti = NightTask(run_id="r")
    ti.states = {"load_1": "failed", "load_1_0": "success", "load_1_1": "running", "load_2": "success"}
    context = {"ti": ti}
    # `load_1_0` is an instance of `load_1`; only Airflow knows whether it is a task as well.
    assert compat.task_states(context, {"load_1"}) == {
        ("load_1", -1): "failed", ("load_1", 0): "success", ("load_1", 1): "running"
    }  # fmt: skip
    assert compat.task_states(context, {"load_2", "gone"}) == {("load_2", -1): "success"}
    assert compat.task_states(context, ()) == {}


def test_airflow_2_has_the_states_in_the_dag_run() -> None:
    found = [
        SimpleNamespace(task_id=task_id, map_index=index, state=state)
        for task_id, index, state in [("a", 0, "failed"), ("a", 1, None), ("b", -1, "success")]
    ]
    context = {"ti": TaskInstance(), "dag_run": SimpleNamespace(get_task_instances=lambda: found)}
    assert compat.task_states(context, {"a"}) == {("a", 0): "failed", ("a", 1): "None"}


def test_tasks_whose_outputs_are_given_have_to_leave_a_manifest() -> None:
    """One that was marked as a success by hand may have left none."""
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        ingest = ComplianceIngestOperator.partial(task_id="ingest", destination="s3://b/x/").expand(
            sources=["a", "b"]
        )
        assess = ComplianceAssessOperator(task_id="assess", documents=ingest.output, destination="s3://b/x/")
        one = ComplianceCloseNightOperator(
            task_id="one", ingested=ingest.output, assessed=assess.output, destination="s3://b/x/"
        )
        other = ComplianceCloseNightOperator(task_id="other", ingested=ingest.output, destination="s3://b/x/")
        assess >> other
    assert one._night_tasks() == ({"ingest", "assess"}, {"ingest", "assess"})
    assert other._night_tasks() == ({"ingest", "assess"}, {"ingest"})


def test_task_that_kept_another_from_running_is_missing_too(nights: Nights) -> None:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        message, find, split, config = (
            BaseOperator(task_id=name) for name in ("message", "find", "split", "config")
        )
        ingest = ComplianceIngestOperator(task_id="ingest", sources="x", destination="s3://b/x/")
        close = ComplianceCloseNightOperator(task_id="close", destination=nights.destination(1))
        message >> find >> split >> ingest >> close
        config >> ingest
    states = {
        "message": "failed",  # `find` ran nevertheless
        "find": "failed",
        "split": "upstream_failed",
        "config": "success",
        "ingest": "upstream_failed",
    }
    context: Any = context_of(1, states)
    assert close.execute(context)["missing"] == 2
    assert nights.entries[0].record["missing"] == ["find (failed)", "ingest (upstream_failed)"]


# -- lineage


def test_lineage_leads_from_the_manifests_to_the_record(nights: Nights) -> None:
    pytest.importorskip("airflow.providers.openlineage")
    task = ComplianceCloseNightOperator(
        task_id="close",
        destination=nights.destination(1),
        ingested=[nights.ingested("1", a="COMPLETED"), nights.ingested("2", b="COMPLETED")],
    )
    assert task.get_openlineage_facets_on_complete(None) is None
    context: Any = context_of(1)
    result = task.execute(context)
    found = task.get_openlineage_facets_on_complete(None)
    assert [dataset.name for dataset in found.inputs] == [
        f"{nights.folder}/1/manifest.jsonl", f"{nights.folder}/2/manifest.jsonl"
    ]  # fmt: skip
    assert [dataset.name for dataset in found.outputs] == [result["night"].removeprefix("file://")]
