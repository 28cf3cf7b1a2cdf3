"""Run the benchmarks that are named, or all."""

from __future__ import annotations

import sys
from importlib import import_module

ALL = ("import_time", "ingest", "assess", "publishing", "stock", "triggerer")

for name in sys.argv[1:] or ALL:
    print(f"\n== {name}")
    import_module(f"benchmarks.{name}").main()
