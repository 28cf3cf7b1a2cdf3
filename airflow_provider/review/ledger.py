"""What a review has asked, been answered and sent, over the attempts of its task."""

from __future__ import annotations

from typing import Any

from airflow_provider.review.form import Answers

QUESTION, ANSWER, SENT = "compliance_review_question", "compliance_review_answer", "compliance_review_sent"
SENDING = "sending"


class Ledger:
    """Keeps in Airflow's task state store what must not be asked or sent again.

    What is about to be sent is noted before it is: an attempt that dies in between leaves it uncertain, and
    nothing uncertain is sent again.

    :param store: the task state store; None before Airflow 3.3, then nothing survives an attempt
    """

    def __init__(self, store: Any) -> None:
        self._store: Any = {} if store is None else store
        self.survives = store is not None
        answer: Any = self._store.get(ANSWER) or {}
        self.feedback: list[dict[str, Any]] = list(answer.get("feedback") or [])
        self.faulty: dict[str, str] = dict(answer.get("faulty") or {})
        self.answered = bool(answer)
        self._sent: dict[str, str] = dict(self._store.get(SENT) or {})

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

    def withdraw(self) -> None:
        """Note that the form has had its time: the next attempt asks anew."""
        self._set(QUESTION, {"about": self.about, "waiting": False})

    @property
    def _question(self) -> dict[str, Any]:
        return dict(self._store.get(QUESTION) or {})

    # -- the answer

    def take(self, answers: Answers) -> int:
        """Keep answers, beside those of an earlier form; return how many are left out as answered before."""
        known = {each["assessment_response_id"] for each in self.feedback}
        new = [each for each in answers.feedback if each["assessment_response_id"] not in known]
        self.feedback += new
        self.faulty = {each: name for each, name in answers.faulty.items() if int(each) not in known}
        self.answered = True
        self._set(ANSWER, {"feedback": self.feedback, "faulty": self.faulty})
        self.withdraw()
        return len(answers.feedback) - len(new)

    # -- what is sent

    def outcome(self, feedback: dict[str, Any]) -> str:
        """Return `sent`, `uncertain`, or nothing where it is still to be sent."""
        noted = self._sent.get(_key(feedback), "")
        return "uncertain" if noted == SENDING else noted

    def note(self, feedback: dict[str, Any], outcome: str) -> None:
        """Note what became of it: `sending`, `sent`, `uncertain`, or nothing where it surely was not sent."""
        self._sent[_key(feedback)] = outcome
        self._set(SENT, self._sent)

    def _set(self, key: str, value: dict[str, Any]) -> None:
        if self.survives:
            self._store.set(key, value)
        else:
            self._store[key] = value


def _key(feedback: dict[str, Any]) -> str:
    return str(feedback["assessment_response_id"])
