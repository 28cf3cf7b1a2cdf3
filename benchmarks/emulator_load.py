"""The emulator under load: `python -m benchmarks.emulator_load`.

Thousands of documents are submitted, polled one by one and in batches, and read back, over many connections.
The load comes from the same process, so the emulator alone could do more. Fails on the first wrong answer
and when fewer than 200 requests per second were answered.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from airflow_provider.emulator import Emulator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

CONTENT = "/api/v1/content-processing"
WANTED_RATE = 200.0


class Load:
    """One partner with many requests in flight."""

    def __init__(self, service: Emulator, session: aiohttp.ClientSession, in_flight: int) -> None:
        self.service = service
        self.session = session
        self.gate = asyncio.Semaphore(in_flight)
        self.latencies: list[float] = []
        self.headers: dict[str, str] = {}

    async def log_in(self) -> None:
        it = self.service.connection()
        form = {
            "username": it["login"],
            "password": it["password"],
            "client_id": it["extra"]["client_id"],
            "client_secret": it["extra"]["client_secret"],
            "grant_type": "password",
        }
        async with self.session.post(self.service.token_url, data=form) as response:
            self.headers = {"Authorization": f"Bearer {(await response.json())['access_token']}"}

    async def call(self, method: str, path: str, expected: int, **kwargs: Any) -> Any:
        async with self.gate:
            started = time.perf_counter()
            async with self.session.request(
                method, self.service.url + path, headers=self.headers, allow_redirects=False, **kwargs
            ) as response:
                body = await response.read()
                kind = response.content_type
                if response.status != expected:
                    raise RuntimeError(f"{method} {path}: {response.status} instead of {expected}: {body!r}")
                answer = await response.json() if kind == "application/json" else body.decode()
            self.latencies.append(time.perf_counter() - started)
            return answer

    async def submit(self, number: int) -> str:
        form = aiohttp.FormData()
        form.add_field("file", make_pdf(f"Document {number}"), filename=f"{number}.pdf")
        uuid: str = (await self.call("POST", f"{CONTENT}/file", 202, data=form))["uuid"]
        return uuid

    async def poll(self, uuids: list[str]) -> None:
        waiting = set(uuids)
        while waiting:
            parts = sorted(waiting)
            batches = [parts[start : start + 100] for start in range(0, len(parts), 100)]
            for records in await self.all(self.look, batches):
                waiting -= {each["uuid"] for each in records if each["status"] == "COMPLETED"}

    async def look(self, uuids: list[str]) -> Any:
        return await self.call("POST", f"{CONTENT}/status/batch", 200, json={"uuids": uuids})

    async def read(self, item: tuple[int, str]) -> None:
        number, uuid = item
        await self.call("GET", f"{CONTENT}/{uuid}/status", 303)
        text = await self.call("GET", f"{CONTENT}/{uuid}/content", 200)
        if text != f"Document {number}":
            raise RuntimeError(f"Job {uuid} has the text of another document: {text!r}")

    async def all(self, work: Callable[[Any], Awaitable[Any]], items: list[Any]) -> list[Any]:
        return await asyncio.gather(*(work(item) for item in items))


def make_pdf(line: str) -> bytes:
    """Return a PDF of one page and one line; readers repair the missing table of objects."""
    stream = f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET"
    return (
        "%PDF-1.4\n"
        "1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
        "2 0 obj\n<< /Type /Pages /Kids [3 0 R] /Count 1 >>\nendobj\n"
        "3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>\nendobj\n"
        f"4 0 obj\n<< /Length {len(stream)} >>\nstream\n{stream}\nendstream\nendobj\n"
        "5 0 obj\n<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>\nendobj\n"
        "trailer\n<< /Size 6 /Root 1 0 R >>\n%%EOF\n"
    ).encode()


async def run(service: Emulator, jobs: int, in_flight: int) -> list[float]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=in_flight)) as session:
        load = Load(service, session, in_flight)
        await load.log_in()
        uuids = await load.all(load.submit, list(range(jobs)))
        await load.poll(uuids)
        await load.all(load.read, list(enumerate(uuids)))
    return sorted(load.latencies)


def memory() -> float:
    """Return the most memory that this process has used so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(description="The emulator under load")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=32, help="requests of the client at a time")
    options = parser.parse_args(arguments)
    with Emulator(jobs="polls:2") as service:
        before, started = memory(), time.perf_counter()
        latencies = asyncio.run(run(service, options.jobs, options.in_flight))
        seconds = time.perf_counter() - started
        counters = service.counters()
    requests = counters["total"]
    rate = requests / seconds
    failed = sum(
        count
        for answers in counters["operations"].values()
        for answer, count in answers.items()
        if answer not in ("200", "202", "303")
    )
    print(f"{options.jobs} jobs, {requests} requests in {seconds:.1f} s: {rate:.0f} requests/s")
    print(f"{failed} errors, {counters['logins']} login, +{memory() - before:.0f} MiB")
    half, most = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    print(f"latency p50 {half * 1000:.1f} ms, p99 {most * 1000:.1f} ms")
    return 0 if rate >= WANTED_RATE and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
