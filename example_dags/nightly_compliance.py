"""A whole night: ingest documents, assess them, close the night, and have experts review what changed.

Only what changed costs anything: unchanged documents are not submitted again, and their verdicts are carried
forward. When experts have answered, the night is closed again, with their decisions (Airflow 3.1 and newer).
"""

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG

from airflow_provider.night import compliance_night

FOLDER = f"file://{Path.home()}/compliance"  # or a bucket, such as s3://my_aws@compliance
# Environment variables override them; separate sources by spaces.
SOURCES = os.environ.get("COMPLIANCE_SOURCES", f"{FOLDER}/documents/").split()
NIGHTS = os.environ.get("COMPLIANCE_NIGHTS", f"{FOLDER}/nights/")

with DAG(
    "compliance_nightly_compliance",
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["compliance"],
    doc_md=__doc__,
) as made:
    compliance_night(sources=SOURCES, destination=NIGHTS)
