"""The status of many jobs, in batches of a size that the service takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from airflow_provider.client import endpoints
from airflow_provider.client.endpoints import Flow
from airflow_provider.client.models import ContentJob
from airflow_provider.client.responses import UnconfirmedRedirectError
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceNotFoundError,
    ComplianceRefusedError,
)

LOWER_SECONDS = 3600.0  # after a batch was refused because of its size
SMALL_BATCH = 16  # a full one has as many of these
MAX_SINGLE_REQUESTS = 4  # jobs missing in a batch response; more are requested in a batch again
TOO_LARGE = frozenset({413, 414, 431})
MALFORMED = 400


@dataclass(slots=True)
class BatchLimit:
    """How many jobs go into one batch; shared by all clients of a service.

    :param maximum: never ask for more
    """

    maximum: int
    clock: Callable[[], float] = time.monotonic
    _lowered: int = field(init=False, default=0)
    _lowered_until: float = field(init=False, default=-math.inf)

    @property
    def size(self) -> int:
        """The maximum; less for an hour after the service refused a batch because of its size."""
        return self._lowered if self.clock() < self._lowered_until else self.maximum

    def lower(self, size: int) -> None:
        """Limit batches to this size for an hour."""
        self._lowered, self._lowered_until = min(self.size, size), self.clock() + LOWER_SECONDS


def get_status(uuid: str) -> Flow[ContentJob]:
    """Get the status of one job; a batch of one confirms a redirect that does not name the job."""
    try:
        return cast("ContentJob", (yield endpoints.get_status(uuid)))
    except UnconfirmedRedirectError as error:
        jobs: list[ContentJob] = yield endpoints.get_batch([uuid])
        if not jobs:
            raise error from None
        return jobs[0].model_copy(update={"uuid": uuid})


def get_statuses(uuids: Iterable[str], limit: BatchLimit) -> Flow[dict[str, ContentJob]]:
    """Get the status of any number of jobs; unknown ones are absent from the result.

    413 means that a batch is too large. 400 may mean the same, or that one uuid is malformed: the batch is
    halved until the malformed uuid is alone, and the limit is lowered only if no uuid is malformed.

    Many jobs that are missing in an answer are asked for again in smaller batches, because the service may
    leave out ids beyond its limit; a few ids, or ids that stay missing, are requested alone.
    """
    return (yield from _Query([uuids] if isinstance(uuids, str) else uuids, limit).run())


class _Query:
    """Uuids that a call of `get_statuses` still has to request, the next batch last, and records found."""

    def __init__(self, uuids: Iterable[str], limit: BatchLimit) -> None:
        self._requested = dict.fromkeys(uuids)
        self._limit = limit
        self._batches: list[tuple[list[str], bool]] = []  # with whether they were missing in an answer
        self._found: dict[str, ContentJob] = {}
        self._largest_answered = 1
        self._is_halved = False  # because of a 400
        self._is_explained = False  # by a job that was malformed or unknown

    def run(self) -> Flow[dict[str, ContentJob]]:
        limit = self._limit
        malformed: ComplianceRefusedError | None = None
        self._add(list(self._requested), len(self._requested))
        while self._batches:
            uuids, is_repeat = self._batches.pop()
            count = len(uuids)
            if count > limit.size:
                self._add(uuids, limit.size, is_repeat=is_repeat)  # the limit may change before the rest
                continue
            try:
                jobs = yield endpoints.get_batch(uuids)
            except ComplianceError as error:
                if self._divide(uuids, error, is_repeat=is_repeat):
                    continue
                jobs = []
            missing = self._take(uuids, jobs)
            if len(missing) > MAX_SINGLE_REQUESTS and (len(missing) < count or not is_repeat):
                self._add(missing, (count + 1) // 2, is_repeat=True)
                continue
            for uuid in missing:
                try:
                    self._found[uuid] = yield from get_status(uuid)
                except ComplianceNotFoundError:
                    self._is_explained = True
                except ComplianceRefusedError as error:
                    if error.status != MALFORMED:
                        raise
                    self._is_explained, malformed = True, error
        if malformed and not self._found:
            raise malformed
        # The refusal of a small batch says nothing about the limit.
        is_large = self._largest_answered * SMALL_BATCH > limit.size
        if self._is_halved and not self._is_explained and is_large:
            limit.lower(self._largest_answered)
        return {uuid: self._found[uuid] for uuid in self._requested if uuid in self._found}

    def _add(self, uuids: list[str], size: int, *, is_repeat: bool = False) -> None:
        """Add a batch of this size, which is the next, and one of the rest."""
        self._batches += [(part, is_repeat) for part in (uuids[size:], uuids[:size]) if part]

    def _divide(self, uuids: list[str], error: ComplianceError, *, is_repeat: bool) -> bool:
        """Ask for a batch that failed because of its size in parts; return False if it can't be divided."""
        count = len(uuids)
        half = (count + 1) // 2
        status = error.status if isinstance(error, ComplianceRefusedError) else None
        if status in TOO_LARGE and count > 1:
            self._limit.lower(half)
        elif status == MALFORMED:
            self._is_halved |= count > 1
        else:
            raise error
        if count > 1:
            self._add(uuids, half, is_repeat=is_repeat)
        return count > 1

    def _take(self, uuids: list[str], jobs: list[ContentJob]) -> list[str]:
        """Take the jobs of an answer, and return the ids missing in it."""
        by_uuid = {job.uuid: job for job in jobs}
        # A service may change the case of a uuid; other ids may differ in nothing else.
        by_lower = {job.uuid.lower(): job for job in jobs if job.uuid not in self._requested}
        missing = []
        for uuid in uuids:
            if job := by_uuid.get(uuid) or by_lower.get(uuid.lower()):
                self._found[uuid] = job if job.uuid == uuid else job.model_copy(update={"uuid": uuid})
            else:
                missing.append(uuid)
        self._largest_answered = max(self._largest_answered, len(uuids))
        return missing
