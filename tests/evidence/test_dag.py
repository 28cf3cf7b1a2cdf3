"""A night as Airflow runs it: states, results of tasks that have failed, and events are Airflow's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.evidence import run_night

pytestmark = pytest.mark.command
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the DAG of a night has left."""
    folder = tmp_path_factory.mktemp("night")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment |= {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", run_night.__name__, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


def test_a_failed_shard_is_in_the_night_if_it_has_left_a_manifest(found: Any) -> None:
    record = found["record"]
    totals = {name: record["totals"][name] for name in ("documents", "completed", "failed")}
    assert totals == {"documents": 2, "completed": 1, "failed": 1}
    assert [manifest["counts"] for manifest in record["manifests"]] == [{"COMPLETED": 1}, {"FAILED": 1}]


def test_missing_tasks_are_named_with_their_map_index(found: Any) -> None:
    """Not a task that was skipped, one that is not a part of the night, or one with a similar name."""
    assert found["record"]["missing"] == [
        "assess (upstream_failed)", "group.load_1[2] (failed)", "own (failed)"
    ]  # fmt: skip


def test_there_is_one_event_with_counts_and_uris(found: Any) -> None:
    if found["airflow"].startswith(("2.", "3.0.")):
        pytest.skip("before Airflow 3.1, dag.test() registers no events")
    (event,) = found["events"]
    assert event["extra"]["night"].endswith("/_evidence/nights/00000001.json")
    assert (event["extra"]["documents"], event["extra"]["missing"]) == (2, 3)
