"""A whole night by one call: where parameters go, and what is refused. How it runs: `test_night_runs.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException, AirflowSkipException, TaskGroup
from jinja2 import Template

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.night import compliance_night
from airflow_provider.runtime.compat import HAS_FORMS

DESTINATION = "s3://my_aws@compliance/nights/"


def tasks_of(max_active_runs: int = 16, /, **options: Any) -> dict[str, Any]:
    """Return the tasks of a night, and the parameters of those that are mapped."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with DAG("nightly", schedule=None, start_date=start, max_active_runs=max_active_runs) as dag:
        compliance_night(sources="s3://my_aws@compliance/in/", destination=DESTINATION, **options)
    return {task.task_id.removeprefix("night."): task for task in dag.tasks}


def test_assessment_of_a_shard_has_the_name_of_its_ingestion() -> None:
    assess = tasks_of()["shard.assess"]
    assert assess.title == "all frameworks"
    assess.documents = {
        "manifest": f"{DESTINATION}_ingest/d/r/night.shard.ingest-2-0123456789ab/manifest.jsonl"
    }
    assert assess.title == "shard 3"


def test_options_reach_the_operators_that_have_them() -> None:
    tasks = tasks_of(
        concurrency=4, skip_unchanged=False, max_vanished=0.5, max_failed=3, retries=7, conn_id="other",
        pool="service", max_active_tis_per_dagrun=5, frameworks=["DORA"],
    )  # fmt: skip
    ingest, assess = tasks["shard.ingest"], tasks["shard.assess"]
    assert (ingest.concurrency, ingest.skip_unchanged, ingest.max_failed) == (4, False, 3)
    assert (assess.concurrency, assess.max_failed) == (4, 3)
    assert tasks["close"].max_vanished == 0.5
    assert assess.frameworks == ["DORA"]
    assert ingest.conn_id == assess.conn_id == "other"
    assert {task.retries for task in tasks.values()} == {7}
    assert {(task.pool, task.max_active_tis_per_dagrun) for task in (ingest, assess)} == {("service", 5)}


def test_every_task_outlasts_two_hours_without_the_service() -> None:
    """As Airflow's scheduler decides about retries: pauses get longer, by a part that depends on the task."""
    from airflow.models.taskinstance import TaskInstance

    serialized_objects = import_module("airflow.serialization.serialized_objects")
    # Airflow 3.2 has renamed it.
    serialization: Any = getattr(serialized_objects, "DagSerialization", serialized_objects.SerializedDAG)
    dag = tasks_of(golden=[{"source": "s3://b/a.pdf"}])["close"].dag
    scheduled = serialization.from_dict(serialization.to_dict(dag))
    failed_at: Any = datetime(2026, 1, 1, tzinfo=UTC)
    for one in scheduled.tasks:
        instance = SimpleNamespace(
            task=one, dag_id="nightly", task_id=one.task_id, end_date=failed_at, logical_date=failed_at,
            execution_date=failed_at, retry_delay_override=None, state=None,
        )  # fmt: skip
        pauses = []
        for instance.try_number in range(1, one.retries + 1):
            pauses.append(TaskInstance.next_retry_datetime(instance) - failed_at)  # type: ignore[arg-type] # a stand-in
        assert timedelta(hours=2) < sum(pauses, timedelta()) < timedelta(hours=3), one.task_id
        assert pauses[0] <= timedelta(minutes=10)


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("options", "dag_args", "group_args", "retries", "retry_delay"),
    [
        ({}, {}, {}, 6, timedelta(minutes=5)),
        ({"retries": 1}, {}, {}, 1, timedelta(minutes=5)),
        ({}, {"retries": 0}, {}, 0, timedelta(minutes=5)),
        ({}, {}, {"retries": 2}, 2, timedelta(minutes=5)),
        ({"retry_delay": SECOND}, {"retries": 3}, {}, 3, SECOND),
        ({}, {"retry_delay": SECOND}, {}, 6, SECOND),
        ({"retries": 1}, {"retries": 2, "retry_delay": SECOND}, {"retries": 3}, 1, SECOND),
    ],
)
def test_retries_that_the_dag_sets_replace_those_of_the_night(
    options: dict[str, Any],
    dag_args: dict[str, Any],
    group_args: dict[str, Any],
    retries: int,
    retry_delay: timedelta,
) -> None:
    dag = DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), default_args=dag_args)
    with dag, TaskGroup("outer", default_args=group_args):  # type: ignore[arg-type] # as in the night itself
        compliance_night(sources="/in/", destination=DESTINATION, **options)
    for one in dag.tasks:
        assert (one.retries, one.retry_delay) == (retries, retry_delay)
        # A delay of the DAG's own is not made to grow.
        assert bool(one.retry_exponential_backoff) is (retry_delay > SECOND)
        assert one.max_retry_delay == (timedelta(minutes=30) if retry_delay > SECOND else None)


def test_limits_of_submits_and_callbacks_reach_their_tasks() -> None:
    tasks = tasks_of(max_submitted="{{ 1 }}", on_closed=print, golden=[{"source": "s3://b/a.pdf"}])
    assert [tasks[f"shard.{name}"].max_submitted for name in ("ingest", "assess")] == ["{{ 1 }}"] * 2
    assert tasks["ingest_golden"].max_submitted is tasks["assess_golden"].max_submitted is None
    assert all(tasks[name].on_closed == [print] for name in ("close", *(["close_reviewed"] * HAS_FORMS)))


@pytest.mark.skipif(not HAS_FORMS, reason="no review before Airflow 3.1")
def test_a_night_without_any_assessment_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of()
    group = tasks["group_findings"]
    monkeypatch.setattr(type(tasks["shard.assess"].output), "resolve", lambda *_, **__: None)
    args = group.render_template(group.op_args, {}, group.get_template_env())
    assert group.python_callable(*args, **group.op_kwargs) == []


def test_closing_knows_how_many_documents_a_sample_is_of() -> None:
    tasks = tasks_of(sample=20)
    assert tasks["list_documents"].sample == 20
    assert "'night.list_documents', key='listed'" in tasks["close"].sample_of
    assert tasks_of()["close"].sample_of is None
    with pytest.raises(ValueError, match="sample must be a whole number of at least 1, not 0"):
        tasks_of(sample=0)


def test_golden_documents_are_judged_before_others_are_assessed() -> None:
    options = {"concurrency": 4, "delete_after": "assess", "frameworks": ["DORA"], "on_drift": "fail"}
    tasks = tasks_of(golden="s3://my_aws@compliance/golden.jsonl", **options)
    ingest, assess, judge = tasks["ingest_golden"], tasks["assess_golden"], tasks["judge"]
    assert {task.destination.partition("/dt=")[0] for task in (ingest, assess)} == {f"{DESTINATION}golden"}
    assert (ingest.concurrency, ingest.delete_after, assess.delete_after) == (4, None, None)
    assert (assess.frameworks, assess.changed_only, assess.max_failed) == (["DORA"], False, 1.0)
    assert (ingest.upstream_task_ids, assess.upstream_task_ids) == (set(), {"night.ingest_golden"})
    assert (judge.upstream_task_ids, judge.on_drift) == ({"night.assess_golden"}, "fail")
    assert "night.judge" in tasks["shard.assess"].upstream_task_ids & tasks["close"].upstream_task_ids
    of_night = {"night.shard.ingest", "night.shard.assess", "night.judge"}
    assert tasks["close"]._night_tasks() == (of_night, of_night)
    rows = [{"source": "/a.pdf"}, {"source": "/a.pdf"}]
    assert tasks_of(golden=rows)["ingest_golden"].sources == ["/a.pdf", "/a.pdf"]
    with pytest.raises(ComplianceInputError, match="golden must be"):
        tasks_of(golden="s3://my_aws@compliance/golden.csv")


@pytest.mark.parametrize("left", [None, "None"])
def test_shard_is_skipped_when_the_judge_has_failed(left: Any) -> None:
    shard = tasks_of(golden="s3://my_aws@compliance/golden.jsonl", on_drift="fail")["shard.assess"]
    shard.documents, shard.reassess = "a-uuid", left
    with pytest.raises(AirflowSkipException, match="The task judge failed"):
        shard.execute({"ti": None})


def test_night_defers_and_skips_what_has_not_changed() -> None:
    ingest = tasks_of()["shard.ingest"]
    assert ingest.deferrable is True
    assert ingest.skip_unchanged == timedelta(days=7)


@pytest.mark.skipif(not HAS_FORMS, reason="Airflow before 3.1 has no forms")
def test_options_of_a_review_reach_its_forms() -> None:
    tasks = tasks_of(
        limit=7, by="criterion", assigned_users=[{"id": "ada", "name": "Ada"}], defaults="Decide later"
    )
    assert tasks["review"].partial_kwargs["assigned_users"] == [{"id": "ada", "name": "Ada"}]
    assert "limit" not in tasks["review"].partial_kwargs
    asked = tasks["group_findings"].op_kwargs
    assert (asked["only"], asked["limit"], asked["by"]) == ("changed", 7, "criterion")
    assert tasks_of()["group_findings"].op_kwargs["limit"] == 200
    assert "night.close" in tasks["close_reviewed"].upstream_task_ids


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("concurency", " Did you mean concurrency"),
        ("framework", " Did you mean frameworks"),
        ("retires", " Did you mean retries"),
        ("dry_run", ""),
        ("zzz", "$"),
    ],
)
def test_unknown_option_is_named_with_the_nearest_one(name: str, advice: str) -> None:
    with pytest.raises(TypeError, match=rf"does not take the parameter {name}\.{advice}"):
        tasks_of(16, **{name: "x"})
    with pytest.raises(ValueError, match="Missing destination"), DAG("nightly", schedule=None):
        compliance_night(sources="/in/", destination="")


def test_night_with_a_sample_is_closed_although_its_documents_could_not_be_listed() -> None:
    """Airflow fails a task before it starts if one of its parameters is an XCom that is not there."""
    listed, sample_of = (
        SimpleNamespace(xcom_pull=lambda *_, **__: None),
        tasks_of(sample=2)["close"].sample_of,
    )
    assert Template(sample_of).render(ti=listed) == "0"


def test_shards_have_a_document_at_least() -> None:
    for number in (0, 2.5, "10", True):
        with pytest.raises(ValueError, match="shard_size must be a whole number of at least 1, not"):
            tasks_of(shard_size=number)


@pytest.mark.skipif(not HAS_FORMS, reason="Airflow before 3.1 has no forms")
def test_review_is_left_out_on_request_and_must_not_hold_the_next_night() -> None:
    assert {"group_findings", "review", "close_reviewed"}.isdisjoint(tasks_of(review=None))
    tasks_of(1, review=None)
    with pytest.warns(UserWarning, match="max_active_runs=1"):
        tasks_of(1)


def test_sources_may_be_a_template() -> None:
    assert {"sources", "destination"} <= set(tasks_of()["list_documents"].template_fields)


def test_wrong_sources_fail_without_a_retry(tmp_path: Path) -> None:
    task = tasks_of()["list_documents"]
    task.sources, task.destination = f"{tmp_path}/", f"file://{tmp_path}/nights/"
    with pytest.raises(AirflowFailException, match="no documents"):
        task.execute({"ti": None})
