"""100 documents with stock parts, a few tasks for each, and with one ComplianceIngestOperator.

`python -m benchmarks.stock`, or with `--documents 10` for a quick look. Both run on the same deployment, one
after the other, against the same service (jobs of 2 s, 20 ms added to each answer). The deployment has two
Celery workers where PostgreSQL and Redis are installed, else LocalExecutor on SQLite (`--workers 0`).

The stock side is in `benchmarks/nightly/stock.py`: a mapped group of HttpOperator, HttpSensor and a task that
writes the text, each with a token of its own. It writes nothing down, tries nothing again, and keeps no
manifest.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.distributed import distributed, duration, usage
from benchmarks.harness import Service, options, page, password_form, table, text_of
from tests.deployment.servers import missing
from tests.deployment.system import Deployment

TIMEOUT_SECONDS = 1800.0


def main(arguments: Sequence[str] = ()) -> int:
    """Measure both sides and print them."""
    chosen = options(arguments, __doc__, documents=100, workers=0 if missing() else 2)
    urls = [page(number) for number in range(chosen.documents)]
    with Service(jobs="seconds:2", latency=0.02) as service:
        settings = {"AIRFLOW_CONN_HTTP_DEFAULT": _http_connection(service)}
        with distributed(service, chosen.workers, settings) as deployment:
            for dag_id in ("ours", "stock"):
                _measure(deployment, service, dag_id, urls[:2])  # the first tasks of a worker take longer
            ours, theirs = (_measure(deployment, service, dag_id, urls) for dag_id in ("ours", "stock"))
    where = f"{chosen.workers} Celery workers" if chosen.workers else "LocalExecutor on SQLite"
    print(f"{chosen.documents} documents, {where}")
    ratio = {name: theirs[name] / (ours[name] or 1) for name in ours}
    table({"": "ours", **ours}, {"": "stock parts", **theirs}, {"": "ratio", **ratio})
    return 0


def _measure(deployment: Deployment, service: Service, dag_id: str, urls: list[str]) -> dict[str, float]:
    """Run a DAG to its end."""
    service.reset()
    before, cpu = service.counters(), usage(deployment).total()
    with tempfile.TemporaryDirectory(prefix="texts-") as folder:
        run = deployment.trigger(dag_id, urls=urls, folder=f"{folder}/")
        ended = run.wait_for_end(TIMEOUT_SECONDS)
        used = usage(deployment).total() - cpu
        assert ended["state"] == "success", f"{dag_id}: {ended['state']}{deployment.tails()}"
        written = sorted(each.read_text() for each in Path(folder).glob("*.txt"))
        assert written == sorted(map(text_of, urls)), f"{dag_id}: {len(written)} texts"
    requests, logins = (service.counters()[name] - before[name] for name in ("total", "logins"))
    tasks = deployment.call("GET", f"{run.path}/taskInstances", limit=1)["total_entries"]
    return {
        "s": duration(ended), "requests": requests, "logins": logins, "task instances": tasks,
        "CPU-s of Airflow": used,
    }  # fmt: skip


def _http_connection(service: Service) -> str:
    """Return a connection for the stock parts, which have no fields for a token endpoint."""
    it = service.connection
    secret = json.dumps({"token_url": it["extra"]["token_url"], "form": password_form(it)})
    return json.dumps({"conn_type": "http", "host": it["host"], "password": secret})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
