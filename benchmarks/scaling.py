"""What large nights cost that no night has to run for: `python -m benchmarks.scaling [ROW ...]`.

Each row prepares what earlier tasks leave, by the code that leaves it, and measures one step in a process of
its own: CPU, memory above the imports, and what it asks its store for. `--scale 0.1` takes a tenth of the
documents; `--folder` is for what is prepared, such as /dev/shm.
"""

from __future__ import annotations

import hashlib
import json
import logging
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property, partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_provider.nights.evidence.chain import Chain
from airflow_provider.nights.evidence.verifier import Folder, Verifier
from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey, latest_rows
from airflow_provider.nights.index.ranges import HASH_BITS, hash_of
from airflow_provider.nights.ingest.shards import list_shards
from airflow_provider.nights.ingest.sources import resolve
from airflow_provider.nights.reports.documents import DocumentTables
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.pages.nights import MAX_NIGHTS, list_nights
from airflow_provider.storage.jsonl import TableFile
from airflow_provider.storage.locations import Location
from benchmarks.harness import TaskInstance, judge, options, table, timed
from tests.support.nights import cell, document, finding

NIGHTS = 30
CHANGED = ("number", "previous", "latest")  # of each record of a chain
CRITERIA = 6  # of each framework
FRAMEWORKS = "DORA", "GDPR"
ASKS = ("open", "ls", "find")  # objects and listings that a store is asked for
RATIONALE = "The contract regulates this in a clause of its own, with a period for the transition. " * 2
Step = Callable[[Path], object]


def source(number: int) -> str:
    """Return the address of a document."""
    return f"s3://my_aws@documents/in/{number % 1000:03}/contract-{number:07}.pdf"


def nights_of(
    root: Path, night: int, instance: str, sources: Sequence[str], kind: str = "ingest"
) -> EarlierNights:
    """Return the nights that a shard sees."""
    at = f"2026-{1 + night // 28:02}-{1 + night % 28:02}T00:00:00+00:00"
    task = TaskKey("nightly", f"night.shard.{kind}", instance)
    name = Night(at, f"nightly/{night}")
    return EarlierNights(Location(f"file://{root}"), kind, name, task, "account", sources)


def split(documents: int, bits: int) -> list[list[str]]:
    """Return the documents of each shard."""
    shards: list[list[str]] = [[] for _ in range(1 << bits)]
    for number in range(documents):
        shards[hash_of(source(number)) >> (HASH_BITS - bits)].append(source(number))
    return shards


def publish_entries(root: Path, bits: int) -> None:
    """Publish the entries of all shards of a night, and of 16 shards of all others: the rest is not read."""
    shards = split(100 << bits, bits)
    for number, sources in enumerate(shards):
        for night in range(NIGHTS if number < 16 else 1):
            entry = {"manifest": Table(f"file://{root}/none.jsonl", "0")}
            nights_of(root, night, str(number), sources).publish(entry, sources)
    new = (f"{source(number)}-new" for number in count())
    wanted = list(islice((one for one in new if hash_of(one) >> (HASH_BITS - bits) == 1), 10))
    (root / "shard.json").write_text(json.dumps([shards[1], wanted]))


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


def list_bucket(documents: int, root: Path) -> None:
    """List a bucket; without what boto takes to read the answers of S3."""
    make = Location.__dict__["fs"].func
    stand_in = cached_property(lambda self: Bucket(documents) if self.protocol == "s3" else make(self))
    stand_in.__set_name__(Location, "fs")
    Location.fs = stand_in  # type: ignore[assignment,method-assign] # in this process only
    list_shards("s3://my_aws@documents/in/", f"file://{root}/out/", None, 1024)


def write_list(documents: int, root: Path) -> None:
    """Write a list of documents."""
    with (root / "list.txt").open("w") as file:
        file.writelines(f"{source(number)}\n" for number in range(documents))


def list_list(root: Path) -> None:
    """Divide the documents of a list."""
    list_shards(f"file://{root}/list.txt", f"file://{root}/out/", None, 1024)


def findings(sources: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield findings with the columns that are long."""
    more = {"rationale": RATIONALE, "framework_fingerprint": "f" * 64, "cell": "c" * 64, "response_id": "1"}
    for one in sources:
        for framework in FRAMEWORKS:
            for number in range(CRITERIA):
                yield finding(one, f"{framework}-{number}", framework, uuid="u" * 36, **more)


def write_table(location: Location, rows: Iterable[dict[str, Any]]) -> TableFile:
    """Write a table."""
    written = TableFile(location)
    for row in rows:
        written.add([row])
    written.complete()
    written.replace()
    return written


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


def write_history(documents: int, bits: int, root: Path) -> None:
    """Write what the first shard has left of all nights; that of the others is not read."""
    sources = split(documents, bits)[0]
    (root / "document.txt").write_text(sources[0])
    for night in range(NIGHTS):
        ingested, assessed = write_shard(root / f"dt={night:02}", sources)
        hashes = json.loads(assessed["hashes"])
        for kind, name, keys in (("ingest", "manifest", sources), ("assess", "findings", [])):
            entry = {name: Table((ingested | assessed)[name], hashes[name])}
            nights_of(root, night, "0", sources, kind).publish(entry, keys)


def show_document(root: Path) -> None:
    """Read what a document's page and `history` show."""
    shown = DocumentTables(Location(f"file://{root}")).read((root / "document.txt").read_text())
    assert [len(night.findings) for night in shown] == [len(FRAMEWORKS) * CRITERIA] * NIGHTS


def write_night(documents: int, most: int, size: int, root: Path) -> None:
    """List a night, and write what the tasks of its shards leave."""
    write_list(documents, root)
    uris, _ = list_shards(f"file://{root}/list.txt", f"file://{root}/dt=1/", size, most)
    shards = (
        write_shard(root / "dt=1" / f"{number:05}", list(resolve(uri))) for number, uri in enumerate(uris)
    )
    (root / "outputs.json").write_text(json.dumps(list(shards)))


def close(root: Path) -> None:
    """Close the night."""
    ingested, assessed = map(list, zip(*json.loads((root / "outputs.json").read_text()), strict=True))
    destination = f"file://{root}/dt=1/"
    task = ComplianceCloseNightOperator(
        task_id="close", ingested=ingested, assessed=assessed, destination=destination
    )
    context: Any = {"ti": TaskInstance(), "dag_run": SimpleNamespace(), "outlet_events": {}}
    result = task.execute(context)
    assert result["assessments"] in (0, 2 * result["documents"])


def write_chain(documents: int, root: Path) -> None:
    """Close a night in many shards, and add records like it."""
    write_night(documents, 4096, 10, root)
    close(root)
    chain = Chain(Location(f"file://{root}"))
    # Each record has the others of its own.
    kept = {name: value for name, value in chain.read(1).record.items() if name not in CHANGED}
    for number in range(1, MAX_NIGHTS):
        night = f"2026-{3 + number // 28:02}-{1 + number % 28:02}T00:00:00+00:00"
        chain.append(partial(_last, kept | {"night": night, "run": f"r{number}"}))


def _last(record: dict[str, Any], _: object) -> dict[str, Any]:
    return record


def show_nights(root: Path) -> None:
    """Read what the list of nights shows."""
    assert len(list_nights(f"file://{root}", {TaskInstance.dag_id})) == MAX_NIGHTS


def close_texts(texts: int, root: Path) -> None:
    """Write the texts of a night, and close it."""
    folder, size = root / "dt=1", 1000
    folder.mkdir()
    written = []
    for number in range(texts):
        path, data = folder / f"{number:06}.txt", f"{number} ".encode().ljust(size, b".")
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        written.append(document(source(number), path=f"file://{path}", sha256=digest))
    table = write_table(Location(f"file://{folder}/manifest.jsonl"), written)
    (root / "outputs.json").write_text(json.dumps([[table.location.uri, []]]))
    close(root)


def verify(root: Path) -> None:
    """Verify a night; beside it, a loop that only hashes takes a third of its CPU."""
    assert [check.status for check in Verifier(Folder(str(root))).run()] == ["OK"]


def rows(scale: float) -> dict[str, tuple[str, Step, Step, float, float, int]]:
    """Return what to measure: how it is prepared and done, and its CPU-seconds, MiB and requests at most."""
    many, some = int(1_000_000 * scale), int(20_000 * scale)
    any_number = sys.maxsize  # of requests

    def look(bits: int) -> tuple[str, Step, Step, float, float, int]:
        what = f"look up 10 new documents, {1 << bits:,} shards, {NIGHTS} nights"
        return what, partial(publish_entries, bits=bits), look_up, 0.3, 20.0, 2 * NIGHTS + 4

    def page(documents: int, bits: int, seconds: float) -> tuple[str, Step, Step, float, float, int]:
        what = f"page of one of {documents:,} documents in {1 << bits} shards, {NIGHTS} nights, 12 findings"
        return what, partial(write_history, documents, bits), show_document, seconds, 100.0, any_number

    def closed(documents: int, most: int, size: int) -> tuple[str, Step, Step, float, float, int]:
        what, prepare = f"close {documents:,} documents x 2", partial(write_night, documents, most, size)
        return f"{what} in shards of {size:,}", prepare, close, documents * 2e-3, 500.0, any_number

    listing, bucket = partial(write_list, many), partial(list_bucket, many)
    return {
        "lookup": look(10),
        "lookup-more": look(13),
        "list": (f"list {many:,} documents of a list", listing, list_list, 10.0, 150.0, any_number),
        "bucket": (f"list {many:,} documents of a bucket", str, bucket, 10.0, 150.0, any_number),
        "page": page(some, 5, 1.0),
        "page-one": page(some, 0, 3.0),
        "page-large": page(many, 8, 3.0),
        "close": closed(some, 1024, 625),
        "close-large": closed(many, 1024, 4000),
        "close-shards": closed(some, 4096, 12),
        "verify": (
            f"verify {2 * some:,} texts", partial(close_texts, 2 * some), verify,
            some * 5e-4, 150.0, any_number,
        ),
        "nights": (
            f"list of {MAX_NIGHTS} nights, each with {some // 2:,} documents in 1,024 shards",
            partial(write_chain, some // 2), show_nights, 1.0, 30.0, any_number,
        ),
    }  # fmt: skip


def run(name: str, scale: float, folder: str, *, is_measured: bool) -> dict[str, float]:
    """Prepare or do a step in this process; return what it took."""
    logging.disable()
    _, prepare, do, *_ = rows(scale)[name]
    asked, before = Counter[str](), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if is_measured:
        _count(Location(f"file://{folder}").fs, asked)
    took = timed(lambda: (do if is_measured else prepare)(Path(folder)))
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"CPU-s": took.cpu, "MiB": memory, "requests": asked.total(), "s": took.seconds}


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
    chosen = options(arguments, __doc__, list(rows(1)), scale=1.0, folder=tempfile.gettempdir())
    is_good = True
    for name in chosen.names or rows(1):
        what, _, _, *limits = rows(chosen.scale)[name]
        with tempfile.TemporaryDirectory(prefix="scaling-", dir=chosen.folder) as folder:
            for is_measured in (False, True):  # each in a process of its own
                with ProcessPoolExecutor(1, get_context("fork")) as pool:
                    found = pool.submit(run, name, chosen.scale, folder, is_measured=is_measured).result()
        table({"": what, **found})
        is_good &= judge(**{
            one: (found[one], limit)
            for one, limit in zip(("CPU-s", "MiB", "requests"), limits, strict=True)
            if limit != sys.maxsize
        })  # fmt: skip
    return not is_good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
