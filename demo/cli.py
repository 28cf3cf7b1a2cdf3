"""Airflow's command line in one process, because each start of Airflow takes several seconds."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from demo.screen import Step

COMMAND_TIMEOUT_SECONDS = 900.0  # on a slow machine
DRAW_SECONDS = 0.1  # between two looks at the progress


class AirflowCli:
    """Runs commands of `airflow`, one after the other, in a process of its own."""

    def __init__(self, commands: IO[bytes], answers: IO[bytes]) -> None:
        self._commands = commands
        self._answers = answers

    def run(self, step: Step, *command: str, progress: Callable[[], int] = lambda: 0) -> bool:
        """Run a command as a step of the demo, and return whether it succeeded.

        :param progress: how much of the step is done
        """
        with suppress(BrokenPipeError):
            self._commands.write(json.dumps(command).encode() + b"\n")
            self._commands.flush()
        is_over = False
        while not is_over and step.seconds < COMMAND_TIMEOUT_SECONDS:
            step.draw(progress())
            is_over = bool(select.select([self._answers], [], [], DRAW_SECONDS)[0])
        step.end()
        return is_over and self._answers.readline() == b"0\n"


@contextmanager
def airflow_cli(environment: Mapping[str, str], log: Path) -> Iterator[AirflowCli]:
    """Start Airflow, and end it with the block."""
    with (
        log.open("ab") as output,
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            bufsize=0,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield AirflowCli(cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def serve() -> None:
    """Run the commands that are read from standard input; write the exit code of each."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # everything else is logged
    from airflow.__main__ import main

    for line in sys.stdin:
        sys.argv = ["airflow", *json.loads(line)]
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        print(code, file=answers)


if __name__ == "__main__":
    serve()
