"""`jobs`: compares the jobs in journals with their status at the service; cancels the jobs that are named."""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airflow_provider.cli.access import as_uri, asking_airflow
from airflow_provider.cli.commands import (
    FAILED,
    FOUND,
    GOOD,
    print_json,
    print_line,
    print_note,
    print_table,
)
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.nights.assess.cells import Cell
from airflow_provider.notifications import find_tasks
from airflow_provider.redaction.text import plural
from airflow_provider.runtime.event_loop import EventLoop
from airflow_provider.storage.locations import Location
from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS
from airflow_provider.waiting.results import PollResult

MAX_SHOWN = 50
CONCURRENCY = 8  # cancels at a time
EXPIRED_SECONDS = 3600.0  # after its end, from which on a lease has expired by every clock
ORPHAN, UNCLEAR, IN_FLIGHT = "orphan", "unclear", "in flight"
# By the status at the service.
STATES = {"COMPLETED": "not fetched", "FAILED": "failed", "CANCELLED": "cancelled", "UNKNOWN": "unknown"}
ORDER = (ORPHAN, UNCLEAR, "not fetched", IN_FLIGHT, "failed", "cancelled", "unknown")
COLUMNS = ("state", "kind", "id", "submitted_at", "document", "task", "why")  # JSON also has the status
log = logging.getLogger(__name__)


@dataclass
class JournaledJob:
    """A job that tasks left: in flight, or failed.

    :param kind: noun of its kind
    :param tasks: the task instances that have it in their journals, and until when each may wait for it
    :param status: at the service; empty if it does not know the job
    :param why: the reason of its state
    """

    kind: str
    id: str
    document: str
    submitted_at: str | None
    tasks: dict[str, float | None] = field(default_factory=dict)
    status: str = ""
    state: str = UNCLEAR
    why: str = ""

    @property
    def task(self) -> str:
        """The DAG, run and task that have it, as their folders are named."""
        first, *others = self.tasks
        return f"{first} and {len(others)} more" if others else first

    def set_state(self, result: PollResult) -> None:
        """Set the state from the result of a poll."""
        if isinstance(result, Exception):
            self.why = str(result)
            return
        self.status, self.why = str(result["status"]), str(result.get("error") or "")
        self.state = STATES.get(self.status, IN_FLIGHT)
        if self.state != IN_FLIGHT:
            return
        ends = [end for end in self.tasks.values() if end is not None]
        if len(ends) < len(self.tasks):
            self.why = "its task may wait for it, nobody knows until when"
            return
        is_over = time.time() > max(ends) + EXPIRED_SECONDS
        self.state = ORPHAN if is_over else IN_FLIGHT
        end = datetime.fromtimestamp(max(ends), UTC).strftime("%Y-%m-%d %H:%M UTC")
        self.why = f"its task {'could' if is_over else 'may'} wait for it until {end}"


class Journals:
    """Jobs according to the checkpoints and manifests at a destination.

    :param account: the account of the connection; jobs of other ones are only counted
    """

    def __init__(self, destination: Location, account: str) -> None:
        self.tasks, self.invalid_lines, self.foreign_jobs = set[str](), 0, 0
        jobs: dict[tuple[str, str], JournaledJob] = {}
        for _, item_type, task in find_tasks(destination):
            task.account = account
            items = task.read(item_type)
            self.tasks.add(task.name)
            self.invalid_lines += task.invalid_lines
            foreign = task.foreign_jobs.items()
            self.foreign_jobs += sum(1 for key, job_id in foreign if job_id and not items[key].job_id)
            for item in items.values():
                if item.job_id and item.has_left_job:
                    kind = ASSESSMENTS if isinstance(item, Cell) else JOBS
                    new = JournaledJob(kind.noun, item.job_id, item.label, item.submitted_at)
                    # A service may give one job to equal documents.
                    jobs.setdefault((new.kind, new.id), new).tasks[task.name] = task.waits_until
        self.jobs = list(jobs.values())


def run(options: argparse.Namespace) -> int:
    """Compare journals with the service, and cancel the named jobs."""
    with asking_airflow():
        destination = Location(as_uri(options.destination))
        _ = destination.fs  # asks Airflow for the connection
        hook = ComplianceHook(options.conn_id)
        hook.get_conn()
        found = Journals(destination, hook.account_digest)
        if not found.tasks:
            raise ComplianceInputError(
                f"There is neither a checkpoint nor a manifest at '{destination}': give the rendered "
                "destination of an ingest or assess task, or the root of the nights."
            )
        if unknown := set(options.cancel) - {job.id for job in found.jobs}:
            raise ComplianceInputError(
                f"No task at '{destination}' left the job {', '.join(sorted(unknown))}, so nothing was "
                "cancelled: check the destination and the id."
            )
        EventLoop(threads=2).run(_cancel_and_poll(hook, found.jobs, set(options.cancel)))
    named = [job for job in found.jobs if job.id in options.cancel]
    left = [job for job in named if job.state in (IN_FLIGHT, ORPHAN, UNCLEAR)]
    for job in left:
        print_note(f"Not cancelled: {job.kind} {job.id} of '{job.document}': {job.status or job.why}")
    if found.invalid_lines:
        print_note(f"Lines that can't be read: {found.invalid_lines:,}. They may name other jobs.")
    if found.foreign_jobs:
        print_note(
            f"Jobs of another host or account, not polled: {found.foreign_jobs:,}. Name their connection "
            "with --conn-id."
        )
    _print_jobs(found, as_json=options.json)
    has_found = left or found.invalid_lines or any(job.state == ORPHAN for job in found.jobs)
    return FAILED if found.foreign_jobs else FOUND if has_found else GOOD


async def _cancel_and_poll(hook: ComplianceHook, jobs: Sequence[JournaledJob], named: set[str]) -> None:
    """Cancel the named jobs, and set the states of all.

    A job that completed is left alone, because cancelling deletes it.
    """
    async with await hook.get_async_conn() as client:
        for kind in (JOBS, ASSESSMENTS):
            by_id = {job.id: job for job in jobs if job.kind == kind.noun}
            in_flight = [job_id for job_id in by_id if job_id in named]
            await kind.cancel_in_flight(client, in_flight, CONCURRENCY, log)
            results: dict[str, PollResult] = {}
            await kind.poll(client, list(by_id), results.__setitem__)
            errors = [result for result in results.values() if isinstance(result, Exception)]
            if errors and len(errors) == len(by_id):
                raise errors[0]
            for job_id, result in results.items():
                by_id[job_id].set_state(result)


def _print_jobs(found: Journals, *, as_json: bool) -> None:
    ordered = sorted(found.jobs, key=lambda job: (ORDER.index(job.state), job.submitted_at or ""))
    rows = [{name: getattr(job, name) for name in (*COLUMNS, "status")} for job in ordered]
    states = dict(sorted(Counter(job.state for job in ordered).items()))
    if as_json:
        totals = {"tasks": len(found.tasks), "jobs": len(rows), "orphans": states.get(ORPHAN, 0)}
        for row in (*rows, {"totals": {**totals, "states": states}}):
            print_json(row)
        return
    for row in rows:
        row["submitted_at"] = (row["submitted_at"] or "")[:16].replace("T", " ")
    if rows:
        shown = [[row[name] for name in COLUMNS] for row in rows[:MAX_SHOWN]]
        print_table([name.removesuffix("_at").upper() for name in COLUMNS], shown)
    if len(rows) > MAX_SHOWN:
        print_line(f"and {len(rows) - MAX_SHOWN:,} more: --json lists all")
    counted = ", ".join(f"{number:,} {state}" for state, number in states.items())
    left = f"{plural(len(rows), 'job')} left{f': {counted}' if counted else ''}"
    print_line(f"{plural(len(found.tasks), 'task')}, {left}.")
    if ORPHAN in states or IN_FLIGHT in states:
        print_line("To resume jobs of a task that died, clear it. To cancel jobs: --cancel ID...")
