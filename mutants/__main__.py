"""`make mutants`: see CONTRIBUTING.md."""

from __future__ import annotations

import argparse
import ast
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mutants.mutations import Mutant, mutants_of, mutated
from mutants.running import NOT_IMPORTED, Baseline, Fork, preload, run_forked, wait_for
from mutants.targets import TARGETS, nearest_tests

HERE = Path(__file__).parent
RESULTS = Path("build/mutants")
LEAST = 90.0  # percent that must be killed
TIMEOUT_SECONDS = 900.0  # seconds for the tests without a mutant


def main(arguments: list[str]) -> int:
    """Run the mutants of some modules or all; return 1 where too many survive."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of: {', '.join(TARGETS)}")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="sample: only every Nth mutant of a module"
    )
    parser.add_argument(
        "--survivors", action="store_true", help="run again only what has survived the last run of a module"
    )
    parser.add_argument("--list", action="store_true", help="show the mutants, run nothing")
    options = parser.parse_args(arguments)
    modules: list[str] = options.modules or list(TARGETS)
    if unknown := [each for each in modules if each not in TARGETS]:
        parser.error(f"no such module: {', '.join(unknown)}")
    if options.list:
        for module in modules:
            for mutant in mutants_of(module, _source(module)):
                print(f"{module}:{mutant.line} {mutant.name}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also then the forks are ended
    RESULTS.mkdir(parents=True, exist_ok=True)
    total: Counter[str] = Counter()
    for module in modules:
        total += _run_module(module, options.jobs, options.every, options.survivors)
    return 0 if _rate("all", total) >= LEAST else 1


def _run_module(module: str, jobs: int, every: int, survivors: bool) -> Counter[str]:
    source, tests = _source(module), nearest_tests(module)
    known = tomllib.loads((HERE / "equivalent.toml").read_text()).get(module, {})
    mutants = mutants_of(module, source)
    if stale := set(known) - {each.name for each in mutants}:
        sys.exit(f"equivalent.toml names mutants of {module} that there are not: {'; '.join(sorted(stale))}")
    mutants = [each for each in mutants if each.name not in known]
    file = RESULTS / f"{module.replace('/', '-')}.txt"
    counts: Counter[str] = Counter(equivalent=len(known))
    if survivors:
        killed = {each.name for each in mutants} & names_in(file, "killed", "timed out")
        wanted = [each for each in mutants if each.name in names_in(file, "survived", "unclear")]
        counts["killed"] = len(killed)
    else:
        killed, wanted = set(), mutants[::every]
    log = file.with_suffix(".log")
    fork = wait_for(run_forked(tests, log, module), TIMEOUT_SECONDS)
    if fork.code != 0:
        sys.exit(f"The tests of {module} do not pass without a mutant: see {log}")
    baseline = Baseline.of(fork)
    preload(baseline.modules)
    begin = time.monotonic()
    earlier = [each for each in file.read_text().splitlines() if _name(each) in killed] if survivors else []
    with file.open("w") as results:
        results.writelines(f"{line}\n" for line in earlier)
        for mutant, fork, limit in _finished(wanted, source, baseline, jobs):
            if fork.code == NOT_IMPORTED:
                sys.exit(f"The tests of {module} do not import it: change targets.py.")
            outcome = {0: "survived", None: "timed out"}.get(fork.code, "killed")
            if outcome == "timed out" and not _is_fast(mutant, source, baseline, limit):
                outcome = "unclear"
            counts[outcome] += 1
            line = f"{outcome:9} {fork.seconds:6.1f} s  {module}:{mutant.line} {mutant.name}"
            results.write(f"{line}\n")
            results.flush()
            if outcome in ("survived", "unclear"):
                print(line, flush=True)
    counts["seconds"] = round(time.monotonic() - begin)
    _rate(module, counts)
    return counts


def _name(result: str) -> str:
    """Return the name of the mutant that a line of results is about."""
    return result.partition(" s  ")[2].partition(" ")[2]


def names_in(file: Path, *outcomes: str) -> set[str]:
    """Return the names of the mutants that ended so when the module was last run."""
    if not file.exists():
        sys.exit(f"There is no {file}: run without --survivors first.")
    return {_name(line) for line in file.read_text().splitlines() if line.startswith(outcomes)}


def _is_fast(mutant: Mutant, source: str, baseline: Baseline, limit: float) -> bool:
    """Whether the tests that took longer than `limit` are far faster without the mutant, just now."""
    log = RESULTS / "unmutated.log"
    fork = run_forked(baseline.tests_of(mutant.lines), log, mutant.module, ast.parse(source))
    wait_for(fork, limit)
    return fork.code == 0 and 4 * fork.seconds <= limit


def _finished(
    mutants: list[Mutant], source: str, baseline: Baseline, jobs: int
) -> Iterator[tuple[Mutant, Fork, float]]:
    waiting = list(reversed(mutants))
    running: list[tuple[Mutant, Fork, float]] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                log = RESULTS / f"mutant-{mutant.number % (2 * jobs)}.log"
                tests = baseline.tests_of(mutant.lines)
                fork = run_forked(tests, log, mutant.module, mutated(source, mutant))
                running.append((mutant, fork, 20 + 4 * sum(baseline.seconds[each] for each in tests)))
            for each in list(running):
                mutant, fork, limit = each
                if fork.is_over(limit):
                    running.remove(each)
                    yield each
            time.sleep(0.02)
    finally:
        for _, fork, _ in running:
            fork.is_over(0)


def _rate(name: str, counts: Counter[str]) -> float:
    killed = counts["killed"] + counts["timed out"]
    survived = counts["survived"] + counts["unclear"]
    count = killed + survived
    rate = 100 * killed / count if count else 100.0
    print(
        f"{name:18} {rate:5.1f} % killed: {killed} of {count} ({counts['timed out']} by time), "
        f"{survived} survived, {counts['equivalent']} equivalent; {counts['seconds']} s",
        flush=True,
    )
    return rate


def _source(module: str) -> str:
    return Path("airflow_provider", f"{module}.py").read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
