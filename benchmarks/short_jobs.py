"""100 web pages whose jobs take 0.2 s, through ComplianceIngestOperator and through a bare script.

`python -m benchmarks.short_jobs`, made like `benchmarks.ingest`. The script knows that jobs are short: it
polls all of them every 0.1 s. What counts beside the times is how long after that the operator is done.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import ingest
from benchmarks.comparison import Result, judge, measure, run_process, show, task_environment
from benchmarks.service import Service

PAGES, CONCURRENCY, ROUNDS = 100, 16, 3
JOBS, LATENCY = "seconds:0.2", 0.02
POLL_SECONDS = 0.1  # of the script
REQUESTS = 2.2
WAYS = {"operator": "operator", "bare": "bare script"}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="Short jobs beside a bare script")
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    best: dict[str, Result] = {}
    with (
        Service(jobs=JOBS, latency=LATENCY, access_lifetime=3600) as service,
        task_environment(service) as environment,
    ):
        for _ in range(options.rounds):
            for way in WAYS:
                service.reset()
                with tempfile.TemporaryDirectory(prefix="texts-") as folder:
                    result = run_process(
                        service, environment, "benchmarks.short_jobs", f"_{way}", options.pages, f"{folder}/"
                    )
                    ingest._check(Path(folder), options.pages)
                best[way] = min(best.get(way, result), result, key=lambda each: each.seconds)
    show(WAYS, best, options.pages, "document")
    ours, bare = best["operator"], best["bare"]
    waited, requests = ours.seconds - ours.cpu, ours.requests / options.pages
    print(
        f"{ours.seconds - bare.seconds:.2f} s more than the script; the operator was idle for {waited:.2f} s"
    )
    return 0 if judge({f"{requests:.3f} requests per document": requests <= REQUESTS}) else 1


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("_"):
        ingest.POLL_SECONDS = POLL_SECONDS
        measure(ingest.prepare(sys.argv[1][1:], int(sys.argv[2]), CONCURRENCY, sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1:]))
