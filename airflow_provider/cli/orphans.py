"""The jobs that bulk tasks have left, what the service says of them, and which of them nobody waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_provider.assess.cells import Cell
from airflow_provider.assess.output import ASSESSMENTS as ASSESSMENTS_FILE
from airflow_provider.assess.output import RESUBMITTED
from airflow_provider.bulk.items import FAILED, SUBMITTED, Item
from airflow_provider.bulk.journals import TaskFolder, find_task_folders
from airflow_provider.bulk.pipeline import UNFINISHED_JOB
from airflow_provider.client.endpoints import FRAMEWORKS
from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceNotFoundError,
)
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.listing import find_destinations
from airflow_provider.ingest.output import MANIFEST, common_root
from airflow_provider.storage.layout import ASSESS_FOLDER, ASSESS_WORK, INGEST_FOLDER, INGEST_WORK
from airflow_provider.storage.locations import Location
from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS, POLL_CONCURRENCY, JobKind
from airflow_provider.waiting.results import UNKNOWN
from airflow_provider.waiting.rules import PollResult

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.hooks.compliance import ComplianceHook

MAX_ASSESSMENTS = 1_000  # polled: each is a request
IN_FLIGHT = frozenset({"PENDING", "RUNNING"})


class JobState(StrEnum):
    """What is to be done about a job; in the order in which people want to see them."""

    ORPHAN = "orphan"  # in flight, and nobody waits for it
    UNCLEAR = "unclear"  # the service did not say, or not in words of the contract
    NOT_FETCHED = "not fetched"  # completed, but its result is not stored
    IN_FLIGHT = "in flight"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # to the service

    @property
    def rank(self) -> int:
        """Its place in that order."""
        return list(JobState).index(self)


STATES = {
    **dict.fromkeys(IN_FLIGHT, JobState.IN_FLIGHT),
    "COMPLETED": JobState.NOT_FETCHED,
    "FAILED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    UNKNOWN: JobState.UNKNOWN,
}


@dataclass
class JournaledJob:
    """A job that tasks have left: in flight, or given up.

    :param label: its document
    :param is_refreshed: its item had failed with the job, so if the job is in flight, somebody else had it
        processed again
    :param tasks: the task instances that have it in their journals
    :param status: what the service says; empty if nothing
    :param why: the reason of its state
    """

    kind: JobKind
    job_id: str
    label: str
    submitted_at: str | None
    is_refreshed: bool = False
    tasks: list[TaskFolder] = field(default_factory=list)
    status: str = ""
    state: JobState = JobState.UNCLEAR
    why: str = ""

    @property
    def task(self) -> str:
        """The DAG, run and task that have it, as their folders are named."""
        first, *others = dict.fromkeys(each.name for each in self.tasks)
        return f"{first} and {len(others)} more" if others else first


@dataclass
class FoundJobs:
    """What is in the journals and manifests at a destination.

    :param tasks: how many tasks have been there
    :param invalid_lines: that can't be read: nobody knows which jobs they are about
    """

    jobs: list[JournaledJob]
    tasks: int
    invalid_lines: int


def find_jobs(destination: Location, account: str = "") -> FoundJobs:
    """Return the jobs that tasks at a destination have left.

    :param account: whose jobs they are; empty for those of all
    """
    jobs: dict[tuple[str, str], JournaledJob] = {}
    names: set[str] = set()
    invalid_lines = 0
    for kind, item_type, task in _find_tasks(destination):
        names.add(task.output_folder.path)
        task.checkpoint.account = account
        for item in task.checkpoint.read(item_type).values():
            if item.job_id and item.state in (SUBMITTED, FAILED):
                is_refreshed = item.state is FAILED and not (item.error or "").startswith(UNFINISHED_JOB)
                new = JournaledJob(kind, item.job_id, item.label, item.submitted_at, is_refreshed)
                # A service may give one job to equal documents.
                jobs.setdefault((kind.noun, item.job_id), new).tasks.append(task)
        invalid_lines += task.checkpoint.invalid_lines
    return FoundJobs(list(jobs.values()), len(names), invalid_lines)


def add_tasks_of_other_nights(jobs: Sequence[JournaledJob], destination: Location, now: float) -> bool:
    """Add the tasks of other nights below the same root that wait for the same jobs; return whether any do.

    :param now: as a timestamp
    """
    known = {(each.kind.noun, each.job_id): each for each in jobs}
    has_added = False
    for folder in find_destinations(Location(common_root(destination.uri)), destination):
        if folder.path.rstrip("/") == destination.path.rstrip("/"):
            continue
        for kind, item_type, task in _find_tasks(folder):
            if not task.has_journal or not task.find_waiter(now)[0]:
                continue
            for item in task.checkpoint.read(item_type).values():
                if item.state is SUBMITTED and (job := known.get((kind.noun, item.job_id or ""))):
                    job.tasks.append(task)
                    has_added = True
    return has_added


def _find_tasks(destination: Location) -> Iterator[tuple[JobKind, type[Item], TaskFolder]]:
    for task in find_task_folders(destination, INGEST_WORK, INGEST_FOLDER, MANIFEST):
        yield JOBS, Document, task
    suffix = f"-{RESUBMITTED}"  # of work folders of documents that the service had forgotten
    for task in find_task_folders(destination, ASSESS_WORK, ASSESS_FOLDER, ASSESSMENTS_FILE):
        if not task.name.endswith(suffix):
            yield ASSESSMENTS, Cell, task
    for task in find_task_folders(destination, ASSESS_WORK, ASSESS_FOLDER, f"{RESUBMITTED}.jsonl", suffix):
        yield JOBS, Document, task


class JobCheck:
    """Compares jobs with the service.

    :param clock: returns the time as a timestamp
    """

    def __init__(
        self, hook: ComplianceHook, jobs: Sequence[JournaledJob], clock: Callable[[], float]
    ) -> None:
        self.jobs = jobs
        self._hook = hook
        self._clock = clock
        self._seconds_ahead = 0.0  # how far this machine is ahead of the service

    @property
    def orphans(self) -> list[JournaledJob]:
        """Those that are in flight, and nobody waits for."""
        return [each for each in self.jobs if each.state is JobState.ORPHAN]

    async def poll(self) -> None:
        """Ask the service about all jobs; an error that all of them meet is raised."""
        async with await self._hook.get_async_conn() as client:
            assessments = [each for each in self.jobs if each.kind is ASSESSMENTS]
            polled = [each for each in self.jobs if each.kind is JOBS] + assessments[:MAX_ASSESSMENTS]
            self._seconds_ahead = await self._measure_skew(client)
            errors = await self._poll(client, polled)
        fatal = [each for each in errors if isinstance(each, ComplianceAuthError | ComplianceConfigError)]
        if fatal or (errors and len(errors) == len(polled)):
            raise (fatal or errors)[0]
        for each in assessments[MAX_ASSESSMENTS:]:
            each.why = f"not polled: there are more than {MAX_ASSESSMENTS:,} assessments"

    async def cancel(self) -> None:
        """Cancel orphans that still are: meanwhile a task may have started, and a job may have completed."""
        async with await self._hook.get_async_conn() as client:

            async def cancel(number: int) -> None:
                await self._cancel(client, orphans[number])

            orphans = self.orphans
            await for_each(cancel, range(len(orphans)), POLL_CONCURRENCY)

    async def _cancel(self, client: AsyncComplianceClient, job: JournaledJob) -> None:
        await self._poll(client, [job])
        if job.state is JobState.UNCLEAR:
            job.state, job.why = JobState.ORPHAN, f"not cancelled: {job.why}"
            return
        if job.state is not JobState.ORPHAN:
            return
        try:
            is_cancelled = await job.kind.cancel(client, job.job_id)
        except ComplianceNotFoundError:
            job.state, job.why = JobState.UNKNOWN, "it no longer existed when it was about to be cancelled"
        except ComplianceError as error:
            job.why = f"not cancelled: {error}"
        else:
            if is_cancelled:
                job.state, job.status, job.why = JobState.CANCELLED, "CANCELLED", f"cancelled now: {job.why}"
            else:
                job.state, job.why = JobState.NOT_FETCHED, "it has ended since, so it is left alone"

    async def _measure_skew(self, client: AsyncComplianceClient) -> float:
        """Return how far this machine is ahead of the service: a wrong clock must not let leases expire."""
        try:
            response = await client.request("GET", FRAMEWORKS)
            there = parsedate_to_datetime(response.headers["date"]).timestamp()
        except (ComplianceHttpError, KeyError, ValueError, TypeError):
            return 0.0  # it does not say
        return max(0.0, self._clock() - there)

    async def _poll(
        self, client: AsyncComplianceClient, jobs: Sequence[JournaledJob]
    ) -> list[ComplianceError]:
        """Set the states of jobs; return the errors of those that could not be polled."""
        results: dict[tuple[JobKind, str], PollResult] = {}

        async def poll_assessment(job_id: str) -> None:
            results[ASSESSMENTS, job_id] = await self._poll_assessment(client, job_id)

        ids = {kind: [each.job_id for each in jobs if each.kind is kind] for kind in (JOBS, ASSESSMENTS)}
        await JOBS.poll(client, ids[JOBS], lambda job_id, found: results.update({(JOBS, job_id): found}))
        await for_each(poll_assessment, ids[ASSESSMENTS], POLL_CONCURRENCY)
        waiters: dict[str, tuple[bool, str]] = {}
        for job in jobs:
            self._set_state(job, results[job.kind, job.job_id], waiters)
        return [each for each in results.values() if isinstance(each, ComplianceError)]

    async def _poll_assessment(self, client: AsyncComplianceClient, job_id: str) -> PollResult:
        try:
            found = await client.get_assessment(job_id)
        except ComplianceNotFoundError as error:
            return {"status": UNKNOWN, "error": str(error)}
        except ComplianceError as error:
            return error
        said = str(self._hook.translate_assessment(found.raw).get("status")).upper()
        # Elsewhere an unknown status means that it is running, but that is no reason to delete anything.
        is_clear = found.status.is_final or said in IN_FLIGHT
        return {"status": str(found.status) if is_clear else "", "error": found.error}

    def _set_state(self, job: JournaledJob, result: PollResult, waiters: dict[str, tuple[bool, str]]) -> None:
        """Set the state of a job.

        :param waiters: whether somebody may wait for jobs of a task, and why, by its folder
        """
        if isinstance(result, ComplianceError):
            job.status, job.state, job.why = "", JobState.UNCLEAR, str(result)
            return
        job.status, job.why = str(result["status"]), str(result.get("error") or "")
        job.state = STATES.get(job.status, JobState.UNCLEAR)
        if job.state is JobState.IN_FLIGHT and job.is_refreshed:
            job.why = "it had failed, and has been refreshed since"
        elif job.state is JobState.IN_FLIGHT:
            for task in job.tasks:
                if (folder := task.work_folder.path) not in waiters:
                    waiters[folder] = task.find_waiter(self._clock() - self._seconds_ahead)
            found = [waiters[task.work_folder.path] for task in job.tasks]
            is_awaited, job.why = next((each for each in found if each[0]), found[0])
            job.state = JobState.IN_FLIGHT if is_awaited else JobState.ORPHAN
        elif job.state is JobState.NOT_FETCHED:
            job.why = "the next attempt of its task fetches it, if there is one"
        elif job.state is JobState.UNCLEAR:
            job.why = "the service gave no known status: does the task have a hook_class?"
