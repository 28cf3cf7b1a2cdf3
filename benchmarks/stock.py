"""100 documents with stock parts, a few tasks for each, and with one ComplianceIngestOperator.

`python -m benchmarks.stock`, or with `--documents 10` for a quick look. Both run on the same deployment, one
after the other, against the same emulator in a process of its own (jobs of 2 s, 20 ms added to each answer).
The deployment has two Celery workers where PostgreSQL and Redis are installed, else LocalExecutor on SQLite.

The stock side is in `benchmarks/nightly/stock.py`: a mapped group of HttpOperator, HttpSensor and a task that
writes the text, each with a token of its own. It writes nothing down, tries nothing again, and keeps no
manifest.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.distributed import DAGS, distributed, moment, usage
from benchmarks.service import Service, page, text_of
from tests.deployment.servers import missing
from tests.deployment.system import Deployment, Run

TIMEOUT_SECONDS = 1800.0


@dataclass
class Result:
    """What one side took."""

    seconds: float
    requests: int
    logins: int
    instances: int
    cpu: float


def main(arguments: Sequence[str] = ()) -> int:
    """Measure both sides and print them."""
    parser = argparse.ArgumentParser(description="Stock parts and ours, side by side")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--workers", type=int, default=0 if missing() else 2, help="0 is LocalExecutor")
    options = parser.parse_args(arguments)
    urls = [page(number) for number in range(options.documents)]
    with Service(jobs="seconds:2", latency=0.02) as service:
        settings = {"AIRFLOW_CONN_HTTP_DEFAULT": _http_connection(service)}
        with distributed(DAGS, service, options.workers, settings) as deployment:
            for dag_id in ("ours", "stock"):
                _measure(deployment, service, dag_id, urls[:2])  # the first tasks of a worker take longer
            ours = _measure(deployment, service, "ours", urls)
            theirs = _measure(deployment, service, "stock", urls)
    print(f"{options.documents} documents, {where(options.workers)}")
    show(ours, theirs, "stock parts")
    return 0


def where(workers: int) -> str:
    """Name the deployment."""
    return f"{workers} Celery workers" if workers else "LocalExecutor on SQLite"


def show(ours: Result, theirs: Result, name: str) -> None:
    """Print both sides.

    :param name: of the other side
    """
    print(f"{'':<28}{'ours':>12}{name:>18}{'ratio':>10}")
    for label, field in (
        ("wall time, s", "seconds"),
        ("requests", "requests"),
        ("logins", "logins"),
        ("task instances", "instances"),
        ("CPU of Airflow, s", "cpu"),
    ):
        one, other = getattr(ours, field), getattr(theirs, field)
        ratio = f"{other / one:.1f}x" if one else ""
        print(f"{label:<28}{one:>12.6g}{other:>18.6g}{ratio:>10}")


def _measure(deployment: Deployment, service: Service, dag_id: str, urls: list[str]) -> Result:
    service.reset()
    with tempfile.TemporaryDirectory(prefix="texts-") as folder:
        result = measure_run(deployment, service, dag_id, urls=urls, folder=f"{folder}/")
        written = sorted(each.read_text() for each in Path(folder).glob("*.txt"))
        assert written == sorted(map(text_of, urls)), f"{dag_id}: {len(written)} texts"
    return result


def measure_run(deployment: Deployment, service: Service, dag_id: str, **conf: Any) -> Result:
    """Run a DAG to its end."""
    before, cpu = service.counters(), sum(usage(deployment).values())
    run = deployment.trigger(dag_id, **conf)
    ended = run.wait_for_end(TIMEOUT_SECONDS)
    used = sum(usage(deployment).values()) - cpu
    assert ended["state"] == "success", f"{dag_id}: {ended['state']}{deployment.tails()}"
    requests, logins = (service.counters()[name] - before[name] for name in ("total", "logins"))
    seconds = moment(ended["end_date"]) - moment(ended["start_date"])
    return Result(seconds, requests, logins, _instances(run), used)


def _instances(run: Run) -> int:
    path = f"{run.path}/taskInstances"
    return int(run.deployment.call("GET", path, limit=1)["total_entries"])


def _http_connection(service: Service) -> str:
    """Return a connection for the stock parts, which have no fields for a token endpoint."""
    it: dict[str, Any] = service.connection
    form = {"grant_type": "password", "username": it["login"], "password": it["password"]}
    form |= {name: it["extra"][name] for name in ("client_id", "client_secret")}
    secret = json.dumps({"token_url": it["extra"]["token_url"], "form": form})
    return json.dumps({"conn_type": "http", "host": it["host"], "password": secret})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
