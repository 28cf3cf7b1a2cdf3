"""Texts into object storage: one of 1 GiB, and a thousand small ones, beside the barest loop that does it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

MIB = 1024
LIMIT_MIB = 60.0
SPEED = 0.8
COUNT = 1000
CONCURRENCY = 16
TIME = 1.3
ROUNDS = 3
PIECE = 256 * 1024
BLOCK = 5 << 20
WAYS = {"operator": "operator", "bare": "a bare loop", "hashing": "a bare loop that hashes"}


def main() -> None:
    """Print growth and speed of each way, each in a process of its own."""
    from tests.stores.s3_servers import Rclone

    server = [sys.executable, "-m", "benchmarks.stand_in"]
    rclone = Rclone()
    rclone.start()
    try:
        rclone.client().create_bucket(Bucket="texts")
        with (
            tempfile.TemporaryDirectory() as folder,
            subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        ):
            assert process.stdout
            url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
            environment = _environment(url, rclone)
            for where, prefix in (("files", f"file://{folder}/"), ("S3 (rclone)", "s3://bench@texts/")):
                print(f"{MIB} MiB to {where}{'':<14}{'grows by':>12}{'speed':>12}")
                best = _compare("large", prefix, environment, ("operator", "bare", "hashing"))
                for way, what in WAYS.items():
                    seconds, growth = best[way]
                    print(f"{what:<32}{growth:>8.1f} MiB{MIB / seconds:>6.0f} MiB/s")
                seconds, growth = best["operator"]
                print(f"growth below {LIMIT_MIB:.0f} MiB: {_verdict(growth < LIMIT_MIB)}")
                for way in ("bare", "hashing"):
                    ratio = best[way][0] / seconds
                    print(f"speed {ratio:.2f} of {WAYS[way]}, at least {SPEED}: {_verdict(ratio >= SPEED)}")
                print()
            print(f"{COUNT} small texts to S3, {CONCURRENCY} at a time")
            best = _compare("small", "s3://bench@texts/", environment, ("operator", "bare"))
            ours, bare = best["operator"], best["bare"]
            ratio = ours[0] / bare[0]
            print(f"operator {ours[0]:.2f} s, bare loop {bare[0]:.2f} s, {ratio:.2f} times, "
                  f"at most {TIME}: {_verdict(ratio <= TIME)}")  # fmt: skip
            process.communicate()
    finally:
        rclone.close()


def _verdict(good: bool) -> str:
    return "ok" if good else "MISSED"


def _compare(
    kind: str, prefix: str, environment: dict[str, str], ways: tuple[str, ...]
) -> dict[str, list[float]]:
    """Let the ways take turns, and keep the best round of each: the machine does other things, too."""
    best: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for way in ways:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.transfer", f"{way}_{kind}", prefix]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            result = json.loads(done.stdout.splitlines()[-1])
            best[way] = min(best.get(way, result), result)
    return best


def _environment(url: str, rclone: Any) -> dict[str, str]:
    compliance = {
        "conn_type": "compliance",
        "host": url,
        "login": "u",
        "password": "p",
        "extra": {"token_url": f"{url}/token", "client_id": "c", "client_secret": "s"},
    }
    key, secret = rclone.writer
    extra = {"endpoint_url": rclone.url, "region_name": "us-east-1"}
    aws = {"conn_type": "aws", "login": key, "password": secret, "extra": extra}
    return os.environ | {
        "AIRFLOW_HOME": tempfile.mkdtemp(prefix="airflow-home-"),
        "AIRFLOW_CONN_COMPLIANCE_DEFAULT": json.dumps(compliance),
        "AIRFLOW_CONN_BENCH": json.dumps(aws),
        "BENCH_URL": url,
    }


def _operator(uuids: list[str], prefix: str) -> None:
    from airflow_provider.transfers.content_to_object_storage import (
        ComplianceContentToObjectStorageOperator,
    )

    class TaskInstance:
        dag_id, task_id, run_id, map_index = "d", "t", "r", -1

        def xcom_push(self, key: str, value: Any) -> None:
            pass

    task = ComplianceContentToObjectStorageOperator(
        task_id="t", uuid=uuids, destination=prefix, concurrency=CONCURRENCY
    )
    context: Any = {"ti": TaskInstance()}
    task.execute(context)


def _hashing(uuids: list[str], prefix: str) -> None:
    """Do as the bare loop, but with the SHA-256 that the operator gives, too."""
    _bare(uuids, prefix, hashlib.sha256())


def _bare(uuids: list[str], prefix: str, digest: Any = None) -> None:
    """What somebody writes who wants it fast: aiohttp and fsspec, no token, no checks, no hash."""
    from airflow.sdk import ObjectStoragePath

    fs = ObjectStoragePath(prefix).fs
    folder = prefix.partition("@")[2] or prefix.removeprefix("file://")
    asyncio.run(_bare_loop(uuids, fs, folder, digest))


async def _bare_loop(uuids: list[str], fs: Any, folder: str, digest: Any) -> None:
    import aiohttp

    limit = asyncio.Semaphore(CONCURRENCY)

    async def one(uuid: str) -> None:
        address = f"{os.environ['BENCH_URL']}/api/v1/content-processing/{uuid}/content"
        async with limit, session.get(address) as response:
            if uuid.startswith("small"):
                data = await response.read()
                # s3fs has a loop of its own; this is its fastest way in from another one.
                call = asyncio.run_coroutine_threadsafe(fs._pipe_file(f"{folder}{uuid}", data), fs.loop)
                await asyncio.wrap_future(call)
                return
            with fs.open(f"{folder}{uuid}", "wb", block_size=BLOCK) as file:
                async for piece in response.content.iter_chunked(PIECE):
                    file.write(piece)
                    if digest:
                        digest.update(piece)

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*map(one, uuids))


def _run(transfer: Callable[[list[str], str], None], kind: str, prefix: str) -> list[float]:
    from benchmarks.memory import _peak

    large = kind == "large"
    transfer(["1"] if large else [f"small-{n}" for n in range(50)], prefix)  # imports, connections, token
    before, begin = _peak(), time.perf_counter()
    transfer([str(MIB)] if large else [f"small-{n}" for n in range(COUNT)], prefix)
    return [time.perf_counter() - begin, _peak() - before]


if __name__ == "__main__":
    way, _, kind = sys.argv[1].partition("_")
    print(
        json.dumps(_run({"operator": _operator, "bare": _bare, "hashing": _hashing}[way], kind, sys.argv[2]))
    )
