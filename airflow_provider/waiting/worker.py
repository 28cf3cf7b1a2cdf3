"""Waiting in the worker, for tasks that are not deferred."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import ComplianceError
from airflow_provider.waiting import rules
from airflow_provider.waiting.results import FINAL, UNKNOWN, Countdown, Record, WaitResult
from airflow_provider.waiting.rules import (
    LOG_INTERVAL_SECONDS,
    Accepts,
    PollState,
    have_credentials_worked,
    is_refusal,
    may_cancel,
)

if TYPE_CHECKING:
    from airflow_provider.hooks.compliance import ComplianceHook
    from airflow_provider.waiting.kinds import JobKind
    from airflow_provider.waiting.rules import PollResult


class WorkerWait:
    """Polls jobs or assessments from the worker, by the rules of `waiting.rules`.

    :param ended: the records of what is in a final state, by id
    :param fatal_error: what ends the wait
    :param last_error: why the last poll failed, if it did
    """

    def __init__(
        self,
        kind: JobKind,
        hook: ComplianceHook,
        ids: Iterable[str],
        poll_interval: float,
        log: Any,
        accepts: Accepts | None = None,
    ) -> None:
        self.since = time.monotonic()
        self.ended: dict[str, Record] = {}
        self.fatal_error: ComplianceError | None = None
        self.last_error: ComplianceError | None = None
        self._kind = kind
        self._hook = hook
        self._has_worked = False
        self._log = log
        self._accepts = accepts or _is_final
        self._states = {each: PollState(each, self.since, poll_interval) for each in ids}

    @property
    def pending(self) -> list[str]:
        """The ids of what is not in a final state."""
        return list(self._states)

    @property
    def has_unknown(self) -> bool:
        """Some are unknown to the service, but not for long enough to believe it."""
        return any(each.unknown_since is not None for each in self._states.values())

    def poll(self, everything: bool = False) -> float:
        """Poll what is due, or everything; return how many seconds to pause."""
        now = time.monotonic()
        due = [each.id for each in self._states.values() if everything or each.next_poll_at <= now]
        self.last_error = None
        self._kind.poll_sync(self._hook, due, self._on_result)
        is_new = False
        if self.last_error:
            self._log.warning("Polling failed, will retry: %s", self.last_error)
            is_new = is_refusal(self.last_error) and self._reconnect()
        now, pace = time.monotonic(), self._kind.pace(len(self._states))
        for each in due:
            if state := self._states.get(each):
                state.schedule(now, pace)
                if is_new:
                    state.next_poll_at = now
        return max(0.0, min((each.next_poll_at for each in self._states.values()), default=now) - now)

    def _on_result(self, identifier: str, found: PollResult) -> None:
        state, now = self._states[identifier], time.monotonic()
        ended = state.observe(found, now, self._have_credentials_worked())
        if isinstance(found, ComplianceError):
            self.last_error = found
            if isinstance(ended, ComplianceError):
                self.fatal_error = ended
        elif (ended is not None or found["status"] != UNKNOWN) and self._accepts(identifier, found, now):
            self.ended[identifier] = found
            del self._states[identifier]

    def _have_credentials_worked(self) -> bool:
        with suppress(ComplianceError):  # the connection can't be used
            self._has_worked = self._has_worked or have_credentials_worked(self._hook.get_conn())
        return self._has_worked

    def _reconnect(self) -> bool:
        """Read the connection again; tell whether it has changed, and use it from now on if so."""
        hook = type(self._hook)(self._hook.conn_id)
        try:
            if hook.get_conn().settings == self._hook.get_conn().settings:
                return False
        except Exception:
            # Of Airflow or a secrets backend, too: what matters is the error of the poll.
            self._log.debug("The connection can't be read again.", exc_info=True)
            return False
        self._log.info("The connection '%s' has changed: using the new one.", hook.conn_id)
        self._hook, self.fatal_error = hook, None
        return True


def wait_in_worker(
    kind: JobKind,
    hook: ComplianceHook,
    ids: Iterable[str],
    poll_interval: float,
    deadline: float,
    log: Any,
    accepts: Accepts | None = None,
) -> WaitResult:
    """Wait until all are in a final state, or until the deadline.

    :param deadline: seconds since the epoch; the last poll comes after it
    :param accepts: whether a record ends the wait; by default one of a final state does
    """
    countdown = Countdown(deadline)
    wait = WorkerWait(kind, hook, ids, poll_interval, log, accepts)
    logged_at = wait.since
    while True:
        is_last = countdown.remaining() <= 0
        pause = wait.poll(everything=is_last)
        now = time.monotonic()
        if wait.fatal_error:
            error = wait.fatal_error
            return WaitResult("error", wait.ended, now - wait.since, str(error), error.transient)
        if not wait.pending:
            return WaitResult("success", wait.ended, now - wait.since)
        if is_last:
            message = str(wait.last_error or "")
            return WaitResult("timeout", wait.ended, now - wait.since, message, pending=wait.pending)
        if now - logged_at >= LOG_INTERVAL_SECONDS:
            logged_at = now
            left = len(wait.pending)
            log.info("Still waiting for %s of %s %ss after %.0f s.",
                     left, left + len(wait.ended), kind.noun, now - wait.since)  # fmt: skip
        time.sleep(max(0.0, min(pause, countdown.remaining())))


def poll_in_worker(kind: JobKind, hook: ComplianceHook, ids: Iterable[str], log: Any) -> WaitResult:
    """Return the state of each, final or not; failing polls and unknown jobs are polled again."""
    result = wait_in_worker(kind, hook, ids, 1.0, time.time() + rules.OUTAGE_SECONDS, log, accepts=_is_any)
    if result.status == "timeout":
        why = f"No poll has succeeded for {result.seconds:.0f} s: {result.message}"
        return WaitResult("error", result.records, result.seconds, why, transient=True)
    return result


def cancel_in_worker(
    kind: JobKind, hook: ComplianceHook, identifier: str, why: str, log: Any
) -> Record | None:
    """Cancel a job in flight, after a poll: one in a final state is left alone.

    :return: the record of that poll, unless it failed
    """
    found: dict[str, PollResult] = {}
    kind.poll_sync(hook, [identifier], found.__setitem__)
    seen = found[identifier]
    noun = kind.noun
    try:
        if isinstance(seen, ComplianceError):
            raise seen
        if may_cancel(seen):
            kind.cancel_sync(hook, identifier)
            log.info("%s: %s %s is cancelled.", why, noun, identifier)
        else:
            log.info("%s: %s %s is %s, so it is not cancelled.", why, noun, identifier, seen["status"])
    except ComplianceError as error:
        log.warning("%s, but %s %s could not be cancelled: %s", why, noun, identifier, error)
    return None if isinstance(seen, ComplianceError) else seen


def _is_final(identifier: str, record: Record, now: float) -> bool:
    return record["status"] in FINAL


def _is_any(identifier: str, record: Record, now: float) -> bool:
    return True
