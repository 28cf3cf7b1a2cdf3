"""The commands and their options; the module that a command runs is imported when it does.

Every `airflow` command imports this module, so it imports nothing else of the provider.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

Option = tuple[tuple[str, ...], Mapping[str, Any]]


@dataclass(frozen=True)
class Command:
    """A command.

    :param function: does the work, and returns the exit code: the name of a function, and its module if that
        is not named as the command
    """

    name: str
    help: str
    description: str
    options: Sequence[Option]
    function: str = "run"

    def run(self, options: argparse.Namespace) -> int:
        """Import the module of the command, and run it."""
        module, _, function = self.function.rpartition(".")
        call: Callable[[argparse.Namespace], int]
        call = getattr(import_module(f"{__package__}.{module or self.name}"), function)
        return call(options)


def option(flags: str, meaning: str, metavar: str = "", **settings: Any) -> Option:
    """Describe an argument as `ArgumentParser.add_argument` does; without a metavar it is a switch."""
    value = {"metavar": metavar} if metavar else {"action": "store_true"}
    return tuple(flags.split()), {"help": meaning, **value, **settings}


def repeated(flags: str, meaning: str, metavar: str, **settings: Any) -> Option:
    """Describe an argument that can be given several times."""
    return option(flags, f"{meaning}; can be repeated", metavar, action="append", default=[], **settings)


def parse_date(text: str) -> date:
    """Return the date of an option."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-01-31") from None


def parse_hash(text: str) -> str:
    """Return a SHA-256, or its first digits."""
    if not re.fullmatch("[0-9a-fA-F]{8,64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a SHA-256, or 8 or more of its first digits")
    return text.lower()


def parse_file(text: str) -> str:
    """Return the path of a file that exists."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file")
    return text


def number_to(most: int) -> Callable[[str], int]:
    """Return a parser of numbers from 1 on."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {most}")
        return int(text)

    return parse


JSON = option("--json", "print one JSON object per line")
CONN_ID = option("--conn-id", "of the service; default: %(default)s", "ID", default="compliance_default")
ROOT = option("root", "of the nights: a URI or a local path", "ROOT")
NIGHTS = option("uri", "root of the nights, or a folder below it: a URI or a local path", "URI")
USE_CONNECTION = option(
    "--use-connection", "use Airflow connections of URIs, as in s3://conn_id@bucket/texts"
)
PATTERN = option("--source", "of sources, with * and ?", "PATTERN", required=True)
REASON = option("--reason", "for the record, which is kept: without names", "TEXT", required=True)
SOURCES = repeated("--source", "a document, as rows name it", "URI")
STORES = (
    repeated("--also", "also read objects below this place", "URI"),
    USE_CONNECTION,
    option("--threads", "how many objects to read at once", "N", type=number_to(256), default=16),
    JSON,
)

COMMANDS = (
    Command(
        "doctor",
        "Check a connection: network, TLS, login, clock, endpoints, state",
        "Check a connection step by step. Each line says OK, WARNING or PROBLEM, and what to do. Sends no "
        "document and changes nothing, except with --try and --store. Exit code 0: no problem; 1: a problem; "
        "2: wrong usage.",
        (
            option("conn_id", "default: %(default)s", "CONN_ID", nargs="?", default="compliance_default"),
            option("--try", "send this document through a night", "FILE", dest="document"),
            option("--assess", "assess the document by this framework", "FRAMEWORK"),
            option("--record", "write the answers, without secrets, names and texts", "FILE"),
            option("--store", "list, write, read and remove an object below this prefix", "URI"),
            JSON,
        ),
    ),
    Command(
        "erase",
        "Remove everything about documents from all nights below a root",
        "Remove the texts, rows, findings, decisions and salts of documents from all nights below a root, "
        "delete their jobs at the service, and add a record to the chain. The evidence of all else stays "
        "valid. Exit code 0: they are erased; 1: but files or jobs are left, which are named, or nothing "
        "names the documents now; 2: wrong usage, a document is held, or the store has failed: run it "
        "again with --resume.",
        (
            ROOT,
            SOURCES,
            REASON,
            option("--dry-run", "only list what would be erased"),
            option("--resume", "also complete an erasure that was killed, and delete jobs that are left"),
            CONN_ID,
            JSON,
        ),
    ),
    Command(
        "failures",
        "List the documents that failed in the latest night",
        "List the tasks, documents and assessments that have failed in the latest night, with the reason, "
        "and for how many nights in a row. Reads tables only: neither Airflow's database nor the service is "
        "asked. Exit code 0: nothing has failed; 1: something has; 2: there are no nights.",
        (
            NIGHTS,
            repeated("--kind", "only failures of this kind, such as source_missing", "KIND"),
            USE_CONNECTION,
            JSON,
        ),
        "documents.failures",
    ),
    Command(
        "golden",
        "Propose golden documents from the decisions of experts",
        "Print golden documents as JSON Lines, for `golden` of `compliance_night`: documents on which "
        "experts decided in reviews of the latest 30 runs, spread over criteria and categories, with the "
        "hash of the text that the expert saw. Read them before you use them. Exit code 2: no one has "
        "decided.",
        (
            NIGHTS,
            option("--limit", "documents, %(default)s by default, at most 500", "N", type=int, default=12),
            USE_CONNECTION,
            JSON,
        ),
        "documents.golden",
    ),
    Command(
        "history",
        "Print everything that the nights say about one document",
        "Print the status, the text, the verdicts and the decisions of experts of one document, night by "
        "night, the latest first. Reads tables only: neither Airflow's database nor the service is asked. "
        "Exit code 2: no night has the document.",
        (
            NIGHTS,
            option("document", "its source, or a part of it that no other document has", "DOCUMENT"),
            USE_CONNECTION,
            JSON,
        ),
        "documents.history",
    ),
    Command(
        "hold",
        "Keep documents from being erased or deleted",
        "Add a hold to the chain: as long as it is in force, no document that it covers is erased, retired, "
        "or deleted by `delete_after`. See `release`.",
        (ROOT, PATTERN, REASON, JSON),
        "erase.hold",
    ),
    Command(
        "jobs",
        "Show the jobs that tasks left behind, and cancel the jobs that you name",
        "Show the jobs that are in flight or failed according to checkpoints of bulk tasks, beside what the "
        "service says now. An orphan is in flight at the service after the time that its task had. "
        "Exit code 0: there are no orphans, and all named jobs have ended or are gone; 1: there are orphans, "
        "or a named job is still in flight; 2: wrong usage, the store or the service failed, or jobs "
        "belong to another connection.",
        (
            option("destination", "of the tasks, after rendering, or the root of the nights", "DESTINATION"),
            CONN_ID,
            option("--cancel", "cancel these jobs, if in flight", "ID", nargs="+", default=[]),
            JSON,
        ),
    ),
    Command(
        "pack",
        "Write all that the nights say about some documents to a zip, for an auditor",
        "Verify documents, a sample by default, and write their rows, texts, results and "
        "decisions, with the records that prove them and a verifier, to a BagIt bag in a zip. Exit code 0: "
        "everything in it is as recorded; 1: something has changed or is missing; 2: there is no pack.",
        (
            NIGHTS,
            option("--from", "the first night", "DATE", dest="first", type=parse_date),
            option("--to", "the latest night", "DATE", dest="last", type=parse_date),
            option("--sample", "draw that many documents", "N", type=number_to(100_000), default=0),
            option("--seed", "of the sample, chosen once the head is told", "TEXT", default="0"),
            option("--head", "the hash of the last record, told before the seed", "SHA256", type=parse_hash),
            SOURCES,
            option("-o --output", "the zip; it must not exist", "FILE", required=True),
            *STORES,
        ),
    ),
    Command(
        "release",
        "Release a hold on documents",
        "Release the holds with a pattern, by a record in the chain.",
        (ROOT, PATTERN, REASON, JSON),
        "erase.release",
    ),
    Command(
        "verify",
        "Check that the evidence of all nights below a root is unchanged",
        "Check the chain of nights, and every table, report, text and result that it names. Needs neither "
        "Airflow's database nor the service. Exit code 0: everything is as recorded; 1: something has "
        "changed, is missing or may not be read; 2: wrong usage, or the store has failed.",
        (
            NIGHTS,
            option("--since", "verify nights before this date as a chain only", "DATE", type=parse_date),
            option("--head", "the last record's hash, or how it starts", "SHA256", type=parse_hash),
            repeated("--contains", "some record must have this hash", "SHA256", type=parse_hash),
            option("--ca", "PEM file to verify timestamps with; needs openssl", "FILE", type=parse_file),
            option("--pack", "the place is the data of an audit pack"),
            option("--show", "show what the nights say about a document; only its texts are read", "SOURCE"),
            *STORES,
        ),
    ),
)
