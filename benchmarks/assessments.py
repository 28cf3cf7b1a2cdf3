"""A real triggerer with 500 waiting assessments, each of them one status request per poll.

`python -m benchmarks.assessments`, or with `--assessments 50 --window 20` for a quick look. It takes three
minutes, and is made like `benchmarks.triggerer`: tokens live 20 seconds, and the lag of the event loop while
the triggers are picked up is held against that of as many triggers that only sleep.
"""

from __future__ import annotations

import argparse
import sys
import time

from airflow_provider.emulator import Emulator
from benchmarks.triggerer import POLL, Row, idle, judge, measure, measure_pickup, targets


def assessment(service: Emulator) -> Row:
    from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger

    uuid = service.add_assessment({})["uuid"]
    service.set_assessment(uuid, status="RUNNING")
    return ComplianceAssessmentTrigger("compliance_default", [uuid], POLL, time.time() + 86400).serialize()


def main(arguments: tuple[str, ...] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="500 assessments in a triggerer")
    parser.add_argument("--assessments", type=int, default=500)
    parser.add_argument("--window", type=float, default=60.0)
    options = parser.parse_args(arguments)
    count = options.assessments
    most = count * 60 / POLL
    print(f"{count} deferred assessments, one look every {POLL:g} s, {options.window:g} s measured")
    found = measure(assessment, count, options.window, lifetime=20)
    sleepers = measure_pickup(idle, count)
    for label, value in (
        ("status requests per minute", found.requests),
        ("as many as one per assessment and poll", most),
        ("logins", found.logins),
        ("renewals of tokens", found.renewals),
        ("CPU seconds per minute", found.cpu),
        ("memory of the triggerer, MiB", found.memory),
        ("worst lag, first one alone, s", found.lag_first),
        ("worst lag, all others picked up, s", found.lag_pickup),
        ("the same, triggers that only sleep", sleepers),
        ("worst lag, all waiting, s", found.lag),
        ("median of each second's worst, s", found.lag_median),
        ("worst lag, garbage collections too, s", found.lag_collecting),
    ):
        print(f"{label:<42}{value:>12.6g}")
    return judge(
        {"at most one request per assessment and poll": found.requests <= most * 1.05}
        | targets(found, sleepers)
    )


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
