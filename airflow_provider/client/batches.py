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
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceError,
    ComplianceNotFoundError,
    ComplianceRefusedError,
    ComplianceThrottledError,
)

INITIAL_BATCH_SIZE = 100
QUICK_ANSWER_SECONDS = 1.0  # a batch that takes longer is large enough
BATCH_GROWTH_PAUSE_SECONDS = 3600.0  # after a batch has failed because of its size
SMALL_BATCH = 16  # of these are in a full one
MAX_ASKED_ALONE = 4  # of those missing in the answer to a batch; more are asked for in a batch again
TOO_LARGE = frozenset({413, 414, 431})
MALFORMED = 400
CREDENTIALS = (ComplianceAuthError, ComplianceConfigError)


@dataclass(slots=True)
class BatchLimit:
    """How many jobs go into one batch; learned, and shared by all clients of a service.

    It begins with 100, doubles with each full batch that the service answers, up to `maximum`, and returns to
    the last size that worked when a larger batch fails. A failure is remembered for an hour.

    :param maximum: never ask for more
    """

    maximum: int
    clock: Callable[[], float] = time.monotonic
    size: int = field(init=False)
    _proven: int = field(init=False)
    _grows_after: float = field(init=False, default=-math.inf)

    def __post_init__(self) -> None:
        self.size = self._proven = min(self.maximum, INITIAL_BATCH_SIZE)

    def is_trial(self, count: int) -> bool:
        """Return whether a batch of this size is larger than any that the service has answered."""
        return count > self._proven

    def on_answer(self, count: int, seconds: float) -> None:
        """Try larger batches after a full one that was answered quickly."""
        if count != self.size:
            return
        self._proven = count
        if seconds <= QUICK_ANSWER_SECONDS and self.clock() >= self._grows_after:
            self.size = min(self.maximum, 2 * count)

    def lower(self, size: int) -> None:
        """Limit batches to this size for an hour."""
        self.size = self._proven = min(self.size, size)
        self._grows_after = self.clock() + BATCH_GROWTH_PAUSE_SECONDS

    def end_trial(self) -> None:
        """Return to the size that worked: a larger batch has failed."""
        self.lower(self._proven)


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
    halved until the malformed one is alone, and the limit is lowered only if there is none. A batch that is
    larger than any before may fail in any way: then it is asked for in the size that worked.

    Many jobs that are missing in an answer are asked for again in smaller batches, because the service may
    leave out what is over its limit; a few, or those that stay missing, are asked for alone.
    """
    return (yield from _Query([uuids] if isinstance(uuids, str) else uuids, limit).run())


@dataclass(slots=True)
class _Batch:
    """Jobs to ask for in one request.

    :param missing_in: the size of the batch in whose answer they were missing
    """

    uuids: list[str]
    missing_in: int = 0

    def split_at(self, size: int) -> list[_Batch]:
        """Return the rest, and last the first ones."""
        parts = self.uuids[size:], self.uuids[:size]
        return [_Batch(part, self.missing_in) for part in parts if part]

    def halve(self) -> list[_Batch]:
        return self.split_at((len(self.uuids) + 1) // 2)


class _Query:
    """The batches of one call of `get_statuses`, the next one last, and what they have found."""

    def __init__(self, uuids: Iterable[str], limit: BatchLimit) -> None:
        self._requested = dict.fromkeys(uuids)
        self._limit = limit
        self._batches = [_Batch(list(self._requested))] if self._requested else []
        self._found: dict[str, ContentJob] = {}
        self._largest_answered = 1
        self._is_halved = False  # because of a 400
        self._is_explained = False  # by a job that was malformed or unknown
        self._malformed: ComplianceRefusedError | None = None

    def run(self) -> Flow[dict[str, ContentJob]]:
        limit = self._limit
        while self._batches:
            batch = self._batches.pop()
            if len(batch.uuids) > limit.size:
                self._batches += batch.split_at(limit.size)  # the rest later: the limit may change meanwhile
                continue
            sent_at = limit.clock()
            try:
                jobs = yield endpoints.get_batch(batch.uuids)
            except ComplianceError as error:
                if self._divide(batch, error):
                    continue
                jobs = []
            missing = self._take(batch, jobs)
            if self._ask_again(batch, missing):
                continue
            if not batch.missing_in:
                limit.on_answer(len(batch.uuids), limit.clock() - sent_at)
            for uuid in missing:
                try:
                    self._found[uuid] = yield from get_status(uuid)
                except (ComplianceNotFoundError, ComplianceRefusedError) as error:
                    self._on_refusal(error)
        if self._malformed and not self._found:
            raise self._malformed
        # The refusal of a small batch says nothing about the limit.
        is_large = self._largest_answered * SMALL_BATCH > limit.size
        if self._is_halved and not self._is_explained and is_large:
            limit.lower(self._largest_answered)
        return {uuid: self._found[uuid] for uuid in self._requested if uuid in self._found}

    def _divide(self, batch: _Batch, error: ComplianceError) -> bool:
        """Ask for a batch that failed because of its size in parts; return False if it can't be divided."""
        limit, count = self._limit, len(batch.uuids)
        if limit.is_trial(count) and not isinstance(error, CREDENTIALS):
            limit.end_trial()
            if isinstance(error, ComplianceThrottledError):
                raise error
            self._batches.append(batch)
            return True
        status = error.status if isinstance(error, ComplianceRefusedError) else None
        if status not in (MALFORMED, *TOO_LARGE) or (status in TOO_LARGE and count == 1):
            raise error
        if count == 1:
            return False
        halves = batch.halve()
        if status in TOO_LARGE:
            limit.lower(len(halves[-1].uuids))
        else:
            self._is_halved = True
        self._batches += halves
        return True

    def _take(self, batch: _Batch, jobs: list[ContentJob]) -> list[str]:
        """Take the jobs of an answer, and return the ids of those that are missing in it."""
        by_uuid = {job.uuid: job for job in jobs}
        # A service may change the case of a uuid; other ids may differ in nothing else.
        by_lower = {job.uuid.lower(): job for job in jobs if job.uuid not in self._requested}
        missing = []
        for uuid in batch.uuids:
            if job := by_uuid.get(uuid) or by_lower.get(uuid.lower()):
                self._found[uuid] = job if job.uuid == uuid else job.model_copy(update={"uuid": uuid})
            else:
                missing.append(uuid)
        self._largest_answered = max(self._largest_answered, len(batch.uuids))
        return missing

    def _ask_again(self, batch: _Batch, missing: list[str]) -> bool:
        """Ask for many that are missing in smaller batches; return False where they are to be asked alone."""
        count = len(batch.uuids)
        has_helped = len(missing) < count
        if batch.missing_in and has_helped and self._limit.is_trial(batch.missing_in):
            self._limit.end_trial()  # the larger batch was truncated
        if len(missing) <= MAX_ASKED_ALONE or (batch.missing_in and not has_helped):
            return False
        self._batches += _Batch(missing, missing_in=count).split_at((count + 1) // 2)
        return True

    def _on_refusal(self, error: ComplianceNotFoundError | ComplianceRefusedError) -> None:
        """Leave out a job that is unknown or malformed; it may be why the whole batch was refused."""
        if isinstance(error, ComplianceNotFoundError):
            self._is_explained |= self._is_halved
        elif error.status == MALFORMED:
            self._is_explained = True
            self._malformed = error
        else:
            raise error
