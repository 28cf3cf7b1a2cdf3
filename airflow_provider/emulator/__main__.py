"""The emulator on the command line: `python -m airflow_provider.emulator`."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from airflow_provider.emulator import Emulator

CONNECTION_ID = "compliance_default"
# Flag, type, default, metavar and help; the flags are settings of the emulator.
OPTIONS: tuple[tuple[str, Any, Any, str, str], ...] = (
    ("--port", int, 8085, "N", "0 for a free one"),
    ("--jobs", str, "seconds:3", "HOW", "how jobs progress: instant, polls:N, seconds:N or manual"),
    ("--latency", float, 0.0, "SECONDS", "added to every response"),
    ("--concurrency", int, None, "N", "return 429 for more than N requests in flight"),
    ("--max-batch", int, None, "N", "return 413 for batch status requests of more than N uuids"),
    ("--access-lifetime", float, 300.0, "SECONDS", "of access tokens"),
    ("--refresh-lifetime", float, 1800.0, "SECONDS", "of refresh tokens"),
    ("--frameworks", str, None, "FILE", "a JSON file with the catalog of frameworks"),
    ("--replay", str, None, "FILE", "speak as the service of this recording does"),
    (
        "--endpoints",
        json.loads,
        {},
        "JSON",
        "paths of application info and assessments, as in the connection's extra 'endpoints'",
    ),
)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="compliance-emulator",
        description="A stand-in for the document-compliance service, on 127.0.0.1 only. "
        "It fetches the web pages that are submitted.",
    )
    for flag, kind, default, metavar, text in OPTIONS:
        shown = f" (default: {default})" if default else ""
        parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=text + shown)
    parser.add_argument(
        "--no-quirks", dest="quirks", action="store_false", help="no unknown fields, no relative Locations"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator until Ctrl-C or SIGTERM."""
    options = vars(make_parser().parse_args(argv))
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    try:
        from airflow_provider.emulator import Emulator

        emulator = Emulator(**options)
        previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with emulator:
                print_banner(emulator)
                stopping.wait()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
    except (ModuleNotFoundError, OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 this is a command
        return 1
    print("Stopped.")  # noqa: T201 this is a command
    return 0


def print_banner(emulator: Emulator) -> None:
    """Print the address and the Airflow connection, for a shell and for the form."""
    connection = emulator.connection()
    address, extra = urlsplit(connection["host"]), connection["extra"]
    form = {
        "Connection ID": CONNECTION_ID,
        "Connection Type": "Document compliance",  # its name in the form
        "Base URL": f"{address.scheme}://{address.hostname}",
        "Port": address.port,  # a field of its own
        "User name": connection["login"],
        "Password": connection["password"],
        "Token URL": extra["token_url"],
        "Client ID": extra["client_id"],
        "Client secret": extra["client_secret"],
    }
    for name in ("endpoints", "profile"):
        if name in extra:
            form[name.title()] = json.dumps(extra[name])
    lines = (
        f"The compliance emulator is at {emulator.url} (jobs: {emulator.settings()['jobs']}).",
        "",
        "The Airflow connection, as an environment variable:",
        f"  export AIRFLOW_CONN_{CONNECTION_ID.upper()}={shlex.quote(emulator.connection_json)}",
        "",
        "or for the form in the Airflow UI:",
        *(f"  {label:<16} {value}" for label, value in form.items()),
        "",
        "Press Ctrl-C to stop.",
    )
    print("\n".join(lines), flush=True)  # noqa: T201 this is a command


if __name__ == "__main__":
    sys.exit(main())
