"""A run of a DAG on a distributed deployment: Celery workers, PostgreSQL, Redis, all on this machine.

`python -m benchmarks.scaling`, or with `--pages 20 --workers 1` for a quick look. Each page is a mapped,
deferrable task, so this is the dear way to process many documents.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow_provider.emulator import Emulator
from tests.deployment.servers import missing
from tests.deployment.system import Deployment, deployed

DAGS = Path(__file__).parents[1] / "tests" / "deployment" / "dags"
PATIENCE = 1800.0


@dataclass
class Result:
    """How a run went; all durations in seconds."""

    state: str
    seconds: float  # of the whole run
    first: float  # from its start until a first instance of the task was done
    states: dict[str, int]  # of the task's instances
    retried: int


@contextmanager
def distributed(
    dags: Path, service: Emulator, workers: int, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Deployment, float]]:
    """Run a deployment that talks to a service; gives it, and the seconds until it was healthy.

    :param dags: the DAGs folder
    :param settings: more of Airflow's settings, as environment variables
    """
    begin = time.monotonic()
    ours = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW_CONN_COMPLIANCE_DEFAULT": service.connection_json,
    }
    with (
        tempfile.TemporaryDirectory(prefix="scaling-") as home,
        deployed(Path(home), {**ours, **(settings or {})}, workers) as deployment,
    ):
        yield deployment, time.monotonic() - begin


def measure(deployment: Deployment, dag_id: str, task_id: str, **conf: Any) -> Result:
    """Run a DAG to its end and say how one of its tasks went."""
    run = deployment.trigger(dag_id, **conf)
    ended = run.wait_for_end(PATIENCE)
    tasks = run.tasks(task_id)
    begin = _moment(ended["start_date"])
    return Result(
        state=ended["state"],
        seconds=_moment(ended["end_date"]) - begin,
        first=min(_moment(task["end_date"]) for task in tasks) - begin,
        states=dict(Counter(str(task["state"]) for task in tasks)),
        retried=sum(task["try_number"] > 1 for task in tasks),
    )


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main(arguments: tuple[str, ...] = ()) -> int:
    """Submit many pages, one mapped task each, and print what that took."""
    parser = argparse.ArgumentParser(description="Mapped submits on Celery workers")
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--jobs", default="seconds:2", help="how the emulator's jobs advance")
    options = parser.parse_args(arguments)
    if reason := missing():
        print(reason)
        return 1
    with (
        Emulator(jobs=options.jobs) as service,
        distributed(DAGS, service, options.workers) as (deployment, start),
    ):
        urls = [f"{service.url}/?page={number}" for number in range(options.pages)]
        result = measure(deployment, "submit_many", "submit", urls=urls)
        counters = service.counters()
        submits = service.count("submit_url")
    print(f"{options.pages} pages, {options.workers} Celery workers, jobs of {options.jobs}")
    print(f"{'healthy after':<32}{start:>8.1f} s")
    print(f"{'run':<32}{result.seconds:>8.1f} s  {result.state}, {result.states}, {result.retried} retried")
    print(f"{'first page after':<32}{result.first:>8.1f} s")
    print(f"{'pages per second':<32}{options.pages / result.seconds:>8.2f}")
    print(f"{'requests':<32}{counters['total']:>8}    {submits} submits, {counters['logins']} logins")
    return 0 if result.state == "success" else 1


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
