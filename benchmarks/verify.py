"""How fast evidence is verified, and in how much memory: a month of nights, and one very large night."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from airflow_provider.evidence.chain import Chain
from airflow_provider.storage.locations import Location
from tests.support.nights import NightWriter, sha256

NIGHTS, DOCUMENTS = 30, 1_000
SMALL, LARGE = 10_000, 1_000_000
FILES = 1_000  # of the large night; its texts are links to them
LIMIT_MIB = 40.0


def main() -> None:
    """Print rate and peak memory of each; each runs in a process of its own."""
    sizes = [int(each) for each in os.environ.get("ROWS", f"{SMALL},{LARGE}").split(",")]
    print(f"{'':<32}{'objects':>12}{'seconds':>10}{'objects/s':>12}{'peak':>12}")
    with tempfile.TemporaryDirectory() as folder:
        _write_month(Path(folder))
        _verify(f"{NIGHTS} nights of {DOCUMENTS:,} documents", folder)
    peaks = []
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            _write_large(Path(folder), rows)
            peaks.append(_verify(f"one night of {rows:,} documents", folder))
    growth = peaks[-1] - peaks[0]
    verdict = "ok" if growth < LIMIT_MIB else "EXCEEDED"
    print(f"from the smallest to the largest: {growth:+.1f} MiB, limit {LIMIT_MIB:.0f} MiB {verdict}")


def _write_month(root: Path) -> None:
    writer = NightWriter(Location(f"file://{root}"), documents=DOCUMENTS, size=4_000)
    for day in range(1, NIGHTS + 1):
        writer.night(day)


def _write_large(root: Path, rows: int) -> None:
    """Write a night whose texts are all different objects, but take no space."""
    manifest = root / "_evidence/manifest.jsonl"
    manifest.parent.mkdir()
    with manifest.open("wb") as file:
        for number in range(rows):
            original = root / f"original-{number % FILES}.txt"
            text = f"document {number % FILES}".encode()
            if number < FILES:
                original.write_bytes(text)
            folder = root / f"texts/{number // FILES}"
            if number % FILES == 0:
                folder.mkdir(parents=True)
            os.link(original, folder / f"{number}.txt")
            row = {
                "source": f"s3://documents/{number}.pdf",
                "status": "COMPLETED",
                "path": f"file://{folder}/{number}.txt",
                "sha256": sha256(text),
                "source_sha256": sha256(text),
            }
            file.write(json.dumps(row).encode() + b"\n")
    reference = {"kind": "ingest", "uri": f"file://{manifest}", "sha256": sha256(manifest.read_bytes())}
    night = {
        "night": "2026-01-01T00:00:00+00:00",
        "run": "n/1",
        "root": f"file://{root}",
        "manifests": [reference],
    }
    Chain(Location(f"file://{root}")).append(lambda head: night)


MEASURED = """
import sys
from airflow_provider.cli.commands import main
code = main(sys.argv[1:])
print(open("/proc/self/status").read())
sys.exit(code)
"""


def _verify(name: str, root: str) -> float:
    call = [sys.executable, "-W", "ignore", "-c", MEASURED, "verify", root, "--json"]
    output = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    totals: dict[str, Any] = json.loads(next(line for line in output.splitlines() if "totals" in line))[
        "totals"
    ]
    found = re.search(r"VmHWM:\s+(\d+) kB", output)
    assert found
    peak = int(found[1]) / 1024
    rate = totals["objects"] / totals["seconds"]
    print(
        f"{name:<32}{totals['objects']:>12,}{totals['seconds']:>10.1f}{rate:>12,.0f}{peak:>8.1f} MiB",
        flush=True,
    )
    return peak


if __name__ == "__main__":
    main()
