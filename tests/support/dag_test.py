"""Programs that run a DAG with `dag.test()`, each with a database of its own, and write what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 1200  # half a minute of CPU, of which a busy machine gives little


def run_program(module: str, folder: Path, *arguments: str) -> Any:
    """Run a program of the tests in a folder; return what it has written to `found.json` there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment |= {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "0",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "NO_PROXY": "*",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", module, str(folder), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


def prepare(dags: Path) -> None:
    """Make the database, in such a program, for the DAGs of a folder."""
    os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(dags)
    Path(os.environ["AIRFLOW_HOME"]).mkdir(exist_ok=True)
    from airflow.utils.db import initdb

    initdb()
    if not is_airflow_2():
        # Airflow 3.1 makes a server for every task, which takes seconds.
        supervisor: Any = import_module("airflow.sdk.execution_time.supervisor")
        supervisor.in_process_api_server = cache(supervisor.in_process_api_server)


def is_airflow_2() -> bool:
    """Return whether this is Airflow 2."""
    import airflow

    return airflow.__version__.startswith("2.")
