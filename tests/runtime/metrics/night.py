"""One night in a process of its own: an ingest that defers, and an assessment of what it has ingested."""

from __future__ import annotations

import json
import sys

from airflow_provider.nights.bulk import backoff, engine
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from tests.support.attempts import Attempts

TIMEOUT_SECONDS = 60.0  # jobs finish when their gauge arrives: never, if Airflow sends no metrics


def main(sources: str, destination: str) -> None:
    """Run the night; write what its tasks return."""
    engine.IDLE_BEFORE_DEFER_SECONDS = 0.1
    backoff.FIRST_DELAY_SECONDS = 0.02
    ingest = ComplianceIngestOperator(
        task_id="ingest",
        sources=sources,
        destination=destination,
        poll_interval=1.0,
        timeout=TIMEOUT_SECONDS,
        max_failed=1.0,
        deferrable=True,
    )
    ingested = Attempts().run(ingest)
    assess = ComplianceAssessOperator(
        task_id="assess",
        documents=ingested,
        destination=destination,
        poll_interval=1.0,
        timeout=TIMEOUT_SECONDS,
    )
    sys.stdout.write(f"{json.dumps([ingested, Attempts().run(assess)])}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
