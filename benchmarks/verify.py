"""The verification of a closed night beside a loop that only hashes."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.harness import Result, TaskInstance, judge, options, show, timed

TEXTS, SIZE = 40_000, 1_000
RATIO, SECONDS = 3.0, 0.25  # times the CPU of the loop; for 1,000 objects


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    texts = options(arguments, __doc__, texts=TEXTS).texts
    found = run(texts)
    show(found, texts, "object")
    ours = found["operator"]
    return not judge(
        times_the_CPU_of_the_loop=(ours.cpu / found["bare"].cpu, RATIO),
        seconds_for_1000_objects=(1000 * ours.seconds / texts, SECONDS),
    )


def run(texts: int) -> dict[str, Result]:
    """Close a night, and verify it."""
    from airflow_provider.nights.evidence.verifier import Folder, Verifier
    from airflow_provider.operators.night import ComplianceCloseNightOperator

    def verify() -> None:
        assert [check.status for check in Verifier(Folder(name)).run()] == ["OK"]

    def bare() -> None:
        for path in folder.glob("*.txt"):
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")

    with tempfile.TemporaryDirectory(prefix="verify-") as name:
        folder = Path(name, "dt=2026-01-01")
        manifest = folder / "_ingest" / "manifest.jsonl"
        manifest.parent.mkdir(parents=True)
        with manifest.open("w") as rows:
            for number in range(texts):
                path, data = folder / f"{number:06}.txt", f"{number} ".encode().ljust(SIZE, b".")
                path.write_bytes(data)
                row = {"source": f"s3://in/{number:06}.pdf", "status": "COMPLETED", "path": f"file://{path}"}
                rows.write(json.dumps(row | {"sha256": hashlib.sha256(data).hexdigest()}) + "\n")
        task = ComplianceCloseNightOperator(
            task_id="close", ingested=f"file://{manifest}", destination=f"file://{folder}/"
        )
        context: Any = {"ti": TaskInstance(), "dag_run": SimpleNamespace(), "outlet_events": {}}
        task.execute(context)
        return {"operator": timed(verify), "bare": timed(bare)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
