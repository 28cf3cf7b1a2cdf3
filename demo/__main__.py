"""The nightly job end to end: `make demo`, or `python -m demo --pdfs 10` for less.

Runs example_dags/nightly_ingestion.py as it is on an Airflow of its own, then compares all texts with their
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

from demo.outcome import Outcome, look_at
from demo.screen import Step
from demo.stage import NIGHTLY, ROOT, Amounts, Stage, staged

JOB = 1.5  # seconds that the service takes for a document
PATIENCE = 300.0  # seconds for a step on a slow machine
TAIL = 25  # lines of the log to show when something fails


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if every document has come to the end that it should."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="The nightly job end to end.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "demo", help="where all goes")
    for name, default in vars(Amounts()).items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"how many (default: {default})")
    options = vars(parser.parse_args(argv))
    for number in (signal.SIGINT, signal.SIGTERM):  # whoever starts it in the background has them ignored
        signal.signal(number, signal.default_int_handler)
    try:
        return _demonstrate(options.pop("folder"), Amounts(**options))
    except KeyboardInterrupt:
        print("\nStopped.")
        return 1


def _demonstrate(folder: Path, amounts: Amounts) -> int:
    begin = time.monotonic()
    writing = Step(f"Writing {amounts.total} documents")
    with staged(folder, amounts, f"seconds:{JOB}") as stage:
        writing.end()
        is_success = _run(stage)
        outcome = look_at(stage.texts, stage.wanted)
        _show(stage, outcome, time.monotonic() - begin)
    problems = outcome.problems if is_success else ["The run failed.", *outcome.problems]
    return _judge(stage, problems, len(outcome.rows) - len(outcome.failed))


def _run(stage: Stage) -> bool:
    """Run the DAG without a scheduler; say whether it succeeded."""
    good = sum(each.text is not None for each in stage.wanted)
    if not _airflow(stage, Step("Making a database for Airflow"), "db", "migrate"):
        return False
    # Airflow 3.0 runs no task with an asset that it has not seen; newer ones look by themselves.
    if version("apache-airflow").startswith("3.0.") and not _airflow(
        stage, Step("Making the DAG known"), "dags", "reserialize"
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
            while process.poll() is None and running.seconds < PATIENCE:
                running.draw(stage.service.count("get_content", 200))
                time.sleep(0.1)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    running.end()
    return process.returncode == 0


def _show(stage: Stage, outcome: Outcome, seconds: float) -> None:
    counters = stage.service.counters()
    print(f"\n{outcome.table(stage.wanted)}")
    if outcome.failed:
        print("\nWhy documents failed:")
    for row in outcome.failed:
        print(f"  {row['source'].rpartition('/')[2]:<28} {row['error']}")
    print(
        f"\n{len(stage.wanted)} documents in {len(outcome.manifests)} shards, one after the other: "
        f"{counters['total']} requests, logins: {counters['logins']}.\n"
        f"{outcome.seconds:.1f} s from the first submit to the last job, {seconds:.1f} s in all; "
        f"a job takes {JOB} s.\n"
    )
    print(f"Texts        {_short(stage.texts)}")
    for folder in sorted({path.parent.parent for path in outcome.manifests}):
        print(f"Shards       {_short(folder)}/ingest-*/: manifest.jsonl, report.html")
    print(f"Airflow log  {_short(stage.folder / 'airflow.log')}\n")


def _judge(stage: Stage, problems: list[str], texts: int) -> int:
    if not problems:
        print(f"All is well: {texts} texts are there, each compared with its document.")
        print("The same in Airflow's user interface: make ui")
        return 0
    log = (stage.folder / "airflow.log").read_text(errors="replace").splitlines()
    print("The end of Airflow's log:", *(f"  {line[:300]}" for line in log[-TAIL:]), "", sep="\n")
    print("This is wrong:", *(f"  {problem}" for problem in problems[:20]), sep="\n")
    return 1


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    sys.exit(main())
