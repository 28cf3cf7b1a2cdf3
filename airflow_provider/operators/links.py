"""Links from a task to pages outside of Airflow."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

JOB_URL = "compliance_job_url"

REPORT_URL = "compliance_report_url"


class PushedLink(BaseOperatorLink):
    """Links to the URL that the task has pushed to XCom as `xcom_key`."""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the URL; empty if there is none."""
        key = getattr(ti_key, "key", ti_key)
        return str(XCom.get_value(ti_key=key, key=self.xcom_key) or "")


class ComplianceJobLink(PushedLink):
    """Links to the job or assessment, if the connection has the extra (`assessment_`)`console_url`."""

    name = "Job at the service"
    xcom_key = JOB_URL  # pushed before the task defers, so the link shows at once


class ComplianceReportLink(PushedLink):
    """Links to the report of an ingestion."""

    name = "Ingestion report"
    xcom_key = REPORT_URL
