"""Assess documents again when a framework changes: Airflow watches the catalog of frameworks.

The documents are those that the DAG of assess_and_review.py has ingested. Only frameworks that were added or
changed are assessed again. Needs Airflow 3.0 or newer, for asset watchers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetWatcher, dag, task

from airflow_provider.operators.assessment import (
    ComplianceGetAssessmentResultsOperator,
    ComplianceSubmitAssessmentOperator,
)
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor
from airflow_provider.triggers.framework import ComplianceFrameworkChangeTrigger

POLL = float(os.environ.get("COMPLIANCE_WATCH_SECONDS", "300"))
FRAMEWORKS = Asset(
    "compliance-frameworks",
    watchers=[AssetWatcher(name="catalog", trigger=ComplianceFrameworkChangeTrigger(poll_interval=POLL))],
)
FOLDER = f"file://{Path.home()}/compliance"  # or a bucket, such as s3://my_aws@compliance
# An environment variable such as COMPLIANCE_ASSESSED overrides one for all runs, the params for one run.
PLACES = {
    "assessed": f"{FOLDER}/assessed/",  # contains manifests, at any depth
    "reassessed": f"{FOLDER}/reassessed/",
}


@dag(
    schedule=[FRAMEWORKS],
    catchup=False,
    default_args={"retries": 2},
    tags=["compliance"],
    params={name: os.environ.get(f"COMPLIANCE_{name.upper()}", place) for name, place in PLACES.items()},
    doc_md=__doc__,
)
def compliance_reassess_on_framework_change() -> None:
    """Submit many assessments, wait for all in one sensor, and store the results."""

    @task
    def make_payloads(**context: Any) -> list[dict[str, Any]]:
        """Build one assessment payload per document and new or changed framework."""
        import json
        import logging

        from airflow.sdk import ObjectStoragePath

        from airflow_provider.hooks.compliance import ComplianceHook

        log, changed = logging.getLogger("airflow.task"), set()
        for events in context["triggering_asset_events"].values():
            for event in events:
                log.info("%s", event.extra["payload"]["summary"])
                changed |= set(event.extra["payload"]["framework_ids"])
        # Without removed frameworks.
        ids = [framework.id for framework in ComplianceHook().list_frameworks() if framework.id in changed]
        uuids: dict[str, str] = {}  # by source: what was ingested twice is assessed once
        for manifest in ObjectStoragePath(context["params"]["assessed"]).glob("**/manifest.jsonl"):
            rows = map(json.loads, manifest.read_text().splitlines())
            uuids |= {row["source"]: row["uuid"] for row in rows if row["status"] == "COMPLETED"}
        return [{"contentUuid": uuid, "frameworkId": one} for uuid in uuids.values() for one in ids]

    payloads: Any = make_payloads()
    submit = ComplianceSubmitAssessmentOperator.partial(task_id="submit").expand(payload=payloads)
    wait = ComplianceAssessmentSensor(task_id="wait", assessment_id=submit.output, deferrable=True)
    results = ComplianceGetAssessmentResultsOperator.partial(
        task_id="results", destination="{{ params.reassessed }}{{ run_id }}/"
    ).expand(assessment_id=submit.output)
    wait >> results


made = compliance_reassess_on_framework_change()
