"""What a review has asked, received and sent, across the attempts of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

from airflow_provider.exceptions import (
    ComplianceConnectionError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceInputError,
    ComplianceSupersededError,
    ComplianceUncertainError,
)
from airflow_provider.provenance import is_newer
from airflow_provider.waiting.refusals import outlast_refusals_sync
from airflow_provider.waiting.rules import is_refusal

REVIEW, SENT = "compliance_review", "compliance_review_sent"
LEASE = "compliance_review_lease"
PENDING, RECORDED = "pending", "recorded"  # outcomes of a decision: to be sent, or not
SENDING = "sending"
FEEDBACK_FIELDS = ("expert_id", "rational_feedback", "assessment_response_id", "category_feedback")


@dataclass
class Review:
    """What is stored of a review: its newest form, and all decisions.

    :param shown: what the form shows: see `describe_findings`
    :param has_form: Airflow has the form, open or not; it never changes the form of a task instance
    :param is_open: the form waits for its answer
    :param is_answered: the form was answered
    """

    shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    has_form: bool = False
    is_open: bool = False
    is_answered: bool = False
    decisions: list[dict[str, Any]] = field(default_factory=list)


class Unstored(dict[str, Any]):
    """Stands in for a store where nothing survives an attempt."""

    set = dict.__setitem__


class Lease:
    """What the newest attempt of a task holds: an older one, which Airflow considered dead, stops.

    The store has no compare-and-set. A sender writes its intent, then checks its lease; a process that takes
    the lease reads the intents afterwards. So one of two stops, or finds the other's intent.

    :param attempt: see `describe_attempt`
    :ivar found: the lease that was held before
    """

    def __init__(self, store: Any, key: str, attempt: Mapping[str, Any]) -> None:
        self._store, self._key = store, key
        self.holder = {**attempt, "process": uuid4().hex}
        self.found: dict[str, Any] = self._store.get(key) or {}
        self._acquire(self.found)

    def check(self) -> bool:
        """Return whether this process still holds it; reacquire it from an older attempt."""
        held = self._store.get(self._key) or {}
        if held == self.holder:
            return True
        if not held or not is_newer(self.holder, held):
            raise _superseded(held)
        self._acquire(held)
        return False

    def _acquire(self, held: Mapping[str, Any]) -> None:
        if is_newer(held, self.holder):
            raise _superseded(held)
        self._store.set(self._key, self.holder)


class ReviewState:
    """Stores what must not be asked or sent again.

    The intent is written before a submit: if an attempt dies in between, the feedback is uncertain and never
    sent again. Each feedback has its own key, so that concurrent attempts do not overwrite each other, and
    the newest attempt holds a lease: see `begin`.

    :param store: see `storage.task_state`; None where nothing survives an attempt
    :param attempt: see `describe_attempt`; an older one stops when it finds the lease of a newer one
    :param is_new_attempt: the attempt starts now; otherwise it is resumed
    """

    def __init__(self, store: Any, attempt: Mapping[str, Any], *, is_new_attempt: bool = False) -> None:
        self._store: Any = Unstored() if store is None else store
        self.is_persistent = store is not None
        self._lease = Lease(self._store, LEASE, attempt)
        self.check_lease = self._lease.check
        stored = self._store.get(REVIEW)
        self.review = Review(**(stored or {}))
        # A run that was deleted and created again counts its attempts from 1, and has no form yet.
        is_created_again = is_new_attempt and self._lease.found.get("try_number", 0) >= attempt["try_number"]
        if is_created_again or stored is None:
            self.review = replace(self.review, has_form=False, is_open=False)
            self._store.set(REVIEW, asdict(self.review))

    # -- the form and its answer

    @property
    def feedback(self) -> list[dict[str, Any]]:
        """The decisions to send, sent or not."""
        return [decision for decision in self.review.decisions if decision["outcome"] == PENDING]

    def record_form(self, shown: Mapping[str, Any]) -> None:
        """Record that the form is shown."""
        self._update(shown=dict(shown), has_form=True, is_open=True, is_answered=False)

    def close_form(self) -> None:
        """Record that the form is closed: unless it was answered, the next attempt asks again."""
        self._update(is_open=False)

    def record_answer(self, shown: Mapping[str, Any], decisions: Sequence[dict[str, Any]]) -> None:
        """Record the decisions on a form; feedback that was sent before stays as it is."""
        self.review = Review(**(self._store.get(REVIEW) or {}))
        given = [feedback for feedback in self.feedback if self.outcome(feedback)]
        merged = {decision["assessment_response_id"]: decision for decision in (*decisions, *given)}
        self._update(shown=dict(shown), decisions=list(merged.values()), is_open=False, is_answered=True)

    def _update(self, **changes: Any) -> None:
        self.check_lease()
        self.review = replace(self.review, **changes)
        self._store.set(REVIEW, asdict(self.review))

    def results(self) -> list[dict[str, Any]]:
        """Return all decisions, each with what has become of it."""
        sent = {feedback["assessment_response_id"]: self.outcome(feedback) for feedback in self.feedback}
        return [
            {**decision, "outcome": sent.get(decision["assessment_response_id"]) or decision["outcome"]}
            for decision in self.review.decisions
        ]

    # -- sending

    def begin(self, feedback: dict[str, Any]) -> str:
        """Return an empty string if this process must send it now, else its outcome.

        See `Lease` for why it is checked twice.
        """
        self.check_lease()
        if noted := self.outcome(feedback):
            return noted
        self.record_outcome(feedback, SENDING)
        return "" if self.check_lease() else "uncertain"

    def outcome(self, feedback: dict[str, Any]) -> str:
        """Return `sent`, `uncertain`, or an empty string if it is not sent yet."""
        outcome = str((self._store.get(_key(feedback)) or {}).get("outcome", ""))
        return "uncertain" if outcome == SENDING else outcome

    def record_outcome(self, feedback: dict[str, Any], outcome: str) -> None:
        """Record `sending`, `sent`, `uncertain`, or an empty string if it was surely not sent."""
        self._store.set(_key(feedback), {"outcome": outcome, **self._lease.holder})


class FeedbackSender:
    """Sends the feedback of a review.

    :param hook: of the service
    """

    def __init__(self, hook: Any, state: ReviewState, log: Any) -> None:
        self._hook, self._state, self._log = hook, state, log
        self._is_failing = False

    def send(self) -> list[str]:
        """Send what is not sent yet; return which feedback the service refused, and why."""
        refused: list[str] = []
        later: list[dict[str, Any]] = []
        for feedback in self._state.feedback:
            try:
                self._send(feedback)
            except ComplianceError as error:
                if is_refusal(error):  # it may come from a gateway: the others are sent first
                    later.append(feedback)
                elif isinstance(error, (ComplianceInputError, ComplianceHttpError)) and not error.transient:
                    refused.append(f"response {feedback['assessment_response_id']}: {error}")
                else:
                    raise
        for feedback in later:
            outlast_refusals_sync(partial(self._send, feedback), self._hook.get_conn(), self._log)
        return refused

    def _send(self, feedback: dict[str, Any]) -> None:
        number = feedback["assessment_response_id"]
        if outcome := self._state.begin(feedback):
            if outcome == "uncertain":
                self._log.warning("Not sending feedback on response %s again: it may have arrived.", number)
            return
        try:
            self._hook.submit_feedback(**{name: feedback[name] for name in FEEDBACK_FIELDS})
        except ComplianceUncertainError as error:
            self._state.record_outcome(feedback, "uncertain")
            self._log.warning("Not sending feedback on response %s again: %s", number, error)
            self._stop_in_outage(error)
        except ComplianceError:
            self._state.record_outcome(feedback, "")
            raise
        else:
            self._is_failing = False
            self._state.record_outcome(feedback, "sent")
            self._log.info("Sent feedback on response %s.", number)

    def _stop_in_outage(self, error: ComplianceError) -> None:
        """Raise a transient error in an outage, so that a retry sends the others: each is sent only once."""
        if self._is_failing:
            raise ComplianceConnectionError(
                "Two feedbacks in a row got no clear response: the service is failing. A retry sends the "
                "others."
            ) from error
        self._is_failing = True
        try:
            self._hook.list_frameworks()
        except ComplianceError as outage:
            if outage.transient:
                raise


def _key(feedback: dict[str, Any]) -> str:
    return f"{SENT}_{feedback['assessment_response_id']}"


def _superseded(held: Mapping[str, Any]) -> ComplianceSupersededError:
    return ComplianceSupersededError(
        f"This attempt stops, because attempt {held.get('try_number', '?')} of this task has taken over: "
        "Airflow considered this one dead. The other one continues: see its log."
    )
