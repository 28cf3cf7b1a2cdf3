"""Machines, services and stores that go away, all in one deployment.

Users who end tasks: `tests/deployment/test_killing.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.deployment.settings import SLOTS
from tests.deployment.system import Deployment
from tests.e2e import audit
from tests.e2e.conftest import CANARY
from tests.e2e.stage import Stage
from tests.e2e.storm import CONCURRENCY, MANY, Storm

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def storm(deployment: Deployment, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Storm:
    it = Storm(deployment, stage, tmp_path_factory.mktemp("storm"), CANARY)
    it.rage()
    return it


def test_every_document_has_one_text_and_it_is_whole(storm: Storm) -> None:
    assert audit.problems(storm.stage, "storm/shards/", storm.documents) == []
    assert max(task["try_number"] for task in storm.runs["shards"].tasks("ingest")) > 1


def test_a_crash_has_no_more_documents_submitted_twice_than_are_under_way(storm: Storm) -> None:
    names = [source.rpartition("/")[2] for source in storm.documents]
    jobs = Counter(job["name"] for job in storm.jobs(names))
    twice = sum(jobs.values()) - len(names)
    assert storm.crashed
    assert set(jobs) == set(names)
    assert 0 < twice <= CONCURRENCY * len(storm.crashed)


def test_the_nightly_job_outlives_an_outage_of_service_and_store(storm: Storm) -> None:
    run = storm.runs["night"]
    rows = {row["source"]: row for row in storm.stage.rows(run.returned("ingest", 0)["manifest"])}
    assert not {source: row["error"] for source, row in rows.items() if row["error"]}
    closed = run.returned("close")
    assert (closed["completed"], closed["failed"], closed["skipped"]) == (len(storm.of_the_night), 0, 0)
    texts = {source: storm.stage.read(row["path"]).decode() for source, row in rows.items()}
    assert texts == storm.of_the_night


def test_deferred_tasks_survive_a_killed_triggerer_blips_and_a_rotated_password(storm: Storm) -> None:
    """A second of 404, a second of 403, a password that the connection learns of later: no attempt ends."""
    tasks = storm.runs["many"].tasks()
    assert [task["state"] for task in tasks] == ["success"] * MANY
    assert sorted(job["name"] for job in storm.jobs(storm.urls["many"])) == sorted(storm.urls["many"])
    # The triggerer is refused once; and so is a task that waits in a worker meanwhile, in each attempt.
    assert 1 <= storm.refused_logins <= 1 + SLOTS


def test_nothing_is_left_half_written(storm: Storm) -> None:
    assert not storm.stage.unfinished()
