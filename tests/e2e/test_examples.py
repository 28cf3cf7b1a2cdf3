"""Every example DAG, as it is shipped, from documents to texts, results and feedback."""

from __future__ import annotations

import hashlib
import json
import runpy
from itertools import islice
from typing import Any

import pytest

from airflow_provider.emulator.service.catalog import assess
from tests.deployment.system import Deployment, Run
from tests.e2e import audit
from tests.e2e.stage import EXAMPLES, Stage, as_str_list

pytestmark = pytest.mark.distributed

NIGHTLY = "compliance_nightly_ingestion"
WHOLE_NIGHT = "compliance_nightly_compliance"
REVIEW = "compliance_assess_and_review"
REASSESS = "compliance_reassess_on_framework_change"


@pytest.fixture(scope="session")
def runs(deployment: Deployment, stage: Stage) -> dict[str, Run]:
    """A run of each example that a person starts; all at the same time."""
    page = next(iter(stage.pages))
    begun = {
        "compliance_first_steps": {"url": page},
        "compliance_first_text": {},
        "compliance_content_to_object_storage": {},
        "compliance_mapped_submit": {},
        "compliance_submit_and_wait": {"url": page},
        REVIEW: {},
    }
    return {dag_id: deployment.trigger(dag_id, **conf) for dag_id, conf in begun.items()}


def succeeded(run: Run) -> Run:
    assert run.wait_for_end()["state"] == "success", run.deployment.tails()
    return run


def first_run(deployment: Deployment, dag_id: str) -> Run:
    """Wait for a run that starts by itself."""
    deployment.wait_for_dag(dag_id)
    return deployment.wait_for(lambda: deployment.runs(dag_id), f"a run of {dag_id}")[0]


def status_of(stage: Stage, uuid: str) -> Any:
    return stage.service.job(uuid)["status"]


def checked_results(run: Run, stage: Stage) -> list[str]:
    """Compare the stored results of assessments with those at the service; return where they are."""
    assessments = {each["uuid"]: each for each in stage.service.assessments()}
    uris = [run.returned("results", index) for index in range(len(stage.contracts))]
    for index, uri in enumerate(uris):
        assessment = assessments[run.returned("assess", index)]
        assert assessment["payload"]["framework"] == "DORA"
        stored = json.loads(stage.read(uri))["results"]
        # The service may say more than it has to.
        assert all(one.items() <= two.items() for one, two in zip(assessment["results"], stored, strict=True))
    return uris


def test_airflow_knows_every_example(deployment: Deployment, runs: dict[str, Run]) -> None:
    shipped = {runpy.run_path(str(path))["made"].dag_id for path in EXAMPLES.glob("*.py")}
    for dag_id in shipped:
        deployment.wait_for_dag(dag_id)
    assert not deployment.call("GET", "importErrors")["import_errors"]
    # Those that no other test of this file has a name for would be forgotten.
    by_themselves = {NIGHTLY, WHOLE_NIGHT, "compliance_new_texts", "compliance_refresh_stale", REASSESS}
    assert shipped == runs.keys() | by_themselves


def test_first_steps(runs: dict[str, Run], stage: Stage) -> None:
    run = succeeded(runs["compliance_first_steps"])
    assert run.returned("get_status") in ("PENDING", "RUNNING", "COMPLETED")
    assert status_of(stage, run.returned("submit"))


def test_first_text(runs: dict[str, Run], stage: Stage) -> None:
    (uri,) = succeeded(runs["compliance_first_text"]).returned("store")
    assert stage.read(uri).decode() == next(iter(stage.contracts.values()))


def test_submit_and_wait(runs: dict[str, Run], stage: Stage) -> None:
    run = succeeded(runs["compliance_submit_and_wait"])
    uuids = [run.returned("submit_file"), run.returned("submit_url")]
    assert [status_of(stage, uuid) for uuid in uuids] == ["COMPLETED"] * 2
    expected = [next(iter(stage.contracts.values())), next(iter(stage.pages.values()))]
    assert [stage.service.text(uuid) for uuid in uuids] == expected


def test_mapped_submit_and_then_a_refresh(runs: dict[str, Run], deployment: Deployment, stage: Stage) -> None:
    run = succeeded(runs["compliance_mapped_submit"])
    jobs = run.returned("wait")
    assert {job["source_url"]: job["status"] for job in jobs} == dict.fromkeys(stage.pages, "COMPLETED")
    uuids = [job["uuid"] for job in jobs]
    before = [stage.service.job(uuid)["fetched"] for uuid in uuids]

    again = deployment.trigger("compliance_refresh_stale", uuids=uuids, max_age_days=0)
    succeeded(again)
    assert [task["state"] for task in again.tasks("refresh")] == ["success"] * len(uuids)
    assert all(stage.service.job(uuid)["fetched"] > then for uuid, then in zip(uuids, before, strict=True))
    assert {status_of(stage, uuid) for uuid in uuids} == {"COMPLETED"}


def test_content_to_object_storage(runs: dict[str, Run], stage: Stage) -> None:
    run = succeeded(runs["compliance_content_to_object_storage"])
    written = run.returned("store")
    assert [stage.read(uri).decode() for uri in written] == list(stage.pages.values())
    assert len(stage.keys("pages/")) == len(stage.pages)


def test_the_schedule_runs_the_nightly_job(deployment: Deployment, stage: Stage) -> None:
    run = succeeded(first_run(deployment, NIGHTLY))
    good = as_str_list(stage.nightly)
    bad = len(stage.nightly) - len(good)
    closed = run.returned("close")
    assert (closed["completed"], closed["failed"], closed["skipped"]) == (len(good), bad, 0)
    check_evidence(stage, closed)
    assert len(audit.manifests(stage, "nightly/")) == len(run.tasks("ingest")) == 2
    (night,) = {key.split("/")[1] for key in stage.keys("nightly/dt=")}
    assert audit.problems(stage, f"nightly/{night}/", stage.nightly) == []
    reports = [key for key in stage.keys("nightly/") if key.endswith("/report.html")]
    assert len(reports) == 2
    assert all(b"</html>" in stage.read(key) for key in reports)

    def counted() -> bool:
        after = deployment.runs("compliance_new_texts")
        ended = [each for each in after if each.wait_for_end()["state"] == "success"]
        return bool(sum(each.returned("count_new") for each in ended) == len(good))

    deployment.wait_for(counted, "the DAG that counts new texts")


def check_evidence(stage: Stage, closed: dict[str, Any]) -> None:
    """Check the hash of all that a closed night refers to."""
    record = json.loads(stage.read(closed["night"]))
    assert hashlib.sha256(stage.read(closed["night"])).hexdigest() == closed["sha256"]
    assert record["missing"] == []
    root = closed["night"].partition("_evidence/nights/")[0]
    report = stage.read(root + record["report"]["path"])
    assert hashlib.sha256(report).hexdigest() == record["report"]["sha256"]
    for table in record["manifests"]:
        lines = iter(stage.read(root + table["path"]).splitlines(keepends=True))
        salts = stage.read(root + table["salts"]).splitlines(keepends=True)
        digests = stage.read(f"{root}_evidence/digests/{table['digests']}.txt").decode().splitlines()
        for salt, (digest, count) in zip(salts, map(str.split, digests), strict=True):
            block = b"".join([salt, *islice(lines, int(count))])
            assert hashlib.sha256(block).hexdigest() == digest, table["path"]


def test_the_schedule_runs_a_whole_night(deployment: Deployment, stage: Stage) -> None:
    run = succeeded(first_run(deployment, WHOLE_NIGHT))
    good, result = as_str_list(stage.nightly), run.returned("night.shard.assess", 0)
    criteria = [
        (framework["codeName"], criterion)
        for framework in stage.service.frameworks()
        for criterion in framework["criteria"]
    ]
    names = {framework for framework, _ in criteria}
    assert (result["assessed"], result["carried"], result["failed"]) == (len(good) * len(names), 0, 0)
    cells = {(row["source"], row["framework"], row["status"]) for row in stage.rows(result["assessments"])}
    assert cells == {(source, name, "COMPLETED") for source in good for name in names}
    found = {
        (each["source"], each["framework"], each["criterion"]): (each["category"], each["rationale"])
        for each in stage.rows(result["findings"])
    }
    assert found == {
        (source, framework, criterion["codeName"]): assess(text, criterion)
        for source, text in good.items()
        for framework, criterion in criteria
    }
    assert b"</html>" in stage.read(result["report"])
    assert run.returned("night.group_findings") == []  # nothing has changed in a first night: no one is asked
    closed = run.returned("night.close")
    assert (closed["documents"], closed["completed"]) == (len(stage.nightly), len(good))
    assert (closed["assessed"], sum(closed["categories"].values())) == (len(cells), len(found))
    check_evidence(stage, closed)
    assert run.returned("night.close_reviewed") == closed  # there were no decisions to add


def test_an_expert_s_review_arrives_once(runs: dict[str, Run], stage: Stage) -> None:
    run = runs[REVIEW]
    run.wait_for("awaiting_input", "review", count=len(stage.contracts))
    results = checked_results(run, stage)
    assert audit.problems(stage, f"assessed/{run.run_id}/", stage.contracts, results) == []
    expected = []
    for task in sorted(run.tasks("review"), key=lambda each: int(each["map_index"])):
        path = f"{run.path}/taskInstances/review/{task['map_index']}/hitlDetails"
        fields = run.deployment.call("GET", path)["params"]
        number = next(name for name in fields if name.startswith("category_")).removeprefix("category_")
        answer = {f"category_{number}": "MISSING", f"rationale_{number}": f"Not at all, {number}."}
        body = {"chosen_options": ["Send feedback"], "params_input": answer}
        run.deployment.call("PATCH", path, body)
        expected.append((int(number), "MISSING", f"Not at all, {number}."))
    succeeded(run)

    run.clear("review")  # everything is done, and nothing is asked or sent again
    run.wait_for("success", "review", count=len(expected), tries=2)
    names = ("assessmentResponseId", "categoryFeedback", "rationalFeedback")
    sent = [tuple(each[name] for name in names) for each in stage.service.feedback()]
    assert sorted(sent) == sorted(expected)


def test_a_change_of_the_frameworks_has_documents_assessed_again_once(
    runs: dict[str, Run], deployment: Deployment, stage: Stage
) -> None:
    service = stage.service
    runs[REVIEW].wait_for("success", "review", count=len(stage.contracts))
    succeeded(first_run(deployment, WHOLE_NIGHT))  # else its assessments were among the new ones

    def look(times: int) -> None:
        before = service.count("list_frameworks", 200)
        deployment.wait_for(lambda: service.count("list_frameworks", 200) >= before + times, "looks")

    look(3)
    assert not deployment.runs(REASSESS)
    known = len(service.assessments())
    criterion = {"name": "Register", "codeName": "NIS2-21", "keywords": ["register"]}
    service.set_frameworks(
        [*service.frameworks(), {"id": 77, "codeName": "NIS2", "name": "NIS 2", "criteria": [criterion]}]
    )
    run = succeeded(first_run(deployment, REASSESS))
    look(3)
    assert len(deployment.runs(REASSESS)) == 1
    new = service.assessments()[: len(service.assessments()) - known]
    uuids = {row["uuid"] for name in audit.manifests(stage, "assessed/") for row in stage.rows(name)}
    assert {each["payload"]["contentUuid"] for each in new} == uuids
    assert [each["payload"]["frameworkId"] for each in new] == ["77"] * len(stage.contracts)
    assert len(stage.keys(f"reassessed/{run.run_id}/")) == len(stage.contracts)
