"""Content processing: the seven operations."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import BodyPartReader, web

from airflow_provider.emulator.extraction import kind_of
from airflow_provider.emulator.memory.jobs import Job
from airflow_provider.emulator.wire.answers import (
    SUBJECT,
    RefusalError,
    context_of,
    job_record,
    json_answer,
    read_object,
)
from airflow_provider.emulator.wire.quirks import choose_text_type, make_location, shape_list

if TYPE_CHECKING:
    from aiohttp import MultipartReader

IN_MEMORY = 2**20


async def submit_file(request: web.Request) -> web.Response:
    """Take in a PDF or DOCX document."""
    if request.content_type != "multipart/form-data":
        raise RefusalError(
            415, f"Content-Type '{request.content_type}' is not supported, send multipart/form-data"
        )
    state = context_of(request).state
    source, name = await _receive(request)
    job = Job(request.headers[SUBJECT], "FILE", state.clock.now(), file_name=name)
    state.add_job(job)
    context_of(request).processor.read_file(job, source)
    return _accepted(request, job)


async def submit_url(request: web.Request) -> web.Response:
    """Take in the address of a page."""
    state = context_of(request).state
    url = (await read_object(request)).get("url")
    if not isinstance(url, str) or not _is_web_address(url):
        raise RefusalError(400, "url must be an absolute http or https address")
    job = Job(request.headers[SUBJECT], "URL", state.clock.now(), source_url=url)
    state.add_job(job)
    context_of(request).processor.read_url(job)
    return _accepted(request, job)


async def get_status(request: web.Request) -> web.Response:
    """Tell how a job stands; a completed one redirects to its text."""
    state = context_of(request).state
    job = _find(request)
    await _look(request, [job])
    if state.status(job) == "COMPLETED":
        location = make_location(state, request, "get_content", uuid=job.uuid)
        return web.Response(status=303, headers={"Location": location})
    return json_answer(job_record(state, job))


async def get_statuses(request: web.Request) -> web.Response:
    """Tell how many jobs stand; those that nobody knows are left out."""
    state = context_of(request).state
    uuids = (await read_object(request)).get("uuids")
    if not isinstance(uuids, list) or not all(isinstance(each, str) for each in uuids):
        raise RefusalError(400, "uuids must be an array of strings")
    limit = state.settings.max_batch
    if limit is not None and len(uuids) > limit:
        raise RefusalError(413, f"At most {limit} uuids can be asked for at once")
    found = (state.find_job(each, request.headers[SUBJECT]) for each in dict.fromkeys(uuids))
    jobs = [job for job in found if job is not None]
    await _look(request, jobs)
    return json_answer(shape_list(state, [job_record(state, job) for job in jobs]))


async def get_content(request: web.Request) -> web.Response:
    """Return the text of a completed job."""
    state = context_of(request).state
    job = _find(request)
    await context_of(request).processor.settle([job])
    status = state.status(job)
    if status != "COMPLETED":
        raise RefusalError(409, f"Job {job.uuid} has no content: it is {status}")
    data = job.text.encode(job.charset, "replace")
    return web.Response(body=data, headers={"Content-Type": choose_text_type(state, job.charset)})


async def cancel(request: web.Request) -> web.Response:
    """Cancel and delete a job."""
    context_of(request).state.jobs.remove(_find(request))
    return web.Response()


async def refresh(request: web.Request) -> web.Response:
    """Process a job again."""
    if await request.read():
        raise RefusalError(400, "This operation takes no body")
    job = _find(request)
    lag = context_of(request).state.settings.refresh_lag
    if lag:
        job.lag = lag
    else:
        _restart(request, job)
    return _accepted(request, job)


def _restart(request: web.Request, job: Job) -> None:
    context_of(request).state.restart_job(job)
    if job.source_type == "URL":
        context_of(request).processor.read_url(job)


def _find(request: web.Request) -> Job:
    uuid = request.match_info["uuid"]
    job = context_of(request).state.find_job(uuid, request.headers[SUBJECT])
    if job is None:
        raise RefusalError(404, f"No content processing job {uuid}")
    return job


async def _look(request: web.Request, jobs: list[Job]) -> None:
    for job in jobs:
        if job.lag == 0:
            _restart(request, job)
        elif job.lag is not None:
            job.lag -= 1
        job.looks += 1
    await context_of(request).processor.settle(jobs)


def _accepted(request: web.Request, job: Job) -> web.Response:
    state = context_of(request).state
    location = make_location(state, request, "get_status", uuid=job.uuid)
    return json_answer(job_record(state, job, "PENDING"), status=202, headers={"Location": location})


def _is_web_address(url: str) -> bool:
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    return False


async def _receive(request: web.Request) -> tuple[IO[bytes], str]:
    """Write the part `file` to a temporary file; return it with its name."""
    limit = context_of(request).state.settings.max_upload
    received: tuple[IO[bytes], str] | None = None
    try:
        try:
            reader: MultipartReader = await request.multipart()
            while (part := await reader.next()) is not None:
                if not isinstance(part, BodyPartReader) or part.name != "file" or part.filename is None:
                    continue
                if received is not None:
                    raise RefusalError(400, "Only one part 'file' is allowed")
                received = await _save(part, limit), part.filename
        except (ValueError, AssertionError, EOFError) as error:
            raise RefusalError(400, f"Failed to parse multipart request: {error}") from None
        if received is None:
            raise RefusalError(400, "Required part 'file' is not present")
    except BaseException:
        if received is not None:
            received[0].close()
        raise
    return received


async def _save(part: BodyPartReader, limit: int | None) -> IO[bytes]:
    # Not a with block: on success the file outlives this function.
    target: Any = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 see above
    size = 0
    try:
        while chunk := await part.read_chunk(2**16):
            if not size:
                _check_type(chunk, part)
            size += len(chunk)
            if limit is not None and size > limit:
                raise RefusalError(413, f"Maximum upload size of {limit} bytes exceeded")
            target.write(chunk)
        if not size:
            raise RefusalError(400, "The file is empty")
    except BaseException:
        target.close()
        raise
    target.seek(0)
    file: IO[bytes] = target
    return file


def _check_type(start: bytes, part: BodyPartReader) -> None:
    if kind_of(start, part.filename or "", part.headers.get("Content-Type", "")) is None:
        raise RefusalError(415, "Only PDF and DOCX documents are accepted")
