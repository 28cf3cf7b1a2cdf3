"""The resume of a task that has finished 50,000 documents or cells, from a store with 30 ms per request.

`python -m benchmarks.resume`, or with `--items 5000 --of ingest` for a quick look. The store is SeaweedFS
behind a proxy that passes every request on 30 ms later. An earlier attempt has left its journal, written by
`Checkpoint` as a running task writes it, and its texts or results; one item is still to be submitted.
Measured is the next attempt, in a process of its own: until its first submit, and until its end, with
manifest and report. Beside it a bare script: it lists and reads the same journal with as many requests in
flight, and finds each text in a listing, or reads each result.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.comparison import (
    Result,
    TaskInstance,
    Way,
    import_airflow,
    judge,
    peak_mib,
    resident,
    run_process,
    task_environment,
)
from benchmarks.service import Service, page

ITEMS = 50_000
LATENCY = 0.03
CONCURRENCY = 16
RECORDS = 12  # of a segment, which arrive while the previous one is written to such a store
TEXT = b"Outsourcing of activities\n"
FIRST_SUBMIT_SECONDS = 15.0
GROWTH_MIB = 250.0
BUCKET, FOLDER = "texts", "nights/dt=2026-01-01/"
DESTINATION = f"s3://slow@{BUCKET}/{FOLDER}"
TASK_KINDS = ("ingest", "assess")
METHODS = (b"GET ", b"PUT ", b"HEAD ", b"POST ", b"DELETE ")
TRIED = "BENCHMARK_FIRST_SUBMIT"  # file that says after how many seconds the first submit came


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="A resume from a slow store")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--latency", type=float, default=LATENCY)
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY)
    parser.add_argument("--of", nargs="+", choices=TASK_KINDS, default=TASK_KINDS)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args(arguments)
    met = True
    for kind in options.of:
        for _ in range(options.rounds):
            found = run(kind, options.items, options.latency, options.concurrency)
            first, ours = found["operator"]
            times = f"{first:.1f} s, {first / found['script'][0]:.2f} times the script"
            memory = f"{ours.growth:.0f} MiB above Airflow's imports, below {GROWTH_MIB:.0f}"
            targets = {
                f"first submit after {times}, at most {FIRST_SUBMIT_SECONDS:.0f} s": first
                <= FIRST_SUBMIT_SECONDS,
                memory: ours.growth < GROWTH_MIB,
            }
            met = judge(targets) and met
    return 0 if met else 1


def run(kind: str, items: int, latency: float, concurrency: int) -> dict[str, tuple[float, Result]]:
    """Return the seconds until the first submit, and the result, of script and operator."""
    with (
        Service(jobs="instant", access_lifetime=3600) as service,
        task_environment(service) as environment,
        slow_store(latency) as store,
        tempfile.TemporaryDirectory(prefix="resume-") as folder,
    ):
        environment["AIRFLOW_CONN_SLOW"] = store.connection
        begin = time.perf_counter()
        job = service.control("POST", "jobs", text="new", file_name="new.pdf", status="COMPLETED")
        common = (items, concurrency, folder)
        run_process(service, environment, "benchmarks.resume", f"_prepare_{kind}", *common, job)
        segments = store.upload(Path(folder) / "store")
        print(
            f"{kind}: {items} finished, {segments} segments of the journal, "
            f"{latency * 1000:.0f} ms per request (prepared in {time.perf_counter() - begin:.0f} s)"
        )
        found: dict[str, tuple[float, Result]] = {}
        tried = Path(folder) / "tried"
        for way in ("script", "operator"):
            before = store.requests()
            environment[TRIED] = str(tried)
            result = run_process(service, environment, "benchmarks.resume", f"_{way}_{kind}", *common, job)
            first = float(tried.read_text()) if way == "operator" else result.seconds
            found[way] = first, result
            asked = ", ".join(f"{name} {n}" for name, n in sorted((store.requests() - before).items()))
            print(
                f"  {way:<9} first submit {first:>7.2f} s, end {result.seconds:>7.2f} s, "
                f"CPU {result.cpu:>6.2f} s, grows by {result.growth:>6.1f} MiB; {asked}"
            )
    return found


# -- the store


@dataclass
class Store:
    """A bucket that answers late."""

    connection: str  # the Airflow connection, as JSON
    filer: str  # where files can be put without delay and signature
    requests: Callable[[], Counter[str]]

    def upload(self, folder: Path) -> int:
        """Put all files of a folder there; return how many of them are segments."""
        files = [path for path in folder.rglob("*") if path.is_file()]

        async def put_all() -> None:
            import aiohttp

            left = iter(files)

            async def worker() -> None:
                for path in left:
                    address = f"{self.filer}/{path.relative_to(folder)}"
                    async with session.put(address, data=path.read_bytes()) as response:
                        response.raise_for_status()

            async with aiohttp.ClientSession() as session:
                await asyncio.gather(*(worker() for _ in range(16)))

        asyncio.run(put_all())
        return sum(path.name.startswith("journal-") for path in files)


@contextmanager
def slow_store(latency: float) -> Iterator[Store]:
    """Start SeaweedFS, and the proxy before it."""
    from tests.stores.s3_servers import SeaweedFS

    server = SeaweedFS()
    server.start()
    try:
        server.client().create_bucket(Bucket=BUCKET)
        with _proxy(int(server.url.rpartition(":")[2]), latency) as (url, requests):
            key, secret = server.writer
            extra = {"endpoint_url": url, "region_name": "us-east-1"}
            connection = {"conn_type": "aws", "login": key, "password": secret, "extra": extra}
            filer = f"http://127.0.0.1:{server._ports[6]}/buckets/{BUCKET}"
            yield Store(json.dumps(connection), filer, lambda: Counter(requests))
    finally:
        server.close()


@contextmanager
def _proxy(port: int, latency: float) -> Iterator[tuple[str, Counter[str]]]:
    """Pass on what clients send, a little later; and what the server answers, at once."""
    requests: Counter[str] = Counter()
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port)

        async def answer() -> None:
            while data := await upstream.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.close()

        task = asyncio.create_task(answer())
        while data := await reader.read(1 << 16):
            if data.startswith(METHODS):
                requests[data.partition(b" ")[0].decode()] += 1
            loop.call_later(latency, downstream.write, data)
        loop.call_later(latency, downstream.close)
        await task

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


# -- what an earlier attempt has left, in a process of its own


def _write_journal(folder: Path, work: str, items: Iterable[Any], finish: Callable[[Any], None]) -> None:
    """Write the journal of a task: each item when it is submitted, and soon after that when it is done."""
    from airflow_provider.nights.bulk.checkpoint import Checkpoint
    from airflow_provider.storage.locations import Location

    async def write() -> None:
        checkpoint = Checkpoint(Location(str(folder / FOLDER / work)), Location(str(folder)), "none")
        pending: list[Any] = []
        records = 0

        async def append(item: Any) -> None:
            nonlocal records
            checkpoint.append(item)
            records += 1
            if records % RECORDS == 0:
                await checkpoint.flush()

        async def end(item: Any) -> None:
            finish(item)
            await append(item)

        for item in items:
            await append(item)
            pending.append(item)
            if len(pending) > 100:
                await end(pending.pop(0))
        for item in pending:
            await end(item)
        await checkpoint.flush()

    os.fsync = lambda _: None  # type: ignore[assignment] # of the preparation only
    asyncio.run(write())


def _prepare_ingest(items: int, concurrency: int, folder: Path, job: str) -> Any:
    from airflow_provider.nights.bulk.items import COMPLETED, SUBMITTED
    from airflow_provider.nights.ingest.documents import Document
    from airflow_provider.storage.layout import INGEST_WORK, task_folder
    from airflow_provider.storage.names import digest as digest_of

    texts, digest = folder / FOLDER, hashlib.sha256(TEXT).hexdigest()
    texts.mkdir(parents=True)

    def submit(number: int) -> Document:
        return Document(
            page(number), f"job-{number}", SUBMITTED, submitted_at="2026-01-01T00:00:00", attempts=1
        )

    def finish(document: Document) -> None:
        name = f"{PurePosixPath(document.key).stem}-{digest_of(document.key)}.txt"
        (texts / name).write_bytes(TEXT)
        document.state, document.completed_at = COMPLETED, "2026-01-01T00:00:02"
        document.path, document.bytes, document.sha256 = f"{DESTINATION}{name}", len(TEXT), digest

    _write_journal(folder, task_folder(TaskInstance(), INGEST_WORK), map(submit, range(items)), finish)


def _rows(items: int, job: str) -> list[dict[str, Any]]:
    """Return the manifest that the assessment is of; the last document is new."""
    rows = [{"source": page(number), "uuid": f"job-{number}"} for number in range(items)]
    rows.append({"source": page(items), "uuid": job})
    return [
        {**row, "status": "COMPLETED", "sha256": hashlib.sha256(row["uuid"].encode()).hexdigest()}
        for row in rows
    ]


def _prepare_assess(items: int, concurrency: int, folder: Path, job: str) -> None:
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.nights.assess.cells import Cell, make_cells, select_frameworks
    from airflow_provider.nights.assess.inputs import read_documents
    from airflow_provider.nights.assess.payloads import DEFAULT_PAYLOAD, PayloadTemplate
    from airflow_provider.nights.bulk.items import COMPLETED, SUBMITTED
    from airflow_provider.storage.layout import ASSESS_WORK, task_folder

    results = folder / FOLDER / "results"
    results.mkdir(parents=True)
    rows = _rows(items, job)
    (folder.parent / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    frameworks = select_frameworks(ComplianceHook().list_frameworks(), ["DORA"])
    documents, *_ = read_documents(str(folder.parent / "manifest.jsonl"))
    criteria = [name for name, _ in frameworks[0].criteria]
    found = [
        {
            "id": number,
            "criterion": name,
            "category": "SUFFICIENTLY_REGULATED",
            "rationale": "See clause 4. " * 10,
        }
        for number, name in enumerate(criteria)
    ]
    data = json.dumps({"results": found}).encode()
    digest = hashlib.sha256(data).hexdigest()

    def submit(number_and_cell: tuple[int, Cell]) -> Cell:
        number, cell = number_and_cell
        cell.job_id, cell.state, cell.attempts = f"assessment-{number}", SUBMITTED, 1
        cell.submitted_at = "2026-01-01T00:00:00"
        return cell

    def finish(cell: Cell) -> None:
        name = f"{cell.job_id}.json"
        (results / name).write_bytes(data)
        cell.state, cell.completed_at = COMPLETED, "2026-01-01T00:00:02"
        cell.results_path, cell.results_sha256 = f"{DESTINATION}results/{name}", digest

    account = ComplianceHook().account_digest
    cells = make_cells(documents[:-1], frameworks, PayloadTemplate(DEFAULT_PAYLOAD), account)
    _write_journal(folder, task_folder(TaskInstance(), ASSESS_WORK), map(submit, enumerate(cells)), finish)


# -- the ways, in processes of their own


def _operator_ingest(items: int, concurrency: int, folder: Path, job: str) -> Way:
    imported = import_airflow(DESTINATION)
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.operators.ingest import ComplianceIngestOperator

    urls = [page(number) for number in range(items + 1)]
    task = ComplianceIngestOperator(
        task_id="t", sources=urls, destination=DESTINATION, concurrency=concurrency
    )
    return Way(imported, lambda: _execute(task, AsyncComplianceClient, "submit_url"))


def _operator_assess(items: int, concurrency: int, folder: Path, job: str) -> Way:
    imported = import_airflow(DESTINATION)
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.operators.assess import ComplianceAssessOperator

    task = ComplianceAssessOperator(
        task_id="t",
        documents=str(folder.parent / "manifest.jsonl"),
        frameworks=["DORA"],
        destination=DESTINATION,
        concurrency=concurrency,
    )
    return Way(imported, lambda: _execute(task, AsyncComplianceClient, "submit_assessment"))


def _execute(task: Any, client: Any, name: str) -> None:
    """Execute a task, and note when its first submit comes; there must be one."""
    begin, submit, times = time.perf_counter(), getattr(client, name), []

    async def timed(*arguments: Any) -> Any:
        times.append(time.perf_counter() - begin)
        return await submit(*arguments)

    setattr(client, name, timed)
    task.execute({"ti": TaskInstance()})
    (seconds,) = times
    Path(os.environ[TRIED]).write_text(str(seconds))


def _script_ingest(items: int, concurrency: int, folder: Path, job: str) -> Way:
    import_module("aiobotocore.session")  # before the clock starts
    return Way(resident(), lambda: asyncio.run(_read_all(items, concurrency, reads_outputs=False)))


def _script_assess(items: int, concurrency: int, folder: Path, job: str) -> Way:
    import_module("aiobotocore.session")  # before the clock starts
    return Way(resident(), lambda: asyncio.run(_read_all(items, concurrency, reads_outputs=True)))


async def _read_all(items: int, concurrency: int, *, reads_outputs: bool) -> None:
    """Read the journal, and see that the outputs are there; assume that no other attempt runs."""
    get_session = import_module("aiobotocore.session").get_session
    connection = json.loads(os.environ["AIRFLOW_CONN_SLOW"])
    async with get_session().create_client(
        "s3",
        endpoint_url=connection["extra"]["endpoint_url"],
        region_name="us-east-1",
        aws_access_key_id=connection["login"],
        aws_secret_access_key=connection["password"],
    ) as client:
        listed: dict[str, int] = {}
        async for answer in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=FOLDER):
            listed |= {each["Key"]: each["Size"] for each in answer.get("Contents", [])}

        async def read(keys: Iterable[str], use: Callable[[bytes], None]) -> None:
            left = iter(keys)

            async def worker() -> None:
                for key in left:
                    answer = await client.get_object(Bucket=BUCKET, Key=key)
                    use(await answer["Body"].read())

            await asyncio.gather(*(worker() for _ in range(2 * concurrency)))

        known: dict[str, dict[str, Any]] = {}

        def keep(data: bytes) -> None:
            for record in map(json.loads, data.splitlines()):
                known[record.get("key", record["source"])] = record  # whichever comes last

        await read([key for key in listed if "/journal-" in key], keep)
        assert len(known) == items
        if reads_outputs:
            await read([key for key in listed if "/results/" in key], lambda data: json.loads(data))
        else:
            assert sum(size == len(TEXT) for key, size in listed.items() if key.endswith(".txt")) == items


def _run(name: str, items: int, concurrency: int, folder: Path, job: str) -> None:
    way = globals()[name](items, concurrency, folder / "store", job)
    cpu, begin = time.process_time(), time.perf_counter()
    if way:
        way.run()
    growth = peak_mib() - (way.imported if way else 0.0)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "growth": growth, "cpu": cpu}))


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("_"):
        _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5])
    else:
        sys.exit(main(sys.argv[1:]))
