"""A night as Airflow runs it: states, results of tasks that have failed, and events are Airflow's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nights.evidence import run_night
from tests.support.dag_test import run_program


@pytest.mark.command
def test_night_is_closed_with_what_failed_tasks_have_left(tmp_path: Path) -> None:
    found = run_program(run_night.__name__, tmp_path)
    record = found["record"]
    totals = {name: record["totals"][name] for name in ("documents", "completed", "failed")}
    assert totals == {"documents": 2, "completed": 1, "failed": 1}
    assert [manifest["counts"] for manifest in record["manifests"]] == [{"COMPLETED": 1}, {"FAILED": 1}]
    # Not a task that was skipped, one that failed without keeping others from running, or one with a
    # similar name.
    assert record["missing"] == [
        "find (failed)",
        "group.load_1[2] (failed)",
        "own (failed)",
        "assess (upstream_failed)",
        "late (upstream_failed)",
    ]
    if not found["airflow"].startswith("2."):  # where `dag.test()` registers no events
        (event,) = found["events"]
        assert event["extra"]["night"].endswith("/_evidence/nights/00000001.json")
        assert (event["extra"]["documents"], event["extra"]["missing"]) == (2, 5)
