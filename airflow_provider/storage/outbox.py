"""Messages that a task sent, across its attempts: each message at most once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceSupersededError,
    ComplianceUncertainError,
)
from airflow_provider.runtime.provenance import check_newest, is_newer

SENT, LEASE = "compliance_feedback_sent", "compliance_feedback_lease"
SENDING, UNCERTAIN = "sending", "uncertain"


class Unstored(dict[str, Any]):
    """Stands in for a store where nothing survives an attempt."""

    set = dict.__setitem__


class Outbox:
    """Sends each feedback at most once, although attempts of a task may die, or run side by side.

    The newest attempt holds a lease: an older one, which Airflow considered dead, stops. The store has no
    compare-and-set. A sender writes its intent, then checks its lease; a process that takes the lease reads
    the intents afterwards. So one of two stops, or finds the other's intent, which is never sent again. Each
    feedback has its own key, so that concurrent attempts do not overwrite each other.

    :param store: see `storage.task_state`; None where nothing survives an attempt
    :param attempt: see `describe_attempt`
    :ivar found: the lease that was held before
    """

    def __init__(self, store: Any, attempt: Mapping[str, Any], log: Any) -> None:
        self.store: Any = Unstored() if store is None else store
        self._log = log
        self._holder = {**attempt, "process": uuid4().hex}
        self.found: dict[str, Any] = self.store.get(LEASE) or {}
        self._acquire(self.found)

    def check_lease(self) -> bool:
        """Return whether this process still holds the lease; reacquire it from an older attempt."""
        held = self.store.get(LEASE) or {}
        if held == self._holder:
            return True
        if not held or not is_newer(self._holder, held):
            raise ComplianceSupersededError.by(held)
        self._acquire(held)
        return False

    def _acquire(self, held: Mapping[str, Any]) -> None:
        check_newest(self._holder, held)
        self.store.set(LEASE, self._holder)

    def send(self, name: object, submit: Callable[[], Any], about: Mapping[str, Any] | None = None) -> str:
        """Send a feedback; return an empty string, or its outcome if an attempt sent it before.

        :param name: identifies it within the task
        :param about: the subject; a feedback with the same name and another subject is another feedback
        """
        self.check_lease()
        if outcome := self.outcome(name, about):
            return outcome
        self._record(name, SENDING, about)
        if not self.check_lease():
            return UNCERTAIN
        try:
            submit()
        except ComplianceUncertainError:
            raise
        except ComplianceError:
            self._record(name, "", about)
            raise
        try:
            self._record(name, "sent", about)
        except Exception as error:  # from the store: the feedback is sent, so the task must not fail
            self._log.warning("Could not store for later attempts that the feedback was sent: %s", error)
        return ""

    def outcome(self, name: object, about: Mapping[str, Any] | None = None) -> str:
        """Return `sent`, `uncertain`, or an empty string if it is not sent yet."""
        stored = self.store.get(f"{SENT}_{name}") or {}
        outcome = str(stored.get("outcome", "")) if (about or {}).items() <= stored.items() else ""
        return UNCERTAIN if outcome == SENDING else outcome

    def _record(self, name: object, outcome: str, about: Mapping[str, Any] | None) -> None:
        self.store.set(f"{SENT}_{name}", {**self._holder, **(about or {}), "outcome": outcome})
