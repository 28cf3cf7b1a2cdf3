"""A program that runs the DAG of the README while the service is away, from one moment after the other on.

Airflow's scheduler is `dag.test()`; pauses between attempts take a second, and those inside one even less.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.dag_test import prepare
from tests.support.night_runs import Nights, write_dag

ENDS_AFTER = 6  # attempts that begin, and polls that fail


class Outage:
    """Takes the service away before a call, once, and brings it back after some attempts and polls."""

    def __init__(self, service: Any) -> None:
        self.service = service
        self.left = ENDS_AFTER
        self.has_begun = False

    def before(self, owner: Any, name: str, do: Callable[[], None]) -> Any:
        """Do something before each call of a method."""
        method = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            do()
            return method(*args, **kwargs)

        return mock.patch.object(owner, name, call)

    def begin(self) -> None:
        """Take the service away."""
        if not self.has_begun:
            self.has_begun = True
            self.service.stop()
            self.service.configure(jobs="instant")

    def proceed(self) -> None:
        """Come nearer to the end."""
        self.left -= self.has_begun
        if self.has_begun and self.left == 0:
            self.service.start()


def run_outages(nights: Nights) -> None:
    """Run a night for each moment, with new texts."""
    from airflow_provider.nights.assess.steps import AssessSteps
    from airflow_provider.nights.ingest.documents import IngestSteps
    from airflow_provider.operators.assess import ComplianceAssessOperator
    from airflow_provider.operators.ingest import ComplianceIngestOperator
    from airflow_provider.waiting.rules import PollState

    begins_before = {
        "first login": (ComplianceIngestOperator, "_process"),
        "first submit": (IngestSteps, "submit"),
        "first poll": (PollState, "observe"),
        "first text": (IngestSteps, "fetch"),
        "assessment": (ComplianceAssessOperator, "_process"),
        "first result": (AssessSteps, "fetch"),
    }
    service = nights.service
    for day, (moment, place) in enumerate(begins_before.items(), 1):
        outage = Outage(service)
        jobs, assessments = len(service.jobs()), len(service.assessments())
        nights.write(*(f"Version {day} of text {number}." for number in range(4)))
        service.configure(jobs="manual" if moment == "first poll" else "instant")
        with (
            outage.before(ComplianceIngestOperator, "_process", outage.proceed),
            outage.before(ComplianceAssessOperator, "_process", outage.proceed),
            outage.before(PollState, "_observe_error", outage.proceed),
            outage.before(*place, outage.begin),
        ):
            nights.run(moment, day)
        nights.found[moment] |= {
            "jobs": len(service.jobs()) - jobs,
            "assessments": len(service.assessments()) - assessments,
        }


def main(folder: Path) -> None:
    path = folder / "dags" / "night.py"
    prepare(path.parent)
    from airflow_provider.emulator import Emulator
    from airflow_provider.nights.bulk import backoff, engine
    from airflow_provider.waiting import rules

    backoff.FIRST_DELAY_SECONDS, backoff.MAX_DELAY_SECONDS, backoff.OUTAGE_RETRY_SECONDS = 0.02, 0.1, 0.5
    engine.IDLE_BEFORE_DEFER_SECONDS, rules.MAX_OUTAGE_PAUSE_SECONDS = 0.5, 0.5
    with Emulator() as service:
        connection = service.connection()
        connection["extra"] |= {"max_retries": 0}
        os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"] = json.dumps(connection)
        base = f"file://{folder}/compliance"
        write_dag(path, base, "shard_size=2, retry_delay=0")
        nights = Nights(runpy.run_path(str(path))["dag"], base, service)
        run_outages(nights)
    (folder / "found.json").write_text(json.dumps(nights.found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
