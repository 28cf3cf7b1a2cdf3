"""Submit a web page and get the status of its job, with the hook alone."""

from __future__ import annotations

import os
from typing import Any

from airflow.providers.common.compat.sdk import dag, task

# The environment variable overrides it for all runs, the param for one run.
PAGES = os.environ.get("COMPLIANCE_WEB_PAGES", "https://example.com/privacy-policy")


@dag(schedule=None, tags=["compliance"], params={"url": PAGES.split()[0]}, doc_md=__doc__)
def compliance_first_steps() -> None:
    """Submit a web page, then get the status of its job."""

    @task
    def submit(**context: Any) -> str:
        from airflow_provider.hooks.compliance import ComplianceHook

        return ComplianceHook().submit_url(context["params"]["url"]).uuid

    @task
    def get_status(uuid: str) -> str:
        from airflow_provider.hooks.compliance import ComplianceHook

        return ComplianceHook().get_status(uuid).status

    get_status(submit())  # type: ignore[arg-type] # Airflow passes the value when the task runs


made = compliance_first_steps()
