"""A bulk assessment in a real deployment: deferred, with the link to its report and an asset event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deployment.conftest import Service
from tests.deployment.system import Deployment

pytestmark = pytest.mark.deployment

TEXTS = {"in/exit.pdf": "An exit plan with a transition period.", "in/empty.pdf": "Nothing of interest."}
REPORTS = "https://reports.example.com/nightly/"


def test_documents_are_assessed_while_the_task_is_deferred(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    documents = [
        {"source": source, "uuid": service.add_job(text=text, status="COMPLETED"), "status": "COMPLETED"}
        for source, text in TEXTS.items()
    ]
    run = deployment.trigger(
        "assess_documents",
        documents=documents,
        frameworks=["DORA", "GDPR"],
        destination=f"file://{tmp_path}/dt=2026-03-01/",
    )
    run.wait_for("deferred", "assess")
    assert service.count("submit_assessment") == 4
    for each in service.assessments():
        service.set_assessment(each["uuid"], status="COMPLETED")

    assert run.wait_for_end()["state"] == "success"
    result = run.returned("assess")
    assert (result["assessed"], result["carried"], result["failed"]) == (4, 0, 0)
    assert result["categories"]["DORA"]["MISSING"] >= 6
    findings = Path(result["findings"].removeprefix("file://")).read_text().splitlines()
    exits = {
        row["source"]: row["category"]
        for row in map(json.loads, findings)
        if row["criterion"] == "DORA-30-3-f"
    }
    assert exits == {"in/exit.pdf": "SUFFICIENTLY_REGULATED", "in/empty.pdf": "MISSING"}
    assert service.count("submit_assessment") == service.count("get_assessment_results") == 4

    links = deployment.call("GET", f"{run.path}/taskInstances/assess/links")["extra_links"]
    assert links["View report"].startswith(REPORTS)
    assert links["View report"].endswith("/report.html")
    query = {"source_dag_id": run.dag_id, "source_run_id": run.run_id}
    (event,) = deployment.call("GET", "assets/events", **query)["asset_events"]
    assert event["extra"] == {**result, "destination": f"file://{tmp_path}/dt=2026-03-01/"}
