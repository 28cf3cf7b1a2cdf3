"""`verify`: check the evidence of all nights below a root, in any store."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from airflow_provider.cli.access import find_above, open_location
from airflow_provider.cli.commands import FAILED, print_error, print_json
from airflow_provider.nights.evidence.stores import open_store
from airflow_provider.nights.evidence.verifier import NIGHTS, RECORD_NAME, Check, Verifier, report, verify_all

NUMBERS = ("manifests", "objects", "bytes", "replaced_by", "absent")

# Of records: who added them, why, and how much they concern.
DESCRIBED = ("kind", "by", "reason", "dag_id", "task_id", "revision", "documents", "jobs", "left")


def run(options: argparse.Namespace) -> int:
    """Verify, and print a line per record."""
    stores = open_stores(options)
    if not stores:
        return FAILED
    since = options.since.isoformat() if options.since else ""
    known = {name: getattr(options, name) for name in ("head", "contains", "pack", "ca", "show")}
    verifier = Verifier(stores[0], stores[1:], since=since, **known)
    return print_records(verifier) if options.json else report(verifier)


def open_stores(options: argparse.Namespace) -> list[Any]:
    """Return the store of the nights and the other stores that may be read; an empty list without nights."""
    uris = (options.uri, *options.also)
    given, *also = [open_location(uri, use_connection=options.use_connection) for uri in uris]
    root = find_above(given, NIGHTS)
    if root is None or not any(map(RECORD_NAME.fullmatch, (root / NIGHTS).list_names())):
        is_there = Path(given.path).exists() if given.is_local else given.size() or given.list_names()
        what = "are no closed nights" if is_there else "is nothing"
        print_error(f"There {what} at '{given}': give the root of the nights, or what is below it.")
        return []
    return [open_store(place, options.threads) for place in (root, *also)]


def print_records(verifier: Verifier) -> int:
    """Verify, print a JSON object per record and one with totals, and return the exit code."""
    started, problems = time.monotonic(), list[str]()

    def tell(check: Check) -> None:
        problems.extend(f"record {check.number}: {text}" for _, text in check.problems[:1])
        print_json(_describe(check))

    total, code = verify_all(verifier, tell)
    totals = {
        "nights": total.number,
        "objects": total.objects,
        "bytes": total.bytes,
        "seconds": round(time.monotonic() - started, 3),
        "head": verifier.head,
        "erasing": verifier.erasing,
        "problems": total.counts,
        "first_problem": next(iter(problems), None),
        "stopped": total.stopped or None,
        "exit_code": code,
    }
    print_json({"totals": totals})
    return code


def _describe(check: Check) -> dict[str, Any]:
    return {
        "record": check.number,
        "night": check.night,
        "status": check.status,
        **{name: check.record[name] for name in DESCRIBED if name in check.record},
        "timestamp": check.seal.partition("TIMESTAMPED ")[2] or None,
        **{name: getattr(check, name) for name in NUMBERS},
        "record_only": check.is_chain_only,
        "counts": dict(check.counts),
        **({"rows": check.rows} if check.rows else {}),
        "problems": [{"kind": kind, "text": text} for kind, text in check.problems],
        "stopped": check.stopped or None,
    }
