"""The operations of content processing; those that assessments have, too, are in `processing`."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import IO, Any
from urllib.parse import urlsplit

from aiohttp import BodyPartReader, MultipartReader, web

from airflow_provider.emulator.extraction import detect_kind
from airflow_provider.emulator.service.http import SUBJECT, RequestError, json_response, read_object
from airflow_provider.emulator.service.jobs import Job
from airflow_provider.emulator.service.processing import accept, find, find_completed, get_processor, poll
from airflow_provider.emulator.service.state import get_state

MAX_MEMORY_BYTES = 2**20
MAX_UPLOAD_BYTES = 100 * 2**20


async def submit_file(request: web.Request) -> web.Response:
    """Accept a PDF or DOCX document."""
    if request.content_type != "multipart/form-data":
        raise RequestError(
            415, f"Content-Type '{request.content_type}' is not supported, send multipart/form-data"
        )
    state = get_state(request)
    source, name = await _receive(request)
    job = Job(request.headers[SUBJECT], state.clock.now(), file_name=name)
    state.add_job(job)
    get_processor(request).read_file(job, source)
    return accept(request, job)


async def submit_url(request: web.Request) -> web.Response:
    """Accept the URL of a page."""
    state = get_state(request)
    url = (await read_object(request)).get("url")
    if not isinstance(url, str) or not _is_url(url):
        raise RequestError(400, "url must be an absolute http or https URL")
    job = Job(request.headers[SUBJECT], state.clock.now(), source_url=url)
    state.add_job(job)
    get_processor(request).read_url(job)
    return accept(request, job)


async def get_statuses(request: web.Request) -> web.Response:
    """Return the status of many jobs; unknown ones are left out."""
    state = get_state(request)
    uuids = (await read_object(request)).get("uuids")
    if not isinstance(uuids, list) or not all(isinstance(uuid, str) for uuid in uuids):
        raise RequestError(400, "uuids must be an array of strings")
    limit = state.settings.max_batch
    if limit is not None and len(uuids) > limit:
        raise RequestError(413, f"At most {limit} uuids can be asked for at once")
    found = (state.find(Job, uuid, request.headers[SUBJECT]) for uuid in dict.fromkeys(uuids))
    jobs = [job for job in found if job is not None]
    await poll(request, jobs)
    records = [state.record(job) for job in jobs]
    # The order is not defined.
    return json_response(state.random.sample(records, len(records)) if state.settings.quirks else records)


async def get_content(request: web.Request) -> web.Response:
    """Return the text of a completed job."""
    state = get_state(request)
    job = await find_completed(request, Job)
    data = job.text.encode(job.charset, "replace")
    kind = f"text/plain;charset={job.charset.upper()}"
    if job.charset.lower() in ("utf-8", "utf8") and state.settings.quirks and state.random.random() < 0.3:
        kind = "text/plain"  # UTF-8 is the default
    return web.Response(body=data, headers={"Content-Type": kind})


async def refresh(request: web.Request) -> web.Response:
    """Process a job again."""
    if await request.read():
        raise RequestError(400, "This operation takes no body")
    job = find(request, Job)
    get_state(request).restart_job(job)
    if job.source_url:
        get_processor(request).read_url(job)
    return accept(request, job)


def _is_url(url: str) -> bool:
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    return False


async def _receive(request: web.Request) -> tuple[IO[bytes], str]:
    """Write the part `file` to a temporary file; return it with its name."""
    received: tuple[IO[bytes], str] | None = None
    try:
        try:
            reader: MultipartReader = await request.multipart()
            while (part := await reader.next()) is not None:
                if not isinstance(part, BodyPartReader) or part.name != "file" or part.filename is None:
                    continue
                if received is not None:
                    raise RequestError(400, "Only one part 'file' is allowed")
                received = await _save(part), part.filename
        except (ValueError, AssertionError, EOFError) as error:
            raise RequestError(400, f"Failed to parse multipart request: {error}") from None
        if received is None:
            raise RequestError(400, "Required part 'file' is not present")
    except BaseException:
        if received is not None:
            received[0].close()
        raise
    return received


async def _save(part: BodyPartReader) -> IO[bytes]:
    # Not a with block: on success the file outlives this function.
    target: Any = tempfile.SpooledTemporaryFile(max_size=MAX_MEMORY_BYTES)  # noqa: SIM115 see above
    size = 0
    try:
        while chunk := await part.read_chunk(2**16):
            if not size:
                _check_type(chunk, part)
            size += len(chunk)
            if size > MAX_UPLOAD_BYTES:
                raise RequestError(413, f"Maximum upload size of {MAX_UPLOAD_BYTES} bytes exceeded")
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
