"""A first text: submit a document, wait for its job, and write the text to a folder or a bucket."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import dag

from airflow_provider.operators.content import ComplianceSubmitFileOperator
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator


@dag(
    schedule=None,
    tags=["compliance"],
    params={
        "file": "s3://my_aws@documents/contract.pdf",  # or a path
        "texts": "s3://my_aws@compliance-texts/first/",  # or a folder; ends with a slash
    },
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
