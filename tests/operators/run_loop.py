"""Runs the DAG with a loop with `dag.test()`, with a database of its own, and writes what came of it."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from tests.support.dag_test import prepare

DAG_FILE = Path(__file__).parent / "dags" / "loop.py"


def main(folder: Path) -> None:
    os.environ["AIRFLOW__COMPLIANCE__STATE_PATH"] = f"file://{folder}/state/"
    prepare(DAG_FILE.parent)
    from airflow_provider.emulator import Emulator

    with Emulator(jobs="polls:1") as emulator:  # a job that is not waited for stays in flight
        os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"] = emulator.connection_json
        os.environ["LOOP_PAGE"], os.environ["LOOP_OUT"] = f"{emulator.url}/", f"file://{folder}/out/"
        dag: Any = runpy.run_path(str(DAG_FILE))["dag"]
        run = dag.test()
        found = {"state": str(run.state), "jobs": emulator.jobs()}
    (folder / "found.json").write_text(json.dumps(found, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
