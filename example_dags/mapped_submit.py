"""Submit many pages, one mapped task each, and wait for all of them in one."""

from __future__ import annotations

import os

from airflow.providers.common.compat.sdk import dag

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.sensors.content import ComplianceContentSensor

# The environment variable sets others, with blanks between them.
PAGES = os.environ.get("COMPLIANCE_WEB_PAGES", "https://example.com/imprint https://example.com/privacy")


@dag(schedule=None, tags=["compliance"], doc_md=__doc__)
def compliance_mapped_submit() -> None:
    """Each mapped task bears the page's address; the sensor asks for all jobs in one request."""
    pages = ComplianceSubmitUrlOperator.partial(task_id="submit", retries=2).expand(url=PAGES.split())
    ComplianceContentSensor(task_id="wait", uuid=pages.output, deferrable=True, timeout=3600)


made = compliance_mapped_submit()
