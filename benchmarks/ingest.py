"""1,000 web pages through ComplianceIngestOperator, beside the barest script that does the same.

Each in a process of its own, beside the service (jobs of 2 s, 20 ms added to each answer). Texts go to local
files. They take turns, and the best of three rounds counts. The script only does the work: one login, no
second try, no check of an answer, nothing written down but the texts. `--documents files` measures DOCX files
of a page each instead of web pages.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from airflow_provider.emulator.samples import make_docx
from benchmarks import harness
from benchmarks.harness import Result, Service, Way, judge, log_in, mib, options, page, show, text_of, write

PAGES, JOBS, LATENCY = 1000, "seconds:2", 0.02
POLL_SECONDS = 0.5  # of the script
CONTENT = "/api/v1/content-processing"
TIME, REQUESTS, MEMORY = 1.3, 2.1, 150.0
WAYS = ("operator", "bare")


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    chosen = options(
        arguments, __doc__, pages=PAGES, concurrency=[16, 32], rounds=3, jobs=JOBS, latency=LATENCY,
        documents="pages",
    )  # fmt: skip
    is_good = True
    with Service(jobs=chosen.jobs, latency=chosen.latency, access_lifetime=3600) as service:
        for concurrency in chosen.concurrency:
            one = partial(run, service, chosen.pages, concurrency, are_files=chosen.documents == "files")
            found = harness.best_of(chosen.rounds, WAYS, one)
            print(f"{chosen.pages} pages, {concurrency} requests at a time")
            show(found, chosen.pages, "document")
            ours = found["operator"]
            is_good &= judge(
                times_the_script=(ours.seconds / found["bare"].seconds, TIME),
                requests_per_document=(ours.requests / chosen.pages, REQUESTS),
                logins=(ours.logins, 1),
                MiB_above_imports=(ours.memory, MEMORY),
            )
    return not is_good


def run(
    service: Service, pages: int, concurrency: int, way: str, _: int = 0, *, are_files: bool = False
) -> Result:
    """Run one way, and check that it did it all."""
    service.reset()
    with tempfile.TemporaryDirectory() as given, tempfile.TemporaryDirectory(prefix="texts-") as folder:
        sources = [page(number) for number in range(pages)]
        texts = {url[-11:-5]: text_of(url) for url in sources}
        if are_files:
            sources = [f"{given}/{name}.docx" for name in texts]
            for file, text in zip(sources, texts.values(), strict=True):
                Path(file).write_bytes(make_docx("A page", text))
        result = service.measure(operator if way == "operator" else bare, sources, concurrency, f"{folder}/")
        found = {file.name[:6]: file.read_text() for file in Path(folder).glob("*.txt")}
    assert found.keys() == texts.keys()
    assert all(texts[name].strip() in text for name, text in found.items())
    return result


def operator(sources: list[str], concurrency: int, folder: str) -> Way:
    """Make the operator ready."""
    imported = harness.import_airflow(folder)
    from airflow_provider.operators.ingest import ComplianceIngestOperator

    task = ComplianceIngestOperator(task_id="t", sources=sources, destination=folder, concurrency=concurrency)
    context: Any = {"ti": harness.TaskInstance()}
    return imported, lambda: task.execute(context)


def read(source: str) -> tuple[str, dict[str, Any]]:
    """Return the endpoint and the body of a submit."""
    if source.endswith(".docx"):
        return "file", {"data": {"file": io.BytesIO(Path(source).read_bytes())}}
    return "url", {"json": {"url": source}}


def bare(sources: list[str], concurrency: int, folder: str) -> Way:
    """Make the script ready: queues and batches, and no error handling."""
    import aiohttp

    to_submit = sources[::-1]
    waiting: dict[str, str] = {}
    to_fetch: list[tuple[str, str]] = []
    left = len(sources)

    async def work() -> None:
        news = asyncio.Condition()

        async def tell() -> None:
            async with news:
                news.notify_all()

        async def worker() -> None:
            nonlocal left
            while left:
                if to_fetch:
                    uuid, source = to_fetch.pop()
                    async with session.get(f"{content}/{uuid}/content", headers=bearer) as response:
                        write(Path(folder, f"{Path(source).stem}.txt"), await response.read())
                    left -= 1
                    if not left:
                        await tell()
                elif to_submit:
                    source = to_submit.pop()
                    what, body = read(source)
                    async with session.post(f"{content}/{what}", **body, headers=bearer) as response:
                        waiting[(await response.json())["uuid"]] = source
                else:
                    async with news:
                        if left and not to_fetch:
                            await news.wait()

        async def poll() -> None:
            while left:
                await asyncio.sleep(POLL_SECONDS)
                if not waiting:
                    continue
                uuids = {"uuids": list(waiting)}
                async with session.post(f"{content}/status/batch", json=uuids, headers=bearer) as response:
                    done = [job["uuid"] for job in await response.json() if job["status"] == "COMPLETED"]
                to_fetch.extend((uuid, waiting.pop(uuid)) for uuid in done)
                await tell()

        async with aiohttp.ClientSession() as session:
            host, bearer = await log_in(session)
            content = f"{host}{CONTENT}"
            await asyncio.gather(poll(), *(worker() for _ in range(concurrency)))

    return mib(), lambda: asyncio.run(work())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
