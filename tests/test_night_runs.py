"""The README's night, on every version: the state of the run and of its tasks, and what was closed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_provider.runtime.compat import HAS_FORMS
from tests.support import night_runs
from tests.support.dag_test import run_program

OPEN = "open"  # what waits for experts, of this night and earlier ones: `tests/nights/review`
SHARD = ("shard.ingest", "shard.assess")
REVIEW = ("group_findings", "review", "close_reviewed")  # from Airflow 3.1 on


@dataclass
class Expected:
    """What comes of a night; tasks are successes, unless said otherwise, and totals are 0.

    :param revisions: of its record of evidence
    """

    state: str = "success"
    tasks: dict[str, str] = field(default_factory=lambda: {"review": "skipped"})
    totals: dict[str, int] = field(default_factory=dict)
    revisions: tuple[int, ...] = (1,)

    def all_tasks(self) -> dict[str, str]:
        names = ["list_documents", "close", "finish", *(REVIEW if HAS_FORMS else ())]
        tasks = dict.fromkeys(names, "success") | dict.fromkeys(SHARD, "success success")
        return tasks | {name: state for name, state in self.tasks.items() if name in tasks}


FRESH = {"documents": 4, "completed": 4, "assessments": 8, "assessed": 8}
CARRIED = {"documents": 4, "skipped": 4, "assessments": 8, "carried": 8}
NIGHTS = {
    "good night": Expected(totals=FRESH),
    "changed verdict, no answer": Expected(
        tasks={},
        totals={
            "documents": 4, "completed": 1, "skipped": 3, "assessments": 8, "assessed": 2, "carried": 6,
            "changed": 1,
        },
    ),
    # What changed is asked about until an expert has decided.
    "second run of the date": Expected(tasks={}, totals=CARRIED),
    "cleared assessment": Expected(tasks={}, totals=CARRIED),
    "lost shard": Expected(
        state="failed",
        tasks={
            "shard.ingest": "success failed",
            "shard.assess": "success skipped",
            "finish": "upstream_failed",
        },
        totals={
            "documents": 2, "skipped": 2, "assessments": 4, "carried": 4, "vanished": 2, "missing": 1
        },
        revisions=(1, 2),
    ),
    "backfill of day 5": Expected(totals=FRESH),
    "backfill of day 6": Expected(totals=CARRIED),
    "backfill of day 7": Expected(totals=CARRIED),
    "failed shard": Expected(
        state="failed",
        tasks={"shard.ingest": "success failed", "review": "skipped", "finish": "upstream_failed"},
        totals={
            "documents": 4, "skipped": 2, "failed": 2, "assessments": 4, "carried": 4, "failed_tasks": 1
        },
    ),
    "failed shard, repaired": Expected(
        tasks={},
        totals={"documents": 4, "completed": 2, "skipped": 2, "assessments": 8, "assessed": 4, "carried": 4},
        revisions=(1, 2),
    ),
    "failed assessment": Expected(
        state="failed",
        tasks={"shard.assess": "failed success", "finish": "upstream_failed"},
        totals={
            "documents": 4, "completed": 1, "skipped": 3, "assessments": 8, "carried": 6,
            "assessments_failed": 2, "failed_tasks": 1,
        },
    ),
}  # fmt: skip


@pytest.mark.command
@pytest.mark.parametrize("store", ["files", "s3"])
def test_state_of_the_run_says_whether_all_of_the_night_went_well(tmp_path: Path, store: str) -> None:
    found = run_program(night_runs.__name__, tmp_path, store)
    assert found.pop("verify") == 0
    seen = {
        name: Expected(
            night["state"],
            night["tasks"],
            {
                key: count
                for key, count in night["totals"].items()
                if count and type(count) is int and key != OPEN
            },
            tuple(night["revisions"]),
        )
        for name, night in found.items()
    }
    for name, expected in NIGHTS.items():
        expected.tasks = expected.all_tasks()
        assert seen[name] == expected, name
    assert seen.keys() == NIGHTS.keys()
