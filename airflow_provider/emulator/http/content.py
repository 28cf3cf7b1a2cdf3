"""Content processing: the seven operations."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import BodyPartReader, web

from airflow_provider.emulator.extraction import detect_kind
from airflow_provider.emulator.http.responses import (
    SUBJECT,
    RequestError,
    choose_text_type,
    get_context,
    job_record,
    json_response,
    make_location,
    read_object,
    shape_list,
)
from airflow_provider.emulator.state.jobs import Job

if TYPE_CHECKING:
    from aiohttp import MultipartReader

MAX_MEMORY_BYTES = 2**20


async def submit_file(request: web.Request) -> web.Response:
    """Accept a PDF or DOCX document."""
    if request.content_type != "multipart/form-data":
        raise RequestError(
            415, f"Content-Type '{request.content_type}' is not supported, send multipart/form-data"
        )
    state = get_context(request).state
    source, name = await _receive(request)
    job = Job(request.headers[SUBJECT], "FILE", state.clock.now(), file_name=name)
    state.add_job(job)
    get_context(request).processor.read_file(job, source)
    return _accepted(request, job)


async def submit_url(request: web.Request) -> web.Response:
    """Accept the URL of a page."""
    state = get_context(request).state
    url = (await read_object(request)).get("url")
    if not isinstance(url, str) or not _is_url(url):
        raise RequestError(400, "url must be an absolute http or https URL")
    job = Job(request.headers[SUBJECT], "URL", state.clock.now(), source_url=url)
    state.add_job(job)
    get_context(request).processor.read_url(job)
    return _accepted(request, job)


async def get_status(request: web.Request) -> web.Response:
    """Return the status; redirect to the text if completed."""
    state = get_context(request).state
    job = _find(request)
    await _poll(request, [job])
    if state.status(job) == "COMPLETED":
        location = make_location(state, request, "get_content", uuid=job.uuid)
        return web.Response(status=303, headers={"Location": location})
    return json_response(job_record(state, job))


async def get_statuses(request: web.Request) -> web.Response:
    """Return the status of many jobs; unknown ones are left out."""
    state = get_context(request).state
    uuids = (await read_object(request)).get("uuids")
    if not isinstance(uuids, list) or not all(isinstance(each, str) for each in uuids):
        raise RequestError(400, "uuids must be an array of strings")
    limit = state.settings.max_batch
    if limit is not None and len(uuids) > limit:
        raise RequestError(413, f"At most {limit} uuids can be asked for at once")
    found = (state.find_job(each, request.headers[SUBJECT]) for each in dict.fromkeys(uuids))
    jobs = [job for job in found if job is not None]
    await _poll(request, jobs)
    return json_response(shape_list(state, [job_record(state, job) for job in jobs]))


async def get_content(request: web.Request) -> web.Response:
    """Return the text of a completed job."""
    state = get_context(request).state
    job = _find(request)
    await get_context(request).processor.wait_for_due([job])
    status = state.status(job)
    if status != "COMPLETED":
        raise RequestError(409, f"Job {job.uuid} has no content: it is {status}")
    data = job.text.encode(job.charset, "replace")
    return web.Response(body=data, headers={"Content-Type": choose_text_type(state, job.charset)})


async def cancel(request: web.Request) -> web.Response:
    """Cancel and delete a job."""
    get_context(request).state.jobs.remove(_find(request))
    return web.Response()


async def refresh(request: web.Request) -> web.Response:
    """Process a job again."""
    if await request.read():
        raise RequestError(400, "This operation takes no body")
    job = _find(request)
    lag = get_context(request).state.settings.refresh_lag
    if lag:
        job.stale_polls = lag
    else:
        _restart(request, job)
    return _accepted(request, job)


def _restart(request: web.Request, job: Job) -> None:
    get_context(request).state.restart_job(job)
    if job.source_type == "URL":
        get_context(request).processor.read_url(job)


def _find(request: web.Request) -> Job:
    uuid = request.match_info["uuid"]
    job = get_context(request).state.find_job(uuid, request.headers[SUBJECT])
    if job is None:
        raise RequestError(404, f"No content processing job {uuid}")
    return job


async def _poll(request: web.Request, jobs: list[Job]) -> None:
    for job in jobs:
        if job.stale_polls == 0:
            _restart(request, job)
        elif job.stale_polls is not None:
            job.stale_polls -= 1
        job.polls += 1
    await get_context(request).processor.wait_for_due(jobs)


def _accepted(request: web.Request, job: Job) -> web.Response:
    state = get_context(request).state
    location = make_location(state, request, "get_status", uuid=job.uuid)
    return json_response(job_record(state, job, "PENDING"), status=202, headers={"Location": location})


def _is_url(url: str) -> bool:
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    return False


async def _receive(request: web.Request) -> tuple[IO[bytes], str]:
    """Write the part `file` to a temporary file; return it with its name."""
    limit = get_context(request).state.settings.max_upload
    received: tuple[IO[bytes], str] | None = None
    try:
        try:
            reader: MultipartReader = await request.multipart()
            while (part := await reader.next()) is not None:
                if not isinstance(part, BodyPartReader) or part.name != "file" or part.filename is None:
                    continue
                if received is not None:
                    raise RequestError(400, "Only one part 'file' is allowed")
                received = await _save(part, limit), part.filename
        except (ValueError, AssertionError, EOFError) as error:
            raise RequestError(400, f"Failed to parse multipart request: {error}") from None
        if received is None:
            raise RequestError(400, "Required part 'file' is not present")
    except BaseException:
        if received is not None:
            received[0].close()
        raise
    return received


async def _save(part: BodyPartReader, limit: int | None) -> IO[bytes]:
    # Not a with block: on success the file outlives this function.
    target: Any = tempfile.SpooledTemporaryFile(max_size=MAX_MEMORY_BYTES)  # noqa: SIM115 see above
    size = 0
    try:
        while chunk := await part.read_chunk(2**16):
            if not size:
                _check_type(chunk, part)
            size += len(chunk)
            if limit is not None and size > limit:
                raise RequestError(413, f"Maximum upload size of {limit} bytes exceeded")
            target.write(chunk)
        if not size:
            raise RequestError(400, "The file is empty")
    except BaseException:
        target.close()
        raise
    target.seek(0)
    file: IO[bytes] = target
    return file


def _check_type(start: bytes, part: BodyPartReader) -> None:
    if detect_kind(start, part.filename or "", part.headers.get("Content-Type", "")) is None:
        raise RequestError(415, "Only PDF and DOCX documents are accepted")
