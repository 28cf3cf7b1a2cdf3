"""`doctor`: check a connection, and say what to do where something is wrong."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_provider.cli.commands import FOUND, GOOD, Command, option, print_line

if TYPE_CHECKING:
    from airflow_provider.cli.checks import Check


def diagnose(options: argparse.Namespace) -> Iterator[Check]:
    """Yield the lines that the options ask for, up to a problem after which nothing more can be checked."""
    from airflow_provider.cli.checks import Diagnosis, StopError
    from airflow_provider.cli.trial import try_document

    diagnosis = Diagnosis(options.conn_id, options.store)
    with suppress(StopError):
        yield from diagnosis.run()
        if options.document:
            yield from try_document(diagnosis.settings, options.document, options.assess, options.record)


def run(options: argparse.Namespace) -> int:
    """Check the connection, and print a line per check."""
    logging.disable(logging.WARNING)  # what they say is in the lines
    code = GOOD
    try:
        for line in diagnose(options):
            code = FOUND if line.status == "PROBLEM" else code
            shown = f"{line.status:<8} {line.name:<30} {line.message}"
            print_line(json.dumps(asdict(line)) if options.json else shown)
    finally:
        logging.disable(logging.NOTSET)
    return code


COMMAND = Command(
    "doctor",
    "Check a connection: network, TLS, login, clock, endpoints, state",
    "Check a connection step by step. Each line says OK, WARNING or PROBLEM, and what to do. Sends no "
    "document and changes nothing, except with --try and --store. Exit code 0: no problem; 1: a problem; 2: "
    "wrong usage.",
    (
        option("conn_id", nargs="?", default="compliance_default", help="default: compliance_default"),
        option(
            "--try", dest="document", default="", metavar="FILE", help="send this document through a night"
        ),
        option("--assess", default="", metavar="FRAMEWORK", help="assess the document by this framework"),
        option(
            "--record", default="", metavar="FILE", help="write the answers, without secrets, names and texts"
        ),
        option(
            "--store",
            default="",
            metavar="URI",
            help="list, write, read and remove an object below this prefix",
        ),
        option("--json", action="store_true", help="one JSON object per line"),
    ),
    run,
)
