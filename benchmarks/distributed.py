"""Two nights in shards on a distributed deployment: Celery workers, PostgreSQL, Redis.

`python -m benchmarks.distributed`, or with `--documents 1000 --shard 100` for a quick look: DOCX files
against two frameworks, of which 1 % have changed in the second night. `--kill` ends a worker and the
triggerer with `kill -9` in the first night. Everything is on this machine, also the service, in a process
of its own: the parts take the CPU from each other, so what counts for a larger deployment is the CPU that
each of them used.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow_provider.emulator.samples import make_docx
from airflow_provider.nights.evidence.verifier import Folder, Verifier
from airflow_provider.storage.jsonl import read_lines
from airflow_provider.storage.locations import Location
from benchmarks.harness import Service, cpu_of, judge, options, table
from tests.deployment.processes import ROOT, members
from tests.deployment.servers import missing
from tests.deployment.system import Deployment, Run, deployed

DAGS = Path(__file__).parent / "nightly"
TIMEOUT_SECONDS = 3600.0
CHANGED = 100  # one of so many documents has changed in the second night
SERVERS = ("postgres", "redis-server")
STEPS = {
    "list_documents": (),
    "shard.ingest": ("submit_file", "get_statuses", "get_content", "refresh"),
    "shard.assess": ("submit_assessment", "get_assessment", "get_assessment_results", "list_frameworks"),
    "close": (),
}


@contextmanager
def distributed(
    service: Service, workers: int, settings: Mapping[str, str] | None = None
) -> Iterator[Deployment]:
    """Run a deployment that talks to a service.

    :param settings: more of Airflow's settings, as environment variables
    """
    ours = {"AIRFLOW__CORE__DAGS_FOLDER": str(DAGS), "PYTHONPATH": str(ROOT), **(settings or {})}
    ours["AIRFLOW_CONN_COMPLIANCE_DEFAULT"] = service.connection_json
    with (
        tempfile.TemporaryDirectory(prefix="scaling-") as home,
        deployed(Path(home), ours, workers) as deployment,
    ):
        yield deployment


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
        return cpu_of(pid, with_children=True)
    return 0.0


def duration(ended: Mapping[str, Any], *others: Mapping[str, Any]) -> float:
    """Return the seconds from the first start to the last end of runs or tasks of the REST API."""
    every = [ended, *others]
    first = min(datetime.fromisoformat(one["start_date"]) for one in every)
    return (max(datetime.fromisoformat(one["end_date"]) for one in every) - first).total_seconds()


class Bench:
    """The nights of a deployment.

    :param folder: with the documents, the nights and what their tasks have used
    """

    def __init__(self, deployment: Deployment, service: Service, folder: Path, documents: int) -> None:
        self.deployment, self.service, self.folder, self.documents = deployment, service, folder, documents

    def run(self, night: int, numbers: Iterable[int], *, kill: bool = False) -> float:
        """Write documents, run a night, print what it took, and return the CPU of its tasks."""
        for number in numbers:
            line = f"Contract {number} of night {night} has an exit plan with a transition period. "
            path = self.folder / "in" / f"contract-{number:06}.docx"
            path.write_bytes(make_docx(f"Contract {number}", line * 20))
        asked, cpu = self.operations(), self.service.cpu()
        parts, files = usage(self.deployment), self._files()
        (self.folder / "used.jsonl").write_text("")
        run = self.deployment.trigger("night", f"2026-01-{night:02}T00:00:00Z")
        if kill:
            self._kill(run)
        ended = run.wait_for_end(TIMEOUT_SECONDS)
        assert ended["state"] == "success", f"{ended['state']}{self.deployment.tails()}"
        requests = self.operations() - asked
        print(f"\nNight {night}: {duration(ended):.0f} s, {requests.total():,} requests to the service")
        used = [json.loads(line) for line in (self.folder / "used.jsonl").read_text().splitlines()]
        rows = []
        for step, operations in STEPS.items():
            tasks = run.tasks(f"night.{step}")
            own = [one for one in used if one["task"] == step.rpartition(".")[2]]
            rows.append({
                "step": step, "tasks": len(tasks), "attempts": sum(one["try_number"] for one in tasks),
                "s": duration(*tasks), "CPU-s": sum(one["cpu"] for one in own),
                "MiB": max(one["mib"] for one in own),
                "requests": {name: requests[name] for name in operations if requests[name]},
            })  # fmt: skip
        table(*rows)
        written = [size for path, size in self._files().items() if path not in files]
        print(f"{len(written):,} objects with {sum(written) / 1e6:.1f} MB")
        spent = usage(self.deployment) - parts + Counter({"service": self.service.cpu() - cpu})
        print("CPU-seconds of", {name: round(each, 1) for name, each in spent.most_common()}, flush=True)
        self._check(run)
        return float(sum(one["cpu"] for one in used))

    def _kill(self, run: Run) -> None:
        """Kill a worker while it ingests, and the triggerer while tasks are deferred, if they ever are."""

        def deferred() -> int:
            tasks = run.tasks("night.shard.ingest") + run.tasks("night.shard.assess")
            return sum(one["state"] == "deferred" for one in tasks)

        def asked(name: str) -> int:
            return self.operations()[name]

        wait, documents = self.deployment.wait_for, self.documents
        wait(lambda: asked("submit_file") > documents / 4, "documents", TIMEOUT_SECONDS)
        self._restart("worker-1")
        wait(lambda: deferred() or asked("submit_assessment") > documents, "deferred tasks", TIMEOUT_SECONDS)
        print(f"Killing the triggerer of {deferred()} deferred tasks.", flush=True)
        self._restart("triggerer")

    def _restart(self, name: str) -> None:
        self.deployment.kill(name)
        self.deployment.start(name)

    def operations(self) -> Counter[str]:
        """Return how often the service was asked for what."""
        found = self.service.counters()["operations"]
        return Counter({name: sum(answers.values()) for name, answers in found.items()})

    def _files(self) -> dict[Path, int]:
        """Return what is below the root, and how large it is."""
        return {path: path.stat().st_size for path in (self.folder / "nights").rglob("*") if path.is_file()}

    def _check(self, run: Run) -> None:
        """Each document has one text, each cell one verdict, and the evidence is as it was closed."""
        result = run.returned("night.close")
        assert result["documents"] == self.documents == result["assessments"] / 2, result
        sources: Counter[str] = Counter()
        for task in run.tasks("night.shard.ingest"):
            manifest = run.returned("night.shard.ingest", task["map_index"])["manifest"]
            for row in map(json.loads, read_lines(Location(manifest))):
                sources[row["source"]] += 1
                assert row["status"] in ("COMPLETED", "SKIPPED")
                assert Path(row["path"].removeprefix("file://")).stat().st_size == row["bytes"]
        assert len(sources) == sources.total() == self.documents
        states = {check.status for check in Verifier(Folder(f"{self.folder}/nights")).run()}
        assert states == {"OK"}, states
        print("All documents and cells are there once; the evidence verifies.", flush=True)


def main(arguments: Sequence[str] = ()) -> int:
    """Run two nights and print what they took."""
    chosen = options(
        arguments, __doc__,
        documents=20_000, shard=1000, workers=2, jobs="seconds:20", latency=0.02, kill=False,
    )  # fmt: skip
    if reason := missing():
        print(reason)
        return 1
    with (
        Service(jobs=chosen.jobs, latency=chosen.latency) as service,
        tempfile.TemporaryDirectory(prefix="nights-") as name,
    ):
        Path(name, "in").mkdir()
        settings = {"BENCH_FOLDER": name, "BENCH_SHARD": str(chosen.shard)}
        with distributed(service, chosen.workers, settings) as deployment:
            bench = Bench(deployment, service, Path(name), chosen.documents)
            changed = range(0, chosen.documents, CHANGED)
            first = bench.run(1, range(chosen.documents), kill=chosen.kill)
            second = bench.run(2, changed)
        operations, once = bench.operations(), chosen.documents + len(changed)
    files, cells = operations["submit_file"] - once, operations["submit_assessment"] - 2 * once
    print(f"Submitted again: {files} documents and {cells} cells")
    return not judge(share_of_the_CPU_in_the_second_night=(second / first, 0.2))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
