"""What a review has asked, received and sent, across the attempts of its task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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

FORM, ANSWER, SENT = "compliance_review_form", "compliance_review_answer", "compliance_review_sent"
LEASE = "compliance_review_lease"
SENDING = "sending"
FEEDBACK_FIELDS = ("expert_id", "rational_feedback", "assessment_response_id", "category_feedback")


class _Unstored(dict[str, Any]):
    """Stands in for a store where nothing survives an attempt."""

    set = dict.__setitem__


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
        self._store: Any = _Unstored() if store is None else store
        self.is_persistent = store is not None
        self._lease = {**attempt, "process": uuid4().hex}
        held = self._store.get(LEASE) or {}
        self._acquire_lease(held)
        # A run that was deleted and created again counts its attempts from 1, and has no form yet.
        is_created_again = is_new_attempt and held.get("try_number", 0) >= attempt["try_number"]
        if is_created_again or self._store.get(FORM) is None:
            self._store.set(FORM, {})
        self._read_answer()

    @staticmethod
    def is_lost(store: Any) -> bool:
        """Return whether nothing is stored of earlier attempts, or not enough to know what was answered."""
        return store is None or (store.get(FORM) is None and not store.get(ANSWER))

    # -- the lease

    def _check_lease(self) -> bool:
        """Return whether this process still holds the lease; reacquire it from an older attempt."""
        held = self._store.get(LEASE) or {}
        if held == self._lease:
            return True
        if not held or not is_newer(self._lease, held):
            raise ComplianceSupersededError(_superseded_message(held))
        self._acquire_lease(held)
        return False

    def _acquire_lease(self, held: Mapping[str, Any]) -> None:
        if is_newer(held, self._lease):
            raise ComplianceSupersededError(_superseded_message(held))
        self._store.set(LEASE, self._lease)

    def _set(self, key: str, value: dict[str, Any]) -> None:
        self._check_lease()
        self._store.set(key, value)

    # -- the form

    @property
    def shown(self) -> dict[str, dict[str, Any]]:
        """What the form shows that Airflow has of this task: see `describe_findings`; empty without one."""
        return dict((self._store.get(FORM) or {}).get("shown") or {})

    @property
    def has_open_form(self) -> bool:
        """Whether a form waits for its answer."""
        return bool((self._store.get(FORM) or {}).get("is_open"))

    def record_form(self, shown: Mapping[str, Any]) -> None:
        """Record that the form is shown."""
        self._set(FORM, {"shown": dict(shown), "is_open": True})

    def close_form(self) -> None:
        """Record that the form is closed: unless it was answered, the next attempt asks again."""
        self._set(FORM, {"shown": self.shown, "is_open": False})

    # -- the answer

    def _read_answer(self) -> None:
        answer: Any = self._store.get(ANSWER) or {}
        self.answered: dict[str, dict[str, Any]] = dict(answer.get("shown") or {})
        self.decisions: list[dict[str, Any]] = list(answer.get("decisions") or [])
        self.outdated: list[int] = list(answer.get("outdated") or [])
        self.is_answered = bool(answer)

    @property
    def feedback(self) -> list[dict[str, Any]]:
        """The decisions to send: on verdicts that still hold, with a rationale, which is required."""
        return [each for each in self.decisions if self._is_feedback(each)]

    def _is_feedback(self, decision: Mapping[str, Any]) -> bool:
        is_outdated = decision["assessment_response_id"] in self.outdated
        return bool(decision["rational_feedback"]) and not is_outdated

    def record_answer(
        self,
        shown: Mapping[str, Any],
        decisions: Sequence[dict[str, Any]],
        outdated: Collection[int] = (),
    ) -> None:
        """Record the decisions on a form; feedback that was sent before stays as it is.

        :param outdated: responses whose verdict has changed since the form was shown: nothing is sent on them
        """
        self._read_answer()
        given = [each for each in self.feedback if self.outcome(each)]
        merged = {each["assessment_response_id"]: each for each in (*decisions, *given)}
        self._set(
            ANSWER,
            {"shown": dict(shown), "decisions": list(merged.values()), "outdated": sorted(outdated)},
        )
        self._read_answer()
        self.close_form()

    def results(self) -> list[dict[str, Any]]:
        """Return all decisions, each with its `outcome`."""
        return [
            {**each, "outcome": (self.outcome(each) or "pending") if self._is_feedback(each) else "recorded"}
            for each in self.decisions
        ]

    # -- sending

    def begin(self, feedback: dict[str, Any]) -> str:
        """Return an empty string if this process must send it now, else its outcome.

        The store has no compare-and-set. A sender writes its intent, then checks its lease; whoever takes the
        lease reads the intents afterwards. So one of two processes stops, or finds the other's intent.
        """
        self._check_lease()
        if noted := self.outcome(feedback):
            return noted
        self.record_outcome(feedback, SENDING)
        return "" if self._check_lease() else "uncertain"

    def outcome(self, feedback: dict[str, Any]) -> str:
        """Return `sent`, `uncertain`, or an empty string if it is not sent yet."""
        outcome = str((self._store.get(_key(feedback)) or {}).get("outcome", ""))
        return "uncertain" if outcome == SENDING else outcome

    def record_outcome(self, feedback: dict[str, Any], outcome: str) -> None:
        """Record `sending`, `sent`, `uncertain`, or an empty string if it was surely not sent."""
        self._store.set(_key(feedback), {"outcome": outcome, **self._lease})


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


def _superseded_message(held: Mapping[str, Any]) -> str:
    who = f"attempt {held['try_number']} of this task" if held else "another attempt of this task"
    return (
        f"This attempt stops, because {who} has taken over: Airflow considered this one dead. The other one "
        "sends the rest: see its log."
    )
