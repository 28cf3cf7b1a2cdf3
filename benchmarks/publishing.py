"""A quiet night of many documents: all verdicts but 1 % are carried forward, so most of it is publishing.

`python -m benchmarks.publishing`, or with `--documents 1000` for a quick look. The first night assesses a few
texts, the second one carries these verdicts to all documents, which have the same texts; the third one is
measured, in a process of its own: CPU, memory for each cell, and the bytes that it leaves beside results.
Beside it a bare script, which reads the findings of the night before, and writes them again, also as CSV.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import assess
from benchmarks.comparison import Result, Way, judge, measure, resident, run_process, show, task_environment
from benchmarks.service import Service

DOCUMENTS, TEXTS, FRAMEWORKS = 10_000, 200, 2
CPU_SECONDS, STORED_MB, CELL_KB = 10.0, 60.0, 3.0
WAYS = {"operator": "operator", "few": f"a night of {TEXTS} documents", "bare": "bare script"}


def main(arguments: Sequence[str] = ()) -> int:
    """Measure and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="Publishing a quiet night")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    options = parser.parse_args(arguments)
    results, stored = run(options.documents)
    cells = options.documents * FRAMEWORKS
    show(WAYS, results, cells, "cell")
    ours, share = results["operator"], cells / (DOCUMENTS * FRAMEWORKS)
    memory = 1024 * (ours.growth - results["few"].growth) / cells
    return not judge(
        {
            f"{ours.cpu:.1f} CPU-s, at most {CPU_SECONDS * share:.1f}": ours.cpu <= CPU_SECONDS * share,
            f"{stored:.1f} MB beside results, at most {STORED_MB * share:.1f}": stored <= STORED_MB * share,
            f"{memory:.1f} KiB a cell, at most {CELL_KB}": memory <= CELL_KB,
        }
    )


def run(documents: int) -> tuple[dict[str, Result], float]:
    """Run the nights; return the results of the last one, and the MB that it has stored beside results."""
    with (
        Service(jobs="instant", access_lifetime=3600) as service,
        task_environment(service) as environment,
        tempfile.TemporaryDirectory(prefix="publishing-") as name,
    ):
        corpus, folder, out = assess.Corpus(service, Path(name)), Path(name), Path(name, "out")
        corpus.manifest(2 * TEXTS)
        few, changed = corpus.rows[:TEXTS], corpus.rows[TEXTS:]
        many = [{**few[n % TEXTS], "source": f"s3://contracts/in/{n:06}.pdf"} for n in range(documents)]
        quiet = [changed[n // 100 % TEXTS] | {"source": row["source"]} if n % 100 == 0 else row
                 for n, row in enumerate(many)]  # fmt: skip
        nights: list[Result] = []
        written: list[set[Path]] = []
        for night, rows in enumerate((few, many, quiet), 1):
            manifest = folder / f"{night}.jsonl"
            manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
            arguments = (manifest, FRAMEWORKS, 16, f"{out}/", night, 0.0)
            nights.append(run_process(service, environment, "benchmarks.assess", "_operator", *arguments))
            written.append({path for path in out.rglob("*") if path.is_file()})
        (earlier,) = out.glob("night=2/**/findings.jsonl*")
        bare = run_process(service, environment, "benchmarks.publishing", earlier, folder / "bare.jsonl")
        new = (path for path in written[2] - written[1] if "results" not in path.parts)
        stored = sum(path.stat().st_size for path in new)
    return {"operator": nights[2], "few": nights[0], "bare": bare}, stored / 1e6


def _rewrite(source: Path, target: Path) -> None:
    text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    with target.open("w") as out, target.with_suffix(".csv").open("w") as table:
        writer = csv.writer(table)
        for line in text.splitlines():
            row = json.loads(line)
            out.write(json.dumps(row) + "\n")
            writer.writerow(row.values())


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].startswith("/"):
        measure(Way(resident(), lambda: _rewrite(Path(sys.argv[1]), Path(sys.argv[2]))))
    else:
        sys.exit(main(sys.argv[1:]))
