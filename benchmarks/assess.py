"""1,000 documents x 3 frameworks through ComplianceAssessOperator, beside a bare script that does the same.

`python -m benchmarks.assess`, or with `--documents 100 --many 500 --rounds 1` for a quick look. All in
processes of their own: the emulator (assessments are done at the first poll, 20 ms added to each answer), the
operator's `execute()`, and the scripts. Everything is written to local files. They take turns, and the best
of three rounds counts: the machine does other things, too.

The first script only does the work: one login, no second try, nothing written down but results and findings.
The second one has each result hashed, on the disk (fsync) and under its name only when it is whole. Neither
of them has a journal, an index for the next night, tables or a report.

Then the operator alone: a second night in which 1 % of the documents have changed, and 10,000 documents x 2
frameworks, whose time for each cell is held against that of 1,000 documents x 2. Last, 500 documents x 2
frameworks whose assessments take a while, which the script knows and the operator does not.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.comparison import (
    Result,
    TaskInstance,
    Way,
    import_airflow,
    judge,
    log_in,
    measure,
    resident,
    run_process,
    show,
    task_environment,
    write,
    write_durably,
)
from benchmarks.service import Service

DOCUMENTS, MANY = 1000, 10_000
ROUNDS = 3
LATENCY = 0.02
CLAUSES = 12  # of a document, about two pages
FRAMEWORKS = ("DORA", "GDPR", "DORA-2")
ASSESSMENTS = "/api/v1/assessments"

TIME = 1.3
REQUESTS = 3.2
WAITING_DOCUMENTS, WAITING_SECONDS = 500, (1.5, 30.0)
WAITING_REQUESTS = 3.4
GROWTH_MIB = 100.0
SUPERLINEAR = 1.25  # times the time for each cell, with ten times the documents

WAYS = {"operator": "operator", "bare": "bare script", "durable": "the same, hash and fsync"}
NIGHTS = {"first": "first night", "second": "second night, 1 % changed"}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="The assessment of many documents beside a bare script")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument(
        "--many", type=int, default=MANY, help="documents of the large night; 0: one night only"
    )
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds added to each answer")
    options = parser.parse_args(arguments)
    with (
        Service(
            jobs="instant",
            latency=options.latency,
            access_lifetime=3600,
        ) as service,
        task_environment(service) as environment,
        tempfile.TemporaryDirectory(prefix="assess-") as folder,
    ):
        _add_framework(service)
        corpus = Corpus(service, Path(folder))
        run = Runner(service, environment, Path(folder), options.concurrency)
        met = _side_by_side(run, corpus, options.documents, options.rounds)
        if options.many:
            met = _two_nights(run, corpus, options.documents) and met
            met = _many(run, corpus, options.documents, options.many) and met
    for seconds in WAITING_SECONDS:
        met = _waiting(seconds, min(options.documents, WAITING_DOCUMENTS), options) and met
    return 0 if met else 1


def run_waiting(seconds: float, documents: int, latency: float, concurrency: int) -> dict[str, Result]:
    """Measure assessments that take this long."""
    settings = {"jobs": f"seconds:{seconds}", "latency": latency, "access_lifetime": 3600}
    with (
        Service(**settings) as service,
        task_environment(service) as environment,
        tempfile.TemporaryDirectory(prefix="assess-") as folder,
    ):
        run = Runner(service, environment, Path(folder), concurrency, seconds)
        corpus = Corpus(service, Path(folder))
        manifest = corpus.manifest(documents)
        return {way: run(way, corpus, manifest, 2, way) for way in ("operator", "bare")}


def _waiting(seconds: float, documents: int, options: argparse.Namespace) -> bool:
    results, cells = run_waiting(seconds, documents, options.latency, options.concurrency), 2 * documents
    print(f"{documents} documents x 2 frameworks, each assessment takes {seconds} s")
    show(WAYS, results, cells, "cell")
    ratio = results["operator"].seconds / results["bare"].seconds
    requests = results["operator"].requests / cells
    return judge(
        {
            f"{ratio:.2f} times the time of the bare script, at most {TIME}": ratio <= TIME,
            f"{requests:.3f} requests per cell, at most {WAITING_REQUESTS}": requests <= WAITING_REQUESTS,
        }
    )


def _add_framework(service: Service) -> None:
    """Add a third framework: the first one again, under other names."""
    listed = service.control("GET", "frameworks")
    third = {**listed[0], "id": 3, "codeName": FRAMEWORKS[2]}
    third["criteria"] = [{**each, "codeName": f"{each['codeName']}/2"} for each in third["criteria"]]
    service.control("PUT", "frameworks", frameworks=[*listed, third])


class Corpus:
    """Documents that the emulator has the texts of."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self.rows: list[dict[str, Any]] = []
        self.texts: dict[str, str] = {}

    def manifest(self, count: int, changed: Iterable[int] = ()) -> Path:
        """Write the manifest of the first documents; some have another text than before."""
        for number in range(len(self.rows), count):
            self.rows.append(self._add(number))
        for number in changed:
            self.rows[number] = self._add(number, version=2)
        path = self._folder / "manifest.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows[:count]))
        return path

    def _add(self, number: int, version: int = 1) -> dict[str, Any]:
        from airflow_provider.emulator.samples import make_text

        source, text = f"s3://contracts/in/{number:06}.pdf", make_text(Random(f"{number}/{version}"), CLAUSES)
        self.texts[source] = "\n\n".join(text.paragraphs)
        job = self._service.control(
            "POST", "jobs", text=self.texts[source], file_name=source, status="COMPLETED"
        )
        digest = hashlib.sha256(self.texts[source].encode()).hexdigest()
        return {"source": source, "uuid": job, "status": "COMPLETED", "sha256": digest}


class Runner:
    """Runs one way after the other, and checks every verdict."""

    def __init__(
        self,
        service: Service,
        environment: dict[str, str],
        folder: Path,
        concurrency: int,
        seconds: float = 0.0,
    ) -> None:
        self._service = service
        self._seconds = seconds
        self._environment = environment
        self._folder = folder
        self.concurrency = concurrency

    def __call__(
        self, way: str, corpus: Corpus, manifest: Path, frameworks: int, out: str, **more: Any
    ) -> Result:
        """Run one way.

        :param out: folder of the output, below which earlier nights may be
        """
        folder = self._folder / out
        folder.mkdir(exist_ok=True)
        run_id = more.get("run_id", "r")
        arguments = (manifest, frameworks, self.concurrency, f"{folder}/", run_id, self._seconds)
        result = run_process(self._service, self._environment, "benchmarks.assess", f"_{way}", *arguments)
        newest = max(folder.glob("**/findings.jsonl*"), key=lambda path: path.stat().st_mtime)
        self._check(newest, corpus, len(manifest.read_bytes().splitlines()), frameworks)
        return result

    def _check(self, findings: Path, corpus: Corpus, documents: int, frameworks: int) -> None:
        """Whoever was fast has to have found it all; apply the emulator's rule to see."""
        from airflow_provider.emulator.service.catalog import assess

        data = findings.read_bytes()
        data = gzip.decompress(data) if findings.suffix == ".gz" else data
        rows = [json.loads(line) for line in data.splitlines()]
        listed = self._service.control("GET", "frameworks")
        criteria = {
            each["codeName"]: each
            for framework in listed
            if framework["codeName"] in FRAMEWORKS[:frameworks]
            for each in framework["criteria"]
        }
        assert len({(row["source"], row["criterion"]) for row in rows}) == len(rows)
        assert len(rows) == documents * len(criteria)
        for row in rows[:: max(1, len(rows) // 5000)]:
            category, _ = assess(corpus.texts[row["source"]], criteria[row["criterion"]])
            assert row["category"] == category, row


def _side_by_side(run: Runner, corpus: Corpus, documents: int, rounds: int) -> bool:
    manifest, frameworks = corpus.manifest(documents), len(FRAMEWORKS)
    cells = documents * frameworks
    best: dict[str, Result] = {}
    for number in range(rounds):
        for way in WAYS:
            result = run(way, corpus, manifest, frameworks, f"{way}-{number}")
            best[way] = min(best.get(way, result), result, key=lambda each: each.seconds)
    print(f"{documents} documents x {frameworks} frameworks, {run.concurrency} requests at a time")
    show(WAYS, best, cells, "cell")
    ours = best["operator"]
    ratio, requests = ours.seconds / best["bare"].seconds, ours.requests / cells
    print(f"{ours.seconds / best['durable'].seconds:.2f} times the time of the script with hash and fsync")
    return judge(
        {
            f"{ratio:.2f} times the time of the bare script, at most {TIME}": ratio <= TIME,
            f"{requests:.3f} requests per cell, at most {REQUESTS}": requests <= REQUESTS,
            f"{ours.logins} login": ours.logins == 1,
            f"{ours.growth:.1f} MiB above Airflow's imports, below {GROWTH_MIB:.0f}": ours.growth
            < GROWTH_MIB,
        }
    )


def _two_nights(run: Runner, corpus: Corpus, documents: int) -> bool:
    frameworks = len(FRAMEWORKS)
    cells = documents * frameworks
    first = run("operator", corpus, corpus.manifest(documents), frameworks, "nights", run_id="1")
    manifest = corpus.manifest(documents, changed=range(0, documents, 100))
    second = run("operator", corpus, manifest, frameworks, "nights", run_id="2")
    show(NIGHTS, {"first": first, "second": second}, cells, "cell")
    share = second.requests / first.requests
    return judge({f"{share:.2%} of the requests for 1 % of the documents, at most 1.2 %": share <= 0.012})


def _many(run: Runner, corpus: Corpus, few: int, many: int) -> bool:
    best: dict[str, Result] = {}
    for number, count in enumerate((few, many, few)):
        result = run("operator", corpus, corpus.manifest(count), 2, f"many-{number}")
        best[str(count)] = min(best.get(str(count), result), result, key=lambda each: each.seconds)
    for documents, each in best.items():
        cells = 2 * int(documents)
        print(
            f"{documents} documents x 2 frameworks: {each.seconds:.1f} s, {each.growth:.1f} MiB; "
            f"for each cell {1000 * each.seconds / cells:.2f} ms, {1000 * each.cpu / cells:.2f} ms of CPU, "
            f"{each.requests / cells:.3f} requests"
        )
    one, other = best[str(few)], best[str(many)]
    ratio = other.seconds / many / (one.seconds / few)
    cpu = other.cpu / many / (one.cpu / few)
    return judge(
        {
            f"{ratio:.2f} times the time for each cell, at most {SUPERLINEAR}": ratio <= SUPERLINEAR,
            f"{cpu:.2f} times the CPU for each cell, at most {SUPERLINEAR}": cpu <= SUPERLINEAR,
        }
    )


# -- in processes of their own


def prepare(
    way: str,
    manifest: str,
    frameworks: Sequence[str],
    concurrency: int,
    folder: str,
    run_id: str,
    seconds: float,
) -> Way:
    """Make one way ready to start."""
    if way == "operator":
        return _operator(manifest, frameworks, concurrency, folder, run_id)
    import aiohttp  # noqa: F401 - before the clock starts

    writer = {"bare": write, "durable": write_durably}[way]
    rows = [json.loads(line) for line in Path(manifest).read_text().splitlines()]
    work = partial(_script, rows, frameworks, concurrency, Path(folder), writer, seconds)
    return Way(resident(), lambda: asyncio.run(work()))


def _operator(manifest: str, frameworks: Sequence[str], concurrency: int, folder: str, run_id: str) -> Way:
    imported = import_airflow(folder)
    from airflow_provider.operators.assess import ComplianceAssessOperator

    task = ComplianceAssessOperator(
        task_id="t",
        documents=manifest,
        frameworks=list(frameworks),
        destination=f"{folder}night={run_id}/",
        concurrency=concurrency,
    )
    context: Any = {"ti": TaskInstance(run_id)}
    return Way(imported, lambda: task.execute(context))


async def _script(
    rows: list[dict[str, Any]],
    frameworks: Sequence[str],
    concurrency: int,
    folder: Path,
    write_file: Callable[..., Any],
    seconds: float,
) -> None:
    """A fast script without error handling: one coroutine for each cell.

    :param seconds: how long an assessment takes
    """
    import aiohttp

    cells = [(row["source"], row["uuid"], framework) for row in rows for framework in frameworks]
    limit = asyncio.Semaphore(concurrency)
    findings: list[str] = []

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
        await write_file(folder / f"{number:06}.json", data)
        for each in json.loads(data)["results"]:
            found = {name: each[name] for name in ("criterion", "category", "rationale")}
            findings.append(json.dumps({"source": source, "framework": framework, **found}) + "\n")

    async with aiohttp.ClientSession() as session:
        host, bearer = await log_in(session)
        await asyncio.gather(*(process(number, *cell) for number, cell in enumerate(cells)))
    await write_file(folder / "findings.jsonl", "".join(findings).encode())


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("_"):
        _way, _manifest, _frameworks, _concurrency, _folder, _run_id, _seconds = sys.argv[1:]
        names = FRAMEWORKS[: int(_frameworks)]
        measure(prepare(_way[1:], _manifest, names, int(_concurrency), _folder, _run_id, float(_seconds)))
    else:
        sys.exit(main(sys.argv[1:]))
