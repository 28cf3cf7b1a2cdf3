"""How long to wait for jobs, and how: in a triggerer, or in the worker if the task is not deferred."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider.exceptions import ComplianceError
from airflow_provider.runtime.event_loop import EventLoop
from airflow_provider.waiting import rules
from airflow_provider.waiting.refusals import outlast_refusals
from airflow_provider.waiting.results import UNKNOWN, Record, WaitResult
from airflow_provider.waiting.rules import LOG_INTERVAL_SECONDS, Accepts, accept_any, accept_final

if TYPE_CHECKING:
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.waiting.kinds import JobKind
    from airflow_provider.waiting.poller import Subscription, Update


CANCEL_CONCURRENCY = 8
CLOCK_CHECK_SECONDS = 30.0  # between looks at the clock of the service
CLOCK_TOLERANCE_SECONDS = 30.0  # for the service's clock, if nothing waited as long yet
CANCEL_SECONDS = 25.0  # for all cancels of a killed wait: Airflow ends a killed worker after 60
STOP_SECONDS = 10.0  # before Airflow stops a task by its `execution_timeout`, to end it in order
EVENT_GRACE_SECONDS = 120.0  # after our own deadline, for the trigger's event to arrive


class Deadline(NamedTuple):
    """How long a task may wait: a duration, because the clocks of workers and triggerers may differ.

    :param name: the parameter that sets it: `timeout` or `execution_timeout`
    :param seconds: from now on; 0 where the wait is over
    """

    name: str
    seconds: float = 0.0

    @classmethod
    def for_task(cls, context: Any, timeout: float, execution_timeout: timedelta | None) -> Deadline:
        """Take the earlier of our timeout and Airflow's, which does not count while a task is deferred."""
        own = cls("timeout", timeout)
        if execution_timeout is None:
            return own
        started, seconds = context["ti"].start_date, execution_timeout.total_seconds()
        passed = max(0.0, time.time() - started.timestamp()) if started else 0.0
        airflows = cls("execution_timeout", max(0.0, seconds - passed - min(STOP_SECONDS, seconds / 10)))
        return min(own, airflows, key=lambda deadline: deadline.seconds)

    @property
    def at(self) -> float:
        """When it is, by the clock of this machine, in seconds since the epoch."""
        return time.time() + self.seconds

    @property
    def trigger_timeout(self) -> timedelta:
        """After what time Airflow gives up the trigger by itself, for instance where no triggerer runs."""
        return timedelta(seconds=max(0.0, self.seconds) + EVENT_GRACE_SECONDS)

    def timeout_error(self, error: ComplianceError) -> BaseException:
        """Return what to raise after the deadline: for Airflow's timeout the same as when not deferred."""
        if self.name != "execution_timeout":
            return error
        advice = (
            "That is the execution_timeout of the task: if it is too short for the work, set a longer one."
        )
        return AirflowTaskTimeout(f"{error} {advice}")


async def wait(
    kind: JobKind,
    hook: ComplianceHook,
    ids: Collection[str],
    poll_interval: float,
    seconds: float,
    log: Any,
    *,
    accepts: Accepts = accept_final,
    enough: int | None = None,
    poll_first: bool = False,
    account: str = "",
    began_at: float = 0.0,
) -> WaitResult:
    """Wait until all are in a final state, or until the time is over.

    :param seconds: how long to wait, by the monotonic clock of this process; the last poll comes after that
    :param accepts: whether a record ends the wait for a job
    :param enough: for how many to wait; by default for all, and then an error of a single job also ends the
        wait
    :param poll_first: poll at once, not when others are polled
    :param account: the account of the jobs; by default the connection's
    :param began_at: when the wait began by the clock of the service, perhaps in a process that ended;
        0 if that is not known
    """
    from airflow_provider.waiting.poller import Subscription  # not needed to parse a DAG

    since = logged_at = time.monotonic()
    ended: dict[str, Record] = {}
    pending = dict.fromkeys(ids)  # a set that keeps the order
    count = len(pending)
    tolerates_errors = enough is not None
    enough = count if enough is None else min(enough, count)
    async with Subscription(hook, kind, pending.keys(), poll_interval, accepts, account=account) as updates:

        def elapsed() -> float:
            """Return how long this waited, including the time before a restart of the triggerer."""
            clock, passed = updates.poller.clock, time.monotonic() - since
            if began_at and clock and clock.is_known:
                passed = max(passed, clock.now() - began_at - CLOCK_TOLERANCE_SECONDS)
            return passed

        while len(ended) < enough:
            found: list[Update] = []
            remaining = seconds - elapsed()
            is_last = remaining <= 0
            if is_last or poll_first:
                found = await updates.poll_now(pending)
                poll_first = False
            else:
                try:
                    async with asyncio.timeout(min(CLOCK_CHECK_SECONDS, remaining)):
                        found = [await updates.get()]
                except TimeoutError:
                    now = time.monotonic()
                    if now - logged_at >= LOG_INTERVAL_SECONDS and seconds > elapsed():
                        logged_at = now
                        error = _last_error(updates, pending)
                        why = f" The last poll failed: {error}" if error else ""
                        log.log(logging.WARNING if error else logging.INFO,
                                "Still waiting for %s of %s %ss after %.0f s.%s",
                                len(pending), count, kind.noun, elapsed(), why)  # fmt: skip
            for identifier, update in found:
                del pending[identifier]
                if not isinstance(update, Exception):
                    ended[identifier] = update
                elif tolerates_errors and getattr(update, "concerns_one_job", False):
                    ended[identifier] = {kind.id_name: identifier, "status": UNKNOWN}
                else:
                    transient = getattr(update, "transient", True)
                    return WaitResult("error", ended, elapsed(), str(update), transient)
            if is_last and len(ended) < enough:
                result = WaitResult("timeout", ended, elapsed(), pending=list(pending))
                if error := _last_error(updates, pending):
                    result.message, result.transient = str(error), error.transient
                return result
        return WaitResult("success", ended, elapsed())


def _last_error(updates: Subscription, pending: Iterable[str]) -> ComplianceError | None:
    last = map(updates.poller.last_result, pending)
    return next((update for update in last if isinstance(update, ComplianceError)), None)


def wait_in_worker(
    kind: JobKind,
    hook: ComplianceHook,
    ids: Collection[str],
    poll_interval: float,
    seconds: float,
    log: Any,
    accepts: Accepts = accept_final,
) -> WaitResult:
    """Wait in an event loop of its own."""
    try:
        account = hook.account_digest  # asks Airflow for the connection: here, not in another thread
    except ComplianceError as error:
        return WaitResult("error", message=str(error), transient=error.transient)
    work = wait(
        kind, hook, ids, poll_interval, seconds, log, accepts=accepts, poll_first=True, account=account
    )
    return EventLoop(threads=2).run(work)


def status_in_worker(kind: JobKind, hook: ComplianceHook, identifier: str, log: Any) -> str | None:
    """Return the status of one, which is unknown only after a while; None if it can't be polled."""
    record = poll_in_worker(kind, hook, [identifier], log).records.get(identifier, {})
    return record.get("status")


def poll_in_worker(kind: JobKind, hook: ComplianceHook, ids: Collection[str], log: Any) -> WaitResult:
    """Return the state of each, final or not; failing polls and unknown jobs are polled again."""
    result = wait_in_worker(kind, hook, ids, 1.0, rules.OUTAGE_SECONDS, log, accept_any)
    if result.status == "timeout":
        why = rules.outage_message(result.seconds, result.message)
        return WaitResult("error", result.records, result.seconds, why, transient=True)
    return result


async def cancel(
    kind: JobKind,
    hook: ComplianceHook,
    ids: Collection[str],
    log: Any,
    account: str = "",
) -> dict[str, Record]:
    """Cancel ids in flight; return the records of finished ones.

    :param account: the account of the jobs; at another service, other jobs may have these ids
    """
    ends_at = asyncio.get_running_loop().time() + CANCEL_SECONDS
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            connection = await hook.get_async_conn(max_retries=2)
        if account and connection.settings.account_digest != account:
            error = f"Connection '{hook.conn_id}' leads to another service or account now."
            kind.warn_left([*ids], [error], log)
            return {}
        async with connection as client:
            seconds = ends_at - asyncio.get_running_loop().time()
            done = await kind.cancel_in_flight(client, [*ids], CANCEL_CONCURRENCY, log, seconds)
    except (ComplianceError, TimeoutError) as error:
        kind.warn_left([*ids], [str(error) or f"Timed out after {CANCEL_SECONDS:.0f} s."], log)
        return {}
    return {identifier: record for identifier, record in done.items() if record}


def cancel_in_worker(
    kind: JobKind, hook: ComplianceHook, identifier: str, log: Any, account: str = ""
) -> Record | None:
    """Cancel a job if it is in flight; return its record if it ended.

    :param account: see `cancel`
    """
    with suppress(ComplianceError):  # `cancel` reports it
        hook.get_conn()  # asks Airflow for the connection: here, not in another thread
    return EventLoop(threads=2).run(cancel(kind, hook, [identifier], log, account)).get(identifier)


def delete_in_worker(kind: JobKind, hook: ComplianceHook, identifier: str, log: Any) -> bool:
    """Cancel and delete one, in any state; return False if it was gone already.

    Only the service itself decides that: a refusal, such as the 404 of a gateway, is outlasted.
    """
    hook.get_conn()  # asks Airflow for the connection: here, not in another thread

    async def delete() -> bool:
        async with await hook.get_async_conn() as client:
            return await outlast_refusals(lambda: kind.delete(client, identifier), client, log)

    return EventLoop(threads=2).run(delete())
