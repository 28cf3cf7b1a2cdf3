"""Links from a task to what it is about, elsewhere."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

JOB_URL = "compliance_job_url"

REPORT_URL = "compliance_report_url"


class PushedLink(BaseOperatorLink):
    """Leads to the address that the task has pushed to XCom as `xcom_key`, which each link names."""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or nothing where there is none."""
        key = getattr(ti_key, "key", ti_key)
        return str(XCom.get_value(ti_key=key, key=self.xcom_key) or "")


class ComplianceJobLink(PushedLink):
    """Leads to the job, where the connection has the extra `console_url`."""

    name = "Job at the service"
    xcom_key = JOB_URL  # pushed before the task defers, so the link shows at once


class ComplianceReportLink(PushedLink):
    """Leads to the report of an ingest."""

    name = "Report of the ingest"
    xcom_key = REPORT_URL
