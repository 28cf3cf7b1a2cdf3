"""Submit many pages with dynamic task mapping, and wait for all of them in one task."""

from __future__ import annotations

import os

from airflow.providers.common.compat.sdk import dag

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.sensors.content import ComplianceContentSensor

# The environment variable overrides them; separate URLs by spaces.
PAGES = os.environ.get("COMPLIANCE_WEB_PAGES", "https://example.com/privacy-policy https://example.com/terms")


@dag(schedule=None, tags=["compliance"], doc_md=__doc__)
def compliance_mapped_submit() -> None:
    """Each mapped task is named after its URL; the sensor polls all jobs in one request."""
    pages = ComplianceSubmitUrlOperator.partial(task_id="submit", retries=2).expand(url=PAGES.split())
    ComplianceContentSensor(task_id="wait", uuid=pages.output, deferrable=True, timeout=3600)


made = compliance_mapped_submit()
