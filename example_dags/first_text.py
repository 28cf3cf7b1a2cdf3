"""A first text: submit a document, wait for its job, and write the text to a folder or a bucket."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.providers.common.compat.sdk import dag

from airflow_provider.operators.content import ComplianceSubmitFileOperator
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator

FOLDER = f"file://{Path.home()}/compliance"  # or a bucket, such as s3://my_aws@compliance
# An environment variable such as COMPLIANCE_FILE overrides one for all runs, the params for one run.
PLACES = {
    "file": f"{FOLDER}/documents/exit-plan-001.pdf",
    "texts": f"{FOLDER}/texts/",  # ends with a slash
}


@dag(
    schedule=None,
    tags=["compliance"],
    params={name: os.environ.get(f"COMPLIANCE_{name.upper()}", place) for name, place in PLACES.items()},
    doc_md=__doc__,
)
def compliance_first_text() -> None:
    """Submit in one task; wait for the job and write the text in another."""
    submit = ComplianceSubmitFileOperator(task_id="submit", file="{{ params.file }}")
    ComplianceContentToObjectStorageOperator(
        task_id="store",
        uuid=submit.output,
        destination="{{ params.texts }}",
        file_name_template="{source_stem}.txt",
        wait_for_completion=True,
    )


made = compliance_first_text()
