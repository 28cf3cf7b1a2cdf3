"""Carries jobs out: reads uploaded files, fetches pages, works out assessments."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import IO, TYPE_CHECKING

import aiohttp

from airflow_provider.emulator.extraction import (
    ExtractionError,
    decode,
    extract_docx,
    extract_html,
    extract_pdf,
    kind_of,
)
from airflow_provider.emulator.memory.jobs import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airflow_provider.emulator.memory.jobs import Job
    from airflow_provider.emulator.memory.state import State

log = logging.getLogger(__name__)

# How long a look waits for a text that is due, so that `instant` means instant on a slow machine too.
PATIENCE = 5.0


class Processor:
    """Runs extraction beside the event loop, one document after the other."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compliance-emulator-extract")
        self._session: aiohttp.ClientSession | None = None
        state.jobs.on_forget = self.drop

    async def close(self) -> None:
        """Stop to fetch pages, and read the files to their end: nobody sends them again."""
        tasks = dict(self._tasks)
        for uuid, task in tasks.items():
            job = self._state.jobs.get(uuid)
            if job is None or job.source_type == "URL":
                task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        self._threads.shutdown(cancel_futures=True)

    def resume(self) -> None:
        """Begin again with the pages that were under way when the emulator was stopped."""
        for job in self._state.jobs:
            if job.source_type == "URL" and job.outcome is None:
                self.read_url(job)

    def read_file(self, job: Job, source: IO[bytes]) -> None:
        """Begin to extract the text of an upload; closes the file."""
        reading = asyncio.get_running_loop().run_in_executor(
            self._threads, _text_of_file, source, job.file_name or ""
        )
        reading.add_done_callback(lambda done: source.close())
        # Shielded, because a file must not be closed under the hands of the thread that reads it.
        self._spawn(job, lambda: asyncio.shield(reading))

    def read_url(self, job: Job) -> None:
        """Begin to fetch the page of a job, in place of an earlier fetch."""
        self.drop(job)
        self._spawn(job, lambda: self._fetch(job))

    def drop(self, job: Job) -> None:
        """Stop working on a job."""
        task = self._tasks.pop(job.uuid, None)
        if task is not None:
            task.cancel()

    async def settle(self, jobs: list[Job]) -> None:
        """Wait for the texts of jobs that are due, for a short while."""
        state = self._state
        progress, now = state.settings.progress, state.clock.now()
        due = [self._tasks[job.uuid] for job in jobs if job.uuid in self._tasks and job.is_due(progress, now)]
        if due:
            await asyncio.wait(due, timeout=PATIENCE)

    def _spawn(self, job: Job, work: Callable[[], Awaitable[str]]) -> None:
        task = asyncio.get_running_loop().create_task(self._process(job, work))
        self._tasks[job.uuid] = task
        task.add_done_callback(lambda done: self._tasks.get(job.uuid) is done and self._tasks.pop(job.uuid))

    async def _process(self, job: Job, work: Callable[[], Awaitable[str]]) -> None:
        try:
            outcome = Outcome(text=await work())
        except ExtractionError as error:
            outcome = Outcome(error=str(error))
        except Exception as error:
            log.exception("Processing of job %s broke", job.uuid)
            outcome = Outcome(error=f"Internal error: {type(error).__name__}")
        # A test may have decided the outcome in the meantime.
        if job.outcome is None:
            self._state.settle_job(job, outcome)

    async def _fetch(self, job: Job) -> str:
        url = job.source_url or ""
        settings = self._state.settings
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # A zero limit and no kept connections: fetches never wait for each other.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        timeout = aiohttp.ClientTimeout(total=settings.fetch_timeout)
        try:
            async with self._session.get(url, timeout=timeout, max_redirects=5) as response:
                job.fetched = self._state.clock.now()
                if response.status != 200:
                    raise ExtractionError(f"Fetching {url} gave HTTP {response.status} {response.reason}.")
                data = await _read_at_most(response, settings.fetch_limit)
                kind, charset = response.content_type, response.charset
        except TimeoutError:
            raise ExtractionError(f"Fetching {url} took longer than {settings.fetch_timeout:g} s.") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExtractionError(f"Fetching {url} failed: {error or type(error).__name__}") from None
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, _text_of_page, data, kind, charset, url
        )


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_chunked(2**16):
        data += chunk
        if len(data) > limit:
            raise ExtractionError(f"The page is larger than {limit} bytes.")
    return bytes(data)


def _text_of_file(source: IO[bytes], name: str) -> str:
    start = source.read(1024)
    source.seek(0)
    return extract_docx(source) if kind_of(start, name) == "docx" else extract_pdf(source)


def _text_of_page(data: bytes, kind: str, charset: str | None, url: str) -> str:
    if kind in ("text/html", "application/xhtml+xml"):
        return extract_html(data, charset)
    match kind_of(data[:1024], url, kind):
        case "pdf":
            return extract_pdf(BytesIO(data))
        case "docx":
            return extract_docx(BytesIO(data))
    if kind.startswith("text/"):
        return decode(data, charset)
    raise ExtractionError(f"Pages of type {kind} cannot be read.")
