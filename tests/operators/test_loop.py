"""Every iteration of a loop of Airflow 3.4 is a task instance of its own, with its own job and manifest."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from airflow.providers.common.compat.sdk import task_group

from airflow_provider.emulator import Emulator
from airflow_provider.nights.bulk.deletes import FinishedJob, PendingDeletes
from airflow_provider.nights.index.nights import Night
from airflow_provider.runtime.provenance import instance_of
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import task_path
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from tests.operators import run_loop
from tests.support.attempts import TaskInstance
from tests.support.dag_test import run_program
from tests.support.jobs import completed

OUTSIDE = UUID(int=0)
PAGE = "http://127.0.0.1:9/page"


@dataclass
class RegionTaskInstance(TaskInstance):
    """A task instance of Airflow 3.4. Mapped tasks have a region too; `iteration` is set only in a loop."""

    region_id: UUID | None = None
    iteration: int | None = None

    def get_template_context(self) -> dict[str, Any]:
        return {} if self.iteration is None else {"loop": SimpleNamespace(index=self.iteration)}


# -- the rule


@pytest.mark.parametrize(
    ("ti", "instance"),
    [
        (TaskInstance(), -1),
        (TaskInstance(map_index=3), 3),
        (RegionTaskInstance(), -1),
        (RegionTaskInstance(region_id=OUTSIDE), -1),
        (RegionTaskInstance(region_id=uuid4(), map_index=3), 3),  # mapped, outside of loops
        (RegionTaskInstance(region_id=uuid4(), iteration=0), "loop0"),
        (RegionTaskInstance(region_id=uuid4(), iteration=2), "loop2"),
        (RegionTaskInstance(region_id=uuid4(), iteration=2, map_index=3), "3.loop2"),
    ],
)
def test_instance_is_the_map_index_and_in_a_loop_also_the_iteration(ti: Any, instance: int | str) -> None:
    assert instance_of(ti) == instance


def test_path_of_a_task_outside_of_loops_is_the_same_on_all_versions() -> None:
    assert (
        task_path(TaskInstance()) == task_path(RegionTaskInstance(region_id=OUTSIDE)) == "d/r/t-568367735301"
    )
    mapped = RegionTaskInstance(region_id=uuid4(), map_index=3)
    assert task_path(TaskInstance(map_index=3)) == task_path(mapped) == "d/r/t-3-f8abbe8ae3ca"


# -- with a fake task instance


@pytest.mark.parametrize("template", ["text.txt", "{uuid}.txt"])
def test_texts_of_two_iterations_have_different_names(
    service: Emulator, tmp_path: Path, template: str
) -> None:
    for iteration in range(2):
        task = ComplianceContentToObjectStorageOperator(
            task_id="t",
            uuid=[completed(service)],
            destination=f"file://{tmp_path}/",
            file_name_template=template,
        )
        context: Any = {"ti": RegionTaskInstance(region_id=uuid4(), iteration=iteration)}
        task.execute(context)
    assert len(list(tmp_path.iterdir())) == 2


def in_loop(iteration: int, **changes: Any) -> RegionTaskInstance:
    return RegionTaskInstance(region_id=uuid4(), iteration=iteration, **changes)


def test_iteration_deletes_its_own_jobs_and_old_ones_of_others(tmp_path: Path) -> None:
    def pending(iteration: int, day: str) -> PendingDeletes:
        ti = in_loop(iteration, run_id=day)
        return PendingDeletes(Location(f"file://{tmp_path}/"), ti, Night(f"{day}T00:00:00+00:00", day), "a")

    for iteration in range(3):
        asyncio.run(pending(iteration, "2026-03-01").write([FinishedJob(f"u-{iteration}", ())]))
    assert [job.uuid for job in pending(1, "2026-03-02").read()] == ["u-1"]
    assert [job.uuid for job in pending(0, "2026-03-02").read()] == ["u-0"]
    assert {job.uuid for job in pending(1, "2026-03-04").read()} == {"u-0", "u-1", "u-2"}


# -- as Airflow runs it


@task_group
def body() -> None: ...


@pytest.mark.skipif(not hasattr(body, "loop"), reason="loops come with Airflow 3.4")
def test_each_iteration_of_a_real_loop_has_its_own_jobs_and_manifest(tmp_path: Path) -> None:
    folder, found = tmp_path, run_program(run_loop.__name__, tmp_path)
    assert found["state"] == "success"
    jobs = Counter(job["name"].rpartition("/")[2] for job in found["jobs"])
    assert jobs == {"": 4, "?0": 2}  # `submit` and `ingest` of each iteration; `mapped` of each
    states = sorted(path.parent.name.rpartition("-")[0] for path in folder.glob("state/*/*/*/*.json"))
    assert states == [
        "body.mapped-0.loop0", "body.mapped-0.loop1", "body.submit-loop0", "body.submit-loop1"
    ]  # fmt: skip
    assert len(list(folder.glob("out/dt=1/_ingest/*/*/body.ingest-loop[01]-*/manifest.jsonl"))) == 2
