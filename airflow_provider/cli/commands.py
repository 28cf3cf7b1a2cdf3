"""How commands run, and how they print."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from airflow_provider.cli.options import COMMANDS, Command

DESCRIPTION = "Check a connection, and inspect what tasks left behind."
GOOD, FOUND, FAILED = 0, 1, 2  # exit codes; argparse also exits with 2 after wrong usage
INTERRUPTED = 130
MAX_CELL_CHARS = 200  # for a table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0 all is good, 1 something was found, 2 wrong usage or failed."""
    parser = argparse.ArgumentParser(prog="python -m airflow_provider", description=DESCRIPTION)
    subparsers = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        inner = subparsers.add_parser(command.name, help=command.help, description=command.description)
        for flags, settings in command.options:
            inner.add_argument(*flags, **settings)
        inner.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    return run(options.run, options)


def get_commands() -> list[Any]:
    """Return all commands as `airflow compliance …`, where Airflow takes commands of providers (since 3.2).

    The target of `cli` in the provider's metadata.
    """
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

    commands = [
        ActionCommand(
            name=command.name,
            help=command.help,
            description=command.description,
            func=partial(_run_and_exit, command),
            args=[Arg(flags, **settings) for flags, settings in command.options],
        )
        for command in COMMANDS
    ]
    return [
        GroupCommand(
            name="compliance",
            help="Check connections, and inspect jobs, reports and evidence",
            subcommands=commands,
        )
    ]


def _run_and_exit(command: Command, options: argparse.Namespace) -> None:
    sys.exit(run(command.run, options))


def run(call: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command; errors are for people, so without a traceback."""
    from airflow_provider.exceptions import ComplianceError

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell, as with >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 stays open until the end
    try:
        code = call(options)
        sys.stdout.flush()
    except ComplianceError as error:
        print_error(str(error))
        return FAILED
    except KeyboardInterrupt:
        print_error("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`head`): avoid a traceback on flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:  # the output can't be written
        print_error(f"{error.strerror or type(error).__name__}: make room, or write elsewhere.")
        return FAILED
    except Exception as error:
        from airflow_provider.redaction.text import redact_text

        text = redact_text(str(error)).removesuffix(".")
        print_error(f"Unexpected {type(error).__name__}: {text}. Please report this bug.")
        return FAILED
    return code


def print_json(record: dict[str, Any]) -> None:
    """Print a JSON object on a line."""
    print_line(json.dumps(record))


def print_line(text: str) -> None:
    """Print a line; what others wrote into it can't control the terminal."""
    print(_plain(text, sys.stdout.encoding))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns that are as wide as they need to be, within limits."""
    lines = [[_plain(cell[:MAX_CELL_CHARS], sys.stdout.encoding) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def print_error(text: str) -> None:
    """Print an error."""
    print_note(f"error: {text}")


def print_note(text: str) -> None:
    """Print a line that is not a part of the output."""
    print(_plain(text, sys.stderr.encoding), file=sys.stderr)


def _plain(text: str, encoding: str | None) -> str:
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    encoding = encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)
