"""Two nights of bulk ingestion and assessment: `make demo`, or `python -m demo --pdfs 10` for less.

Runs example_dags/nightly_compliance.py unchanged on an Airflow of its own. Between the nights some documents
and a framework change. Compares all texts with their documents, all verdicts with the emulator's rule, and
all evidence with its hashes.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from demo.evidence import Evidence, verify_nights
from demo.outcome import Outcome, check_results
from demo.screen import Step
from demo.stage import NIGHTLY, ROOT, Amounts, Stage, staged
from demo.verdicts import Night, Verdicts, check_verdicts

JOB_SECONDS = 1.5  # that the service takes for a document
STEP_TIMEOUT_SECONDS = 900.0  # on a slow machine
LOG_TAIL_LINES = 25  # to show when something fails
LOG_ERROR_LINES = 10  # the same, of those before


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if every document and every verdict is as expected."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="Two nights, end to end.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "demo", help="of all files")
    for name, default in vars(Amounts()).items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"how many (default: {default})")
    options = vars(parser.parse_args(argv))
    # A shell starts background processes with these ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return _run_demo(options.pop("folder"), Amounts(**options))
    except KeyboardInterrupt:
        print("\nStopped.")
        return 1


@dataclass(frozen=True)
class Checked:
    """A night, with what it has left."""

    night: Night
    outcome: Outcome
    verdicts: Verdicts
    requests: int
    is_success: bool

    @property
    def problems(self) -> list[str]:
        """All that is wrong."""
        failed = [] if self.is_success else [f"The run of {self.night.folder.name} failed."]
        return [*failed, *self.outcome.problems, *self.verdicts.problems]


def _run_demo(folder: Path, amounts: Amounts) -> int:
    started = time.monotonic()
    writing = Step(f"Writing {amounts.total} documents")
    with staged(folder, amounts, f"seconds:{JOB_SECONDS}") as stage:
        writing.end()
        nights: list[Checked] = []
        if _prepare_airflow(stage):
            today = datetime.now(UTC).date()
            nights.append(_run_night(stage, str(today - timedelta(days=1)), None))
            if nights[0].is_success:
                nights.append(_run_night(stage.change(), str(today), nights[0].night))
        problems = [problem for each in nights for problem in each.problems]
        if len(nights) < 2:
            problems.insert(0, "There are not two nights.")
        evidence = verify_nights(stage.nights, [each.outcome for each in nights])
        problems += evidence.problems
        _print_results(stage, nights, evidence, time.monotonic() - started)
    return _conclude(stage, nights, problems)


def _prepare_airflow(stage: Stage) -> bool:
    if not _airflow(stage, Step("Creating the Airflow database"), "db", "migrate"):
        return False
    # Airflow 3.0 runs no task with an unknown asset; newer versions register assets by themselves.
    return not version("apache-airflow").startswith("3.0.") or _airflow(
        stage, Step("Registering the DAG"), "dags", "reserialize"
    )


def _run_night(stage: Stage, date: str, last: Night | None) -> Checked:
    """Run the DAG without a scheduler, and check what it leaves."""
    night = Night(stage.nights / f"dt={date}", stage.expected, stage.service.frameworks())
    cells = [(source, each["codeName"]) for source in night.texts for each in night.frameworks]
    changed = [cell for cell in cells if last is None or not night.is_same_cell(*cell, last)]
    texts = [source for source, text in night.texts.items() if last is None or last.texts.get(source) != text]
    requests = stage.service.counters()["total"]
    # Nobody answers the forms of the review here: `make ui` shows them.
    command = ("dags", "test", "--mark-success-pattern", "review.*", NIGHTLY, date)
    step = Step(f"Running the {'first' if last is None else 'second'} night", len(texts) + len(changed))
    is_success = _airflow(stage, step, *command)
    return Checked(
        night,
        check_results(night.folder, night.expected),
        check_verdicts(night, last),
        stage.service.counters()["total"] - requests,
        is_success,
    )


def _airflow(stage: Stage, running: Step, *command: str) -> bool:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AIRFLOW") and name != "PYTHONDONTWRITEBYTECODE"
    }
    before = _count_done(stage)
    environment = {
        **inherited,
        "AIRFLOW_HOME": str(stage.folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "NO_PROXY": "*",
        **stage.settings(),
    }
    with (
        (stage.folder / "airflow.log").open("ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "airflow", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            while process.poll() is None and running.seconds < STEP_TIMEOUT_SECONDS:
                running.draw(_count_done(stage) - before)
                time.sleep(0.1)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    running.end()
    return process.returncode == 0


def _count_done(stage: Stage) -> int:
    return sum(stage.service.count(name, 200) for name in ("get_content", "get_assessment_results"))


def _print_results(stage: Stage, nights: list[Checked], evidence: Evidence, seconds: float) -> None:
    counters = stage.service.counters()
    for each in nights:
        print(f"\n{each.night.folder.name}\n{each.outcome.table(each.night.expected)}")
    if nights and nights[0].outcome.failed:
        print("\nWhy documents failed:")
        for row in nights[0].outcome.failed:
            print(f"  {row['source'].rpartition('/')[2]:<28} {row['error']}")
    if nights:
        print(f"\n{_table_of_verdicts(nights)}\n")
        print(f"{evidence.output}\n")
    print(f"{counters['total']} requests, logins: {counters['logins']}; {seconds:.1f} s in all.\n")
    for report in evidence.reports:
        print(f"Night        {_relative(report)}")
    for each in nights:
        print(f"Verdicts     {_relative(each.verdicts.report)}")
    print(f"All files    {_relative(stage.nights)}")
    print(f"Airflow log  {_relative(stage.folder / 'airflow.log')}\n")


def _table_of_verdicts(nights: list[Checked]) -> str:
    """Count what each night has assessed and found; a cell is one document and one framework."""
    lines = {
        "cells": [len(each.verdicts.rows) for each in nights],
        **{
            title: [each.verdicts.counts[name] for each in nights]
            for title, name in (
                ("  new document", "new document"),
                ("  changed document", "new text"),
                ("  changed framework", "new framework"),
                ("  carried forward", "carried"),
            )
        },
        "findings": [len(each.verdicts.findings) for each in nights],
        "  changed since then": [each.verdicts.counts["changed"] for each in nights],
        "requests": [each.requests for each in nights],
    }
    head = "".join(f"{each.night.folder.name:>16}" for each in nights)
    rows = [f"{title:<22}" + "".join(f"{number:>16,}" for number in row) for title, row in lines.items()]
    return "\n".join([f"{'':<22}{head}", *rows])


def _conclude(stage: Stage, nights: list[Checked], problems: list[str]) -> int:
    if not problems:
        texts = sum(len(each.outcome.rows) - len(each.outcome.failed) for each in nights)
        findings = sum(len(each.verdicts.findings) for each in nights)
        print(
            f"Success: all {texts} texts match their documents, all {findings:,} verdicts the rule, all "
            "evidence its hashes."
        )
        print("To see it in the Airflow UI: make ui")
        return 0
    log = (stage.folder / "airflow.log").read_text(errors="replace").splitlines()
    # Tasks that close the night run after those that have failed.
    errors = [line for line in log[:-LOG_TAIL_LINES] if "max_failed" in line or "[error" in line]
    shown = [*errors[-LOG_ERROR_LINES:], *log[-LOG_TAIL_LINES:]]
    print("From the Airflow log:", *(f"  {line[:300]}" for line in shown), "", sep="\n")
    print("Problems:", *(f"  {problem}" for problem in problems[:20]), sep="\n")
    return 1


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    sys.exit(main())
