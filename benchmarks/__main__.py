"""Run the benchmarks that are named, or all."""

from __future__ import annotations

import sys
from importlib import import_module

ALL = (
    "import_time",
    "memory",
    "transfer",
    "ingest",
    "short_jobs",
    "polling",
    "assess",
    "verify",
    "stock",
    "emulator_load",
    "triggerer",
    "assessments",
)

for name in sys.argv[1:] or ALL:
    print(f"\n== {name}")
    import_module(f"benchmarks.{name}").main()
