"""What the judge of golden documents says in many simulated nights: `python -m benchmarks.drift`.

Twelve documents, three frameworks with six criteria each, in runs of 30 nights; `--nights 1000` for a quick
look. False alarms are counted, and the nights from a change until it is named.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence

from tests.nights.assess.test_agreement import Answer, Watch, noisy, steady

NIGHTS = 30  # of a run
FIRST = 5  # night with a change


def undecided(tosses: Callable[[int, int, int], bool], seed: int, *, together: bool = False) -> Answer:
    """Return a judge that tosses a coin where it is undecided.

    :param tosses: by document, framework and criterion
    :param together: one coin for all criteria of a document
    """
    numbers = random.Random(seed)
    coins: dict[tuple[int, int], int] = {}

    def answer(night: int, document: int, framework: int, criterion: int) -> int:
        said = steady(night, document, framework, criterion)
        if not tosses(document, framework, criterion):
            return said
        coin = (
            coins.setdefault((night, document), numbers.randint(0, 1)) if together else numbers.randint(0, 1)
        )
        return (said + coin) % 3

    return answer


QUIET: dict[str, tuple[float, Callable[[int], Answer]]] = {
    "errs in one answer of twenty": (0.001, lambda seed: noisy(0.05, seed)),
    "tosses a coin on three documents": (0.01, lambda seed: undecided(lambda d, _f, _c: d < 3, seed)),
    "the same, all criteria with one coin": (
        0.01,
        lambda seed: undecided(lambda d, _f, _c: d < 3, seed, together=True),
    ),
    "tosses it on one framework of three": (
        0.01,
        lambda seed: undecided(lambda d, f, _c: d < 3 and not f, seed),
    ),
    "tosses it on one criterion of three": (
        0.01,
        lambda seed: undecided(lambda d, f, c: d < 3 and not f and not c, seed),
    ),
}


def one_by_one(night: int, document: int, framework: int, criterion: int) -> int:
    """Judge one document after the other otherwise, one every third night."""
    return (steady(night, document, framework, criterion) + (night >= FIRST + 3 * document)) % 3


def two_of_twelve(night: int, document: int, framework: int, criterion: int) -> int:
    """Judge two documents otherwise for ever, on all criteria of a framework."""
    return (
        steady(night, document, framework, criterion) + (night >= FIRST and document < 2 and not framework)
    ) % 3


SLOW: dict[str, tuple[int, Answer]] = {
    "one document after the other, every third night": (3 * 4, one_by_one),
    "two of twelve on all criteria of a framework": (3, two_of_twelve),
}


def main(arguments: Sequence[str] = ()) -> int:
    """Simulate and print; the result says whether the targets were met."""
    parser = argparse.ArgumentParser(description="Drift of the judge")
    parser.add_argument("--nights", type=int, default=10_000)
    runs, is_good = parser.parse_args(arguments).nights // NIGHTS, True
    for what, (limit, make) in QUIET.items():
        alarms = sum(len(Watch(make(seed)).alarms(NIGHTS)) for seed in range(runs))
        share = alarms / (runs * NIGHTS)
        is_good = is_good and share < limit
        print(
            f"{what:<50}{alarms:>6} false alarms in {runs * NIGHTS:,} nights: {share:.2%}, below {limit:.1%}"
        )
    for what, (limit, judge) in SLOW.items():
        for wobble in (0.0, 0.05):
            found = [Watch(noisy(wobble, seed, judge)).alarms(NIGHTS) for seed in range(max(1, runs // 3))]
            late = [([night for night in named if night >= FIRST] or [NIGHTS])[0] - FIRST for named in found]
            on_time = sum(nights < limit for nights in late)
            is_good = is_good and (wobble > 0 or on_time == len(late))
            print(
                f"{what:<50}{on_time:>6} of {len(late)} named within {limit} nights, the last after "
                f"{max(late) + 1}; noise {wobble:.0%}",
                flush=True,
            )
    return not is_good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
