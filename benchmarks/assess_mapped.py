"""100 documents x 1 framework with mapped operators, three tasks each, and with one ComplianceAssessOperator.

`python -m benchmarks.assess_mapped`, or with `--documents 10` for a quick look. Both run on the same
deployment, one after the other, against the same emulator in a process of its own (assessments of 2 s, 20 ms
added to each answer). The deployment has two Celery workers where PostgreSQL and Redis are installed, else
LocalExecutor on SQLite.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scaling import DAGS, distributed
from benchmarks.service import Service
from benchmarks.stock import Result, measure_run, show, where
from tests.deployment.servers import missing
from tests.deployment.system import Deployment

FRAMEWORK = "DORA"


def main(arguments: Sequence[str] = ()) -> int:
    """Measure both sides and print them."""
    parser = argparse.ArgumentParser(description="Mapped operators and the bulk operator, side by side")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--workers", type=int, default=0 if missing() else 2, help="0 is LocalExecutor")
    parser.add_argument("--share-tokens", action="store_true", help="one login for all task processes")
    options = parser.parse_args(arguments)
    settings = {"AIRFLOW__COMPLIANCE__SHARE_TOKENS": str(options.share_tokens)}
    with (
        Service(jobs="seconds:2", latency=0.02) as service,
        distributed(DAGS, service, options.workers, settings) as (deployment, _),
    ):
        uuids = [
            service.control("POST", "jobs", text=f"Text {number} with an exit plan.", status="COMPLETED")
            for number in range(options.documents)
        ]
        for dag_id in ("assess_bulk", "assess_mapped"):
            _measure(deployment, service, dag_id, uuids[:2])  # the first tasks of a worker take longer
        ours = _measure(deployment, service, "assess_bulk", uuids)
        theirs = _measure(deployment, service, "assess_mapped", uuids)
    print(f"{options.documents} documents x 1 framework, {where(options.workers)}")
    show(ours, theirs, "mapped operators")
    return 0


def _measure(deployment: Deployment, service: Service, dag_id: str, uuids: list[str]) -> Result:
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        result = measure_run(
            deployment, service, dag_id, uuids=uuids, framework=FRAMEWORK, folder=f"{folder}/"
        )
        results = [json.loads(each.read_text())["results"] for each in Path(folder).glob("results/*.json")]
        assert len(results) == len(uuids), f"{dag_id}: {len(results)} results"
        assert all(results), dag_id
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
