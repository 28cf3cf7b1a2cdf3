"""Kill -9 the process that ingests, again and again, and see what is left of the documents.

`python -m benchmarks.soak`, or with `--rounds 2 --stores files` for a quick look. A round is a task of many
documents, some of them large. Its attempts, each a process of its own, are killed at random moments; the last
one may run to its end. Then each document must have one row in the manifest and one text, whole; and the
service must have got no more jobs than there are documents, plus `concurrency` for each kill. The first
violation ends it, and says the seed that shows it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.harness import Service, TaskInstance, options, page, table, text_of

JOBS, LATENCY = "seconds:1", 0.02
LARGE = 3  # documents of a round that are large
TIMEOUT_SECONDS = 120.0  # for an attempt that is not killed
LONGEST_SECONDS = {"files": 2.0, "s3": 4.0}  # until a kill, so that it falls into the work
BUCKET = "texts"
IMPORTS = (  # what an attempt needs, so that its time goes into its work
    "aiohttp", "airflow.providers.amazon.aws.fs.s3", "airflow.sdk", "airflow_provider.client.aio",
    "airflow_provider.nights.ingest.documents", "airflow_provider.nights.reports.ingest",
    "airflow_provider.operators.ingest", "jinja2", "s3fs",
)  # fmt: skip


class ViolationError(Exception):
    """Something that must never be."""


def main(arguments: Sequence[str] = ()) -> int:
    """Run the rounds and print what was found."""
    chosen = options(
        arguments, __doc__, rounds=10, kills=4, documents=400, concurrency=16, seed=0, stores=[*STORES]
    )
    with Service(jobs=JOBS, latency=LATENCY) as service:
        os.environ |= service.environment
        for name in IMPORTS:
            import_module(name)
        for name in chosen.stores:
            with STORES[name]() as (prefix, folder):
                rows = []
                for seed in range(chosen.seed, chosen.seed + chosen.rounds):
                    try:
                        place = f"{prefix}{seed}/", folder / str(seed)
                        rows.append(_round(service, *place, seed, LONGEST_SECONDS[name], chosen))
                    except ViolationError as violation:
                        print(f"VIOLATED on {name} with --seed {seed} --rounds 1: {violation}")
                        return 1
            print(f"{name}: tasks of {chosen.documents} documents; each has one row and one whole text")
            table(*rows)
    return 0


def _round(
    service: Service, prefix: str, folder: Path, seed: int, longest: float, chosen: Any
) -> dict[str, object]:
    chance = random.Random(seed)
    service.reset()
    sources = [page(number, f"round{seed}") for number in range(chosen.documents - LARGE)]
    sources += [page(number, f"large/{seed}") for number in range(LARGE)]
    chance.shuffle(sources)
    done_before: list[int] = []
    for _ in range(chosen.kills):
        # Over all of an attempt, from before its first request; later attempts have less to do.
        if not _attempt(sources, prefix, chosen.concurrency, chance.uniform(0.0, longest)):
            break
        done_before.append(len(list(folder.glob("*.txt"))))
    kills = len(done_before)
    if kills == chosen.kills and _attempt(sources, prefix, chosen.concurrency, TIMEOUT_SECONDS):
        raise ViolationError(f"the last attempt did not end within {TIMEOUT_SECONDS:.0f} s")
    _check(folder, sources)
    jobs = service.counters()["jobs_submitted"]
    repeated = jobs - len(sources)
    if repeated > chosen.concurrency * kills:
        raise ViolationError(f"{jobs} jobs for {len(sources)} documents and {kills} kills")
    leftovers = sum(file.name.endswith(".part") for file in folder.rglob("*"))
    return {"seed": seed, "kills": kills, "jobs submitted again": repeated,
            "allowed": chosen.concurrency * kills, "hidden files left": leftovers,
            "texts at each kill": done_before}  # fmt: skip


def _attempt(sources: list[str], prefix: str, concurrency: int, seconds: float) -> bool:
    """Run the operator for some seconds; return whether it had to be killed."""
    # All is imported, and nothing runs here: a fork is as fresh as a new process, and much faster.
    process = get_context("fork").Process(target=_ingest, args=(sources, prefix, concurrency))
    process.start()
    process.join(seconds)
    is_killed = process.is_alive()
    process.kill()
    process.join()
    if process.exitcode and not is_killed:
        raise ViolationError(f"an attempt ended by itself with {process.exitcode}")
    return is_killed


def _ingest(sources: list[str], prefix: str, concurrency: int) -> None:
    from airflow_provider.operators.ingest import ComplianceIngestOperator

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its log
    task = ComplianceIngestOperator(
        task_id="ingest", sources=sources, destination=prefix, concurrency=concurrency
    )
    context: Any = {"ti": TaskInstance()}
    task.execute(context)


def _check(folder: Path, sources: list[str]) -> None:
    """Look at the files themselves: also objects of the S3 server are plain files."""
    (manifest,) = folder.rglob("manifest.jsonl")
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    number = Counter(row["source"] for row in rows)
    if number != Counter(sources):
        raise ViolationError(f"{len(rows)} rows, of {len(number)} documents")
    names = Counter(row["path"].rpartition("/")[2] for row in rows)
    found = {each.name for each in folder.glob("*.txt")}
    if found != set(names) or max(names.values()) > 1:
        raise ViolationError(f"{len(found)} texts for {len(names)} names in {len(rows)} rows")
    for row in rows:
        data = (folder / row["path"].rpartition("/")[2]).read_bytes()
        is_whole = data == text_of(row["source"]).encode()
        is_as_told = (row["bytes"], row["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        if row["status"] != "COMPLETED" or not is_whole or not is_as_told:
            raise ViolationError(f"{row}: {len(data)} bytes, whole: {is_whole}")
    if segments := list(folder.rglob("journal-*")):
        raise ViolationError(f"{len(segments)} segments of the journal are left")


@contextmanager
def _files() -> Iterator[tuple[str, Path]]:
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        yield f"{folder}/", Path(folder)


@contextmanager
def _s3() -> Iterator[tuple[str, Path]]:
    from tests.stores.s3_servers import Rclone

    server = Rclone()
    server.start()
    try:
        server.client().create_bucket(Bucket=BUCKET)
        key, secret = server.writer
        extra = {"endpoint_url": server.url, "region_name": "us-east-1"}
        os.environ["AIRFLOW_CONN_SOAK"] = json.dumps(
            {"conn_type": "aws", "login": key, "password": secret, "extra": extra}
        )
        yield f"s3://soak@{BUCKET}/", server.folder / "data" / BUCKET
    finally:
        server.close()


STORES = {"files": _files, "s3": _s3}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
