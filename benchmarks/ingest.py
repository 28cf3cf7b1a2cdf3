"""1,000 web pages through ComplianceIngestOperator, beside the barest script that does the same.

All in processes of their own: the emulator (jobs of 2 s, 20 ms added to each answer), the operator's
`execute()`, and the scripts. Texts go to local files. They take turns, and the best of three rounds counts:
the machine does other things, too. The first script only does the work: one login, no second try, no check of
an answer, nothing written down but the texts. The second one leaves the same behind as the operator in any
case: each text hashed, on the disk (fsync) and under its name only when it is whole.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
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
from benchmarks.service import Service, page, text_of

PAGES = 1000
ROUNDS = 3
JOBS, LATENCY = "seconds:2", 0.02
POLL_SECONDS = 0.5  # of the scripts
CONTENT = "/api/v1/content-processing"

TIME = 1.3
REQUESTS = 2.1
GROWTH_MIB = 150.0

WAYS = {"operator": "operator", "bare": "bare script", "durable": "the same, hash and fsync"}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="The ingest beside a bare script")
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--jobs", default=JOBS, help="how jobs progress, such as seconds:2 or instant")
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds added to each answer")
    options = parser.parse_args(arguments)
    met = True
    with (
        Service(
            jobs=options.jobs,
            latency=options.latency,
            access_lifetime=3600,
        ) as service,
        task_environment(service) as environment,
    ):
        for concurrency in options.concurrency:
            best: dict[str, Result] = {}
            for _ in range(options.rounds):
                for way in WAYS:
                    result = _round(service, environment, way, options.pages, concurrency)
                    best[way] = min(best.get(way, result), result, key=lambda each: each.seconds)
            met = _show(best, options.pages, concurrency) and met
    return 0 if met else 1


def _show(best: dict[str, Result], pages: int, concurrency: int) -> bool:
    print(f"{pages} pages, {concurrency} requests at a time")
    show(WAYS, best, pages, "document")
    ours = best["operator"]
    ratio, requests = ours.seconds / best["bare"].seconds, ours.requests / pages
    print(f"{ours.seconds / best['durable'].seconds:.2f} times the time of the script with hash and fsync")
    return judge(
        {
            f"{ratio:.2f} times the time of the bare script, at most {TIME}": ratio <= TIME,
            f"{requests:.3f} requests per document, at most {REQUESTS}": requests <= REQUESTS,
            f"{ours.logins} login": ours.logins == 1,
            f"{ours.growth:.1f} MiB above Airflow's imports, below {GROWTH_MIB:.0f}": ours.growth
            < GROWTH_MIB,
        }
    )


def _round(service: Service, environment: dict[str, str], way: str, pages: int, concurrency: int) -> Result:
    service.reset()
    with tempfile.TemporaryDirectory(prefix="texts-") as folder:
        result = run_process(
            service, environment, "benchmarks.ingest", f"_{way}", pages, concurrency, f"{folder}/"
        )
        _check(Path(folder), pages)
    return result


def _check(folder: Path, pages: int) -> None:
    """Whoever was fast has to have done it all."""
    found = {each.name[:6]: each.read_text() for each in folder.glob("*.txt")}
    assert found == {f"{number:06}": text_of(page(number)) for number in range(pages)}


# -- in processes of their own


def prepare(way: str, pages: int, concurrency: int, folder: str) -> Way:
    """Make one way ready to start."""
    urls = [page(number) for number in range(pages)]
    if way == "operator":
        return _operator(urls, concurrency, folder)
    import aiohttp  # noqa: F401 - before the clock starts

    writer = {"bare": write, "durable": write_durably}[way]
    return Way(resident(), lambda: asyncio.run(_script(urls, concurrency, Path(folder), writer)))


def _operator(urls: list[str], concurrency: int, folder: str) -> Way:
    imported = import_airflow(folder)
    from airflow_provider.operators.ingest import ComplianceIngestOperator

    task = ComplianceIngestOperator(task_id="t", sources=urls, destination=folder, concurrency=concurrency)
    context: Any = {"ti": TaskInstance()}
    return Way(imported, lambda: task.execute(context))


async def _script(urls: list[str], concurrency: int, folder: Path, write_file: Callable[..., Any]) -> None:
    """A fast script without error handling: queues and batches."""
    import aiohttp

    to_submit, names = list(reversed(urls)), {url: url.rpartition("/")[2][:6] for url in urls}
    waiting: dict[str, str] = {}
    to_fetch: list[tuple[str, str]] = []
    left = len(urls)
    news = asyncio.Condition()

    async def worker() -> None:
        nonlocal left
        while left:
            if to_fetch:
                uuid, url = to_fetch.pop()
                async with session.get(f"{host}{CONTENT}/{uuid}/content", headers=bearer) as response:
                    await write_file(folder / f"{names[url]}.txt", await response.read())
                left -= 1
                if not left:
                    async with news:
                        news.notify_all()
            elif to_submit:
                url = to_submit.pop()
                async with session.post(
                    f"{host}{CONTENT}/url", json={"url": url}, headers=bearer
                ) as response:
                    waiting[(await response.json())["uuid"]] = url
            else:
                async with news:
                    if left and not to_fetch:
                        await news.wait()

    async def poll() -> None:
        while left:
            await asyncio.sleep(POLL_SECONDS)
            uuids = list(waiting)
            if not uuids:
                continue
            async with session.post(
                f"{host}{CONTENT}/status/batch", json={"uuids": uuids}, headers=bearer
            ) as response:
                done = [job["uuid"] for job in await response.json() if job["status"] == "COMPLETED"]
                to_fetch.extend((uuid, waiting.pop(uuid)) for uuid in done)
            async with news:
                news.notify_all()

    async with aiohttp.ClientSession() as session:
        host, bearer = await log_in(session)
        await asyncio.gather(poll(), *(worker() for _ in range(concurrency)))


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("_"):
        measure(prepare(sys.argv[1][1:], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
    else:
        sys.exit(main(sys.argv[1:]))
