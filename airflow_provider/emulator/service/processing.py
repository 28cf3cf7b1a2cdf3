"""Extract texts in the background; operations that jobs and assessments have in common."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from typing import IO, TypeVar

import aiohttp
from aiohttp import web

from airflow_provider.emulator.extraction import (
    ExtractionError,
    ExtractionResult,
    decode,
    detect_kind,
    extract_docx,
    extract_html,
    extract_pdf,
)
from airflow_provider.emulator.service.http import SUBJECT, RequestError, json_response
from airflow_provider.emulator.service.jobs import Assessment, Job, Work
from airflow_provider.emulator.service.state import State, get_state

W = TypeVar("W", bound=Work)
log = logging.getLogger(__name__)
EXTRACTION_WAIT_SECONDS = 30.0  # of a poll for a text that is due: `instant` holds on a slow machine, too
FETCH_SECONDS = 60.0  # for the page of a URL job
FETCH_BYTES = 10 * 2**20  # of the largest page that is fetched


class Processor:
    """Extracts texts in a thread, one document at a time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tasks: dict[Job, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compliance-emulator-extract")
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Cancel fetches, and finish reading files, which can't be fetched again."""
        tasks = dict(self._tasks)
        for job, task in tasks.items():
            if job.source_url:
                task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        self._threads.shutdown(cancel_futures=True)

    def resume(self) -> None:
        """Restart the fetches that were in flight when the emulator was stopped."""
        for job in self._state.all(Job):
            if job.source_url and job.outcome is None:
                self.read_url(job)

    def read_file(self, job: Job, source: IO[bytes]) -> None:
        """Start extracting the text of an upload; closes the file."""
        reading = asyncio.get_running_loop().run_in_executor(
            self._threads, _extract_file, source, job.file_name or ""
        )
        reading.add_done_callback(lambda done: source.close())
        # Shielded: the file must not be closed while the thread reads it.
        self._spawn(job, lambda: asyncio.shield(reading))

    def read_url(self, job: Job) -> None:
        """Start fetching the page of a job, instead of an earlier fetch."""
        if job in self._tasks:
            self._tasks.pop(job).cancel()
        self._spawn(job, lambda: self._fetch(job))

    async def wait_for_due(self, jobs: Sequence[Job]) -> None:
        """Wait briefly for the texts of jobs that are due."""
        state = self._state
        progress, now = state.settings.progress, state.clock.now()
        due = [self._tasks[job] for job in jobs if job in self._tasks and job.is_due(progress, now)]
        if due:
            await asyncio.wait(due, timeout=EXTRACTION_WAIT_SECONDS)

    def _spawn(self, job: Job, work: Callable[[], Awaitable[str]]) -> None:
        task = asyncio.get_running_loop().create_task(self._process(job, work))
        self._tasks[job] = task
        task.add_done_callback(lambda done: self._tasks.get(job) is done and self._tasks.pop(job))

    async def _process(self, job: Job, work: Callable[[], Awaitable[str]]) -> None:
        try:
            outcome = ExtractionResult(text=await work())
        except ExtractionError as error:
            outcome = ExtractionResult(error=str(error))
        except Exception as error:
            log.exception("Processing job %s failed", job.uuid)
            outcome = ExtractionResult(error=f"Internal error: {type(error).__name__}")
        # A test may have set the outcome in the meantime.
        if job.outcome is None:
            job.outcome = outcome

    async def _fetch(self, job: Job) -> str:
        url = job.source_url or ""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit and no keep-alive: fetches never wait for each other.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        try:
            async with self._session.get(url, timeout=timeout, max_redirects=5) as response:
                job.fetched = self._state.clock.now()
                if response.status != 200:
                    raise ExtractionError(
                        f"Fetching {url} returned HTTP {response.status} {response.reason}."
                    )
                data = await _read_at_most(response, FETCH_BYTES)
                kind, charset = response.content_type, response.charset
        except TimeoutError:
            raise ExtractionError(f"Fetching {url} took longer than {FETCH_SECONDS:g} s.") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExtractionError(f"Fetching {url} failed: {error or type(error).__name__}") from None
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, _extract_page, data, kind, charset, url
        )


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_chunked(2**16):
        data += chunk
        if len(data) > limit:
            raise ExtractionError(f"The page is larger than {limit} bytes.")
    return bytes(data)


def _extract_file(source: IO[bytes], name: str) -> str:
    start = source.read(1024)
    source.seek(0)
    return extract_docx(source) if detect_kind(start, name) == "docx" else extract_pdf(source)


def _extract_page(data: bytes, kind: str, charset: str | None, url: str) -> str:
    if kind in ("text/html", "application/xhtml+xml"):
        return extract_html(data, charset)
    match detect_kind(data[:1024], url, kind):
        case "pdf":
            return extract_pdf(BytesIO(data))
        case "docx":
            return extract_docx(BytesIO(data))
    if kind.startswith("text/"):
        return decode(data, charset)
    raise ExtractionError(f"Pages of type {kind} are not supported.")


PROCESSOR: web.AppKey[list[Processor]] = web.AppKey("processor", list)


def get_processor(request: web.Request) -> Processor:
    """Return what extracts texts."""
    return request.app[PROCESSOR][0]


# -- operations


def find(request: web.Request, kind: type[W]) -> W:
    """Return the job or the assessment of the partner that the path names."""
    identifier = request.match_info[kind.name_of_id]
    work = get_state(request).find(kind, identifier, request.headers[SUBJECT])
    if work is None:
        raise RequestError(404, f"No {kind.noun} {identifier}")
    return work


def accept(request: web.Request, work: Work) -> web.Response:
    """Return the response to a submit."""
    state = get_state(request)
    location = state.make_location(request, work.operations[0], **{work.name_of_id: work.uuid})
    return json_response(state.record(work, "PENDING"), status=202, headers={"Location": location})


async def poll(request: web.Request, works: Sequence[Work]) -> None:
    """Count a poll, and wait for texts that are due."""
    for work in works:
        work.polls += 1
    await _wait(request, works)


async def _wait(request: web.Request, works: Sequence[Work]) -> None:
    state = get_state(request)
    await get_processor(request).wait_for_due([job for work in works for job in state.contents(work)])


async def _show_status(kind: type[Work], request: web.Request) -> web.Response:
    """Return the status; redirect to the result if completed."""
    state, work = get_state(request), find(request, kind)
    await poll(request, [work])
    status, (own, result) = state.status(work), work.operations
    if status == "COMPLETED" and state.dialect.redirects(own):
        location = state.make_location(request, result, **{work.name_of_id: work.uuid})
        return web.Response(status=303, headers={"Location": location})
    return json_response(state.record(work, status))


async def find_completed(request: web.Request, kind: type[W]) -> W:
    """Return what has a result."""
    work = find(request, kind)
    await _wait(request, [work])
    if (status := get_state(request).status(work)) != "COMPLETED":
        raise RequestError(409, f"{kind.noun.capitalize()} {work.uuid} has no results: it is {status}")
    return work


async def _cancel(kind: type[Work], request: web.Request) -> web.Response:
    """Cancel and delete it."""
    del get_state(request).work[find(request, kind).uuid]
    return web.Response()


get_status, get_assessment = partial(_show_status, Job), partial(_show_status, Assessment)
cancel, cancel_assessment = partial(_cancel, Job), partial(_cancel, Assessment)
