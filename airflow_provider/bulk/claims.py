"""The claims of tasks of this host to jobs at the service, in a file that they share."""

from __future__ import annotations

import heapq
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.hooks.file_lock import PRIVATE_FILE, FileLock

log = logging.getLogger(__name__)

QUIET_SECONDS = 30.0  # without a refresh, after which a task is deferred or dead
SUBMIT_SECONDS = 300.0  # for which the submits count that such a task may have made
LOCK_SECONDS = 2.0
LOCK_RETRY_SECONDS = 0.01
INVALID = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


@dataclass
class Claim:
    """What one task has of a limit that tasks share.

    :param task: its dag, run, task and map index; no attempt, so that a retry takes it over
    :param kind: of its jobs
    :param jobs: at the service
    :param slots: for submits, besides
    :param waiting: items that wait for a slot
    :param since: when it got its last slot, or began to wait
    :param seen_at: when the task last refreshed it
    :param until: when it ends in any case
    :param checked_at: when another task last polled its jobs
    :param unknown: jobs that the service did not know then
    """

    task: list[str]
    kind: str
    jobs: list[str]
    slots: int
    waiting: int
    since: float
    seen_at: float
    until: float
    checked_at: float = 0.0
    unknown: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, value: Any) -> Claim:
        """Read one; an invalid one raises one of INVALID."""
        dag, run, task, instance = map(str, value["task"])
        return cls(
            task=[dag, run, task, instance],
            kind=str(value["kind"]),
            jobs=[*map(str, value["jobs"])],
            slots=max(0, int(value["slots"])),
            waiting=max(0, int(value["waiting"])),
            since=float(value["since"]),
            seen_at=float(value["seen_at"]),
            until=float(value["until"]),
            checked_at=float(value["checked_at"]),
            unknown=[*map(str, value["unknown"])],
        )

    def is_quiet(self, now: float) -> bool:
        """Tell whether its task is deferred or dead."""
        return abs(now - self.seen_at) > QUIET_SECONDS  # the clock may have been set back

    def size(self, now: float) -> int:
        """Return how many jobs it stands for."""
        return len(self.jobs) + (self.slots if abs(now - self.seen_at) <= SUBMIT_SECONDS else 0)


def allot(limit: int, own: Claim, others: Iterable[Claim], now: float) -> int:
    """Return how many free slots a task gets.

    A free slot goes to the task with the fewest jobs, and of those to the one that has waited longest.
    """
    others = list(others)
    free = limit - sum(each.size(now) for each in (own, *others))
    waiting = [own, *(each for each in others if not each.is_quiet(now))]
    queue = [(each.size(now), each.since, number) for number, each in enumerate(waiting) if each.waiting]
    heapq.heapify(queue)
    got = [0] * len(waiting)
    while queue and free > 0 and got[0] < own.waiting:
        size, _, number = heapq.heappop(queue)
        free -= 1
        got[number] += 1
        if got[number] < waiting[number].waiting:
            heapq.heappush(queue, (size + 1, now, number))
    return got[0]


class ClaimsFile:
    """The claims of all tasks of a connection on this host, in a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def open(self, now: float) -> Iterator[dict[str, Claim]]:
        """Lock, read, and write what was changed; without those that have ended. Blocks, for a short time."""
        with self._locked():
            claims = {key: each for key, each in self._read().items() if now <= each.until}
            yield claims
            data = json.dumps({key: asdict(each) for key, each in claims.items()}).encode()
            new = self._path.with_suffix(".new")  # written by the owner of the lock
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
            with os.fdopen(file, "wb") as target:
                target.write(data)
            new.replace(self._path)

    def _read(self) -> dict[str, Claim]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            return {key: Claim.parse(value) for key, value in json.loads(content).items()}
        except INVALID:
            log.warning("Replacing '%s', which is damaged: jobs of other tasks may not count.", self._path)
            return {}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        name = f"{self._path.stem}.lock"
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            ends_at = time.monotonic() + LOCK_SECONDS
            while (lock := FileLock.try_acquire(directory, name)) is None:
                if time.monotonic() > ends_at:  # such as by a process that is stopped
                    raise TimeoutError(f"'{self._path.with_name(name)}' is locked by another process")
                time.sleep(LOCK_RETRY_SECONDS)
        finally:
            os.close(directory)
        try:
            yield
        finally:
            lock.release()
