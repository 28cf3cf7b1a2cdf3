"""`jobs`: what journals say is in flight, beside what the service says; cancels the jobs that are named."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider.cli.commands import (
    FAILED,
    FOUND,
    GOOD,
    Command,
    option,
    print_line,
    print_note,
    print_table,
)

if TYPE_CHECKING:
    from airflow_provider.bulk.checkpoint import Checkpoint
    from airflow_provider.bulk.items import Item
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.waiting.kinds import JobKind
    from airflow_provider.waiting.rules import PollResult

MAX_SHOWN = 50
CONCURRENCY = 8  # of cancels
EXPIRED_SECONDS = 3600.0  # after its end, from which on a lease has expired by every clock
ORPHAN, UNCLEAR, IN_FLIGHT = "orphan", "unclear", "in flight"
# By what the service says, in the order in which people want to see them.
STATES = {"COMPLETED": "not fetched", "FAILED": "failed", "CANCELLED": "cancelled", "UNKNOWN": "unknown"}
ORDER = (ORPHAN, UNCLEAR, "not fetched", IN_FLIGHT, "failed", "cancelled", "unknown")
COLUMNS = ("state", "kind", "id", "submitted_at", "document", "task", "why")  # of the table
log = logging.getLogger(__name__)


@dataclass
class JournaledJob:
    """A job that tasks have left: in flight, or failed.

    :param label: its document
    :param tasks: the task instances that have it in their journals, and until when each may wait for it
    :param status: what the service says; empty if nothing
    :param why: the reason of its state
    """

    kind: JobKind
    job_id: str
    label: str
    submitted_at: str | None
    tasks: dict[str, float | None]
    status: str = ""
    state: str = UNCLEAR
    why: str = ""

    @property
    def task(self) -> str:
        """The DAG, run and task that have it, as their folders are named."""
        first, *others = self.tasks
        return f"{first} and {len(others)} more" if others else first

    def set_state(self, result: PollResult) -> None:
        """Set the state by what a poll has returned."""
        if isinstance(result, Exception):
            self.status, self.state, self.why = "", UNCLEAR, str(result)
            return
        self.status, self.why = str(result["status"]), str(result.get("error") or "")
        self.state = STATES.get(self.status, IN_FLIGHT)
        if self.state == IN_FLIGHT:
            ends = [end for end in self.tasks.values() if end is not None]
            if len(ends) < len(self.tasks):
                self.why = "its task may wait for it: until when is not known"
            elif time.time() > max(ends) + EXPIRED_SECONDS:
                self.state, self.why = ORPHAN, f"its task could wait for it until {_minute(max(ends))}"
            else:
                self.why = f"its task may wait for it until {_minute(max(ends))}"


def run(options: argparse.Namespace) -> int:
    """Compare journals with the service, and cancel the named jobs."""
    from airflow_provider.cli.access import as_uri, asking_airflow
    from airflow_provider.exceptions import ComplianceInputError
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.notifications import find_tasks
    from airflow_provider.storage.locations import Location
    from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS

    with asking_airflow():
        destination = Location(as_uri(options.destination))
        _ = destination.fs  # asks Airflow for the connection
        hook = ComplianceHook(options.conn_id)
        hook.get_conn()
        jobs: dict[tuple[str, str], JournaledJob] = {}
        tasks, invalid_lines, foreign_jobs = set(), 0, 0
        for noun, item_type, task in find_tasks(destination):
            kind = JOBS if noun == "documents" else ASSESSMENTS
            tasks.add(task.name)
            task.account = hook.account_digest
            items = task.read(item_type)
            _add_jobs(jobs, kind, task, items.values())
            invalid_lines += task.invalid_lines
            foreign = task.foreign_jobs.items()
            foreign_jobs += sum(1 for key, job_id in foreign if job_id and not items[key].job_id)
        if not tasks:
            raise ComplianceInputError(
                f"There is neither a journal nor a manifest at '{destination}': give the destination of an "
                "ingest or assess task, after rendering, or the root of the nights."
            )
        if unknown := set(options.cancel) - {job.job_id for job in jobs.values()}:
            raise ComplianceInputError(
                f"No task at '{destination}' has left the job {', '.join(sorted(unknown))}, so nothing was "
                "cancelled: check the destination and the id."
            )
        are_gone = asyncio.run(_cancel_and_poll(hook, list(jobs.values()), set(options.cancel)))
    if invalid_lines:
        print_note(f"Lines that can't be read: {invalid_lines:,}. Which jobs they name is not known.")
    if foreign_jobs:
        print_note(
            f"Jobs of another host or account, not polled: {foreign_jobs:,}. Name their connection with "
            "--conn-id."
        )
    ordered = sorted(jobs.values(), key=lambda job: (ORDER.index(job.state), job.submitted_at or ""))
    _print_jobs(ordered, len(tasks), as_json=options.json)
    if foreign_jobs:
        return FAILED
    has_found = invalid_lines or not are_gone or any(job.state == ORPHAN for job in ordered)
    return FOUND if has_found else GOOD


def _add_jobs(
    jobs: dict[tuple[str, str], JournaledJob], kind: JobKind, task: Checkpoint, items: Iterable[Item]
) -> None:
    from airflow_provider.assess.cells import Cell
    from airflow_provider.waiting.kinds import JOBS

    for item in items:
        if item.job_id and item.has_left_job:
            of_item = JOBS if isinstance(item, Cell) and item.is_text else kind
            new = JournaledJob(of_item, item.job_id, item.label, item.submitted_at, {})
            # A service may give one job to equal documents.
            jobs.setdefault((of_item.noun, item.job_id), new).tasks[task.name] = task.waits_until


async def _cancel_and_poll(hook: ComplianceHook, jobs: Sequence[JournaledJob], named: set[str]) -> bool:
    """Set the states of jobs; return whether none of the named ones is in flight any more.

    A job that has completed is left alone, because cancelling deletes it.
    """
    from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS

    async with await hook.get_async_conn() as client:
        for kind in (JOBS, ASSESSMENTS):
            by_id = {job.job_id: job for job in jobs if job.kind is kind}
            await kind.cancel_in_flight(
                client, [job_id for job_id in by_id if job_id in named], CONCURRENCY, log
            )
            results: dict[str, PollResult] = {}
            await kind.poll(client, list(by_id), results.__setitem__)
            for job_id, result in results.items():
                by_id[job_id].set_state(result)
            errors = [result for result in results.values() if isinstance(result, Exception)]
            if errors and len(errors) == len(by_id):
                raise errors[0]
    left = [job for job in jobs if job.job_id in named and job.state in (IN_FLIGHT, ORPHAN, UNCLEAR)]
    for job in left:
        print_note(f"Not cancelled: {job.kind.noun} {job.job_id} of '{job.label}': {job.status or job.why}")
    return not left


def _print_jobs(jobs: Sequence[JournaledJob], tasks: int, *, as_json: bool) -> None:
    from airflow_provider.reports.page import plural

    states = Counter(job.state for job in jobs)
    rows = [
        {
            "state": job.state,
            "kind": job.kind.noun,
            "id": job.job_id,
            "submitted_at": job.submitted_at,
            "document": job.label,
            "task": job.task,
            "why": job.why,
            "status": job.status,
        }
        for job in jobs
    ]
    if as_json:
        totals = {"jobs": len(jobs), "orphans": states[ORPHAN], "states": dict(sorted(states.items()))}
        for row in (*rows, {"totals": {"tasks": tasks, **totals}}):
            print_line(json.dumps(row))
        return
    shown = [
        [(row["submitted_at"] or "")[:16].replace("T", " ") if name == "submitted_at" else row[name] or ""
         for name in COLUMNS]
        for row in rows[:MAX_SHOWN]
    ]  # fmt: skip
    if shown:
        print_table([name.removesuffix("_at").upper() for name in COLUMNS], shown)
    if len(jobs) > MAX_SHOWN:
        print_line(f"and {len(jobs) - MAX_SHOWN:,} more: --json lists all")
    counted = ", ".join(f"{number:,} {state}" for state, number in sorted(states.items()))
    left = f"{plural(len(jobs), 'job')} left{f': {counted}' if counted else ''}"
    print_line(f"{plural(tasks, 'task')}, {left}.")
    if states[ORPHAN] or states[IN_FLIGHT]:
        print_line("To resume jobs of a task that has died, clear it. To cancel jobs: --cancel ID...")


def _minute(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")


COMMAND = Command(
    name="jobs",
    help="Show the jobs that tasks have left, and cancel those that you name",
    description="Show the jobs that journals of bulk tasks at a destination say are in flight or have "
    "failed, beside what the service says now. An orphan is in flight at the service after the time that its "
    "task had. Exit code 0: there are no orphans, and all named jobs have ended or are gone; 1: there are "
    "orphans, or a named job is still in flight; 2: wrong usage, the store or the service has failed, or "
    "jobs belong to another connection.",
    options=(
        option(
            "destination",
            metavar="DESTINATION",
            help="of the tasks, after rendering, or the root of the nights: a URI or a local path",
        ),
        option("--conn-id", default="compliance_default", help="of the service; default: compliance_default"),
        option("--cancel", nargs="+", default=[], metavar="ID", help="cancel these jobs, if in flight"),
        option("--json", action="store_true", help="print one JSON object per job, then one with totals"),
    ),
    run=run,
)
