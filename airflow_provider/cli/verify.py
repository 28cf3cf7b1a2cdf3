"""`verify`: check the evidence of all nights below a root, in any store."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.cli.commands import (
    FAILED,
    FOUND,
    GOOD,
    Command,
    option,
    parse_date,
    print_error,
    print_line,
)

if TYPE_CHECKING:
    from airflow_provider.evidence.verifier import Check, Verifier

NUMBERS = ("manifests", "objects", "bytes", "replaced_by", "rewritten", "absent")


def run(options: argparse.Namespace) -> int:
    """Verify, and print a line per record."""
    from airflow_provider.evidence.verifier import Verifier, report

    stores = open_stores(options)
    if not stores:
        return FAILED
    since = options.since.isoformat() if options.since else ""
    known = {name: getattr(options, name) for name in ("head", "contains", "pack", "ca")}
    verifier = Verifier(stores[0], stores[1:], since=since, **known)
    return print_json(verifier) if options.json else report(verifier)


def open_stores(options: argparse.Namespace) -> list[Any]:
    """Return the store of the nights, and the other ones that may be read; none if there are no nights."""
    from airflow_provider.cli.access import find_above, open_location
    from airflow_provider.evidence.stores import RemoteStore
    from airflow_provider.evidence.verifier import NIGHTS, RECORD_NAME, Folder

    opened = [
        open_location(uri, use_connection=options.use_connection) for uri in (options.uri, *options.also)
    ]
    for note in dict.fromkeys(note for _, note in opened if note):
        print_error(note)
    given, *also = [location for location, _ in opened]
    root = find_above(given, NIGHTS)
    if root is None or not any(map(RECORD_NAME.fullmatch, (root / NIGHTS).list_names())):
        is_there = Path(given.path).exists() if given.is_local else given.size() or given.list_names()
        what = "are no closed nights" if is_there else "is nothing"
        print_error(f"There {what} at '{given}': give the root of the nights, or what is below it.")
        return []
    return [
        Folder(place.path) if place.is_local else RemoteStore(place, options.threads)
        for place in (root, *also)
    ]


def print_json(verifier: Verifier) -> int:
    """Verify, print a JSON object per record and one with totals, and return the exit code."""
    started, stopped, first = time.monotonic(), "", ""
    totals, found = Counter[str](), Counter[str]()
    for check in verifier.run():
        totals.update(nights=1, objects=check.objects, bytes=check.bytes)
        found.update(check.counts)
        stopped = check.stopped
        if check.problems:
            first = first or f"record {check.number}: {check.problems[0][1]}"
        print_line(json.dumps(_describe(check)))
    is_empty = verifier.is_partial and not totals["objects"]
    code = FOUND if found else FAILED if stopped or is_empty else GOOD
    end = {"problems": found, "first_problem": first or None, "stopped": stopped or None, "exit_code": code}
    seconds = round(time.monotonic() - started, 3)
    print_line(json.dumps({"totals": {**totals, "seconds": seconds, "head": verifier.head, **end}}))
    return code


def _describe(check: Check) -> dict[str, Any]:
    return {
        "record": check.number,
        "night": check.night,
        "status": check.status,
        "timestamp": check.seal.partition("TIMESTAMPED ")[2] or None,
        **{name: getattr(check, name) for name in NUMBERS},
        "record_only": check.is_chain_only,
        "counts": dict(check.counts),
        "problems": [{"kind": kind, "text": text} for kind, text in check.problems],
        "stopped": check.stopped or None,
    }


def _parse_hash(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{8,64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a SHA-256, or 8 or more of its first digits")
    return text.lower()


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file")
    return text


def _threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 256")
    return int(text)


STORE_OPTIONS = (
    option(
        "--also",
        action="append",
        default=[],
        metavar="URI",
        help="also read objects below this place; can be repeated",
    ),
    option(
        "--use-connection",
        action="store_true",
        help="use the Airflow connection of a URI such as s3://conn_id@bucket/texts as tasks do",
    ),
    option("--threads", type=_threads, default=16, metavar="N", help="how many objects to read at once"),
    option("--json", action="store_true", help="print one JSON object per record, then one with totals"),
)
COMMAND = Command(
    name="verify",
    help="Check that the evidence of all nights below a root is unchanged",
    description="Check the chain of nights, and every table, report, text and result that it names. Needs "
    "neither Airflow's database nor the service. Exit code 0: everything is as recorded; 1: something has "
    "changed, is missing or may not be read; 2: wrong usage, or the store has failed.",
    options=(
        option("uri", metavar="URI", help="root of the nights, or what is below it; a URI or a local path"),
        option(
            "--since", type=parse_date, metavar="DATE", help="verify nights before this date as a chain only"
        ),
        option(
            "--head",
            type=_parse_hash,
            metavar="SHA256",
            help="the last record must have this hash, or one that starts with it",
        ),
        option(
            "--contains",
            type=_parse_hash,
            action="append",
            default=[],
            metavar="SHA256",
            help="some record must have this hash; can be repeated",
        ),
        option(
            "--ca",
            type=_file,
            metavar="FILE",
            help="verify timestamps with the root certificate of their authority, in PEM; needs openssl",
        ),
        option("--pack", action="store_true", help="the place is the data of an audit pack"),
        *STORE_OPTIONS,
    ),
    run=run,
)
