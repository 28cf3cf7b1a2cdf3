"""Bulk ingestion end to end: `make demo`, or `python -m demo --pdfs 10` for less.

Runs example_dags/nightly_ingestion.py unchanged on an Airflow of its own, then compares all texts with their
documents.
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
from importlib.metadata import version
from pathlib import Path

from demo.outcome import Outcome, check_results
from demo.screen import Step
from demo.stage import NIGHTLY, ROOT, Amounts, Stage, staged

JOB_SECONDS = 1.5  # that the service takes for a document
STEP_TIMEOUT_SECONDS = 300.0  # on a slow machine
LOG_TAIL_LINES = 25  # to show when something fails


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if every document has the expected result."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="Bulk ingestion end to end.")
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


def _run_demo(folder: Path, amounts: Amounts) -> int:
    started = time.monotonic()
    writing = Step(f"Writing {amounts.total} documents")
    with staged(folder, amounts, f"seconds:{JOB_SECONDS}") as stage:
        writing.end()
        is_success = _run_dag(stage)
        outcome = check_results(stage.texts, stage.expected)
        _print_results(stage, outcome, time.monotonic() - started)
    problems = outcome.problems if is_success else ["The run failed.", *outcome.problems]
    return _conclude(stage, problems, len(outcome.rows) - len(outcome.failed))


def _run_dag(stage: Stage) -> bool:
    """Run the DAG without a scheduler; return whether it succeeded."""
    good = sum(each.text is not None for each in stage.expected)
    if not _airflow(stage, Step("Creating the Airflow database"), "db", "migrate"):
        return False
    # Airflow 3.0 runs no task with an unknown asset; newer versions register assets by themselves.
    if version("apache-airflow").startswith("3.0.") and not _airflow(
        stage, Step("Registering the DAG"), "dags", "reserialize"
    ):
        return False
    return _airflow(stage, Step(f"Running {NIGHTLY}", good), "dags", "test", NIGHTLY)


def _airflow(stage: Stage, running: Step, *command: str) -> bool:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AIRFLOW") and name != "PYTHONDONTWRITEBYTECODE"
    }
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
                running.draw(stage.service.count("get_content", 200))
                time.sleep(0.1)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    running.end()
    return process.returncode == 0


def _print_results(stage: Stage, outcome: Outcome, seconds: float) -> None:
    counters = stage.service.counters()
    print(f"\n{outcome.table(stage.expected)}")
    if outcome.failed:
        print("\nWhy documents failed:")
    for row in outcome.failed:
        print(f"  {row['source'].rpartition('/')[2]:<28} {row['error']}")
    print(
        f"\n{len(stage.expected)} documents in {len(outcome.manifests)} shards, one after the other: "
        f"{counters['total']} requests, logins: {counters['logins']}.\n"
        f"{outcome.seconds:.1f} s from the first submit to the last job, {seconds:.1f} s in all; "
        f"a job takes {JOB_SECONDS} s.\n"
    )
    print(f"Texts        {_relative(stage.texts)}")
    for folder in sorted({path.parent.parent for path in outcome.manifests}):
        print(f"Shards       {_relative(folder)}/ingest-*/: manifest.jsonl, report.html")
    print(f"Airflow log  {_relative(stage.folder / 'airflow.log')}\n")


def _conclude(stage: Stage, problems: list[str], texts: int) -> int:
    if not problems:
        print(f"Success: all {texts} texts match their documents.")
        print("To see it in the Airflow UI: make ui")
        return 0
    log = (stage.folder / "airflow.log").read_text(errors="replace").splitlines()
    print(
        "Last lines of the Airflow log:", *(f"  {line[:300]}" for line in log[-LOG_TAIL_LINES:]), "", sep="\n"
    )
    print("Problems:", *(f"  {problem}" for problem in problems[:20]), sep="\n")
    return 1


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    sys.exit(main())
