"""Extract the texts of a few web pages and put them into S3, one object for each page."""

from __future__ import annotations

import os

from airflow.providers.common.compat.sdk import Asset, dag

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator

# The environment variable sets others, with blanks between them.
PAGES = os.environ.get("COMPLIANCE_WEB_PAGES", "https://example.com/imprint https://example.com/privacy")
TEXTS = Asset("s3://compliance-texts/pages")


@dag(
    schedule=None,
    tags=["compliance"],
    params={"destination": "s3://my_aws@compliance-texts/pages/"},
    doc_md=__doc__,
)
def compliance_content_to_s3() -> None:
    """Submit all pages, then wait for them and write their texts in one task."""
    pages = ComplianceSubmitUrlOperator.partial(task_id="submit", retries=2).expand(url=PAGES.split())
    ComplianceContentToObjectStorageOperator(
        task_id="store",
        uuid=pages.output,
        destination="{{ params.destination }}",
        file_name_template="{source_stem}/{uuid}.txt.gz",
        compression="gzip",
        wait_for_completion=True,
        deferrable=True,
        outlets=[TEXTS],
        retries=2,
    )


made = compliance_content_to_s3()
