"""What importing our modules adds to what every DAG file imports anyway."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from airflow_provider.provider_info import get_provider_info

LIMIT_MS = 50.0
REPEATS = 5
PROBE = """
import json, sys, time
begin = time.perf_counter()
import airflow.sdk
from airflow.providers.common.compat.sdk import BaseHook, BaseOperator, BaseSensorOperator
base = time.perf_counter() - begin
known = set(sys.modules)
begin = time.perf_counter()
import {module}
print(json.dumps([base, time.perf_counter() - begin, len(set(sys.modules) - known)]))
"""


def main() -> None:
    """Print the median of some runs for each module that the provider names."""
    info = get_provider_info()
    kinds = ("hooks", "operators", "sensors", "transfers", "triggers")
    groups = [group for kind in kinds for group in info.get(kind, [])]
    # Airflow's schema lets a transfer name one module only, under another key.
    modules = [name for each in groups for name in each.get("python-modules") or [each["python-module"]]]
    print(f"{'module':<48}{'adds':>10}{'of airflow.sdk':>16}{'modules':>10}{'limit':>12}")
    for module in modules:
        runs = [_probe(module) for _ in range(REPEATS)]
        base, added = (statistics.median(run[index] for run in runs) for index in (0, 1))
        verdict = "ok" if added * 1000 < LIMIT_MS else "TOO SLOW"
        cost = f"{added * 1000:>7.1f} ms{added / base:>15.2%}{runs[0][2]:>10}"
        print(f"{module:<48}{cost}{LIMIT_MS:>5.0f} ms {verdict}")


def _probe(module: str) -> tuple[float, float, int]:
    command = [sys.executable, "-W", "ignore", "-c", PROBE.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    base, added, count = json.loads(done.stdout.splitlines()[-1])
    return base, added, count
