"""Extract the texts of a few web pages and write them to object storage, one object per page."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.providers.common.compat.sdk import Asset, dag

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator

# The environment variable overrides them; separate URLs by spaces.
PAGES = os.environ.get("COMPLIANCE_WEB_PAGES", "https://example.com/privacy-policy https://example.com/terms")
# A folder, or a bucket such as s3://my_aws@compliance/pages/, with the Airflow connection `my_aws`.
DESTINATION = os.environ.get("COMPLIANCE_PAGE_TEXTS", f"file://{Path.home()}/compliance/pages/")
TEXTS = Asset("compliance-pages")


@dag(
    schedule=None,
    tags=["compliance"],
    params={"destination": DESTINATION},
    doc_md=__doc__,
)
def compliance_content_to_object_storage() -> None:
    """Submit each page in its own task, then wait for all and write their texts in one."""
    pages = ComplianceSubmitUrlOperator.partial(task_id="submit", retries=2).expand(url=PAGES.split())
    ComplianceContentToObjectStorageOperator(
        task_id="store",
        uuid=pages.output,
        destination="{{ params.destination }}",
        file_name_template="{source_stem}/{uuid}.txt.gz",  # written as gzip
        wait_for_completion=True,
        deferrable=True,
        outlets=[TEXTS],
        retries=2,
    )


made = compliance_content_to_object_storage()
