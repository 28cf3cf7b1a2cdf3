"""Runs the DAG of a night with `dag.test()`, with a database of its own, and writes what came of it."""

from __future__ import annotations

import json
import os
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.dag_test import prepare

DAG_FILE = Path(__file__).parent / "dags" / "night.py"


def main(folder: Path) -> None:
    prepare(DAG_FILE.parent)
    import airflow
    from airflow.utils.session import create_session

    from airflow_provider.emulator import Emulator
    from airflow_provider.emulator.samples import write_samples

    documents = folder / "documents"
    documents.mkdir()
    write_samples(folder / "samples")
    sample = next(path for path in sorted((folder / "samples").iterdir()) if path.suffix == ".pdf")
    (documents / "good.pdf").write_bytes(sample.read_bytes())
    (documents / "bad.pdf").write_bytes(b"%PDF-1.4 broken")
    for name in ("good", "bad"):
        (documents / f"{name}.txt").write_text(f"file://{documents}/{name}.pdf\n")
    os.environ["NIGHT_DOCUMENTS"], os.environ["NIGHT_ROOT"] = f"file://{documents}", f"file://{folder}/out/"
    with Emulator() as emulator:
        os.environ["AIRFLOW_CONN_COMPLIANCE_DEFAULT"] = emulator.connection_json
        dag: Any = runpy.run_path(str(DAG_FILE))["dag"]
        run = dag.test()
    with create_session() as session:
        events = _events(session)
    (record,) = (folder / "out" / "_evidence" / "nights").iterdir()
    found = {
        "airflow": airflow.__version__,
        "state": str(run.state),
        "record": json.loads(record.read_text()),
        "events": events,
    }
    (folder / "found.json").write_text(json.dumps(found))


def _events(session: Any) -> list[dict[str, Any]]:
    try:
        model = import_module("airflow.models.asset").AssetEvent
    except ModuleNotFoundError:  # Airflow 2.11
        model = import_module("airflow.models.dataset").DatasetEvent
    return [{"extra": event.extra} for event in session.query(model).all()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
