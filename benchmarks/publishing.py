"""A quiet night of many documents: all verdicts but 1 % are carried forward, so most of it is publishing.

The first night assesses a few texts, the second one carries these verdicts to all documents, which have the
same texts; the third one is measured: CPU, memory for each cell, and the bytes that it leaves beside results.
Beside it a bare script, which reads the findings of the night before, and writes them again, also as CSV.
`--documents 1000` is a quick look.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import assess
from benchmarks.harness import Result, Way, judge, mib, options, show

DOCUMENTS, TEXTS, FRAMEWORKS = 10_000, 200, 2
CPU_SECONDS, STORED_MB, CELL_KIB = 10.0, 60.0, 3.0


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    documents = options(arguments, __doc__, documents=DOCUMENTS).documents
    results, stored = run(documents)
    cells, share = documents * FRAMEWORKS, documents / DOCUMENTS
    show(results, cells, "cell")
    ours, few = results["operator"], results[f"night of {TEXTS} documents"]
    return not judge(
        CPU_seconds=(ours.cpu, CPU_SECONDS * share),
        MB_beside_results=(stored, STORED_MB * share),
        KiB_per_cell=(1024 * (ours.memory - few.memory) / cells, CELL_KIB),
    )


def run(documents: int) -> tuple[dict[str, Result], float]:
    """Run the nights; return the results of the last one, and the MB that it has stored beside results."""
    with assess.nights() as bench:
        bench.manifest(2 * TEXTS)
        few, changed = bench.rows[:TEXTS], bench.rows[TEXTS:]
        many = [{**few[n % TEXTS], "source": f"s3://contracts/all/{n:06}.pdf"} for n in range(documents)]
        quiet = [changed[n // 100 % TEXTS] | {"source": row["source"]} if n % 100 == 0 else row
                 for n, row in enumerate(many)]  # fmt: skip
        nights, written, out = [], [], bench.folder / "out"
        for number, rows in enumerate((few, many, quiet), 1):
            manifest = bench.write(f"night-{number}", rows)
            nights.append(bench.run("operator", manifest, FRAMEWORKS, "out", str(number)))
            written.append({path for path in out.rglob("*") if path.is_file()})
        (earlier,) = out.glob("night=2/**/findings.jsonl*")
        script = bench.service.measure(bare, earlier, bench.folder / "bare.jsonl")
        new = (path for path in written[2] - written[1] if "results" not in path.parts)
        stored = sum(path.stat().st_size for path in new)
    return {"operator": nights[2], f"night of {TEXTS} documents": nights[0], "bare": script}, stored / 1e6


def bare(source: str, target: str) -> Way:
    """Make the script ready."""

    def work() -> None:
        data = Path(source).read_bytes()
        text = gzip.decompress(data) if source.endswith(".gz") else data
        with Path(target).open("w") as out, Path(target).with_suffix(".csv").open("w") as table:
            writer = csv.writer(table)
            for line in text.splitlines():
                row = json.loads(line)
                out.write(json.dumps(row) + "\n")
                writer.writerow(row.values())

    return mib(), work


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
