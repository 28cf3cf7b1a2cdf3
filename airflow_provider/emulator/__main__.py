"""The emulator on the command line: `python -m airflow_provider.emulator`."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from airflow_provider.emulator import Emulator


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="compliance-emulator",
        description="A stand-in for the document-compliance service, on 127.0.0.1 only. "
        "It fetches the web pages that it is asked to read.",
    )
    add = parser.add_argument
    add("--port", type=int, default=8085, help="0 chooses a free one (default: 8085)")
    add(
        "--jobs",
        default="seconds:3",
        metavar="HOW",
        help="how jobs advance: instant, polls:N (done after N looks), seconds:N, manual (default seconds:3)",
    )
    add("--seed", type=int, default=0, help="decides which odd but legal forms answers take (default: 0)")
    add("--tame", action="store_true", help="no odd forms: no unknown fields, no relative Locations")
    add("--latency", type=float, default=0.0, metavar="SECONDS", help="added to every answer")
    add("--concurrency", type=int, metavar="N", help="answer 429 to more than N requests at a time")
    add("--max-batch", type=int, metavar="N", help="answer 413 to batch status requests of more than N uuids")
    add(
        "--access-lifetime",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="of access tokens (default: 300)",
    )
    add(
        "--refresh-lifetime",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="of refresh tokens (default: 1800)",
    )
    add("--frameworks", metavar="FILE", help="a JSON file with the catalogue of frameworks")
    add("--base-path", default="", metavar="/PREFIX", help="a path in front of the service's own")
    add(
        "--endpoints",
        type=json.loads,
        default={},
        metavar="JSON",
        help="other paths for application info and assessments, as in the connection's extra 'endpoints'",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator until Ctrl-C or SIGTERM."""
    options = vars(make_parser().parse_args(argv))
    options["quirks"] = not options.pop("tame")
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
                say_hello(emulator)
                stopping.wait()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
    except (ModuleNotFoundError, OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 this is a command
        return 1
    print("Stopped.")  # noqa: T201 this is a command
    return 0


def say_hello(emulator: Emulator) -> None:
    """Print where the emulator is and how Airflow gets there."""
    lines = (
        f"The compliance emulator is at {emulator.url} (jobs: {emulator.settings()['jobs']}); its page is at",
        f"  http://127.0.0.1:{emulator.port}/",
        "",
        "The Airflow connection as JSON:",
        f"  export AIRFLOW_CONN_COMPLIANCE_DEFAULT='{emulator.connection_json}'",
        "or as a URI:",
        f"  export AIRFLOW_CONN_COMPLIANCE_DEFAULT='{emulator.connection_uri}'",
        "",
        "Ctrl-C ends it.",
    )
    print("\n".join(lines), flush=True)  # noqa: T201 this is a command


if __name__ == "__main__":
    sys.exit(main())
