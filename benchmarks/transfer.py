"""Texts into files and S3: a large one, and a thousand small ones, beside the barest loop that does it.

`python -m benchmarks.transfer large-files` runs one part; the others are large-s3, small-files and small-s3.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = int(os.environ.get("BENCH_MIB", "1024"))
LIMIT_MIB = 60.0
SPEED = 0.8
SYNCING_SPEED = 0.9
COUNT = 1000
CONCURRENCY = 16
TIME = 1.3
ROUNDS = 3
PIECE = 256 * 1024
BLOCK = 5 << 20
BARE, HASHING = "a bare loop", "a bare loop that hashes"
PARTS: dict[str, dict[str, str]] = {
    "large-files": {"bare": BARE, "hashing": HASHING, "syncing": f"{HASHING} and syncs"},
    "large-s3": {"bare": BARE, "hashing": HASHING},
    "small-files": {"syncing": f"{HASHING}, syncs and renames"},
    "small-s3": {"bare": BARE},
}


def main(parts: list[str] | None = None) -> None:
    """Print time, CPU and growth of each way, each in a process of its own."""
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
            for part in parts or PARTS:
                size, _, store = part.partition("-")
                prefix = f"file://{folder}/" if store == "files" else "s3://bench@texts/"
                rounds = _compare(part, prefix, environment)
                (_print_large if size == "large" else _print_small)(part, rounds)
            process.communicate()
    finally:
        rclone.close()


Rounds = dict[str, list[list[float]]]


def _compare(part: str, prefix: str, environment: dict[str, str]) -> Rounds:
    """Let the ways take turns: the machine does other things, too."""
    rounds: Rounds = {}
    size = part.partition("-")[0]
    for _ in range(ROUNDS):
        for way in ("operator", *PARTS[part]):
            arguments = ["-W", "ignore", "-m", "benchmarks.transfer", "--run", way, size, prefix]
            command = [sys.executable, *arguments]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            rounds.setdefault(way, []).append(json.loads(done.stdout.splitlines()[-1]))
    return rounds


def _print_large(part: str, rounds: Rounds) -> None:
    print(f"{MIB} MiB, {part:<26}{'grows by':>12}{'speed':>12}{'CPU':>9}, the best of {ROUNDS} rounds")
    for way, what in ({"operator": "operator"} | PARTS[part]).items():
        seconds, growth, cpu = min(rounds[way])
        print(f"{what:<34}{growth:>8.1f} MiB{MIB / seconds:>6.0f} MiB/s{cpu:>7.2f} s")
    growth = max(growth for _, growth, _ in rounds["operator"])
    print(f"growth below {LIMIT_MIB:.0f} MiB: {_verdict(growth < LIMIT_MIB)}")
    for way, what in PARTS[part].items():
        ratios = [theirs[0] / ours[0] for ours, theirs in zip(rounds["operator"], rounds[way], strict=True)]
        aim = SYNCING_SPEED if way == "syncing" else SPEED
        print(
            f"speed {_show(ratios)} of {what}, at least {aim}: {_verdict(statistics.median(ratios) >= aim)}"
        )
    print()


def _print_small(part: str, rounds: Rounds) -> None:
    print(f"{COUNT} small texts, {part}, {CONCURRENCY} at a time, the best of {ROUNDS} rounds")
    for way, what in ({"operator": "operator"} | PARTS[part]).items():
        seconds, _, cpu = min(rounds[way])
        print(f"{what:<44}{seconds:>6.2f} s{cpu:>7.2f} s of CPU")
    for way, what in PARTS[part].items():
        ratios = [ours[0] / theirs[0] for ours, theirs in zip(rounds["operator"], rounds[way], strict=True)]
        print(f"{_show(ratios)} times {what}, at most {TIME}: {_verdict(statistics.median(ratios) <= TIME)}")
    print()


def _show(ratios: list[float]) -> str:
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{statistics.median(ratios):.2f} ({each})"


def _verdict(good: bool) -> str:
    return "ok" if good else "MISSED"


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


def _bare(uuids: list[str], prefix: str, *, hashes: bool = False, syncs: bool = False) -> None:
    """What somebody writes who wants it fast: aiohttp and fsspec, no token, no checks.

    :param hashes: compute the SHA-256 that the operator gives, too
    :param syncs: have it on the disk in the end, as the operator has
    """
    from airflow.sdk import ObjectStoragePath

    fs = ObjectStoragePath(prefix).fs
    folder = prefix.partition("@")[2] or prefix.removeprefix("file://")
    asyncio.run(_bare_loop(uuids, fs, folder, hashes, syncs))


async def _bare_loop(uuids: list[str], fs: Any, folder: str, hashes: bool, syncs: bool) -> None:
    import aiohttp

    limit = asyncio.Semaphore(CONCURRENCY)

    async def one(uuid: str) -> None:
        address = f"{os.environ['BENCH_URL']}/api/v1/content-processing/{uuid}/content"
        async with limit, session.get(address) as response:
            if uuid.startswith("small"):
                data = await response.read()
                if syncs:
                    await asyncio.to_thread(_write_file, folder, uuid, data)
                    return
                # s3fs has a loop of its own; this is its fastest way in from another one.
                call = asyncio.run_coroutine_threadsafe(fs._pipe_file(f"{folder}{uuid}", data), fs.loop)
                await asyncio.wrap_future(call)
                return
            digest = hashlib.sha256()
            with fs.open(f"{folder}{uuid}", "wb", block_size=BLOCK) as file:
                async for piece in response.content.iter_chunked(PIECE):
                    file.write(piece)
                    if hashes:
                        digest.update(piece)
                if syncs:
                    file.flush()
                    os.fsync(file.fileno())

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*map(one, uuids))


def _write_file(folder: str, name: str, data: bytes) -> None:
    hashlib.sha256(data).hexdigest()
    temporary = Path(f"{folder}.{secrets.token_hex(8)}.part")
    with temporary.open("wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())
    temporary.replace(f"{folder}{name}")
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


WAYS: dict[str, Callable[[list[str], str], None]] = {
    "operator": _operator,
    "bare": _bare,
    "hashing": lambda uuids, prefix: _bare(uuids, prefix, hashes=True),
    "syncing": lambda uuids, prefix: _bare(uuids, prefix, hashes=True, syncs=True),
}


def _run(transfer: Callable[[list[str], str], None], size: str, prefix: str) -> list[float]:
    """Return seconds, MiB of growth and seconds of CPU."""
    from benchmarks.memory import _peak

    large = size == "large"
    transfer(["1"] if large else [f"small-{n}" for n in range(50)], prefix)  # imports, connections, token
    before, cpu, begin = _peak(), time.process_time(), time.perf_counter()
    transfer([str(MIB)] if large else [f"small-{n}" for n in range(COUNT)], prefix)
    return [time.perf_counter() - begin, _peak() - before, time.process_time() - cpu]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        way, size, prefix = sys.argv[2:]
        print(json.dumps(_run(WAYS[way], size, prefix)))
    else:
        main(sys.argv[1:])
