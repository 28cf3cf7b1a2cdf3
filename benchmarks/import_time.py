"""What importing our modules adds to what every DAG file imports anyway."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence

from airflow_provider.provider_info import get_provider_info
from benchmarks.harness import judge, table

LIMIT_MS, REPEATS = 50.0, 5
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


def main(arguments: Sequence[str] = ()) -> int:
    """Print the median of some runs for each module that the provider names."""
    info = get_provider_info()
    kinds = ("hooks", "operators", "sensors", "transfers", "triggers")
    groups = [group for kind in kinds for group in info.get(kind, [])]
    # Airflow's schema lets a transfer name one module only, under another key.
    modules = [name for each in groups for name in each.get("python-modules") or [each["python-module"]]]
    rows = [_row(name) for name in arguments or modules]
    table(*rows)
    return not judge(ms_of_the_slowest=(max(float(row["ms"]) for row in rows), LIMIT_MS))


def _row(module: str) -> dict[str, float | str]:
    command = [sys.executable, "-W", "ignore", "-c", PROBE.format(module=module)]
    printed = [subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout for _ in range(REPEATS)]
    runs = [json.loads(text.splitlines()[-1]) for text in printed]
    base, added, count = (statistics.median(column) for column in zip(*runs, strict=True))
    return {"": module, "ms": 1000 * added, "% of airflow.sdk": 100 * added / base, "modules": count}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
