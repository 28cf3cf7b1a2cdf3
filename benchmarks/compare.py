"""Two commits beside each other and beside bare scripts: `make bench-compare BASE=<commit>`.

The package of the other commit is put into a folder of its own, with the benchmarks and the emulator of this
one. The commits take turns, three rounds each, and the best of each counts. `-` is for what the other lacks.
`ARGS='--only publishing --scale 0.1'` is a quick look.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import assess, ingest, publishing
from benchmarks.harness import Result, Service, options, table

ROOT = Path(__file__).parent.parent
MEASURES = {"seconds": "s", "cpu": "CPU-s", "requests": "requests", "memory": "MiB"}


def _ingest(scale: float) -> dict[str, Result]:
    with Service(jobs=ingest.JOBS, latency=ingest.LATENCY, access_lifetime=3600) as service:
        pages = round(ingest.PAGES * scale)
        return {way: ingest.run(service, pages, 16, way) for way in ingest.WAYS}


def _assess(scale: float, seconds: float) -> dict[str, Result]:
    return assess.run_waiting(seconds, round(assess.WAITING_DOCUMENTS * scale), assess.LATENCY, 16)


SCENARIOS: dict[str, Callable[[float], dict[str, Result]]] = {
    "ingest": _ingest,
    "assess-1.5s": lambda scale: _assess(scale, 1.5),
    "assess-30s": lambda scale: _assess(scale, 30.0),
    "publishing": lambda scale: publishing.run(round(publishing.DOCUMENTS * scale))[0],
}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure both commits and print the table."""
    base, *rest = arguments
    chosen = options(rest, __doc__, only=list(SCENARIOS), rounds=3, scale=1.0)
    if not SCENARIOS.keys() >= set(chosen.only):
        sys.exit(f"Choose from {', '.join(SCENARIOS)}.")
    with tempfile.TemporaryDirectory(prefix="base-") as folder:
        archive = subprocess.run(
            ["git", "archive", base, "airflow_provider"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        for name in ("benchmarks", "tests", "airflow_provider/emulator"):
            shutil.rmtree(Path(folder) / name, ignore_errors=True)
            shutil.copytree(ROOT / name, Path(folder) / name)
        for name in chosen.only:
            turns = range(chosen.rounds)
            pairs = [[_run(name, tree, chosen.scale) for tree in (folder, ROOT)] for _ in turns]
            before, after = zip(*pairs, strict=True)
            table(*(_row(f"{name}, {unit}", measure, before, after) for measure, unit in MEASURES.items()))
    return 0


def _run(name: str, tree: Path | str, scale: float) -> dict[str, Any]:
    """Run a scenario with the package of a tree; return nothing if the package can't do that."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.compare", f"_{name}", str(scale)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name} of {tree}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(what: str, measure: str, before: Sequence[Any], after: Sequence[Any]) -> dict[str, object]:
    """Return the smallest values of the bare script and of both commits, and their ratios."""

    def best(rounds: Sequence[Any], way: str) -> float:
        return min((found[way][measure] for found in rounds if found.get(way)), default=0.0)

    bare, old, new = best([*before, *after], "bare"), best(before, "operator"), best(after, "operator")
    row = {"bare": bare, "before": old, "after": new}
    row |= {"after/before": new / (old or 1), "after/bare": new / (bare or 1)}
    lacks = {"after/before": not old, "after/bare": not bare}
    return {"": what, **{name: "-" if lacks.get(name, not value) else value for name, value in row.items()}}


if __name__ == "__main__":
    if sys.argv[1].startswith("_"):
        found = SCENARIOS[sys.argv[1][1:]](float(sys.argv[2]))
        print(json.dumps({way: vars(result) for way, result in found.items()}))
    else:
        sys.exit(main(sys.argv[1:]))
