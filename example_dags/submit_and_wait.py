"""Submit a document and a web page, and wait for both without occupying a worker."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.providers.common.compat.sdk import dag

from airflow_provider.operators.content import ComplianceSubmitFileOperator, ComplianceSubmitUrlOperator
from airflow_provider.sensors.content import ComplianceContentSensor

# The environment variables override them for all runs, the params for one run.
FILE = os.environ.get("COMPLIANCE_FILE", f"file://{Path.home()}/compliance/documents/exit-plan-001.pdf")
PAGES = os.environ.get("COMPLIANCE_WEB_PAGES", "https://example.com/privacy-policy")


@dag(
    schedule=None,
    tags=["compliance"],
    params={"file": FILE, "url": PAGES.split()[0]},
    doc_md=__doc__,
)
def compliance_submit_and_wait() -> None:
    """Submit a file and wait for it in one task; submit a page in another, and let a sensor wait."""
    ComplianceSubmitFileOperator(
        task_id="submit_file",
        file="{{ params.file }}",
        wait_for_completion=True,
        deferrable=True,
        retries=2,
    )
    page = ComplianceSubmitUrlOperator(task_id="submit_url", url="{{ params.url }}", retries=2)
    ComplianceContentSensor(task_id="wait", uuid=page.output, deferrable=True, timeout=3600)


made = compliance_submit_and_wait()
