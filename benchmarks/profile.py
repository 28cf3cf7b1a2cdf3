"""Which functions take the CPU time of an operator, for each document or cell.

`python -m benchmarks.profile ingest --documents 10000`, or `assess`. The emulator is in a process of its own,
without latency, and not profiled. All threads of the operator are, by cProfile on the CPU clock of each
thread: waiting for the service, the disk or the GIL costs nothing here. The profiler makes small functions
look more expensive than they are, so compare two profiles with each other, and take true CPU times from
`python -m benchmarks.ingest --latency 0 --jobs instant`.

Python 3.11 only: later ones allow one profiler for all threads, which mixes them up.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import assess, ingest
from benchmarks.comparison import Way, task_environment
from benchmarks.service import Service

DOCUMENTS = 3000
TOP = 40
WARM_UP = 50
FRAMEWORKS = assess.FRAMEWORKS[:1]  # of an assessment: as many cells as documents
PROFILE = "profile"
ROOM = re.compile(r"(airflow_provider/\w+|site-packages/\w+|python3\.\d+/(?!site-packages)\w+)")

Function = tuple[str, int, str]
"""File, line and name, as pstats has them."""


def main(arguments: Sequence[str] = ()) -> int:
    """Profile one operator, and print its most expensive functions."""
    parser = argparse.ArgumentParser(description="Which functions cost how much CPU per document or cell")
    parser.add_argument("operator", choices=["ingest", "assess"])
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--way", choices=list(ingest.WAYS), default="operator", help="or one of the scripts")
    parser.add_argument("--top", type=int, default=TOP, help="how many functions")
    parser.add_argument("--sort", choices=["own", "cumulative"], default="own")
    options = parser.parse_args(arguments)
    with (
        Service(
            jobs="instant", latency=0.0, access_lifetime=3600, max_jobs=1_000_000, max_text=1 << 40
        ) as service,
        task_environment(service) as environment,
        tempfile.TemporaryDirectory(prefix="profile-") as folder,
    ):
        if options.operator == "assess":
            corpus = assess.Corpus(service, Path(folder))
            for number in (WARM_UP, options.documents):
                corpus.manifest(number).rename(Path(folder) / f"manifest-{number}.jsonl")
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.profile", f"_{options.operator}"]
        command += [options.way, str(options.documents), str(options.concurrency), folder]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        _show(pstats.Stats(f"{folder}/{PROFILE}"), options.documents, options.top, options.sort)
    return 0


def _show(stats: Any, documents: int, top: int, sort: str) -> None:
    total = sum(own for _, _, own, _, _ in stats.stats.values())
    print(f"{1000 * total / documents:.3f} ms of CPU each, with the profiler's own\n")
    print(f"{'own':>8}{'cumulative':>12}{'calls':>9}  per document or cell, ms")
    rows = [(own, cumulative, calls, each) for each, (_, calls, own, cumulative, _) in stats.stats.items()]
    rows.sort(key=lambda row: row[sort == "cumulative"], reverse=True)
    for own, cumulative, calls, function in rows[:top]:
        costs = (
            f"{1000 * own / documents:>8.4f}{1000 * cumulative / documents:>12.4f}{calls / documents:>9.2f}"
        )
        print(f"{costs}  {_name(function)}")
    print(f"\n{'own':>8}  by package")
    packages: defaultdict[str, float] = defaultdict(float)
    for package, seconds in _by_package(stats):
        packages[package] += seconds
    for package, seconds in sorted(packages.items(), key=lambda each: -each[1])[:top]:
        print(f"{1000 * seconds / documents:>8.4f}  {package}")


def _name(function: Function) -> str:
    file, line, name = function
    if file == "~":
        return name
    return f"{'/'.join(Path(file).parts[-3:])}:{line} {name}"


def _by_package(stats: Any) -> Iterator[tuple[str, float]]:
    """Yield own times by package; that of a built-in function counts where it was called."""
    for function, (_, _, own, _, callers) in stats.stats.items():
        if function[0] != "~":
            yield _package(function), own
        else:
            for caller, (_, _, own_there, _) in callers.items():
                yield _package(caller), own_there
            if not callers:
                yield "built-in", own


def _package(function: Function) -> str:
    found = ROOM.search(function[0])
    return found[1].removeprefix("site-packages/") if found else "built-in"


# -- in a process of its own


def _profile(run: Callable[[], Any], file: str) -> None:
    """Run a function, and write the profile of all its threads to a file."""
    profiles: list[cProfile.Profile] = []

    def start(*_: object) -> None:
        """Take the place of the function that `threading` sets in each new thread."""
        profile = cProfile.Profile(time.thread_time)
        profiles.append(profile)
        profile.enable()

    threading.setprofile(start)
    start()
    try:
        run()
    finally:
        profiles[0].disable()
        threading.setprofile(None)
    stats = pstats.Stats(profiles[0])
    for each in profiles[1:]:
        stats.add(each)
    stats.dump_stats(file)


def _prepare(operator: str, way: str, documents: int, concurrency: int, folder: Path) -> Way:
    output = folder / f"output-{documents}"
    output.mkdir()
    if operator == "ingest":
        return ingest.prepare(way, documents, concurrency, f"{output}/")
    manifest = folder / f"manifest-{documents}.jsonl"
    return assess.prepare(way, str(manifest), FRAMEWORKS, concurrency, f"{output}/", "r")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("_"):
        _operator, _way, _documents, _concurrency, _folder = sys.argv[1:]
        # A few before, so that imports, templates and caches do not count.
        _few, _all = (
            _prepare(_operator[1:], _way, number, int(_concurrency), Path(_folder))
            for number in (WARM_UP, int(_documents))
        )
        _few.run()
        _profile(_all.run, f"{_folder}/{PROFILE}")
    else:
        sys.exit(main(sys.argv[1:]))
