"""How many jobs bulk operators may have at the service: those of one task, or of all tasks of this host."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.bulk.claims import Claim, ClaimsFile, allot
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceError
from airflow_provider.hooks.runtime_directory import runtime_directory
from airflow_provider.provenance import instance_of
from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS
from airflow_provider.waiting.results import FINAL, UNKNOWN

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.settings import Settings
    from airflow_provider.waiting.kinds import JobKind
    from airflow_provider.waiting.poller import Slot
    from airflow_provider.waiting.rules import PollResult

MIN_SYNC_SECONDS = 0.1  # between two writes of a claim
WAITING_SECONDS = 1.0  # after which a task that waits looks for free slots
REFRESH_SECONDS = 10.0  # after which a task refreshes its claim
FRESH_SECONDS = 15.0  # for which a claim that was not refreshed can be used
CHECK_SECONDS = 30.0  # between two polls of the jobs of such tasks, by one task for all
EXPIRY_SECONDS = 3600.0  # after the deadline of a task
LOG_INTERVAL_SECONDS = 300.0
KINDS = {each.noun: each for each in (JOBS, ASSESSMENTS)}


@dataclass(frozen=True)
class Usage:
    """What a task has at the service, and what it would like to send.

    :param jobs: in flight
    :param sending: submits that the service may have received
    :param waiting: items that wait for a slot
    """

    jobs: list[str]
    sending: int
    waiting: int


class InFlightLimit:
    """Limits the jobs that one task has at the service.

    :param max_in_flight: never more than that
    """

    def __init__(self, max_in_flight: int) -> None:
        self.max_in_flight = max_in_flight

    @property
    def allowed(self) -> int:
        """How many jobs the task may have in flight now, including submits."""
        return self.max_in_flight

    @property
    def reason(self) -> str:
        """Why items wait."""
        return f"max_in_flight of the connection is {self.max_in_flight}"

    def on_change(self, in_flight: int, waiting: int) -> None:
        """Record how many jobs and submits there are now, and how many items wait."""

    async def run(
        self,
        usage: Callable[[], Usage],
        on_allowed: Callable[[], None],
        kind: JobKind,
        client: AsyncComplianceClient,
        slot: Slot,
    ) -> None:
        """Share the limit with other tasks, forever; nothing to do where it is not shared.

        :param on_allowed: called when `allowed` may have changed
        :param kind: of the jobs
        :param slot: limits the requests in flight
        """

    async def close(self, jobs: list[str]) -> None:
        """Leave the jobs to the next attempt, or to the time after a deferral."""


class SharedInFlightLimit(InFlightLimit):
    """Limits the jobs of all tasks of a connection on this host.

    A task adds jobs only after it has claimed slots for them. The claim stays while the task is deferred, and
    after it has died, because its jobs are at the service: a task that waits polls such jobs, so that those
    that have ended count no longer.

    :param task: dag, run, task and what distinguishes the instances of the task
    :param until: the deadline of the task, in seconds since the epoch
    :param log: of the task
    """

    def __init__(
        self,
        max_in_flight: int,
        file: ClaimsFile,
        task: list[str],
        until: float,
        log: Any,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(max_in_flight)
        self._file = file
        self._task = task
        self._until = until + EXPIRY_SECONDS
        self._log = log
        self._clock = clock
        self._kind = JOBS.noun
        self._claimed = 0
        self._claimed_at = -math.inf
        self._in_flight = self._waiting = 0
        self._ended_jobs = 0  # since the claim was written
        self._others_wait = False
        self._others: list[Claim] = []
        self._changed = asyncio.Event()
        self._has_failed = False
        self._stuck_since: float | None = None
        self._logged_at = -LOG_INTERVAL_SECONDS
        self._to_check: list[Claim] = []
        self._results: dict[str, str] = {}  # the status of jobs of others
        self._check: asyncio.Task[None] | None = None

    @property
    def allowed(self) -> int:
        """How many jobs the task may have in flight now; slots of ended jobs go to others, if those wait."""
        if self._clock() - self._claimed_at > FRESH_SECONDS:
            return 0  # others may have taken slots of jobs that have ended
        return self._claimed - (self._ended_jobs if self._others_wait else 0)

    @property
    def reason(self) -> str:
        """Why items wait."""
        count = sum(each.size(self._clock()) for each in self._others)
        return f"{super().reason}, and other tasks of this host have {count} jobs at the service"

    def on_change(self, in_flight: int, waiting: int) -> None:
        """Record how many jobs and submits there are now, and how many items wait."""
        if (in_flight, waiting) != (self._in_flight, self._waiting):
            self._ended_jobs += max(0, self._in_flight - in_flight)
            self._in_flight, self._waiting = in_flight, waiting
            self._changed.set()

    async def run(
        self,
        usage: Callable[[], Usage],
        on_allowed: Callable[[], None],
        kind: JobKind,
        client: AsyncComplianceClient,
        slot: Slot,
    ) -> None:
        """Claim slots, and refresh the claim, forever."""
        self._kind = kind.noun
        try:
            while True:
                self._changed.clear()
                await self._claim(usage())
                on_allowed()
                if self._to_check and (self._check is None or self._check.done()):
                    self._check = asyncio.create_task(self._poll_quiet(client, slot))
                is_waiting = usage().waiting > 0
                self._log_wait(is_waiting and not self._in_flight)
                with suppress(TimeoutError):
                    async with asyncio.timeout(WAITING_SECONDS if is_waiting else REFRESH_SECONDS):
                        await self._changed.wait()
                await asyncio.sleep(MIN_SYNC_SECONDS)
        finally:
            if self._check:
                self._check.cancel()

    async def close(self, jobs: list[str]) -> None:
        """Keep the claim for these jobs; without any, remove it."""
        await self._claim(Usage(jobs, 0, 0))

    async def _claim(self, usage: Usage) -> None:
        held, before = len(usage.jobs) + usage.sending, self.allowed
        # Until the claim is written, nothing is added.
        self._claimed, self._in_flight, self._ended_jobs = held, held, 0
        try:
            granted = await in_thread(self._exchange, usage)
        except OSError as error:
            granted = max(0, before - held)
            if not self._has_failed:
                self._log.warning("Could not write the claim of this task, retrying: %s", error)
            self._has_failed = True
        else:
            self._has_failed, self._claimed_at = False, self._clock()
        self._claimed = held + granted

    def _exchange(self, usage: Usage) -> int:
        """Write our claim, and read those of others; return how many slots we have got."""
        now, key = self._clock(), json.dumps(self._task)
        with self._file.open(now) as claims:
            before = claims.pop(key, None)
            self._update_quiet(claims, now, is_waiting=usage.waiting > 0)
            since = before.since if before and before.waiting else now
            own = Claim(
                self._task, self._kind, usage.jobs, usage.sending, usage.waiting, since, now, self._until
            )
            granted = allot(self.max_in_flight, own, claims.values(), now)
            self._others = list(claims.values())
            self._others_wait = any(each.waiting and not each.is_quiet(now) for each in self._others)
            if granted:
                own.slots, own.waiting, own.since = own.slots + granted, own.waiting - granted, now
            if usage.jobs or usage.sending or usage.waiting:
                claims[key] = own
        return granted

    def _update_quiet(self, claims: dict[str, Claim], now: float, *, is_waiting: bool) -> None:
        """Remove jobs that have ended, and claims of which nothing is left; choose what to poll next."""
        results, self._results = self._results, {}
        self._to_check = []
        for key, each in list(claims.items()):
            if not each.is_quiet(now):
                continue
            found = {job: results[job] for job in each.jobs if job in results}
            unknown = {job for job, status in found.items() if status == UNKNOWN}
            ended = {job for job, status in found.items() if status in FINAL} - unknown
            ended |= unknown.intersection(each.unknown)  # twice in a row: it is gone
            each.jobs = [job for job in each.jobs if job not in ended]
            if found:
                each.unknown = sorted(unknown - ended)
            if not each.size(now):
                del claims[key]
            elif is_waiting and each.jobs and abs(now - each.checked_at) >= CHECK_SECONDS:
                each.checked_at = now
                self._to_check.append(each)

    async def _poll_quiet(self, client: AsyncComplianceClient, slot: Slot) -> None:
        """Poll the jobs of tasks that are deferred or dead: nobody else on this host sees them end."""
        found: dict[str, PollResult] = {}
        for each in self._to_check:
            if kind := KINDS.get(each.kind):
                try:
                    async with slot():
                        await kind.poll(client, each.jobs, found.__setitem__)
                except Exception as error:  # whatever it is: another check comes soon
                    self._log.debug("Could not poll the jobs of other tasks: %s", error)
        self._results = {
            job: str(result["status"])
            for job, result in found.items()
            if not isinstance(result, ComplianceError)
        }
        self._changed.set()

    def _log_wait(self, is_stuck: bool) -> None:
        now = self._clock()
        if not is_stuck:
            self._stuck_since = None
            return
        if self._stuck_since is None:
            self._stuck_since = now
        if now - self._stuck_since >= REFRESH_SECONDS and now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            tasks = sorted({f"{each.task[0]}.{each.task[2]}" for each in self._others})
            self._log.info("Waiting to submit: %s (%s).", self.reason, ", ".join(tasks))


def make_limit(settings: Settings, ti: Any, until: float, log: Any) -> InFlightLimit | None:
    """Return the limit of a connection, None if it has none.

    :param ti: the task instance
    :param until: its deadline, in seconds since the epoch
    """
    if settings.max_in_flight is None:
        return None
    directory = runtime_directory() if settings.share_tokens else None
    if directory is None:
        return InFlightLimit(settings.max_in_flight)
    file = ClaimsFile(directory / f"in-flight-{settings.account_digest}.json")
    task = [ti.dag_id, ti.run_id, ti.task_id, str(instance_of(ti))]
    return SharedInFlightLimit(settings.max_in_flight, file, task, until, log)
