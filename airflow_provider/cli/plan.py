"""`plan`: what an ingestion would do now, what that costs, and how long it takes."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider.cli.commands import FOUND, GOOD, Command, option, parse_date, print_line

if TYPE_CHECKING:
    from airflow_provider.ingest.plan import IngestPlan

TITLES = {
    "sent": "sent",
    "skipped": "skipped: unchanged since an earlier night",
    "given_up": "given up: failed in too many nights in a row",
    "failed": "failed: the source can't be read or is not valid",
    "in_flight": "in flight: submitted by an earlier attempt",
    "done": "done by an earlier attempt",
}
MAX_FAILED = 3  # that are named without --list


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Plan, and print the numbers."""
    from airflow_provider.cli.access import as_uri, asking_airflow, naming_schemes
    from airflow_provider.exceptions import ComplianceInputError
    from airflow_provider.storage.locations import Location

    for each in (options.destination, *options.sources):
        if "{{" in each:
            raise ComplianceInputError(f"'{each}' is a template: give it as the task renders it.")
    destination = as_uri(options.destination)
    given = {
        "root": options.root and as_uri(options.root),
        "give_up_after": options.give_up_after,
        "max_age": options.max_age,
        "concurrency": options.concurrency,
    }
    uris = [destination, *([as_uri(options.root)] if options.root else [])]
    with asking_airflow(), naming_schemes(*uris):
        from airflow_provider.operators.ingest import ComplianceIngestOperator
        from airflow_provider.storage.nights import Night

        batch_size = _read_batch_size(options.conn_id)
        try:
            task = ComplianceIngestOperator(
                task_id="plan",
                sources=options.sources,
                destination=destination,
                skip_unchanged=options.skip_unchanged,
                **{name: value for name, value in given.items() if value is not None},
            )
        except ValueError as error:
            raise ComplianceInputError(str(error)) from None
        # The end of the day: earlier runs of the same day come before this one.
        at = f"{options.date}T23:59:59+00:00" if options.date else datetime.now(UTC).isoformat()
        plan = task.plan(Night(at, "plan"), is_new_run=options.new_run)
    if options.json:
        print_line(json.dumps(_as_json(plan, batch_size, options.list)))
    else:
        print_line(f"Ingestion to {Location(destination)}; earlier nights are below {plan.root}")
        _print_plan(plan, batch_size, options.list)
    return FOUND if plan.failed else GOOD


def _read_batch_size(conn_id: str | None) -> int:
    from airflow_provider.client.settings import Settings
    from airflow_provider.hooks.compliance import ComplianceHook

    if conn_id is None:
        return Settings.batch_size
    return ComplianceHook(conn_id).get_conn().settings.batch_size


def _print_plan(plan: IngestPlan, batch_size: int, listed: int) -> None:
    from airflow_provider.reports.page import duration, plural

    for name, documents in plan.groups.items():
        print_line(f"{len(documents):>9,}  {TITLES[name]}")
        shown = listed or (MAX_FAILED if name == "failed" else 0)
        for document in documents[:shown]:
            print_line(f"{'':11}{document.label}{f': {document.error}' if document.error else ''}")
        if shown and len(documents) > shown:
            hint = "" if listed else f": add --list {len(documents)} to name all"
            print_line(f"{'':11}and {len(documents) - shown:,} more{hint}")
    requests = plan.requests(batch_size)
    kinds = ", ".join(plural(number, kind) for kind, number in requests.items() if number)
    print_line(f"{sum(requests.values()):>9,}  requests{f': {kinds}' if kinds else ''}")
    if plan.resumed:
        print_line(
            f"Resumes {plural(len(plan.resumed), 'task')} that started here, such as {plan.resumed[0]}. For "
            "the plan of another run, add --new-run."
        )
    if plan.seconds is None:
        print_line("There is no earlier night below the root to estimate the time from.")
    elif plan.sent or plan.in_flight:
        mean = sum(plan.rates) / len(plan.rates)
        print_line(
            f"It takes about {duration(max(plan.seconds, 1))}, at {mean:,.1f} documents per second as in "
            f"{plural(len(plan.rates), 'earlier night')}."
        )


def _as_json(plan: IngestPlan, batch_size: int, listed: int) -> dict[str, Any]:
    result: dict[str, Any] = {name: len(documents) for name, documents in plan.groups.items()}
    requests = plan.requests(batch_size)
    result |= {
        "requests": sum(requests.values()),
        "requests_by_kind": requests,
        "seconds": plan.seconds,
        "earlier_nights": len(plan.rates),
        "resumes": plan.resumed,
        "root": plan.root,
    }
    if listed:
        result["documents"] = {
            name: [
                {"source": each.source, **({"error": each.error} if each.error else {})}
                for each in documents[:listed]
            ]
            for name, documents in plan.groups.items()
        }
    return result


COMMAND = Command(
    name="plan",
    help="Show what an ingestion would do now: documents, requests, time",
    description="Show how many documents ComplianceIngestOperator would send, skip and give up with these "
    "parameters, how many requests that takes, and how long, from the rates of earlier nights. Reads sources "
    "and destination with the Airflow connections in their URIs. Sends and writes nothing, and does not log "
    "in. Exit code 0: all sources can be read; 1: some would fail; 2: wrong usage, or a store has failed.",
    options=(
        option(
            "sources", nargs="+", metavar="SOURCE", help="as `sources` of the task: URL, path, pattern, list"
        ),
        option("--destination", required=True, metavar="URI", help="of the task, after rendering"),
        option("--root", metavar="URI", help="of the task, if it has one"),
        option("--skip-unchanged", action="store_true", help="as the task with skip_unchanged=True"),
        option("--max-age", type=_seconds, metavar="SECONDS", help="of web pages, as in the task"),
        option("--give-up-after", type=_whole_number, metavar="NIGHTS", help="as in the task; 0 means never"),
        option("--concurrency", type=_whole_number, metavar="N", help="as in the task"),
        option("--date", type=parse_date, help="logical date of the run; default: now, in UTC"),
        option("--new-run", action="store_true", help="resume nothing that has started at the destination"),
        option("--conn-id", help="of the service, for its batch_size; by default 500"),
        option(
            "--list",
            type=_whole_number,
            default=0,
            metavar="N",
            help=f"name the first N documents of each group; by default {MAX_FAILED} that would fail",
        ),
        option("--json", action="store_true", help="print one JSON object"),
    ),
    run=run,
)
