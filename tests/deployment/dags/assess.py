"""A DAG that assesses documents; which ones, and where verdicts go, comes with the run."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, Asset

from airflow_provider.operators.assess import ComplianceAssessOperator

VERDICTS = Asset("s3://compliance-verdicts/nightly")

with DAG("assess_documents", schedule=None):
    ComplianceAssessOperator(
        task_id="assess",
        documents="{{ dag_run.conf['documents'] | tojson }}",
        frameworks="{{ dag_run.conf['frameworks'] | tojson }}",
        destination="{{ dag_run.conf['destination'] }}",
        deferrable=True,
        poll_interval=2,
        retries=0,
        outlets=[VERDICTS],
    )
