"""Links from a task to its job at the service."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

JOB_URL = "compliance_job_url"

REPORT_URL = "compliance_report_url"


class ComplianceJobLink(BaseOperatorLink):
    """Leads to the job, where the connection has the extra `console_url`."""

    name = "Job at the service"

    @property
    def xcom_key(self) -> str:
        """The XCom that holds the address; it is pushed before the task defers, so the link shows at once."""
        return JOB_URL

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or nothing where there is none."""
        key = getattr(ti_key, "key", ti_key)
        return str(XCom.get_value(ti_key=key, key=JOB_URL) or "")


class ComplianceReportLink(BaseOperatorLink):
    """Leads to the report of an ingest."""

    name = "Report of the ingest"

    @property
    def xcom_key(self) -> str:
        """The XCom that holds the address."""
        return REPORT_URL

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or nothing where there is none."""
        key = getattr(ti_key, "key", ti_key)
        return str(XCom.get_value(ti_key=key, key=REPORT_URL) or "")
