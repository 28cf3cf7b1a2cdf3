"""The verification of a closed night beside a loop that only hashes: `python -m benchmarks.verify`."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.comparison import Result, TaskInstance, judge, show

TEXTS, SIZE = 40_000, 1_000
RATIO, RATE = 3.0, 4_000  # of the loop; objects per second
WAYS = {"operator": "verify", "bare": "a loop that hashes"}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="The verification of evidence")
    parser.add_argument("--texts", type=int, default=TEXTS)
    texts: int = parser.parse_args(arguments).texts
    results = run(texts)
    show(WAYS, results, texts, "object")
    ratio, rate = results["operator"].cpu / results["bare"].cpu, texts / results["operator"].seconds
    return not judge(
        {
            f"{ratio:.2f} times the CPU of the loop, at most {RATIO}": ratio <= RATIO,
            f"{rate:,.0f} objects per second, at least {RATE:,}": rate >= RATE,
        }
    )


def run(texts: int) -> dict[str, Result]:
    """Close a night, and verify it."""
    with tempfile.TemporaryDirectory(prefix="verify-") as name:
        folder = Path(name, "dt=2026-01-01")
        (folder / "_ingest").mkdir(parents=True)
        rows = []
        for number in range(texts):
            path, data = folder / f"{number:06}.txt", f"{number} ".encode().ljust(SIZE, b".")
            path.write_bytes(data)
            row = {"source": f"s3://in/{number:06}.pdf", "status": "COMPLETED", "path": f"file://{path}"}
            rows.append(row | {"sha256": hashlib.sha256(data).hexdigest()})
        manifest = folder / "_ingest" / "manifest.jsonl"
        manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
        _close(f"file://{folder}/", f"file://{manifest}")
        return {"operator": _measure(lambda: _verify(name)), "bare": _measure(lambda: _hash(folder))}


def _close(destination: str, manifest: str) -> None:
    from airflow_provider.operators.night import ComplianceCloseNightOperator

    task = ComplianceCloseNightOperator(task_id="close", ingested=manifest, destination=destination)
    context: Any = {"ti": TaskInstance(), "dag_run": SimpleNamespace(), "outlet_events": {}}
    task.execute(context)


def _verify(root: str) -> None:
    from airflow_provider.nights.evidence.verifier import Folder, Verifier

    assert [check.status for check in Verifier(Folder(root)).run()] == ["OK"]


def _hash(folder: Path) -> None:
    for path in folder.glob("*.txt"):
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


def _measure(work: Any) -> Result:
    cpu, begin = time.process_time(), time.perf_counter()
    work()
    return Result(time.perf_counter() - begin, 0.0, time.process_time() - cpu)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
