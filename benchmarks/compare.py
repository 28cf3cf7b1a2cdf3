"""Two commits beside each other and beside bare scripts: `make bench-compare BASE=<commit>`.

The package of the other commit is put into a folder of its own, with the benchmarks and the emulator of this
one. The commits take turns, three rounds each, and the best of each counts. `-` is for what the other lacks.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison import Result, task_environment
from benchmarks.service import Service

ROUNDS = 3
ROOT = Path(__file__).parent.parent
MEASURES = {"seconds": "s", "cpu": "CPU-s", "requests": "requests", "growth": "MiB"}


def ingest(scale: float) -> dict[str, Result]:
    """1,000 pages with jobs of 2 s."""
    from benchmarks import ingest

    settings = {"jobs": ingest.JOBS, "latency": ingest.LATENCY, "access_lifetime": 3600}
    with Service(**settings) as service, task_environment(service) as environment:
        ways = ("operator", "bare")
        return {
            way: ingest._round(service, environment, way, round(ingest.PAGES * scale), 16) for way in ways
        }


def waiting(scale: float, seconds: float) -> dict[str, Result]:
    """500 documents against 2 frameworks, with assessments that take a while."""
    from benchmarks import assess

    return assess.run_waiting(seconds, round(assess.WAITING_DOCUMENTS * scale), assess.LATENCY, 16)


def publishing(scale: float) -> dict[str, Result]:
    """A quiet night of 10,000 documents against 2 frameworks."""
    from benchmarks import publishing

    return publishing.run(round(publishing.DOCUMENTS * scale))[0]


def verify(scale: float) -> dict[str, Result]:
    """A night of 40,000 texts."""
    from benchmarks import verify

    return verify.run(round(verify.TEXTS * scale))


SCENARIOS: dict[str, Callable[[float], dict[str, Result]]] = {
    "ingest": ingest,
    "assess-1.5s": lambda scale: waiting(scale, 1.5),
    "assess-30s": lambda scale: waiting(scale, 30.0),
    "publishing": publishing,
    "verify": verify,
}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure both commits and print the table."""
    parser = argparse.ArgumentParser(description="Compare two commits")
    parser.add_argument("base", help="the other commit")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--scale", type=float, default=1.0, help="of the work, such as 0.1 for a quick look")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="base-") as folder:
        archive = subprocess.run(
            ["git", "archive", options.base, "airflow_provider"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        for name in ("benchmarks", "tests", "airflow_provider/emulator"):
            shutil.rmtree(Path(folder) / name, ignore_errors=True)
            shutil.copytree(ROOT / name, Path(folder) / name)
        print(
            f"{'':<17}{'':<9}{'bare':>9}{'before':>9}{'after':>9}{'after/before':>14}{'after/bare':>12}",
            flush=True,
        )
        for name in options.only:
            rounds = [
                tuple(_run(name, tree, options.scale) for tree in (Path(folder), ROOT))
                for _ in range(options.rounds)
            ]
            before, after = zip(*rounds, strict=True)
            for measure, unit in MEASURES.items():
                _show(name, unit, *(_best(found, measure) for found in (before, after)))
    return 0


def _run(name: str, tree: Path, scale: float) -> dict[str, Any]:
    """Run a scenario with the package of a tree; return nothing if the package can't do that."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.compare", f"_{name}", str(scale)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name} of {tree}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _best(rounds: Sequence[dict[str, Any]], measure: str) -> tuple[float, float]:
    """Return the smallest values of the bare script and of ours; 0 if there is none."""
    values = [[found[way][measure] for found in rounds if found] for way in ("bare", "operator")]
    return min(values[0], default=0.0), min(values[1], default=0.0)


def _show(name: str, unit: str, before: tuple[float, float], after: tuple[float, float]) -> None:
    bare = min(filter(None, (before[0], after[0])), default=0.0)
    if not (before[1] or after[1]):
        return
    shown = "".join(f"{value:>9.2f}" if value else f"{'-':>9}" for value in (bare, before[1], after[1]))
    ratios = [f"{after[1] / other:.2f}" if other else "-" for other in (before[1], bare)]
    print(f"{name:<17}{unit:<9}{shown}{ratios[0]:>14}{ratios[1]:>12}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("_"):
        results = SCENARIOS[sys.argv[1][1:]](float(sys.argv[2]))
        print(json.dumps({way: vars(result) for way, result in results.items()}))
    else:
        sys.exit(main(sys.argv[1:]))
