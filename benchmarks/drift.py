"""What the judge of golden documents says in many simulated nights: `python -m benchmarks.drift`.

Twelve documents, three frameworks with six criteria each, in runs of 30 nights; `--nights 1000` for a quick
look. False alarms are counted, and the nights from a change until it is named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.harness import judge, options, table
from tests.nights.assess.test_agreement import Answer, Watch, noisy, steady, undecided

NIGHTS = 30  # of a run
FIRST = 5  # night with a change


def changed(is_other: Callable[[int, int, int], bool]) -> Answer:
    """Return a judge that judges otherwise in some cases, by night, document and framework."""
    return lambda night, document, framework, criterion: (
        (steady(night, document, framework, criterion) + is_other(night, document, framework)) % 3
    )


QUIET: dict[str, tuple[float, Callable[[int], Answer]]] = {
    "errs in one answer of twenty": (0.001, partial(noisy, 0.05)),
    "tosses a coin on three documents": (0.01, undecided),
    "the same, all criteria with one coin": (0.01, partial(undecided, is_one_coin=True)),
    "tosses it on one framework of three": (0.01, partial(undecided, frameworks=1)),
    "tosses it on one criterion of three": (0.01, partial(undecided, frameworks=1, criteria=1)),
}
SLOW: dict[str, tuple[int, Answer]] = {
    "one document after the other, every third night": (
        3 * 4,
        changed(lambda night, document, _: night >= FIRST + 3 * document),
    ),
    "two of twelve on all criteria of a framework": (
        3,
        changed(lambda night, document, framework: night >= FIRST and document < 2 and not framework),
    ),
}


def main(arguments: Sequence[str] = ()) -> int:
    """Simulate and print; the result says whether the targets were met."""
    runs = options(arguments, __doc__, nights=10_000).nights // NIGHTS
    quiet, slow, targets = [], [], {}
    for what, (limit, make) in QUIET.items():
        alarms = sum(len(Watch(make(seed)).alarms(NIGHTS)) for seed in range(runs))
        quiet.append({"": what, "false alarms": alarms, "nights": runs * NIGHTS})
        targets[f"share of false alarms, {what}"] = (alarms / (runs * NIGHTS), limit)
    for what, (limit, answer) in SLOW.items():
        for wobble in (0.0, 0.05):
            found = [Watch(noisy(wobble, seed, answer)).alarms(NIGHTS) for seed in range(max(1, runs // 3))]
            late = [next((night for night in named if night >= FIRST), NIGHTS) - FIRST for named in found]
            in_time = sum(nights < limit for nights in late)
            slow.append({
                "": what, "noise": wobble, "runs": len(late), "in time": in_time, "slowest": max(late) + 1
            })  # fmt: skip
            if not wobble:
                targets[f"nights until named, {what}"] = (max(late) + 1, limit)
    table(*quiet)
    table(*slow)
    return not judge(**targets)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
