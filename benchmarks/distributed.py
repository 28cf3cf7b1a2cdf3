"""Two nights in shards on a distributed deployment: Celery workers, PostgreSQL, Redis.

`python -m benchmarks.distributed`, or with `--documents 1000 --shard 100` for a quick look: DOCX files
against two frameworks, of which 1 % have changed in the second night. `--kill` ends a worker and the
triggerer with `kill -9` in the first night. Everything is on this machine, also the emulator, in a process
of its own: the parts take the CPU from each other, so what counts for a larger deployment is the CPU that
each of them used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from airflow_provider.emulator.samples import make_docx
from airflow_provider.nights.evidence.verifier import Folder, Verifier
from airflow_provider.storage.jsonl import read_lines
from airflow_provider.storage.locations import Location
from benchmarks.service import Service
from tests.deployment.processes import ROOT, members
from tests.deployment.servers import missing
from tests.deployment.system import Deployment, Run, deployed

DAGS = Path(__file__).parent / "nightly"
TIMEOUT_SECONDS = 3600.0
CONCURRENCY = 16  # of a shard, by default
CHANGED = 100  # one of so many documents has changed in the second night
WORK = """
    SELECT xact_commit AS transactions, tup_inserted + tup_updated + tup_deleted AS rows,
        (SELECT coalesce(sum(length(value::text)), 0) FROM xcom) AS xcom
    FROM pg_stat_database WHERE datname = current_database()
"""
SERVERS = ("postgres", "redis-server")
STEPS = {
    "list_documents": "list_documents",
    "ingest": "shard.ingest",
    "assess": "shard.assess",
    "close": "close",
}
OPERATIONS = {
    "ingest": ("submit_file", "get_statuses", "get_content", "refresh"),
    "assess": ("submit_assessment", "get_assessment", "get_assessment_results", "list_frameworks"),
}


@contextmanager
def distributed(
    dags: Path, service: Service, workers: int, settings: Mapping[str, str] | None = None
) -> Iterator[Deployment]:
    """Run a deployment that talks to a service.

    :param dags: the DAGs folder
    :param settings: more of Airflow's settings, as environment variables
    """
    ours = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW_CONN_COMPLIANCE_DEFAULT": service.connection_json,
        "PYTHONPATH": str(ROOT),
    }
    with (
        tempfile.TemporaryDirectory(prefix="scaling-") as home,
        deployed(Path(home), {**ours, **(settings or {})}, workers) as deployment,
    ):
        yield deployment


def database(deployment: Deployment) -> Counter[str]:
    """Ask PostgreSQL what it has done so far."""
    engine = create_engine(deployment.database_url)
    time.sleep(2)  # its counters are a little late
    with engine.connect() as connection:
        row = connection.execute(text(WORK)).mappings().one()
    engine.dispose()
    return Counter({name: int(value) for name, value in row.items()})


def usage(deployment: Deployment) -> Counter[str]:
    """Return the CPU seconds of each part so far, with all its children, also those that have ended."""
    sessions = {name: part.pid for name, part in deployment.parts.items()} | _servers()
    return Counter({name: sum(_cpu(pid) for pid, _ in members(one)) for name, one in sessions.items()})


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


class Bench:
    """The nights of a deployment.

    :param folder: with the documents, the nights and what their tasks have used
    """

    def __init__(self, deployment: Deployment, service: Service, folder: Path, options: Any) -> None:
        self.deployment, self.service, self.folder, self.options = deployment, service, folder, options
        self.kills = 0

    def write(self, numbers: Iterator[int] | range, night: int) -> None:
        """Write documents."""
        for number in numbers:
            line = f"Contract {number} of night {night} has an exit plan with a transition period. "
            path = self.folder / "in" / f"contract-{number:06}.docx"
            path.write_bytes(make_docx(f"Contract {number}", line * 20))

    def run(self, night: int, *, kill: bool = False) -> float:
        """Run a night, print what it took, and return the CPU of its tasks."""
        asked, cpu = self._operations(), self.service.cpu()
        before, parts, files = database(self.deployment), usage(self.deployment), self._files()
        (self.folder / "used.jsonl").write_text("")
        run = self.deployment.trigger("night", f"2026-01-{night:02}T00:00:00Z")
        if kill:
            self._kill(run)
        ended = run.wait_for_end(TIMEOUT_SECONDS)
        assert ended["state"] == "success", f"{ended['state']}{self.deployment.tails()}"
        seconds = moment(ended["end_date"]) - moment(ended["start_date"])
        requests = self._operations() - asked
        print(f"\nNight {night}: {seconds:.0f} s, {sum(requests.values()):,} requests to the service")
        print(f"{'step':<16}{'tasks':>7}{'tries':>7}{'wall':>8}{'CPU':>9}{'peak':>10}  requests")
        used = [json.loads(line) for line in (self.folder / "used.jsonl").read_text().splitlines()]
        total = 0.0
        for step, task_id in STEPS.items():
            tasks, own = run.tasks(f"night.{task_id}"), [one for one in used if one["task"] == step]
            wall = max(moment(one["end_date"]) for one in tasks) - min(
                moment(one["start_date"]) for one in tasks
            )
            total += (step_cpu := sum(one["cpu"] for one in own))
            asked_by = {name: requests[name] for name in OPERATIONS.get(step, ()) if requests[name]}
            print(
                f"{step:<16}{len(tasks):>7}{sum(one['try_number'] for one in tasks):>7}{wall:>6.0f} s"
                f"{step_cpu:>7.1f} s{max(one['mib'] for one in own):>6.0f} MiB  {asked_by}"
            )
        written = {path: size for path, size in self._files().items() if path not in files}
        work = database(self.deployment) - before
        print(
            f"{len(written):,} objects with {sum(written.values()) / 1e6:.1f} MB; {dict(work)} of PostgreSQL"
        )
        spent = usage(self.deployment) - parts + Counter({"emulator": self.service.cpu() - cpu})
        print("CPU-seconds of", {name: round(each, 1) for name, each in spent.most_common()}, flush=True)
        self._check(run)
        return total

    def _kill(self, run: Run) -> None:
        """Kill a worker while it ingests, and the triggerer while tasks are deferred, if they ever are."""
        documents = self.options.documents
        wait = self.deployment.wait_for
        wait(lambda: self._operations()["submit_file"] > documents / 4, "documents", TIMEOUT_SECONDS)
        self.deployment.kill("worker-1")
        self.deployment.start("worker-1")
        wait(
            lambda: self._deferred(run) or self._operations()["submit_assessment"] > documents,
            "deferred tasks",
            TIMEOUT_SECONDS,
        )
        print(f"Killing the triggerer of {self._deferred(run)} deferred tasks.", flush=True)
        self.deployment.kill("triggerer")
        self.deployment.start("triggerer")
        self.kills = 2

    def _deferred(self, run: Run) -> int:
        tasks = run.tasks("night.shard.ingest") + run.tasks("night.shard.assess")
        return sum(one["state"] == "deferred" for one in tasks)

    def _operations(self) -> Counter[str]:
        found = self.service.counters()["operations"]
        return Counter({name: sum(answers.values()) for name, answers in found.items()})

    def _files(self) -> dict[Path, int]:
        """Return what is below the root, and how large it is."""
        return {path: path.stat().st_size for path in (self.folder / "nights").rglob("*") if path.is_file()}

    def _check(self, run: Run) -> None:
        """Each document has one text, each cell one verdict, and the evidence is as it was closed."""
        documents = self.options.documents
        result = run.returned("night.close")
        numbers = {name: result[name] for name in ("documents", "assessments")}
        assert numbers == {"documents": documents, "assessments": 2 * documents}, result
        sources: Counter[str] = Counter()
        for task in run.tasks("night.shard.ingest"):
            manifest = run.returned("night.shard.ingest", task["map_index"])["manifest"]
            rows = [json.loads(line) for line in read_lines(Location(manifest))]
            sources.update(row["source"] for row in rows)
            assert all(row["status"] in ("COMPLETED", "SKIPPED") for row in rows)
            assert all(
                Path(row["path"].removeprefix("file://")).stat().st_size == row["bytes"] for row in rows
            )
        assert len(sources) == sources.total() == documents
        states = {check.status for check in Verifier(Folder(f"{self.folder}/nights")).run()}
        assert states == {"OK"}, states
        print("All documents and cells are there once; the evidence verifies.", flush=True)

    def submitted(self) -> str:
        """Say how much was submitted more than once."""
        operations, documents = self._operations(), self.options.documents
        once = documents + documents // CHANGED
        files, cells = operations["submit_file"] - once, operations["submit_assessment"] - 2 * once
        return f"Submitted again: {files} documents and {cells} cells, after {self.kills} kills."


def main(arguments: Sequence[str] = ()) -> int:
    """Run two nights and print what they took."""
    parser = argparse.ArgumentParser(description="Nights on Celery workers")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--shard", type=int, default=1000, help="about how many documents one has")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--jobs", default="seconds:20", help="how the emulator's jobs advance")
    parser.add_argument("--latency", type=float, default=0.02, help="added to each answer")
    parser.add_argument("--kill", action="store_true", help="a worker and the triggerer, in the first night")
    options = parser.parse_args(arguments)
    if reason := missing():
        print(reason)
        return 1
    with (
        Service(jobs=options.jobs, latency=options.latency) as service,
        tempfile.TemporaryDirectory(prefix="nights-") as name,
    ):
        folder = Path(name)
        (folder / "in").mkdir()
        settings = {"BENCH_FOLDER": name, "BENCH_SHARD": str(options.shard)}
        with distributed(DAGS, service, options.workers, settings) as deployment:
            bench = Bench(deployment, service, folder, options)
            bench.write(range(options.documents), 1)
            first = bench.run(1, kill=options.kill)
            bench.write(range(0, options.documents, CHANGED), 2)
            second = bench.run(2)
        print(bench.submitted())
        print(f"CPU of tasks: {first:.1f} s, then {second:.1f} s: {second / first:.2f}, at most 0.2")
    return second > first / 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
