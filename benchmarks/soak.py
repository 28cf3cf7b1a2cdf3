"""Kill -9 the process that ingests, again and again, and see what is left of the documents.

`python -m benchmarks.soak`, or with `--rounds 2 --stores files` for a quick look. A round is a task of many
documents, some of them large. Its attempts, each a process of its own, are killed at random moments; the last
one may run to its end. Then each document must have one row in the manifest and one text, whole; and the
service must have got no more jobs than there are documents, plus `concurrency` for each kill. The first
violation ends it with 1, and says the seed that shows it again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.service import Service, page, text_of

JOBS, LATENCY = "seconds:1", 0.02
LARGE = 3  # documents of a round that are large
TIMEOUT_SECONDS = 120.0  # seconds for an attempt that is not killed
LONGEST = {"files": 2.0, "s3": 4.0}  # seconds until a kill, so that it falls into the work
BUCKET = "texts"


@dataclass
class Round:
    """What became of one task."""

    kills: int
    jobs: int  # that the service got
    repeated: int  # of these, for documents that had one already
    leftovers: int  # files under names of their own that a kill has left
    done_before: list[int]  # documents that were finished at each kill


class ViolationError(Exception):
    """Something that must never be."""


def main(arguments: Sequence[str] = ()) -> int:
    """Run the rounds and print what was found."""
    parser = argparse.ArgumentParser(description="Kill -9 in the middle of an ingest")
    parser.add_argument("--rounds", type=int, default=10, help="of each store")
    parser.add_argument("--kills", type=int, default=4, help="in a round, at most")
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stores", nargs="+", choices=("files", "s3"), default=["files", "s3"])
    options = parser.parse_args(arguments)
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    with (
        tempfile.TemporaryDirectory(prefix="airflow-home-") as home,
        Service(jobs=JOBS, latency=LATENCY) as service,
    ):
        os.environ["AIRFLOW_HOME"] = home
        _import_all()
        os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"] = service.connection_json
        for name in options.stores:
            with STORES[name]() as (prefix, folder):
                rounds: list[Round] = []
                for seed in range(options.seed, options.seed + options.rounds):
                    try:
                        place = f"{prefix}{seed}/", folder / str(seed)
                        rounds.append(_round(service, *place, seed, LONGEST[name], options))
                    except ViolationError as violation:
                        print(f"VIOLATED on {name} with --seed {seed} --rounds 1: {violation}")
                        return 1
                _show(name, rounds, options)
    return 0


def _show(name: str, rounds: list[Round], options: argparse.Namespace) -> None:
    kills = sum(each.kills for each in rounds)
    repeated = sum(each.repeated for each in rounds)
    moments = sorted(done for each in rounds for done in each.done_before)
    print(f"{name}: {len(rounds)} tasks of {options.documents} documents, {kills} kills: "
          "every document has one row and one whole text")  # fmt: skip
    print(f"  jobs submitted again {repeated}, at most {max(each.repeated for each in rounds)} in a task; "
          f"{repeated / max(kills, 1):.1f} per kill, {options.concurrency} allowed")  # fmt: skip
    print(f"  killed with {moments} documents done")
    print(f"  hidden files left by kills: {sum(each.leftovers for each in rounds)}", flush=True)


def _round(
    service: Service, prefix: str, folder: Path, seed: int, longest: float, options: argparse.Namespace
) -> Round:
    chance = random.Random(seed)
    service.reset()
    sources = [page(number, f"round{seed}") for number in range(options.documents - LARGE)]
    sources += [page(number, f"large/{seed}") for number in range(LARGE)]
    chance.shuffle(sources)
    kills, done_before = 0, []
    for _ in range(options.kills):
        # Over all of an attempt, from before its first request; later attempts have less to do.
        if not _attempt(sources, prefix, options.concurrency, chance.uniform(0.0, longest)):
            break
        kills += 1
        done_before.append(len(list(folder.glob("*.txt"))))
    if kills == options.kills and _attempt(sources, prefix, options.concurrency, TIMEOUT_SECONDS):
        raise ViolationError(f"the last attempt did not end within {TIMEOUT_SECONDS:.0f} s")
    _check(folder, sources)
    jobs = service.counters()["jobs_submitted"]
    repeated = jobs - len(sources)
    if repeated > options.concurrency * kills:
        raise ViolationError(f"{jobs} jobs for {len(sources)} documents and {kills} kills")
    leftovers = sum(1 for each in folder.rglob("*") if each.name.endswith(".part"))
    return Round(kills, jobs, repeated, leftovers, done_before)


def _attempt(sources: list[str], prefix: str, concurrency: int, seconds: float) -> bool:
    """Run the operator for some seconds; return whether it had to be killed."""
    pid = os.fork()  # all is imported, and nothing runs here: as fresh as a new process, and much faster
    if not pid:
        _ingest(sources, prefix, concurrency)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            if code := os.waitstatus_to_exitcode(status):
                raise ViolationError(f"an attempt ended by itself with {code}")
            return False
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def _ingest(sources: list[str], prefix: str, concurrency: int) -> None:
    from airflow_provider.operators.ingest import ComplianceIngestOperator

    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its log
        task = ComplianceIngestOperator(
            task_id="ingest", sources=sources, destination=prefix, concurrency=concurrency
        )
        context: Any = {"ti": TaskInstance()}
        task.execute(context)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


class TaskInstance:
    """What the operator wants to know of its task instance."""

    dag_id, task_id, run_id, map_index, try_number = "soak", "ingest", "r", -1, 1

    def xcom_push(self, key: str, value: Any) -> None:
        """Forget it."""


def _import_all() -> None:
    """Import what an attempt needs, so that its time goes into its work."""
    for name in (
        "aiohttp",
        "airflow.providers.amazon.aws.fs.s3",
        "airflow.sdk",
        "airflow_provider.client.aio",
        "airflow_provider.nights.ingest.documents",
        "airflow_provider.nights.reports.ingest",
        "airflow_provider.operators.ingest",
        "jinja2",
        "s3fs",
    ):
        import_module(name)


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
