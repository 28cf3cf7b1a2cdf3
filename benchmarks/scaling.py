"""What large nights cost that no night has to run for: `python -m benchmarks.scaling [ROW ...]`.

Each row prepares what earlier tasks leave, by the code that leaves it, and measures one step in a process of
its own: CPU, memory above the imports, and what it asks its store for. `--scale 0.1` takes a tenth of the
documents.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey, latest_rows
from airflow_provider.nights.index.ranges import HASH_BITS, hash_of
from airflow_provider.nights.ingest.shards import list_shards
from airflow_provider.nights.ingest.sources import resolve
from airflow_provider.nights.reports.documents import DocumentTables
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.storage.jsonl import TableFile
from airflow_provider.storage.locations import Location
from benchmarks.comparison import TaskInstance
from tests.nights.evidence.nights import cell, document, finding

NIGHTS = 30
CRITERIA = 6  # of each framework
FRAMEWORKS = "DORA", "GDPR"
ASKS = ("open", "ls", "find")  # objects and listings that a store is asked for
RATIONALE = "The contract regulates this in a clause of its own, with a period for the transition. " * 2


@dataclass(frozen=True)
class Row:
    """A step to measure.

    :param prepare: writes what earlier tasks leave below a folder
    :param measure: does the step
    :param targets: CPU-seconds or seconds, MiB above imports, requests to the store; None for no target
    """

    what: str
    prepare: Callable[[Path], None]
    measure: Callable[[Path], None]
    cpu: float
    memory: float
    requests: int | None = None


def source(number: int) -> str:
    """Return the address of a document."""
    return f"s3://my_aws@documents/in/{number % 1000:03}/contract-{number:07}.pdf"


def nights_of(
    root: Path, night: int, instance: str, sources: Sequence[str], kind: str = "ingest"
) -> EarlierNights:
    """Return the nights that a shard sees."""
    at = f"2026-{1 + night // 28:02}-{1 + night % 28:02}T00:00:00+00:00"
    task = TaskKey("nightly", f"night.shard.{kind}", instance)
    return EarlierNights(Location(f"file://{root}"), kind, Night(at, f"nightly/{night}"), task, sources)


def split(documents: int, bits: int) -> list[list[str]]:
    """Return the documents of each shard."""
    shards: list[list[str]] = [[] for _ in range(1 << bits)]
    for number in range(documents):
        shards[hash_of(source(number)) >> (HASH_BITS - bits)].append(source(number))
    return shards


def publish_entries(root: Path, documents: int, bits: int, nights: int) -> None:
    """Publish the entries of all shards of a night, and of 16 shards of all others: the rest is not read."""
    table = {"manifest": Table(f"file://{root}/none.jsonl", "0")}
    for number, sources in enumerate(split(documents, bits)):
        for night in range(nights if number < 16 else 1):
            nights_of(root, night, str(number), sources).publish(table, sources, "account")

    new = (f"{source(number)}-new" for number in count())
    wanted = list(islice((one for one in new if hash_of(one) >> (HASH_BITS - bits) == 1), 10))
    (root / "shard.json").write_text(json.dumps([split(documents, bits)[1], wanted]))


def look_up(root: Path) -> None:
    """Look for ten new documents of one shard."""
    sources, new = json.loads((root / "shard.json").read_text())
    wanted = set(new)
    earlier = nights_of(root, NIGHTS + 1, "1", [*sources, *wanted])
    list(latest_rows(earlier.entries(sources=wanted), "manifest", wanted, lambda row: row.get("source")))
    assert len(wanted) == 10


class Bucket:
    """Lists a bucket as S3 does, and nothing else."""

    async_impl = True

    def __init__(self, documents: int) -> None:
        self.documents = documents

    def call_s3(self, method: str, *, ContinuationToken: str = "0", **_: Any) -> Any:  # noqa: N803 - S3's names
        """Return a page of a thousand."""
        start = int(ContinuationToken)
        end = min(self.documents, start + 1000)
        keys = (source(number).partition("documents/")[2] for number in range(start, end))
        contents = [{"Key": key, "Size": 1000, "ETag": f'"{number:032x}"'} for number, key in enumerate(keys)]
        return {"Contents": contents, "IsTruncated": end < self.documents, "NextContinuationToken": str(end)}

    def invalidate_cache(self, *_: Any) -> None:
        """Do nothing."""

    def _strip_protocol(self, path: str) -> str:
        return path


def list_bucket(folder: Path, documents: int) -> None:
    """List a bucket; without what boto takes to read the answers of S3."""
    make = Location.__dict__["fs"].func
    stand_in = cached_property(lambda self: Bucket(documents) if self.protocol == "s3" else make(self))
    stand_in.__set_name__(Location, "fs")
    Location.fs = stand_in  # type: ignore[assignment,method-assign] # in this process only
    list_shards("s3://my_aws@documents/in/", f"file://{folder}/out/", None, 1024)


def write_list(folder: Path, documents: int) -> None:
    """Write a list of documents."""
    with (folder / "list.txt").open("w") as file:
        file.writelines(f"{source(number)}\n" for number in range(documents))


def findings(sources: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield findings with the columns that are long."""
    more = {"rationale": RATIONALE, "framework_fingerprint": "f" * 64, "cell": "c" * 64, "response_id": "1"}
    for one in sources:
        for framework in FRAMEWORKS:
            for number in range(CRITERIA):
                yield finding(one, f"{framework}-{number}", framework, uuid="u" * 36, **more)


def write_table(location: Location, rows: Iterable[dict[str, Any]]) -> TableFile:
    """Write a table."""
    table = TableFile(location)
    for row in rows:
        table.add([row])
    table.complete()
    table.replace()
    return table


def write_shard(folder: Path, sources: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the tables of a shard; return what its tasks return."""
    place = Location(f"file://{folder}")
    text = {"path": f"file://{folder}/a.txt", "sha256": "0" * 64}
    tables = {
        "manifest": write_table(place / "manifest.jsonl", (document(one, **text) for one in sources)),
        "assessments": write_table(
            place / "assessments.jsonl", (cell(one, name) for one in sources for name in FRAMEWORKS)
        ),
        "findings": write_table(place / "findings.jsonl.gz", findings(sources)),
    }
    uris = {name: table.location.uri for name, table in tables.items()}
    uris["hashes"] = json.dumps({name: table.sha256 for name, table in tables.items()})
    counts = {"completed": len(sources), "failed": 0, "skipped": 0}
    return {"manifest": uris["manifest"], **counts}, {**uris, "report": "file:///r.html", "categories": {}}


def write_history(root: Path, documents: int, bits: int) -> None:
    """Write what one shard has left of all nights; that of the others is not read."""
    [sources] = [sources for number, sources in enumerate(split(documents, bits)) if number == 0]
    for night in range(NIGHTS):
        ingested, assessed = write_shard(root / f"dt={night:02}", sources)
        hashes = json.loads(assessed["hashes"])
        for kind, name, keys in (("ingest", "manifest", sources), ("assess", "findings", [])):
            uri = (ingested | assessed)[name]
            table = {name: Table(uri, hashes[name])}
            nights_of(root, night, "0", sources, kind).publish(table, keys, "account")


def show_document(root: Path, documents: int, bits: int) -> None:
    """Read what a document's page and `history` show."""
    one = next(one for one in map(source, range(documents)) if hash_of(one) >> (HASH_BITS - bits) == 0)
    shown = DocumentTables(Location(f"file://{root}")).read(one)
    assert [len(night.findings) for night in shown] == [len(FRAMEWORKS) * CRITERIA] * NIGHTS


def write_night(root: Path, documents: int, most: int, size: int) -> None:
    """List a night, and write what the tasks of its shards leave."""
    write_list(root, documents)
    uris, _ = list_shards(f"file://{root}/list.txt", f"file://{root}/dt=1/", size, most)
    outputs = [
        write_shard(root / "dt=1" / f"{number:05}", list(resolve(uri))) for number, uri in enumerate(uris)
    ]
    (root / "outputs.json").write_text(json.dumps(outputs))


def close(root: Path) -> None:
    """Close the night."""
    ingested, assessed = zip(*json.loads((root / "outputs.json").read_text()), strict=True)
    destination = f"file://{root}/dt=1/"
    task = ComplianceCloseNightOperator(
        task_id="close", ingested=list(ingested), assessed=list(assessed), destination=destination
    )
    context: Any = {"ti": TaskInstance(), "dag_run": SimpleNamespace(), "outlet_events": {}}
    result = task.execute(context)
    assert result["assessments"] == 2 * result["documents"]


def rows(scale: float) -> dict[str, Row]:
    """Return what there is to measure."""
    many, some = int(1_000_000 * scale), int(20_000 * scale)

    def look(shards: str, bits: int, nights: int) -> Row:
        return Row(
            f"look up 10 new documents, {shards} shards, {nights} nights",
            lambda root: publish_entries(root, 100 << bits, bits, nights),
            look_up,
            0.3, 20.0, 2 * nights + 4,
        )  # fmt: skip

    def page(what: str, documents: int, bits: int, seconds: float) -> Row:
        return Row(
            f"page of a document, {what}, {NIGHTS} nights, 12 findings",
            lambda root: write_history(root, documents, bits),
            lambda root: show_document(root, documents, bits),
            seconds, 100.0,
        )  # fmt: skip

    def closed(documents: int, most: int, size: int) -> Row:
        return Row(
            f"close {documents:,} documents x 2 in shards of {size:,}",
            lambda root: write_night(root, documents, most, size),
            close, documents * 2e-3, 500.0,
        )  # fmt: skip

    return {
        "lookup": look("1,024", 10, NIGHTS),
        "lookup-more": look("8,192", 13, NIGHTS),
        "list": Row(
            f"list {many:,} documents of a list",
            lambda root: write_list(root, many),
            lambda root: _ignore(list_shards(f"file://{root}/list.txt", f"file://{root}/out/", None, 1024)),
            10.0, 150.0,
        ),
        "bucket": Row(
            f"list {many:,} documents of a bucket",
            lambda _: None,
            lambda root: list_bucket(root, many),
            10.0, 150.0,
        ),
        "page": page(f"{some:,} documents in 32 shards", some, 5, 1.0),
        "page-one": page(f"{some:,} documents in one shard", some, 0, 3.0),
        "page-large": page(f"{many:,} documents in 256 shards", many, 8, 3.0),
        "close": closed(some, 1024, 625),
        "close-large": closed(5 * some, 1024, 400),
        "close-shards": closed(some, 4096, 12),
    }  # fmt: skip


def _ignore(_: object) -> None:
    """Take a result."""


def _in_process(work: Callable[[Path], None], folder: Path, *, is_measured: bool) -> dict[str, float]:
    queue: Any = multiprocessing.get_context("fork").SimpleQueue()

    def run() -> None:
        logging.disable()
        asked, before = Counter[str](), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if is_measured:
            _count(Location(f"file://{folder}").fs, asked)
        cpu, begin = time.process_time(), time.perf_counter()
        work(folder)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        seconds = time.perf_counter() - begin
        queue.put({
            "cpu": time.process_time() - cpu, "seconds": seconds, "memory": memory / 1024,
            "requests": asked.total(),
        })  # fmt: skip

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit("The step failed.")
    result: dict[str, float] = queue.get()
    return result


def _count(fs: Any, asked: Counter[str]) -> None:
    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any, **named: Any) -> Any:
            asked[name] += 1
            return call(*arguments, **named)

        return ask

    for name in ASKS:
        if call := getattr(fs, name, None):
            setattr(fs, name, counted(name, call))


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="Large nights")
    parser.add_argument("rows", nargs="*", help=", ".join(rows(1)))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--folder", help="for what is prepared, such as /dev/shm")
    options = parser.parse_args(arguments)
    is_good = True
    for name, row in rows(options.scale).items():
        if options.rows and name not in options.rows:
            continue
        with tempfile.TemporaryDirectory(prefix="scaling-", dir=options.folder) as folder:
            _in_process(row.prepare, Path(folder), is_measured=False)
            found = _in_process(row.measure, Path(folder), is_measured=True)
        within = found["cpu"] <= row.cpu and found["memory"] <= row.memory
        within = within and (row.requests is None or found["requests"] <= row.requests)
        is_good = is_good and within
        print(
            f"{row.what:<64} {found['cpu']:>7.2f} CPU-s (at most {row.cpu:g}) {found['seconds']:>7.2f} s "
            f"{found['memory']:>6.0f} MiB (at most {row.memory:g}) {found['requests']:>6.0f} requests"
            f"{'' if row.requests is None else f' (at most {row.requests})'}"
            f" {'good' if within else 'MISSED'}",
            flush=True,
        )
    return not is_good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
