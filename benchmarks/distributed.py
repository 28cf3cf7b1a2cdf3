"""10,000 documents in 20 mapped shards on a distributed deployment: Celery workers, PostgreSQL, Redis.

`python -m benchmarks.distributed`, or with `--documents 1000 --shard 100` for a quick look. Everything is on
this machine, also the emulator, in a process of its own: the parts take the CPU from each other, so what
counts for a larger deployment is the CPU that each of them used. `--mapped` is the dear way instead, for
comparison: each document in a mapped, deferrable task of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from benchmarks.service import Service, page, text_of
from tests.deployment.processes import ROOT, members
from tests.deployment.servers import missing
from tests.deployment.system import Deployment, deployed

DAGS = Path(__file__).parent / "nightly"
MAPPED = ROOT / "tests" / "deployment" / "dags"
TIMEOUT_SECONDS = 3600.0
WORK = """
    SELECT xact_commit AS transactions, tup_inserted + tup_updated + tup_deleted AS rows,
        (SELECT coalesce(sum(length(value::text)), 0) FROM xcom) AS xcom
    FROM pg_stat_database WHERE datname = current_database()
"""
SERVERS = ("postgres", "redis-server")


@dataclass
class Result:
    """How a run went; all durations in seconds."""

    state: str
    seconds: float  # of the whole run
    first: float  # from its start until a first instance of the task was done
    states: dict[str, int]  # of the task's instances
    retried: int
    cpu: dict[str, float]  # of each part
    longest: float  # instance of the task
    shortest: float
    database: dict[str, int]  # what the run did to it, and how large the XComs are


@contextmanager
def distributed(
    dags: Path, service: Service, workers: int, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Deployment, float]]:
    """Run a deployment that talks to a service; gives it, and the seconds until it was healthy.

    :param dags: the DAGs folder
    :param settings: more of Airflow's settings, as environment variables
    """
    begin = time.monotonic()
    ours = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW_CONN_COMPLIANCE_DEFAULT": service.connection_json,
        "PYTHONPATH": str(ROOT),
    }
    with (
        tempfile.TemporaryDirectory(prefix="scaling-") as home,
        deployed(Path(home), {**ours, **(settings or {})}, workers) as deployment,
    ):
        yield deployment, time.monotonic() - begin


def measure(deployment: Deployment, dag_id: str, task_id: str, **conf: Any) -> Result:
    """Run a DAG to its end and say how one of its tasks went."""
    before, worked = usage(deployment), database(deployment)
    run = deployment.trigger(dag_id, **conf)
    ended = run.wait_for_end(TIMEOUT_SECONDS)
    after = usage(deployment)
    work = {name: number - worked[name] for name, number in database(deployment).items()}
    tasks = run.tasks(task_id)
    begin = moment(ended["start_date"])
    durations = [float(task["duration"] or 0) for task in tasks]
    return Result(
        state=ended["state"],
        seconds=moment(ended["end_date"]) - begin,
        first=min(moment(task["end_date"]) for task in tasks) - begin,
        states=dict(Counter(str(task["state"]) for task in tasks)),
        retried=sum(task["try_number"] > 1 for task in tasks),
        cpu={name: seconds - before.get(name, 0.0) for name, seconds in after.items()},
        longest=max(durations),
        shortest=min(durations),
        database=work,
    )


def database(deployment: Deployment) -> dict[str, int]:
    """Ask PostgreSQL what it has done so far."""
    engine = create_engine(deployment.database_url)
    time.sleep(2)  # its counters are a little late
    with engine.connect() as connection:
        row = connection.execute(text(WORK)).mappings().one()
    engine.dispose()
    return {name: int(value) for name, value in row.items()}


def usage(deployment: Deployment) -> dict[str, float]:
    """Return the CPU seconds of each part so far, with all its children, also those that have ended."""
    sessions = {name: part.pid for name, part in deployment.parts.items()} | _servers()
    return {name: sum(_cpu(pid) for pid, _ in members(session)) for name, session in sessions.items()}


def _servers() -> dict[str, int]:
    """Find database and broker among the children of this process."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            name, fields = (entry / "comm").read_text().strip(), (entry / "stat").read_text()
            if name in SERVERS and int(fields.rpartition(")")[2].split()[1]) == os.getpid():
                found[name] = int(entry.name)
    return found


def _cpu(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def moment(written: str) -> float:
    """Read a time of the REST API."""
    return datetime.fromisoformat(written).timestamp()


def main(arguments: Sequence[str] = ()) -> int:
    """Process many documents and print what that took."""
    parser = argparse.ArgumentParser(description="Many documents on Celery workers")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--shard", type=int, default=500, help="documents in one")
    parser.add_argument("--concurrency", type=int, default=16, help="of a shard")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--jobs", default="seconds:2", help="how the emulator's jobs advance")
    parser.add_argument("--latency", type=float, default=0.02, help="added to each answer")
    parser.add_argument("--lists", action="store_true", help="addresses in list files, not by XCom")
    parser.add_argument("--mapped", action="store_true", help="a task for each document instead of shards")
    options = parser.parse_args(arguments)
    if reason := missing():
        print(reason)
        return 1
    settings = {"BENCH_SHARD": str(options.shard), "BENCH_CONCURRENCY": str(options.concurrency)}
    with (
        Service(
            jobs=options.jobs,
            latency=options.latency,
        ) as service,
        tempfile.TemporaryDirectory(prefix="texts-") as folder,
        distributed(MAPPED if options.mapped else DAGS, service, options.workers, settings) as (
            deployment,
            start,
        ),
    ):
        before = service.cpu()
        if options.mapped:
            urls = [page(number) for number in range(options.documents)]
            result = measure(deployment, "submit_many", "submit", urls=urls)
        else:
            result = measure(
                deployment,
                "lists" if options.lists else "shards",
                "ingest",
                pages=options.documents,
                folder=f"{folder}/",
            )
            _check(Path(folder), options.documents)
        result.cpu["emulator"] = service.cpu() - before
        counters = service.counters()
    _show(options, start, result, counters)
    return 0 if result.state == "success" else 1


def _check(folder: Path, documents: int) -> None:
    """Count, and look at every hundredth."""
    found = {each.name[:6]: each for each in folder.glob("*.txt")}
    assert len(found) == documents, f"{len(found)} texts of {documents} documents"
    for number in range(0, documents, 100):
        assert found[f"{number:06}"].read_text() == text_of(page(number))


def _show(options: argparse.Namespace, start: float, result: Result, counters: dict[str, Any]) -> None:
    each = 1000 / options.documents  # from seconds in all to milliseconds per document
    print(f"{options.documents} documents, {options.workers} Celery workers, jobs of {options.jobs}")
    print(f"{'healthy after':<32}{start:>8.1f} s")
    print(f"{'run':<32}{result.seconds:>8.1f} s  {result.state}, {result.states}, {result.retried} retried")
    print(f"{'first task done after':<32}{result.first:>8.1f} s")
    print(f"{'a task took':<32}{result.shortest:>8.1f} s to {result.longest:.1f} s")
    print(f"{'documents per second':<32}{options.documents / result.seconds:>8.2f}")
    operations = {name: sum(answers.values()) for name, answers in counters["operations"].items()}
    print(
        f"{'requests':<32}{counters['total']:>8}    {counters['total'] / options.documents:.3f} per document"
    )
    print(f"{'':<32}{'':>8}    {operations}")
    print(f"{'most requests at a time':<32}{counters['max_in_flight']:>8}")
    print(f"{'logins':<32}{counters['logins']:>8}    {counters['refreshes']} renewals")
    work = result.database
    print(f"{'database':<32}{work['transactions']:>8}    transactions, {work['rows']} rows written")
    print(f"{'XComs':<32}{work['xcom'] / 1000:>8.0f} kB")
    for name, seconds in sorted(result.cpu.items(), key=lambda item: -item[1]):
        print(f"{'CPU of ' + name:<32}{seconds:>8.1f} s  {seconds * each:.2f} ms per document")
    print(f"{'CPU in all':<32}{sum(result.cpu.values()):>8.1f} s  on {os.cpu_count()} cores", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
