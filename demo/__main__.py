"""Two nights of bulk ingestion and assessment: `make demo`, or `python -m demo --pdfs 10` for less.

Runs example_dags/nightly_compliance.py unchanged on an Airflow of its own. Between the nights some documents
and a framework change. Compares all texts with their documents, all verdicts with the emulator's rule, and
all evidence with its hashes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from demo.cli import AirflowCli, airflow_cli
from demo.evidence import Evidence, verify_nights
from demo.outcome import Outcome, check_results
from demo.screen import Step
from demo.stage import DAGS, NIGHTLY, NIGHTLY_FILE, ROOT, Amounts, Stage, staged
from demo.verdicts import Night, Verdicts, check_verdicts

JOB_SECONDS = 0.3  # that the service takes for a document or an assessment
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
        nights = _run_nights(stage)
        problems = [problem for night in nights for problem in night.problems]
        if len(nights) < 2:
            problems.insert(0, "There are not two nights.")
        evidence = verify_nights(stage.nights, [night.outcome for night in nights])
        problems += evidence.problems
        _print_results(stage, nights, evidence)
    return _conclude(stage, nights, evidence, problems, time.monotonic() - started)


def _run_nights(stage: Stage) -> list[Checked]:
    """Run the first night; if it is good, change documents and a framework, and run the second night."""
    nights: list[Checked] = []
    with airflow_cli(_environment(stage), _log(stage)) as airflow:
        if airflow.run(Step("Creating the Airflow database"), "db", "migrate"):
            today = datetime.now(UTC).date()
            nights.append(_run_night(airflow, stage, str(today - timedelta(days=1)), None))
            if nights[0].is_success:
                nights.append(_run_night(airflow, stage.change(), str(today), nights[0].night))
    return nights


def _run_night(airflow: AirflowCli, stage: Stage, date: str, previous: Night | None) -> Checked:
    """Run the DAG without a scheduler, and check its results."""
    night = Night(stage.nights / f"dt={date}", stage.expected, stage.service.frameworks())
    cells = [(source, framework["codeName"]) for source in night.texts for framework in night.frameworks]
    changed = [cell for cell in cells if previous is None or not night.is_same_cell(*cell, previous)]
    texts = [
        source for source, text in night.texts.items() if not previous or previous.texts.get(source) != text
    ]
    requests, done = stage.service.counters()["total"], _count_done(stage)
    is_success = airflow.run(
        Step(f"Running the {'second' if previous else 'first'} night", len(texts) + len(changed)),
        *("dags", "test", NIGHTLY, date),  # no one answers the forms: `make ui` shows them
        progress=lambda: _count_done(stage) - done,
    )
    return Checked(
        night,
        check_results(night.folder, night.expected),
        check_verdicts(night, previous),
        stage.service.counters()["total"] - requests,
        is_success,
    )


def _environment(stage: Stage) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AIRFLOW") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return {
        **inherited,
        "AIRFLOW_HOME": str(stage.folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "NO_PROXY": "*",
        **stage.settings(),
        "AIRFLOW__CORE__DAGS_FOLDER": str(_copy_dag(stage)),
    }


def _copy_dag(stage: Stage) -> Path:
    """Return a DAGs folder with the one DAG, because Airflow parses all that are there."""
    folder = stage.folder / "dags"
    folder.mkdir()
    shutil.copy(DAGS / NIGHTLY_FILE, folder)
    return folder


def _log(stage: Stage) -> Path:
    return stage.folder / "airflow.log"


def _count_done(stage: Stage) -> int:
    return sum(stage.service.count(name, 200) for name in ("get_content", "get_assessment_results"))


def _print_results(stage: Stage, nights: list[Checked], evidence: Evidence) -> None:
    counters = stage.service.counters()
    for checked in nights:
        print(f"\n{checked.night.folder.name}\n{checked.outcome.table(checked.night.expected)}")
    if nights and nights[0].outcome.failed:
        print("\nWhy documents failed:")
        for row in nights[0].outcome.failed:
            name = row["source"].rpartition("/")[2]
            print(f"  {name:<28} {row['error'].replace(row['source'], name)}")
    if nights:
        print(f"\n{_table_of_verdicts(nights)}\n")
        print(f"$ python -m airflow_provider verify {_relative(stage.nights)}\n{evidence.output}\n")
    print(f"{counters['total']:,} requests with {_count(counters['logins'], 'login')}.\n")


def _table_of_verdicts(nights: list[Checked]) -> str:
    """Count what each night has assessed and found; a cell is one document and one framework."""
    lines = {
        "cells": [len(night.verdicts.rows) for night in nights],
        **{
            title: [night.verdicts.counts[name] for night in nights]
            for title, name in (
                ("  new document", "new document"),
                ("  changed document", "new text"),
                ("  changed framework", "new framework"),
                ("  carried forward", "carried"),
            )
        },
        "findings": [len(night.verdicts.findings) for night in nights],
        "  changed since then": [night.verdicts.counts["changed"] for night in nights],
        "requests": [night.requests for night in nights],
    }
    head = "".join(f"{checked.night.folder.name:>16}" for checked in nights)
    rows = [f"{title:<22}" + "".join(f"{number:>16,}" for number in row) for title, row in lines.items()]
    return "\n".join([f"{'':<22}{head}", *rows])


def _conclude(
    stage: Stage, nights: list[Checked], evidence: Evidence, problems: list[str], seconds: float
) -> int:
    if problems:
        log = _log(stage).read_text(errors="replace").splitlines()
        # Tasks that close the night run after those that have failed.
        errors = [line for line in log[:-LOG_TAIL_LINES] if "max_failed" in line or "[error" in line]
        shown = [*errors[-LOG_ERROR_LINES:], *log[-LOG_TAIL_LINES:]]
        print(
            f"From the Airflow log, {_relative(_log(stage))}:",
            *(f"  {line[:300]}" for line in shown),
            "",
            sep="\n",
        )
        print("Problems:", *(f"  {problem}" for problem in problems[:20]), sep="\n")
        return 1
    texts = sum(len(checked.outcome.rows) - len(checked.outcome.failed) for checked in nights)
    findings = sum(len(checked.verdicts.findings) for checked in nights)
    report, folder = _relative(evidence.reports[-1]), _relative(stage.folder)
    print(f"What happened  Two nights in {seconds:.0f} s. Success: all {texts} texts match their documents,")
    print(f"               all {findings:,} verdicts the rule, all evidence its hashes.")
    print(f"Where to look  {report} is the second night's report; all files are in {folder}.")
    print(
        "What next      `make ui` shows such nights in Airflow. README.md: how to ingest your own documents."
    )
    return 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    sys.exit(main())
