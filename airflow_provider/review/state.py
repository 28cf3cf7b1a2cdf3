"""What a review has asked, received and sent, across the attempts of its task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceNotFoundError,
    ComplianceRefusedError,
    ComplianceSupersededError,
    ComplianceUncertainError,
)
from airflow_provider.provenance import is_newer
from airflow_provider.review.form import Answers

# Errors of a single feedback; any other one would affect the next one, too.
PER_ITEM_ERRORS = (ComplianceInputError, ComplianceNotFoundError, ComplianceRefusedError)
QUESTION, ANSWER, SENT = "compliance_review_question", "compliance_review_answer", "compliance_review_sent"
LEASE = "compliance_review_lease"
SENDING = "sending"
FEEDBACK_FIELDS = ("expert_id", "rational_feedback", "assessment_response_id", "category_feedback")


class ReviewState:
    """Stores what must not be asked or sent again.

    The intent is written before a submit: if an attempt dies in between, the feedback is uncertain and never
    sent again. Each feedback has its own key, so that concurrent attempts do not overwrite each other, and
    the newest attempt holds a lease: see `begin`.

    :param store: see `storage.task_state`; None where nothing survives an attempt
    :param try_number: the number of this attempt; an older one stops when it finds the lease of a newer one
    :param started_at: when the attempt started, as a timestamp; 0 if unknown
    :param is_new_attempt: the attempt starts now; otherwise it is resumed
    """

    def __init__(
        self, store: Any, try_number: int = 1, started_at: float = 0.0, *, is_new_attempt: bool = False
    ) -> None:
        self._store: Any = {} if store is None else store
        self.is_persistent = store is not None
        self._lease = {"try_number": try_number, "started_at": started_at, "process": uuid4().hex}
        held = self._store.get(LEASE) or {}
        # A run that was deleted and created again counts its attempts from 1, and has no form yet.
        is_created_again = is_new_attempt and held.get("try_number", 0) >= try_number
        self._acquire_lease({**held, "is_new_run": is_created_again or held.get("is_new_run", False)})
        self._read_answer()
        # One key for all, before each feedback had its own.
        self._legacy_outcomes: dict[str, str] = dict(self._store.get(SENT) or {})

    @staticmethod
    def is_lost(store: Any) -> bool:
        """Return whether earlier attempts left nothing, or what is left was deleted in part."""
        if store is None:
            return True
        lease = store.get(LEASE) or {}
        return bool(lease.get("has_asked", True)) and not store.get(QUESTION) and not store.get(ANSWER)

    # -- the lease

    def _check_lease(self) -> bool:
        """Return whether this process still holds the lease; reacquire it from an older attempt."""
        if not self.is_persistent:
            return True
        held = self._store.get(LEASE) or {}
        if held == self._lease:
            return True
        if not held or not is_newer(self._lease, held):
            raise ComplianceSupersededError(_superseded_message(held))
        self._acquire_lease(held)
        return False

    def _acquire_lease(self, held: dict[str, Any]) -> None:
        if is_newer(held, self._lease):
            raise ComplianceSupersededError(_superseded_message(held))
        # A retention rule may delete the form before the lease, which every attempt writes again.
        self._lease["has_asked"] = bool(held.get("has_asked") or self._store.get(QUESTION))
        self._lease["is_new_run"] = bool(held.get("is_new_run"))
        self._write(LEASE, self._lease)

    # -- the form

    @property
    def asked_digest(self) -> str:
        """The digest of the findings on the form; empty if there was none."""
        return str(self._question.get("about") or "")

    @property
    def has_open_form(self) -> bool:
        """Whether a form waits for its answer."""
        return bool(self._question.get("waiting")) and not self._lease["is_new_run"]

    def record_form(self, digest: str) -> None:
        """Record that the form is shown."""
        self._set(QUESTION, {"about": digest, "waiting": True})
        if self._lease["is_new_run"]:
            self._lease["is_new_run"] = False
            self._write(LEASE, self._lease)

    def start_over(self) -> bool:
        """Forget question and answer if they are of a run that was deleted; return whether they are.

        What was sent is never forgotten.
        """
        if self._lease["is_new_run"]:
            self._set(QUESTION, {})
            self._set(ANSWER, {})
            self._read_answer()
        return bool(self._lease["is_new_run"])

    def expire_form(self) -> None:
        """Record that the form is closed: the next attempt asks again."""
        self._set(QUESTION, {"about": self.asked_digest, "waiting": False})

    @property
    def _question(self) -> dict[str, Any]:
        return dict(self._store.get(QUESTION) or {})

    # -- the answer

    def _read_answer(self) -> None:
        answer: Any = self._store.get(ANSWER) or {}
        self.decisions: list[dict[str, Any]] = list(answer.get("decisions") or [])
        self.invalid: dict[str, str] = dict(answer.get("invalid") or {})
        self.is_answered = bool(answer)

    @property
    def feedback(self) -> list[dict[str, Any]]:
        """The decisions to send: those with a rationale, which the service requires."""
        return [each for each in self.decisions if each["rational_feedback"]]

    def record_answers(self, answers: Answers) -> int:
        """Add answers to those of an earlier form; return on how many of them feedback was given before.

        Such feedback stays as it is. What was only agreed with may be decided again.
        """
        self._read_answer()
        given = {each["assessment_response_id"]: each for each in self.feedback}
        earlier, new = (
            {each["assessment_response_id"]: each for each in decisions}
            for decisions in (self.decisions, answers.decisions)
        )
        self.decisions = list({**earlier, **new, **given}.values())
        self.invalid = {each: name for each, name in answers.invalid.items() if int(each) not in given}
        self.is_answered = True
        self._set(ANSWER, {"decisions": self.decisions, "invalid": self.invalid})
        for each in given.values():
            if outcome := self.outcome(each):
                self.record_outcome(each, outcome)  # so that no retention rule deletes it before the answer
        self.expire_form()
        return sum(bool(each["rational_feedback"]) for number, each in new.items() if number in given)

    def results(self) -> list[dict[str, Any]]:
        """Return all decisions, each with its `outcome`."""
        return [
            {**each, "outcome": self.outcome(each) or "pending" if each["rational_feedback"] else "recorded"}
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
        number = str(feedback["assessment_response_id"])
        noted = self._store.get(_key(feedback)) or {"outcome": self._legacy_outcomes.get(number, "")}
        return "uncertain" if noted["outcome"] == SENDING else str(noted["outcome"])

    def record_outcome(self, feedback: dict[str, Any], outcome: str) -> None:
        """Record `sending`, `sent`, `uncertain`, or an empty string if it was surely not sent."""
        self._write(_key(feedback), {"outcome": outcome, **self._lease})

    def _set(self, key: str, value: dict[str, Any]) -> None:
        self._check_lease()
        self._write(key, value)

    def _write(self, key: str, value: dict[str, Any]) -> None:
        if self.is_persistent:
            self._store.set(key, value)
        else:
            self._store[key] = value


def send(submit: Callable[..., None], state: ReviewState, log: Any) -> list[str]:
    """Send what is not sent yet; return which feedback the service refused, and why."""
    refused: list[str] = []
    for feedback in state.feedback:
        number = feedback["assessment_response_id"]
        if outcome := state.begin(feedback):
            if outcome == "uncertain":
                log.warning("Not sending feedback on response %s again: it may have been accepted.", number)
            continue
        try:
            submit(**{name: feedback[name] for name in FEEDBACK_FIELDS})
        except ComplianceUncertainError as error:
            state.record_outcome(feedback, "uncertain")
            log.warning("Not sending feedback on response %s again: %s", number, error)
        except ComplianceError as error:
            state.record_outcome(feedback, "")
            if not isinstance(error, PER_ITEM_ERRORS):
                raise
            refused.append(f"response {number}: {error}")
        else:
            state.record_outcome(feedback, "sent")
            log.info("Sent feedback on response %s.", number)
    return refused


def _key(feedback: dict[str, Any]) -> str:
    return f"{SENT}_{feedback['assessment_response_id']}"


def _superseded_message(held: dict[str, Any]) -> str:
    who = f"attempt {held['try_number']} of this task" if held else "another attempt of this task"
    return (
        f"This attempt stops, because {who} has taken over: Airflow considered this one dead. The other one "
        "sends the rest: see its log."
    )
