"""`erase`: remove everything about documents from all nights; `hold` and `release`: keep it from that."""

from __future__ import annotations

import argparse
import getpass
import logging
from functools import partial

from airflow_provider.cli.access import asking_airflow, find_chain
from airflow_provider.cli.commands import FAILED, FOUND, GOOD, print_error, print_json, print_line, print_note
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.nights.evidence.erasing import Erasure
from airflow_provider.nights.evidence.holds import count_covered, place_hold, release_holds
from airflow_provider.nights.evidence.jobs import ErasedJobs
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import plural
from airflow_provider.runtime.event_loop import EventLoop

MAX_SHOWN = 20


def run(options: argparse.Namespace) -> int:
    """Erase, or list what would be erased."""
    if not (options.source or options.resume):
        print_error("Name the document with --source, or complete an erasure that was killed with --resume.")
        return FAILED
    with asking_airflow():
        erasure = Erasure(
            find_chain(options.root),
            options.source,
            options.reason,
            getpass.getuser(),
            log := logging.getLogger(__name__),
            resume=options.resume,
        )
        if options.dry_run:
            found = erasure.find()
            names, uri = [*found.objects, *found.tables, *found.reports, *found.states], None
            names += [str(erasure.chain.read(number).record["report"]["path"]) for number in found.nights]
            documents, rows, digests = len(found.sources), found.tables, found.digests()
        else:
            hook = ComplianceHook(options.conn_id)
            entry = erasure.run(ErasedJobs(hook, EventLoop(threads=2), log))
            names, uri = [], entry.uri
            documents, rows, digests = (entry.record[name] for name in ("documents", "rows", "digests"))
            if not erasure.has_erased:
                documents, rows, digests = 0, {}, []
    numbers = {"documents": documents, "rows": sum(rows.values()), "digests": len(digests)}
    left = {"jobs_left": len(erasure.jobs_left), "files_left": erasure.left}
    if options.json:
        print_json({**numbers, "objects": sorted(names), "record": uri, **left})
    else:
        for name in sorted(names)[:MAX_SHOWN]:
            print_line(f"    {name}")
        if len(names) > MAX_SHOWN:
            print_line(f"    and {len(names) - MAX_SHOWN:,} more")
        counts = ", ".join(plural(number, noun.removesuffix("s")) for noun, number in numbers.items())
        print_line(f"{'Would erase' if options.dry_run else 'Erased'}: {counts}.")
        for name in erasure.removed:
            print_line(f"Removed what was left: {name}")
        for name in erasure.left:
            print_line(f"Not erased: {name}")
        if erasure.jobs_left:
            print_line(
                f"Left at the service: {plural(len(erasure.jobs_left), 'job')}. Try again with --resume."
            )
    if uri and not options.json:
        print_line(f"The record is {uri}. Logs and XComs of Airflow, and copies elsewhere, are not erased.")
    return FOUND if erasure.left or erasure.jobs_left or erasure.is_unknown else GOOD


def _change(options: argparse.Namespace, *, is_released: bool) -> int:
    add_record = release_holds if is_released else place_hold
    with asking_airflow():
        root = find_chain(options.root)
        record = add_record(root, options.source, options.reason, getpass.getuser())
        covered = None if is_released else count_covered(root, options.source)
    if options.json:
        print_json({"record": record.uri} | ({} if is_released else {"documents": covered}))
    else:
        print_line(
            f"{'Released' if is_released else 'Held'}: '{redact(options.source)}', by record {record.uri}."
        )
    if covered and not options.json:
        print_line(f"It covers {covered:,} document{'s' * (covered > 1)} of the nights below the root.")
    elif covered == 0:
        print_note(
            f"warning: the hold covers no document of the nights below '{root}'. Unless it is for later "
            "ones, release it, and give sources as rows name them, such as 's3://bucket/documents/anna*'."
        )
    return GOOD


hold = partial(_change, is_released=False)
release = partial(_change, is_released=True)
