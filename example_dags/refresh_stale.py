"""Refresh pages whose text is stale."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from airflow_provider.operators.content import ComplianceRefreshContentOperator

# The environment variable overrides them for all runs, the params for one run; separate uuids by spaces.
JOBS = os.environ.get("COMPLIANCE_JOBS", "00000000-0000-0000-0000-000000000000")


@dag(
    schedule="@weekly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["compliance"],
    params={"uuids": JOBS.split(), "max_age_days": 7},
    doc_md=__doc__,
)
def compliance_refresh_stale() -> None:
    """Get all jobs in one request, then refresh those that were fetched too long ago."""

    @task
    def find_stale(**context: Any) -> list[str]:
        from airflow_provider.hooks.compliance import ComplianceHook

        params = context["params"]
        limit = datetime.now(UTC) - timedelta(days=params["max_age_days"])
        jobs = ComplianceHook().get_statuses(params["uuids"])
        return [uuid for uuid, job in jobs.items() if job.fetched_at is not None and job.fetched_at < limit]

    ComplianceRefreshContentOperator.partial(
        task_id="refresh", wait_for_completion=True, deferrable=True, retries=2
    ).expand(uuid=find_stale())


made = compliance_refresh_stale()
