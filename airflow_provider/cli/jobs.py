"""`jobs`: what journals say is in flight, beside what the service says; cancels what nobody waits for."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_provider.cli.commands import (
    FOUND,
    GOOD,
    Command,
    option,
    print_line,
    print_note,
    print_table,
)

if TYPE_CHECKING:
    from airflow_provider.cli.orphans import JobCheck, JournaledJob
    from airflow_provider.hooks.compliance import ComplianceHook

MAX_SHOWN = 50
IN_FLIGHT = "in flight"
MAX_NAMED = 10  # before a question


def run(options: argparse.Namespace) -> int:
    """Compare journals with the service, and cancel orphans if asked to."""
    from airflow_provider.cli.access import as_uri, asking_airflow, naming_schemes
    from airflow_provider.cli.orphans import JobCheck, add_tasks_of_other_nights, find_jobs
    from airflow_provider.exceptions import ComplianceInputError
    from airflow_provider.storage.locations import Location

    with asking_airflow():
        destination = Location(as_uri(options.destination))
        with naming_schemes(destination.uri):
            _ = destination.fs  # asks Airflow for the connection
        hook = _import_hook(options.hook_class)(options.conn_id)
        hook.get_conn()
        found = find_jobs(destination, hook.account_digest)
        if not found.tasks:
            raise ComplianceInputError(
                f"There is neither a journal nor a manifest at '{destination}': give the destination of an "
                "ingest or assess task, after rendering."
            )
        check = JobCheck(hook, found.jobs, time.time)
        asyncio.run(check.poll())
        if check.orphans and add_tasks_of_other_nights(check.orphans, destination, time.time()):
            asyncio.run(check.poll())
    if options.cancel_orphans and check.orphans and _may_cancel(check.orphans, is_sure=options.yes):
        with asking_airflow():
            asyncio.run(check.cancel())
    if found.invalid_lines:
        print_note(f"Lines that can't be read: {found.invalid_lines:,}. Which jobs they name is not known.")
    (_print_json if options.json else _print_jobs)(check, found.tasks)
    return FOUND if check.orphans or found.invalid_lines else GOOD


def _import_hook(path: str) -> type[ComplianceHook]:
    from pkgutil import resolve_name

    from airflow_provider.exceptions import ComplianceInputError
    from airflow_provider.hooks.compliance import ComplianceHook

    if not path:
        return ComplianceHook
    try:
        found = resolve_name(path)
    except Exception as error:  # whatever the module raises
        raise ComplianceInputError(
            f"The hook class '{path}' can't be imported: {error}. Check --hook-class and PYTHONPATH."
        ) from None
    if not (isinstance(found, type) and issubclass(found, ComplianceHook)):
        raise ComplianceInputError(f"'{path}' is not a subclass of ComplianceHook: check --hook-class.")
    return found


def _may_cancel(orphans: list[JournaledJob], *, is_sure: bool) -> bool:
    """Show what will be cancelled, and ask a person."""
    from airflow_provider.exceptions import ComplianceInputError
    from airflow_provider.reports.page import plural

    for each in orphans[:MAX_NAMED]:
        print_note(f"{each.kind.noun} {each.job_id} of '{each.label}': {each.why}")
    if len(orphans) > MAX_NAMED:
        print_note(f"and {len(orphans) - MAX_NAMED:,} more")
    print_note(f"This cancels {plural(len(orphans), 'job')}, which deletes what the service has of them.")
    if is_sure:
        return True
    if not sys.stdin.isatty():
        raise ComplianceInputError("There is no terminal to confirm on, so nothing was cancelled: add --yes.")
    print_note("Type yes to continue:")
    return sys.stdin.readline().strip().lower() == "yes"


def _print_json(check: JobCheck, tasks: int) -> None:
    for each in check.jobs:
        line = {
            "kind": each.kind.noun,
            "id": each.job_id,
            "task": each.task,
            "document": each.label,
            "submitted_at": each.submitted_at,
            "state": each.state,
            "status": each.status,
            "why": each.why,
        }
        print_line(json.dumps(line))
    print_line(json.dumps({"totals": {"tasks": tasks, **_count(check)}}))


def _count(check: JobCheck) -> dict[str, Any]:
    states = Counter(str(each.state) for each in check.jobs)
    return {"jobs": len(check.jobs), "orphans": len(check.orphans), "states": dict(sorted(states.items()))}


def _minute(at: str | None) -> str:
    return (at or "")[:16].replace("T", " ")


def _print_jobs(check: JobCheck, tasks: int) -> None:
    from airflow_provider.reports.page import plural

    # What a person has to do something about comes first.
    ordered = sorted(check.jobs, key=lambda each: (each.state.rank, each.submitted_at or ""))
    rows = [
        (each.state, each.kind.noun, each.job_id, _minute(each.submitted_at), each.label, each.task, each.why)
        for each in ordered[:MAX_SHOWN]
    ]
    if rows:
        print_table(("STATE", "KIND", "ID", "SUBMITTED", "DOCUMENT", "TASK", "WHY"), rows)
    if len(ordered) > MAX_SHOWN:
        print_line(f"and {len(ordered) - MAX_SHOWN:,} more: --json lists all")
    counts = _count(check)
    states = ", ".join(f"{number:,} {state}" for state, number in counts["states"].items())
    left = f"{plural(len(ordered), 'job')} left{f': {states}' if states else ''}"
    print_line(f"{plural(tasks, 'task')}, {left}.")
    if check.orphans:
        print_line("Nobody waits for the orphans: cancel them with --cancel-orphans.")
    elif counts["states"].get(IN_FLIGHT):
        print_line("If the task of these jobs has died, clear it: it resumes them.")


COMMAND = Command(
    name="jobs",
    help="Show jobs in flight, and cancel those that nobody waits for",
    description="Show the jobs that journals of bulk tasks at a destination say are in flight or have "
    "failed, beside what the service says now. An orphan is in flight at the service, but no attempt waits "
    "for it any more. Exit code 0: there are no orphans, or all were cancelled; 1: there are orphans; 2: "
    "wrong usage, or the store or the service has failed.",
    options=(
        option(
            "destination", metavar="DESTINATION", help="of the tasks: a URI or a local path, after rendering"
        ),
        option("--conn-id", default="compliance_default", help="of the service; default: compliance_default"),
        option(
            "--hook-class",
            default="",
            metavar="PATH",
            help="your subclass of ComplianceHook, if tasks use one",
        ),
        option("--cancel-orphans", action="store_true", help="cancel orphans, after confirmation"),
        option("--yes", action="store_true", help="cancel without confirmation"),
        option("--json", action="store_true", help="print one JSON object per job, then one with totals"),
    ),
    run=run,
)
