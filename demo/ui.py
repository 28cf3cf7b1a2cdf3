"""Every example DAG in Airflow's user interface: `make ui`, until Ctrl-C.

`airflow standalone` would serve logs on all interfaces, so its parts are started one by one, on 127.0.0.1.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from airflow_provider.emulator.samples import serve_pages
from demo.screen import Step
from demo.stage import INGESTION, NIGHTLY, ROOT, Amounts, Stage, staged
from tests.deployment.servers import is_open
from tests.deployment.system import Deployment, deployed

REVIEW = "compliance_assess_and_review"
AFTERWARDS = "compliance_new_texts"
REASSESS = "compliance_reassess_on_framework_change"


def main(argv: Sequence[str] | None = None) -> int:
    """Run Airflow until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m demo.ui", description="Airflow with every example DAG.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "ui", help="of all files")
    parser.add_argument("--port", type=int, default=8080, help="of the user interface (default: 8080)")
    options = parser.parse_args(argv)
    if is_open(options.port):
        print(f"Port {options.port} is in use: make ui ARGS='--port 8090'", file=sys.stderr)
        return 1
    # A shell starts background processes with these ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with (
            staged(options.folder, Amounts(), "seconds:3") as stage,
            serve_pages(stage.texts) as reports,
            serve_pages(stage.nights) as night_reports,
        ):
            return _serve(stage, stage.settings(f"{reports}/", f"{night_reports}/"), options.port)
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0


def _serve(stage: Stage, places: dict[str, str], port: int) -> int:
    starting = Step("Starting Airflow, half a minute to three")
    starting.draw()
    home = stage.folder / "airflow"
    home.mkdir()
    settings = {
        **places,
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    }
    with deployed(home, settings, port=port) as airflow:
        for dag_id in (NIGHTLY, REVIEW, INGESTION, AFTERWARDS, REASSESS):  # the others wait for a person
            airflow.wait_for_dag(dag_id)
            airflow.call("PATCH", f"dags/{dag_id}", {"is_paused": False})
            if dag_id == REVIEW:
                airflow.trigger(REVIEW)
        starting.end()
        _print_welcome(stage, airflow)
        has_changed = is_second_night = False
        while all(part.is_alive for part in airflow.parts.values()):
            time.sleep(1.0)
            with suppress(OSError, AssertionError):  # Airflow is busy: again in a second
                if not has_changed and _has_assessed(airflow):
                    stage.change()
                    has_changed = True
                if has_changed and not is_second_night:
                    airflow.trigger(NIGHTLY)
                    is_second_night = True
        print(f"A component of Airflow has exited.{airflow.tails()}", file=sys.stderr)
    return 1


def _has_assessed(airflow: Deployment) -> bool:
    """Return whether the first night is over, so that the second one can be triggered."""
    runs = airflow.call("GET", f"dags/{NIGHTLY}/dagRuns")["dag_runs"]
    return any(run["state"] == "success" for run in runs)


def _print_welcome(stage: Stage, airflow: Deployment) -> None:
    lines = (
        "",
        f"Whole nights       {airflow.url}/dags/{NIGHTLY}",
        f"Assess and review  {airflow.url}/dags/{REVIEW}",
        f"Bulk ingestion     {airflow.url}/dags/{INGESTION}",
        f"All example DAGs   {airflow.url}/dags",
        f"The emulator       {stage.service.url}/",
        f"All files          {stage.folder}",
        "",
        f"No login needed. Last night has started: {len(stage.expected)} documents are assessed.",
        "In about two minutes, some documents and a framework change, and the next night starts.",
        "Browse, Compliance lists all nights with their reports.",
        f"Answer the forms about it, and those of assess-and-review, under {airflow.url}/required_actions",
        "Trigger any other example as it is: all of them use the emulator and local folders.",
        "",
        "Ctrl-C ends everything.",
    )
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.exit(main())
