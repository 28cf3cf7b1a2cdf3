"""The progress of a bulk task and its end: progress in the log, missing rows, too many failures."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, FailureKind
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, SKIPPED, Item, ItemState
from airflow_provider.redaction.text import generalize
from airflow_provider.runtime import metrics
from airflow_provider.runtime.non_retryable import as_non_retryable
from airflow_provider.runtime.params import MaxFailed, MaxFailedByGroup, count_allowed

LOG_INTERVAL_SECONDS = 10.0
MIN_MANY = 4  # failures: as many, and more than half of all, are not about single items
WAVE_SECONDS = 1.0  # in which retries are logged together
MAX_FAILURES_SHOWN = 5  # reasons, or items


class Counts(Counter[ItemState]):
    """How many items are in which state."""

    @property
    def done(self) -> int:
        """How many are in a final state."""
        return self[COMPLETED] + self[FAILED] + self[SKIPPED]


class Progress:
    """Reports progress: a line in the log every few seconds.

    :param noun: what the items are, in the plural
    """

    def __init__(self, counts: Counts, total: int, noun: str, log: Any) -> None:
        self._counts = counts
        self._total = total
        self._noun = noun
        self._log = log
        self._since = time.monotonic()
        self._done_before = counts.done

    async def run(self) -> None:
        """Report until this is cancelled."""
        while True:
            await asyncio.sleep(LOG_INTERVAL_SECONDS)
            self._log.info("%s", self.line())

    def line(self) -> str:
        """Return the progress as one line."""
        counts, done = self._counts, self._counts.done
        rate = (done - self._done_before) / max(time.monotonic() - self._since, 0.001)
        seconds = (self._total - done) / rate if rate else 0
        return (
            f"{done:,} of {self._total:,} {self._noun}: {counts[COMPLETED]:,} completed, "
            f"{counts[FAILED]:,} failed, {counts[SKIPPED]:,} skipped; {rate:.1f}/s"
            f"{f', about {format_duration(seconds)} left' if seconds else ''}"
        )


class RetryLog:
    """Logs retries in waves: one line for all items that meet the same error at about the same time.

    :param noun: what the items are, in the plural
    """

    def __init__(self, noun: str, log: Any) -> None:
        self._noun = noun
        self._log = log
        self._waves: dict[tuple[str, str], dict[str, Item]] = {}

    def add(self, item: Item, delay: float) -> None:
        """Log soon that an item is retried after a delay, because of its last error."""
        if not self._waves:
            asyncio.get_running_loop().call_later(WAVE_SECONDS, self.flush)
        self._waves.setdefault((f"{delay:.0f} s", _generalize(item, item.last_error)), {})[item.key] = item

    def flush(self) -> None:
        """Log the additions."""
        for (delay, _), wave in self._waves.items():
            item, more = next(iter(wave.values())), len(wave) - 1
            what = f"'{item.label}' and {more:,} more {self._noun}" if more else f"'{item.label}'"
            self._log.warning("Retrying %s in %s: %s", what, delay, item.last_error)
        self._waves.clear()


def format_duration(seconds: float) -> str:
    """Return a number of seconds for a sentence."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def check_rows(
    items: Sequence[Item], keys: Sequence[str], error_type: type[ComplianceError], *others: str
) -> None:
    """Raise if something is wrong with the rows, before anything is called a success.

    :param others: what else is wrong
    """
    problems = list(others)
    if Counter(item.key for item in items) != Counter(keys):
        problems.append(f"there are {len(items)} rows for {len(keys)} items, or rows of other items")
    if unfinished := [item.label for item in items if not item.state.is_final]:
        problems.append(f"{len(unfinished)} are not finished, such as '{unfinished[0]}'")
    if problems:
        raise error_type(
            f"The rows of this task are inconsistent: {'; '.join(problems)}. Nothing was published. Clear it "
            "to resume; if that does not help, remove its folder below _work/, and report this bug."
        )


def are_most(failed: int, total: int) -> bool:
    """Return whether so many of all failed that it is not about single ones."""
    return failed >= MIN_MANY and 2 * failed > total


def find_damaged(items: Collection[Item]) -> Set[str]:
    """Return the keys of failed items that the service could not process twice, unless these are most."""
    damaged = {item.key for item in items if item.state is FAILED and item.is_damaged}
    return frozenset() if are_most(len(damaged), len(items)) else damaged


def check_failures(
    items: Sequence[Item],
    max_failed: MaxFailed | MaxFailedByGroup,
    report: object,
    noun: str,
    error_type: type[ComplianceError],
    log: Any,
) -> None:
    """Fail the task if too many items failed; without retries if too many failures are permanent.

    :param max_failed: for all, or by group of failure kinds
    :param report: its address
    :param noun: what the items are, in the plural
    :param error_type: what to raise
    """
    failed = [item for item in items if item.state is FAILED]
    if not failed:
        return
    groups: dict[str, list[Item]] = {}
    for item in failed:
        groups.setdefault(_generalize(item, item.error), []).append(item)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    reasons = [_describe_failures(noun, *group) for group in largest[:MAX_FAILURES_SHOWN]]
    if more := sum(len(group) for _, group in largest[MAX_FAILURES_SHOWN:]):
        reasons.append(f"And {more:,} more.")
    summary = f"{len(failed)} of {len(items)} {noun} failed"
    if isinstance(max_failed, Mapping):
        by_group = sorted(Counter(map(_group, failed)).items())
        summary += f" ({', '.join(f'{group}: {number:,}' for group, number in by_group)})"
        may = "as many"
    else:
        may = f"up to {int(count_allowed(max_failed, len(items))):,}"
    if not _are_too_many(failed, max_failed, len(items)):
        # A line for each: Airflow's log view does not wrap lines.
        for line in (f"{summary}; {may} may (max_failed={max_failed}).", *reasons, f"Report: {report}"):
            log.warning("%s", line)
        return
    error = error_type(
        f"{summary}, more than max_failed={max_failed} allows. {' '.join(reasons)} "
        f"The others are written. Report: {report}"
    )
    damaged = find_damaged(items)
    permanent = [item for item in failed if item.is_permanent_failure or item.key in damaged]
    raise as_non_retryable(error) if _are_too_many(permanent, max_failed, len(items)) else error


def _are_too_many(failed: Sequence[Item], max_failed: MaxFailed | MaxFailedByGroup, total: int) -> bool:
    """Return whether more failed than may, of all or of a group."""
    if not isinstance(max_failed, Mapping):
        return len(failed) > count_allowed(max_failed, total)
    by_group = Counter(map(_group, failed))
    return any(by_group[group] > count_allowed(max_failed.get(group, 0), total) for group in by_group)


def _group(item: Item) -> str:
    return (item.failure_kind or FailureKind.UNEXPECTED).group


def count_failure_kinds(conn_id: str, items: Iterable[Item]) -> None:
    """Count failed items by kind, in metrics."""
    for kind, number in Counter(item.failure_kind for item in items if item.state is FAILED).items():
        metrics.count(metrics.FAILURES, conn_id, number, failure_kind=kind or FailureKind.UNEXPECTED)


def _generalize(item: Item, error: str) -> str:
    """Return an error without the parts that are specific to an item, to group items by it."""
    return generalize(error.replace(f"'{item.label}'", "'…'"))


def _describe_failures(noun: str, reason: str, failed: Sequence[Item]) -> str:
    """Return a sentence on items that failed for the same reason, with the name of the first."""
    first = f"'{failed[0].label}'"
    if len(failed) == 1:
        error = failed[0].error.removesuffix(".")
        return f"{error}." if first in error else f"{first}: {error}."
    return f"{len(failed):,} {noun}, such as {first}: {reason.removesuffix('.')}."


def check_budget(
    limit: MaxFailed, number: int, total: int, noun: str, explain: Callable[[], Iterable[str]]
) -> None:
    """Raise if more would be submitted than allowed.

    :param number: how many of the total would be submitted
    :param noun: their noun, in the plural
    :param explain: yields why, in sentences; called only to raise
    """
    if number <= count_allowed(limit, total):
        return
    raise ComplianceInputError(
        f"{number:,} of {total:,} {noun} would be submitted, more than max_submitted={limit} allows, so none "
        f"was. {' '.join(explain())} If that is right, allow it for one run: see max_submitted in the docs."
    )
