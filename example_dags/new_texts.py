"""Downstream of bulk ingestion: runs once for each night that is closed, and knows which texts are new."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.providers.common.compat.sdk import Asset, dag, task

TEXTS = Asset("compliance-texts")


@dag(
    schedule=[TEXTS],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["compliance"],
    doc_md=__doc__,
)
def compliance_new_texts() -> None:
    """Read the manifests of the nights that the asset events refer to."""

    @task
    def count_new(**context: Any) -> int:
        """Count the texts that were written, not those of unchanged documents."""
        import json
        import logging

        from airflow.providers.common.compat.sdk import ObjectStoragePath

        # Airflow 2.11 has the second name.
        events = context.get("triggering_asset_events") or context.get("triggering_dataset_events") or {}
        nights = [
            event.extra["night"] for many in events.values() for event in many if "night" in event.extra
        ]
        manifests = [
            night.partition("_evidence/")[0] + manifest["path"]  # below the root
            for night in nights
            for manifest in json.loads(ObjectStoragePath(night).read_text())["manifests"]
            if manifest["kind"] == "ingest"
        ]
        new: list[str] = []
        for manifest in manifests:
            rows = [json.loads(line) for line in ObjectStoragePath(manifest).read_text().splitlines()]
            new += [row["path"] for row in rows if row["status"] == "COMPLETED"]
        log = logging.getLogger("airflow.task")
        log.info("%s new texts in %s manifests, such as %s", len(new), len(manifests), new[:3])
        return len(new)

    count_new()


made = compliance_new_texts()
