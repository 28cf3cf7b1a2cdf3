"""What a review has asked, been answered and sent, over the attempts of its task."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from airflow_provider.exceptions import ComplianceError
from airflow_provider.review.form import Answers

QUESTION, ANSWER, SENT = "compliance_review_question", "compliance_review_answer", "compliance_review_sent"
LEASE = "compliance_review_lease"
SENDING = "sending"


class ReviewState:
    """Keeps in Airflow's task state store what must not be asked or sent again.

    What is about to be sent is noted before it is: an attempt that dies in between leaves it uncertain, and
    nothing uncertain is sent again. Each feedback has a key of its own, so that two attempts at once do not
    erase each other's notes, and the newest attempt holds a lease: see `begin`.

    :param store: the task state store; None before Airflow 3.3, then nothing survives an attempt
    :param try_number: the number of this attempt; an older one stops when it finds a newer one's lease
    """

    def __init__(self, store: Any, try_number: int = 1) -> None:
        self._store: Any = {} if store is None else store
        self.is_persistent = store is not None
        self._lease = {"try_number": try_number, "process": uuid4().hex}
        self._take_over(self._store.get(LEASE) or {})
        self._read_answer()
        self._earlier: dict[str, str] = dict(self._store.get(SENT) or {})  # all notes in one, as once was

    # -- the lease

    def _holds_lease(self) -> bool:
        """Whether no other process has written its lease since; take it back from an older attempt."""
        if not self.is_persistent:
            return True
        held = self._store.get(LEASE) or {}
        if held == self._lease:
            return True
        if held.get("try_number", self._lease["try_number"]) >= self._lease["try_number"]:
            raise ComplianceError(_superseded(held))
        self._take_over(held)
        return False

    def _take_over(self, held: dict[str, Any]) -> None:
        if held.get("try_number", 0) > self._lease["try_number"]:
            raise ComplianceError(_superseded(held))
        self._write(LEASE, self._lease)

    # -- the question

    @property
    def about(self) -> str:
        """What this review has been about since it first asked; empty where it has not."""
        return str(self._question.get("about") or "")

    @property
    def is_waiting(self) -> bool:
        """Whether there is a form that no answer has been taken from."""
        return bool(self._question.get("waiting"))

    def ask(self, about: str) -> None:
        """Note that the form is there."""
        self._set(QUESTION, {"about": about, "waiting": True})

    def expire_form(self) -> None:
        """Note that the form has had its time: the next attempt asks anew."""
        self._set(QUESTION, {"about": self.about, "waiting": False})

    @property
    def _question(self) -> dict[str, Any]:
        return dict(self._store.get(QUESTION) or {})

    # -- the answer

    def _read_answer(self) -> None:
        answer: Any = self._store.get(ANSWER) or {}
        self.feedback: list[dict[str, Any]] = list(answer.get("feedback") or [])
        self.faulty: dict[str, str] = dict(answer.get("faulty") or {})
        self.answered = bool(answer)

    def record_answers(self, answers: Answers) -> int:
        """Keep answers, beside those of an earlier form; return how many are left out as answered before."""
        self._read_answer()
        known = {each["assessment_response_id"] for each in self.feedback}
        new = [each for each in answers.feedback if each["assessment_response_id"] not in known]
        self.feedback += new
        self.faulty = {each: name for each, name in answers.faulty.items() if int(each) not in known}
        self.answered = True
        self._set(ANSWER, {"feedback": self.feedback, "faulty": self.faulty})
        self.expire_form()
        return len(answers.feedback) - len(new)

    # -- what is sent

    def begin(self, feedback: dict[str, Any]) -> str:
        """Return nothing where this process may send it now, and has to; otherwise what became of it.

        The store can't compare and set. But who sends has noted it, and then read its own lease; and who
        takes the lease reads the note after that. So of two processes one stops, or finds the other's note.
        """
        self._holds_lease()
        if noted := self.outcome(feedback):
            return noted
        self.note(feedback, SENDING)
        return "" if self._holds_lease() else "uncertain"

    def outcome(self, feedback: dict[str, Any]) -> str:
        """Return `sent`, `uncertain`, or nothing where it is still to be sent."""
        number = str(feedback["assessment_response_id"])
        noted = self._store.get(_key(feedback)) or {"outcome": self._earlier.get(number, "")}
        return "uncertain" if noted["outcome"] == SENDING else str(noted["outcome"])

    def note(self, feedback: dict[str, Any], outcome: str) -> None:
        """Note what became of it: `sending`, `sent`, `uncertain`, or nothing where it surely was not sent."""
        self._write(_key(feedback), {"outcome": outcome, **self._lease})

    def _set(self, key: str, value: dict[str, Any]) -> None:
        self._holds_lease()
        self._write(key, value)

    def _write(self, key: str, value: dict[str, Any]) -> None:
        if self.is_persistent:
            self._store.set(key, value)
        else:
            self._store[key] = value


def _key(feedback: dict[str, Any]) -> str:
    return f"{SENT}_{feedback['assessment_response_id']}"


def _superseded(held: dict[str, Any]) -> str:
    who = f"attempt {held['try_number']} of this task" if held else "another attempt of this task"
    return (
        f"This attempt stops, because {who} has taken over: Airflow took this one for dead. What it has not "
        "sent yet is left to the other one, whose log says what became of it."
    )
