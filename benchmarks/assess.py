"""1,000 documents x 3 frameworks through ComplianceAssessOperator, beside a bare script that does the same.

Each in a process of its own, beside the service (assessments are done at the first poll, 20 ms added to each
answer). Everything is written to local files. They take turns, and the best of three rounds counts. The
script only does the work: one login, no second try, nothing written down but results and findings.

Then the operator alone: a second night in which 1 % of the documents have changed, and 10,000 documents x 2
frameworks, whose time for each cell is held against that of 1,000 documents x 2. Last, 500 documents x 2
frameworks whose assessments take a while, which the script knows and the operator does not.
`--documents 100 --many 500 --rounds 1` is a quick look; `--many 0` leaves out the second and the large night.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from airflow_provider.storage.jsonl import read_lines
from airflow_provider.storage.locations import Location
from benchmarks import harness
from benchmarks.harness import Result, Service, Way, judge, log_in, mib, options, show, write

LATENCY = 0.02
CLAUSES = 12  # of a document, about two pages
FRAMEWORKS = ("DORA", "GDPR", "DORA-2")
ASSESSMENTS = "/api/v1/assessments"
TIME, REQUESTS, MEMORY = 1.3, 3.2, 100.0
WAITING_DOCUMENTS, WAITING_SECONDS, WAITING_REQUESTS = 500, (1.5, 30.0), 3.4
SUPERLINEAR = 1.25  # times the time for each cell, with ten times the documents
WAYS = ("operator", "bare")


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    chosen = options(
        arguments, __doc__, documents=1000, many=10_000, concurrency=16, rounds=3, latency=LATENCY
    )
    with nights(chosen.latency, chosen.concurrency) as bench:
        is_good = _side_by_side(bench, chosen.documents, chosen.rounds)
        if chosen.many:
            is_good &= _two_nights(bench, chosen.documents)
            is_good &= _many(bench, chosen.documents, chosen.many)
    for seconds in WAITING_SECONDS:
        documents = min(chosen.documents, WAITING_DOCUMENTS)
        found, cells = run_waiting(seconds, documents, chosen.latency, chosen.concurrency), 2 * documents
        print(f"{documents} documents x 2 frameworks, each assessment takes {seconds} s")
        show(found, cells, "cell")
        is_good &= judge(
            times_the_script=(found["operator"].seconds / found["bare"].seconds, TIME),
            requests_per_cell=(found["operator"].requests / cells, WAITING_REQUESTS),
        )
    return not is_good


def run_waiting(seconds: float, documents: int, latency: float, concurrency: int) -> dict[str, Result]:
    """Measure assessments that take this long."""
    with nights(latency, concurrency, seconds) as bench:
        manifest = bench.manifest(documents)
        return {way: bench.run(way, manifest, 2, way) for way in WAYS}


@contextmanager
def nights(latency: float = 0.0, concurrency: int = 16, seconds: float = 0.0) -> Iterator[Nights]:
    """Run a service and make a folder for nights of assessments that take this long."""
    jobs = f"seconds:{seconds}" if seconds else "instant"
    with (
        Service(jobs=jobs, latency=latency, access_lifetime=3600) as service,
        tempfile.TemporaryDirectory(prefix="assess-") as folder,
    ):
        yield Nights(service, Path(folder), concurrency, seconds)


class Nights:
    """Documents that the service has the texts of, and what assesses them."""

    def __init__(self, service: Service, folder: Path, concurrency: int, seconds: float) -> None:
        self.service, self.folder = service, folder
        self.concurrency, self._seconds = concurrency, seconds
        self.rows: list[dict[str, Any]] = []
        self._texts: dict[str, str] = {}
        listed = service.control("GET", "frameworks")  # and a third one: the first again, under other names
        third = {**listed[0], "id": 3, "codeName": FRAMEWORKS[2]}
        third["criteria"] = [{**one, "codeName": f"{one['codeName']}/2"} for one in third["criteria"]]
        self._listed = [*listed, third]
        service.control("PUT", "frameworks", frameworks=self._listed)

    def manifest(self, count: int, changed: Iterable[int] = ()) -> Path:
        """Write the manifest of the first documents; some have another text than before."""
        self.rows += [self._add(number) for number in range(len(self.rows), count)]
        for number in changed:
            self.rows[number] = self._add(number, version=2)
        return self.write("manifest", self.rows[:count])

    def write(self, name: str, rows: Iterable[dict[str, Any]]) -> Path:
        """Write a manifest."""
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def _add(self, number: int, version: int = 1) -> dict[str, Any]:
        from airflow_provider.emulator.samples import make_text

        source = f"s3://contracts/in/{number:06}.pdf"
        text = "\n\n".join(make_text(Random(f"{number}/{version}"), CLAUSES).paragraphs)
        self._texts[source] = text
        job = self.service.control("POST", "jobs", text=text, file_name=source, status="COMPLETED")
        digest = hashlib.sha256(text.encode()).hexdigest()
        return {"source": source, "uuid": job, "status": "COMPLETED", "sha256": digest}

    def run(self, way: str, manifest: Path, frameworks: int, out: str, run_id: str = "r") -> Result:
        """Run one way, and check every verdict.

        :param out: folder of the output, below which earlier nights may be
        """
        folder = self.folder / out
        folder.mkdir(exist_ok=True)
        names, prepare = FRAMEWORKS[:frameworks], operator if way == "operator" else bare
        arguments = (manifest, names, self.concurrency, f"{folder}/", run_id, self._seconds)
        result = self.service.measure(prepare, *arguments)
        newest = max(folder.glob("**/findings.jsonl*"), key=lambda path: path.stat().st_mtime)
        self._check(newest, len(manifest.read_bytes().splitlines()), names)
        return result

    def _check(self, findings: Path, documents: int, frameworks: Sequence[str]) -> None:
        """Whoever was fast has to have found it all; apply the emulator's rule to see."""
        from airflow_provider.emulator.service.catalog import assess

        rows = [json.loads(line) for line in read_lines(Location(f"file://{findings}"))]
        wanted = [framework for framework in self._listed if framework["codeName"] in frameworks]
        criteria = {one["codeName"]: one for framework in wanted for one in framework["criteria"]}
        assert len({(row["source"], row["criterion"]) for row in rows}) == len(rows)
        assert len(rows) == documents * len(criteria)
        for row in rows[:: max(1, len(rows) // 5000)]:
            if text := self._texts.get(row["source"]):
                assert row["category"] == assess(text, criteria[row["criterion"]])[0], row


def _side_by_side(bench: Nights, documents: int, rounds: int) -> bool:
    manifest, cells = bench.manifest(documents), documents * len(FRAMEWORKS)
    found = harness.best_of(
        rounds, WAYS, lambda way, number: bench.run(way, manifest, len(FRAMEWORKS), f"{way}-{number}")
    )
    print(f"{documents} documents x {len(FRAMEWORKS)} frameworks, {bench.concurrency} requests at a time")
    show(found, cells, "cell")
    ours = found["operator"]
    return judge(
        times_the_script=(ours.seconds / found["bare"].seconds, TIME),
        requests_per_cell=(ours.requests / cells, REQUESTS),
        logins=(ours.logins, 1),
        MiB_above_imports=(ours.memory, MEMORY),
    )


def _two_nights(bench: Nights, documents: int) -> bool:
    first, second = (
        bench.run("operator", bench.manifest(documents, changed), len(FRAMEWORKS), "nights", run_id)
        for run_id, changed in (("1", ()), ("2", range(0, documents, 100)))
    )
    show({"first night": first, "second night, 1 % changed": second}, documents * len(FRAMEWORKS), "cell")
    return judge(percent_of_the_requests_for_1_percent=(100 * second.requests / first.requests, 1.2))


def _many(bench: Nights, few: int, many: int) -> bool:
    counts = {"few": few, "many": many, "few again": few}
    found = {name: bench.run("operator", bench.manifest(count), 2, name) for name, count in counts.items()}
    for name, count in counts.items():
        print(f"{name}: {count} documents x 2 frameworks")
        show({name: found[name]}, 2 * count, "cell")
    one, other = min(found["few"], found["few again"], key=lambda result: result.seconds), found["many"]
    return judge(
        times_the_time_per_cell=(other.seconds / many / (one.seconds / few), SUPERLINEAR),
        times_the_CPU_per_cell=(other.cpu / many / (one.cpu / few), SUPERLINEAR),
    )


def operator(
    manifest: str, frameworks: list[str], concurrency: int, folder: str, run_id: str, _: float
) -> Way:
    """Make the operator ready."""
    imported = harness.import_airflow(folder)
    from airflow_provider.operators.assess import ComplianceAssessOperator

    task = ComplianceAssessOperator(
        task_id="t",
        documents=manifest,
        frameworks=frameworks,
        destination=f"{folder}night={run_id}/",
        concurrency=concurrency,
    )
    context: Any = {"ti": harness.TaskInstance(run_id)}
    return imported, lambda: task.execute(context)


def bare(manifest: str, frameworks: list[str], concurrency: int, folder: str, _: str, seconds: float) -> Way:
    """Make the script ready: a coroutine for each cell, and no error handling.

    :param seconds: how long an assessment takes
    """
    import aiohttp

    rows = [json.loads(line) for line in Path(manifest).read_text().splitlines()]
    cells = [(row["source"], row["uuid"], framework) for row in rows for framework in frameworks]
    findings: list[str] = []

    async def work() -> None:
        limit = asyncio.Semaphore(concurrency)

        async def process(number: int, source: str, uuid: str, framework: str) -> None:
            payload = {"contentUuid": uuid, "framework": framework}
            async with limit, session.post(f"{host}{ASSESSMENTS}", json=payload, headers=bearer) as response:
                address = f"{host}{ASSESSMENTS}/{(await response.json())['uuid']}"
            pause, status = seconds, 200
            while status != 303:
                await asyncio.sleep(pause)
                get = session.get(f"{address}/status", headers=bearer, allow_redirects=False)
                async with limit, get as response:
                    status = response.status
                pause = 0.5
            async with limit, session.get(f"{address}/results", headers=bearer) as response:
                data = await response.read()
            write(Path(folder, f"{number:06}.json"), data)
            for one in json.loads(data)["results"]:
                found = {name: one[name] for name in ("criterion", "category", "rationale")}
                findings.append(json.dumps({"source": source, "framework": framework, **found}) + "\n")

        async with aiohttp.ClientSession() as session:
            host, bearer = await log_in(session)
            await asyncio.gather(*(process(number, *cell) for number, cell in enumerate(cells)))
        write(Path(folder, "findings.jsonl"), "".join(findings).encode())

    return mib(), lambda: asyncio.run(work())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
