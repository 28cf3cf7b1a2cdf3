"""Content processing: its jobs, the store that holds them, and the seven operations."""

from __future__ import annotations

import tempfile
import uuid
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from aiohttp import BodyPartReader, web

from airflow_provider.emulator.extraction import ExtractionResult, detect_kind
from airflow_provider.emulator.service.gateway import (
    SUBJECT,
    Planned,
    RequestError,
    get_context,
    json_response,
    read_object,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiohttp import MultipartReader

    from airflow_provider.emulator.service import State
    from airflow_provider.emulator.settings import CompletionRule

MAX_MEMORY_BYTES = 2**20


@dataclass(eq=False)
class Job:
    """One content processing job."""

    subject: str
    source_type: str
    created: float
    source_url: str | None = None
    file_name: str | None = None
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = 0.0
    polls: int = 0
    fetched: float | None = None
    finished: float | None = None
    outcome: ExtractionResult | None = None
    planned_failure: str | None = None
    forced: str | None = None
    force_finish: bool = False
    charset: str = "utf-8"
    size: int = 0
    hidden_polls: int = 0
    stale_polls: int | None = None

    def is_visible(self, visible: CompletionRule, now: float) -> bool:
        """Whether the job can be found yet."""
        if visible.kind == "polls":
            return self.hidden_polls >= visible.amount
        return visible.phase(0, now - self.created) == "DONE"

    def restart(self, now: float, planned_failure: str | None) -> None:
        """Start processing. Only a page is fetched again: the text of a file does not change."""
        self.started, self.polls, self.finished, self.forced = now, 0, None, None
        self.planned_failure, self.force_finish, self.stale_polls = planned_failure, False, None
        if self.source_type == "URL":
            self.outcome = None

    def is_due(self, progress: CompletionRule, now: float) -> bool:
        """Whether the job is finished as soon as it has an outcome."""
        if self.forced:
            return self.forced == "COMPLETED"
        return self.force_finish or progress.phase(self.polls, now - self.started) == "DONE"

    def status(self, progress: CompletionRule, now: float) -> str:
        """Return the current status; the first poll of a finished job sets its end time, also in the past."""
        if self.forced:
            return self.forced
        if self.finished is None:
            if not self.is_due(progress, now):
                return progress.phase(self.polls, now - self.started)
            if self.outcome is None and self.planned_failure is None:
                return "RUNNING"
            by_itself = self.started + progress.amount if progress.kind == "seconds" else now
            self.finished = now if self.force_finish else min(now, by_itself)
        return "FAILED" if self.error else "COMPLETED"

    def force(self, status: str, now: float) -> None:
        """Set a status that stays until a refresh."""
        self.forced = status
        self.finished = None if status in ("PENDING", "RUNNING") else now

    @property
    def error(self) -> str | None:
        """Why the job failed, if it did."""
        return self.planned_failure or (self.outcome.error if self.outcome else None)

    @property
    def text(self) -> str:
        """The extracted text."""
        return self.outcome.text if self.outcome else ""

    @property
    def name(self) -> str:
        """The file name or URL."""
        return self.file_name or self.source_url or ""

    def describe(self, status: str) -> dict[str, Any]:
        """Return the job for the controls and the page."""
        return {
            "uuid": self.uuid,
            "source_type": self.source_type,
            "name": self.name,
            "status": status,
            "error": self.error if status == "FAILED" else None,
            "polls": self.polls,
            "characters": len(self.text),
            "excerpt": self.text[:200],
            "subject": self.subject,
            "created": self.created,
            "completed": self.finished,
            "fetched": self.fetched,
        }


class StoredItem(Protocol):
    """An item of a store."""

    uuid: str
    created: float
    size: int


Item = TypeVar("Item", bound=StoredItem)


class Store(Generic[Item]):
    """Items by uuid, oldest first, bounded in number, age and bytes."""

    def __init__(self, on_evict: Callable[[Item], None] = lambda item: None) -> None:
        self.evicted = 0
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._bytes = 0
        self.on_evict = on_evict

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items, newest first."""
        return iter(reversed(list(self._items.values())))

    def get(self, uuid: str) -> Item | None:
        """Return one item, None if unknown."""
        return self._items.get(uuid)

    def add(self, item: Item) -> None:
        """Add an item."""
        self._items[item.uuid] = item
        self._bytes += item.size

    def resize(self, item: Item, size: int) -> None:
        """Set the size of an item in bytes."""
        if item.uuid in self._items:
            self._bytes += size - item.size
        item.size = size

    def remove(self, item: Item) -> None:
        """Remove an item."""
        if self._items.pop(item.uuid, None) is not None:
            self._bytes -= item.size
            self.on_evict(item)

    def clear(self) -> None:
        """Remove all items."""
        for item in list(self._items.values()):
            self.remove(item)
        self.evicted = 0

    def prune(self, now: float, max_items: int, max_age: float, max_bytes: int) -> None:
        """Evict the oldest items until all limits hold; a single item always fits."""
        while self._items:
            oldest = next(iter(self._items.values()))
            too_much = len(self) > max_items or self._bytes > max_bytes
            if now - oldest.created <= max_age and not (too_much and len(self) > 1):
                break
            self.remove(oldest)
            self.evicted += 1


@dataclass(eq=False)
class PlannedFailure(Planned):
    """A failure of the next jobs whose file name or URL matches."""

    error: str
    match: str


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
        location = state.make_location(request, "get_content", uuid=job.uuid)
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
    records = [job_record(state, job) for job in jobs]
    # The order is not defined.
    return json_response(state.random.sample(records, len(records)) if state.settings.quirks else records)


async def get_content(request: web.Request) -> web.Response:
    """Return the text of a completed job."""
    state = get_context(request).state
    job = _find(request)
    await get_context(request).processor.wait_for_due([job])
    status = state.status(job)
    if status != "COMPLETED":
        raise RequestError(409, f"Job {job.uuid} has no content: it is {status}")
    data = job.text.encode(job.charset, "replace")
    kind = f"text/plain;charset={job.charset.upper()}"
    if job.charset.lower() in ("utf-8", "utf8") and state.settings.quirks and state.random.random() < 0.3:
        kind = "text/plain"  # UTF-8 is the default
    return web.Response(body=data, headers={"Content-Type": kind})


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
    location = state.make_location(request, "get_status", uuid=job.uuid)
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


def job_record(state: State, job: Job, status: str | None = None) -> dict[str, Any]:
    """Return the record of a job."""
    shown = status or state.status(job)
    record = {
        "uuid": job.uuid,
        "sourceType": job.source_type,
        "sourceUrl": job.source_url,
        "fileName": job.file_name,
        "status": shown,
        "error": job.error if shown == "FAILED" else None,
        "createdAt": state.format_time(job.created),
        "completedAt": state.format_time(job.finished if shown == "COMPLETED" else None),
        "fetchedAt": state.format_time(job.fetched),
    }
    return state.shape_record(record)
