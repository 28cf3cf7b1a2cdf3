"""How fast documents are uploaded, plain and hashed, beside the bare HTTP libraries in the same run."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import requests
from pydantic import SecretStr

from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.client.settings import Settings
from airflow_provider.client.sync import ComplianceClient
from benchmarks.comparison import judge, peak_mib

ROUNDS = 5
TARGET = 0.8
GROWTH_MIB = 16.0
ANSWER = json.dumps({"uuid": "u", "access_token": "t", "expires_in": 3600}).encode()


def serve(ready: Connection) -> None:
    """Read and discard all requests; the same answer is a token and an accepted job."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ready.send(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            with connection:
                _serve_connection(connection)


def _serve_connection(connection: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    while True:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (data := connection.recv(65536)):
                return
            head += data
        head, _, start = head.partition(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length:")[2].split()[0]) - len(start)
        while left > 0:
            left -= connection.recv_into(buffer, min(left, len(buffer)))
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)


def ways(url: str, path: Path) -> dict[str, Callable[[], object]]:
    """Return the ways to upload a file; each opens its own connection."""
    settings = Settings(url, f"{url}/token", "user", SecretStr("password"), "client", SecretStr("secret"))

    def bare_requests() -> None:
        with path.open("rb") as file, requests.Session() as session:
            session.post(url, data=file, timeout=60)

    def hash_first(upload: Callable[[], object]) -> None:
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
        upload()

    async def bare_aiohttp() -> None:
        with path.open("rb") as file:
            async with aiohttp.ClientSession() as session, session.post(url, data={"file": file}) as response:
                await response.read()

    def hashed() -> Any:
        from airflow_provider.storage.sources import SourceFile

        return SourceFile(str(path))

    def sync(file: Any) -> None:
        with ComplianceClient(settings) as client:
            client.submit_file(file)

    async def aio(file: Any) -> None:
        async with AsyncComplianceClient(settings) as client:
            await client.submit_file(file)

    return {
        "requests": bare_requests,
        "requests, ours": lambda: sync(path),
        "requests after hashing": lambda: hash_first(bare_requests),
        "requests after hashing, ours": lambda: sync(hashed()),
        "aiohttp": lambda: asyncio.run(bare_aiohttp()),
        "aiohttp, ours": lambda: asyncio.run(aio(path)),
        "aiohttp after hashing": lambda: hash_first(lambda: asyncio.run(bare_aiohttp())),
        "aiohttp after hashing, ours": lambda: asyncio.run(aio(hashed())),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the best of several rounds of each way, and whether the targets were met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of the document")
    mib: int = parser.parse_args(arguments or []).mib
    best, growth = run(mib)
    targets = {}
    for name, seconds in best.items():
        bare, _, is_ours = name.partition(", ")
        ratio = best[bare] / seconds
        print(
            f"{name:<30}{mib / seconds:>6.0f} MiB/s{ratio:>6.2f} of bare, {growth[name]:.1f} MiB more memory"
        )
        if is_ours:
            is_met = ratio >= TARGET and growth[name] < GROWTH_MIB
            targets[f"{name}: {TARGET} of bare, constant memory"] = is_met
    judge(targets)


def run(mib: int, only: str = "") -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of the best round of each way, and by how many MiB memory has grown.

    :param only: a library, to measure nothing else
    """
    ready, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(child,), daemon=True)
    process.start()
    best: dict[str, float] = {}
    growth: dict[str, float] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "large.pdf"
            with path.open("wb") as file:
                file.write(b"%PDF-1.7\n")
                file.truncate(mib << 20)
            all_ways = ways(f"http://127.0.0.1:{ready.recv()}", path)
            for number in range(ROUNDS):
                for name, upload in all_ways.items():
                    if only and name not in (only, f"{only}, ours"):
                        continue
                    memory, begin = peak_mib(), time.perf_counter()
                    upload()
                    if number:  # the first round imports what is used
                        best[name] = min(best.get(name, 1e9), time.perf_counter() - begin)
                        growth[name] = max(growth.get(name, 0), peak_mib() - memory)
    finally:
        process.kill()
        process.join()
    return best, growth


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
