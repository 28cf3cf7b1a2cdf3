"""`verify`: check the evidence of all nights below a root."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
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
    from airflow_provider.storage.locations import Location
    from airflow_provider.verification.links import RecordCheck

MAX_SHOWN = 50  # problems of all nights together
HINTS = {
    "changed": "If a text was written again by a task that was cleared on purpose, close its night again.",
    "unmatched": "If a later night was closed since the hash was noted, use --contains instead of --head. If "
    "no record has the hash, check the hash and the root; if both are right, records changed or are gone.",
    "outside": "Add --also URI for each other place that you trust.",
    "unreadable": "Use credentials that may read everything below the root.",
}


def _sha256(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a SHA-256 of 64 hexadecimal digits")
    return text.lower()


def _threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 256")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Verify, and print a line per night."""
    from airflow_provider.cli.access import as_uri, open_location
    from airflow_provider.verification.verify import Verifier

    def open_(uri: str) -> Location:
        location, note = open_location(uri, use_connection=options.use_connection)
        notes[note] = None
        return location

    notes: dict[str, None] = {}
    also = [open_(uri) for uri in options.also]
    output = _Output(as_json=options.json, is_head_given=bool(options.head or options.contains))
    for uri in _enclosing(as_uri(options.uri)):
        verifier = Verifier(
            open_(uri),
            since=options.since,
            also=also,
            head=options.head or "",
            known=options.contains,
            threads=options.threads,
        )
        for check in verifier.run():
            output.add(check)
        if output.checks:
            break
    for note in filter(None, notes):
        print_error(note)
    if not output.checks:
        print_error(f"There are no nights below '{uri}': give the root of the task that closes them.")
        return FAILED
    output.finish(verifier.head)
    return output.exit_code


def _enclosing(uri: str) -> Iterator[str]:
    """Yield a URI and, of the folder of a night such as `dt=2026-01-01/run=x`, the folders that it is in."""
    yield uri
    while "=" in (parts := uri.rstrip("/").rpartition("/"))[2]:
        yield (uri := parts[0])


COMMAND = Command(
    name="verify",
    help="Check that the evidence of all nights below a root is unchanged",
    description="Check the chain of nights, and the SHA-256 of every manifest, report, text and result. "
    "Needs neither Airflow's database nor the service. Exit code 0: nothing has changed; 1: something has "
    "changed, is missing or may not be read; 2: wrong usage, or the store has failed.",
    options=(
        option(
            "uri", metavar="URI", help="root of the nights, such as s3://bucket/texts, or a path below it"
        ),
        option(
            "--since", type=parse_date, metavar="DATE", help="verify nights before this date as a chain only"
        ),
        option("--head", type=_sha256, metavar="SHA256", help="the last record must have this hash"),
        option(
            "--contains",
            type=_sha256,
            action="append",
            default=[],
            metavar="SHA256",
            help="some record must have this hash; can be repeated",
        ),
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
        option("--json", action="store_true", help="print one JSON object per night, then one with totals"),
    ),
    run=run,
)


class _Output:
    """Prints nights, then the totals."""

    def __init__(self, *, as_json: bool, is_head_given: bool) -> None:
        self._as_json = as_json
        self._is_head_given = is_head_given
        self._started = time.monotonic()
        self._shown = 0
        self.checks: list[RecordCheck] = []

    @property
    def exit_code(self) -> int:
        """What was found counts, even if the store has failed later."""
        return FOUND if self._found else FAILED if self._stopped else GOOD

    @property
    def _found(self) -> Counter[str]:
        return sum((Counter[str](check.counts) for check in self.checks), Counter[str]())

    @property
    def _first(self) -> str:
        found = (
            f"record {check.number}: {check.problems[0].text}" for check in self.checks if check.problems
        )
        return next(found, "")

    @property
    def _stopped(self) -> str:
        return self.checks[-1].stopped

    def add(self, check: RecordCheck) -> None:
        """Print a night."""
        self.checks.append(check)
        if self._as_json:
            print_line(json.dumps(_as_json(check)))
            return
        print_line(f"{check.status:<10} {check.number:>5}  {check.night[:19]:<19}  {_summary(check)}")
        shown = check.problems[: MAX_SHOWN - self._shown]
        for problem in shown:
            print_line(f"    {problem.kind}: {problem.text}")
        self._shown += len(shown)

    def finish(self, head: str) -> None:
        """Print the totals."""
        seconds = max(time.monotonic() - self._started, 0.001)
        objects, size = (sum(getattr(check, name) for check in self.checks) for name in ("objects", "bytes"))
        if self._as_json:
            totals = {
                "nights": len(self.checks),
                "objects": objects,
                "bytes": size,
                "seconds": round(seconds, 3),
                "head": head,
                "problems": self._found,
                "first_problem": self._first or None,
                "stopped": self._stopped or None,
                "exit_code": self.exit_code,
            }
            print_line(json.dumps({"totals": totals}))
        else:
            print_line(
                f"{_count(len(self.checks), 'night')}, {_count(objects, 'object')}, {size / 1e6:,.1f} MB in "
                f"{seconds:,.1f} s ({objects / seconds:,.0f} objects/s, {size / 1e6 / seconds:,.1f} MB/s)"
            )
            self._print_verdict(head)
        if self._stopped:
            print_error(f"{self._stopped} Later nights were not verified: verify again.")

    def _print_verdict(self, head: str) -> None:
        found, rewritten = self._found, sum(check.rewritten for check in self.checks)
        if found:
            total = found.total()
            counts = ", ".join(f"{count:,} {kind}" for kind, count in found.items())
            more = f"; {total - self._shown:,} are not shown" if total > self._shown else ""
            print_line(f"{_count(total, 'problem')}: {counts}{more}")
            print_line(f"First: {self._first}")
            for kind, hint in HINTS.items():
                if kind in found:
                    print_line(hint)
        elif not self._stopped:
            print_line("Nothing has changed.")
        if rewritten:
            print_line(
                f"{_count(rewritten, 'object')} of replaced revisions were written again before the "
                "night was closed again: only their new content is proven."
            )
        print_line(f"Last record: SHA-256 {head or 'unknown'}")
        if not self._is_head_given:
            print_line("To detect that records are missing at the end, use --head or --contains.")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _summary(check: RecordCheck) -> str:
    if check.is_chain_only:
        return "record only"
    parts = [_count(check.manifests, "manifest"), _count(check.objects, "object")]
    parts += [f"{count:,} {kind}" for kind, count in check.counts.items()]
    if check.replaced_by is not None:
        parts.append(f"replaced by record {check.replaced_by}")
    if check.rewritten:
        parts.append(f"{check.rewritten:,} written again")
    if check.stopped:
        parts.append("not verified to its end")
    return ", ".join(parts)


def _as_json(check: RecordCheck) -> dict[str, Any]:
    return {
        "record": check.number,
        "night": check.night,
        "status": check.status,
        "manifests": check.manifests,
        "objects": check.objects,
        "bytes": check.bytes,
        "replaced_by": check.replaced_by,
        "rewritten": check.rewritten,
        "record_only": check.is_chain_only,
        "counts": dict(check.counts),
        "problems": [{"kind": problem.kind, "text": problem.text} for problem in check.problems],
        "stopped": check.stopped or None,
    }
