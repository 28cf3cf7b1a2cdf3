"""`hold`: keep documents from being erased."""

from __future__ import annotations

import argparse
import getpass
import json
from functools import partial

from airflow_provider.cli.commands import GOOD, Command, option, print_line, print_note
from airflow_provider.cli.erase import JSON, REASON, ROOT, find_root

PATTERN = option("--source", required=True, metavar="PATTERN", help="of sources, with * and ?")


def change(options: argparse.Namespace, *, is_released: bool) -> int:
    """Add a hold, or release it."""
    from airflow_provider.cli.access import asking_airflow
    from airflow_provider.evidence.holds import count_covered, place_hold, release_holds

    add_record = release_holds if is_released else place_hold
    with asking_airflow():
        root = find_root(options.root)
        record = add_record(root, options.source, options.reason, getpass.getuser())
        covered = None if is_released else count_covered(root, options.source)
    if options.json:
        print_line(json.dumps({"record": record.uri} | ({} if is_released else {"documents": covered})))
    else:
        print_line(f"{'Released' if is_released else 'Held'}: '{options.source}', by record {record.uri}.")
    if covered and not options.json:
        print_line(f"It covers {covered:,} document{'s' * (covered > 1)} of the nights below the root.")
    elif covered == 0:
        print_note(
            f"warning: the hold covers no document of the nights below '{root}'. Unless it is for later "
            "ones, release it, and give sources as rows name them, such as 's3://bucket/documents/anna*'."
        )
    return GOOD


COMMAND = Command(
    name="hold",
    help="Keep documents from being erased or deleted",
    description="Add a hold to the chain: as long as it is in force, no document that it covers is erased, "
    "retired, or deleted by `delete_after`. See `release`.",
    options=(ROOT, PATTERN, REASON, JSON),
    run=partial(change, is_released=False),
)
