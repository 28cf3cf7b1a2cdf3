"""`hold` and `release`: keep documents from being erased, or no longer."""

from __future__ import annotations

import argparse
import getpass
from functools import partial

from airflow_provider.cli.access import asking_airflow, find_chain
from airflow_provider.cli.commands import GOOD, print_json, print_line, print_note
from airflow_provider.nights.evidence.holds import count_covered, place_hold, release_holds
from airflow_provider.redaction.addresses import redact


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
