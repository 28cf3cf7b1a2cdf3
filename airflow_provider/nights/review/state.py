"""Questions, answers and feedback of a review, across the attempts of its task."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from airflow_provider.exceptions import (
    ComplianceConnectionError,
    ComplianceError,
    ComplianceHttpError,
    ComplianceInputError,
    ComplianceUncertainError,
)
from airflow_provider.nights.reports.page import UNDECIDED
from airflow_provider.nights.review.selection import response_key
from airflow_provider.storage.outbox import UNCERTAIN, Outbox
from airflow_provider.waiting.refusals import outlast_refusals_sync
from airflow_provider.waiting.rules import is_refusal

REVIEW = "compliance_review"
PENDING, RECORDED = "pending", "recorded"  # outcomes of a decision: to be sent, or not
SENT = ("sent", UNCERTAIN)
OUTAGE_PAUSE_SECONDS, MAX_OUTAGE_CHECKS = 60.0, 150  # in a worker, where a task can't be retried
NO_DECISION, EXPIRED = UNDECIDED
FEEDBACK_FIELDS = ("expert_id", "rational_feedback", "assessment_response_id", "category_feedback")


@dataclass
class Review:
    """The stored state of a review: its newest form, and all decisions.

    :param shown: the findings on the form
    :param has_form: Airflow has the form, open or not; it never changes the form of a task instance
    :param is_open: the form waits for its answer
    :param is_answered: the form was answered
    """

    shown: Sequence[dict[str, Any]] = field(default_factory=list)
    has_form: bool = False
    is_open: bool = False
    is_answered: bool = False
    decisions: list[dict[str, Any]] = field(default_factory=list)


class ReviewState(Outbox):
    """Stores what must not be asked or sent again.

    :param is_new_attempt: the attempt starts now; otherwise it is resumed
    """

    def __init__(
        self, store: Any, attempt: Mapping[str, Any], log: Any, *, is_new_attempt: bool = False
    ) -> None:
        super().__init__(store, attempt, log)
        self.is_persistent = store is not None
        stored = self.store.get(REVIEW)
        self.review = Review(**(stored or {}))
        # A run that was deleted and created again counts its attempts from 1, and has no form yet.
        is_created_again = is_new_attempt and self.found.get("try_number", 0) >= attempt["try_number"]
        if is_created_again or stored is None:
            self.review = replace(self.review, has_form=False, is_open=False)
            self.store.set(REVIEW, asdict(self.review))

    @property
    def feedback(self) -> list[dict[str, Any]]:
        """The decisions to send, sent or not."""
        return [decision for decision in self.review.decisions if decision["outcome"] == PENDING]

    @property
    def sent(self) -> dict[str, str]:
        """The outcomes of feedback that reached the service, or may have, by the key of the response."""
        return {key: outcome for key in map(_key_of, self.feedback) if (outcome := self.outcome(key))}

    def record_form(self, shown: Sequence[dict[str, Any]]) -> None:
        """Record that the form is shown."""
        self._update(shown=shown, has_form=True, is_open=True, is_answered=False)

    def record_answer(self, decisions: Sequence[dict[str, Any]], *, is_answered: bool) -> None:
        """Record the decisions on a form, which is closed now; sent feedback stays as it is."""
        self.review = Review(**(self.store.get(REVIEW) or {}))
        sent = self.sent
        given = [row for row in self.feedback if _key_of(row) in sent]
        merged = {_key_of(decision): decision for decision in (*decisions, *given)}
        self._update(decisions=list(merged.values()), is_open=False, is_answered=is_answered)

    def _update(self, **changes: Any) -> None:
        self.check_lease()
        self.review = replace(self.review, **changes)
        self.store.set(REVIEW, asdict(self.review))

    def results(self) -> list[dict[str, Any]]:
        """Return all decisions, each with what became of it."""
        sent = self.sent
        return [{**row, "outcome": sent.get(_key_of(row), row["outcome"])} for row in self.review.decisions]

    def send_all(self, hook: Any) -> list[str]:
        """Send unsent feedback; return which feedback the service refused, and why."""
        if any(_key_of(row) not in self.sent for row in self.feedback):
            self._await_service(hook)
        refused: list[str] = []
        later: list[partial[None]] = []
        for row in self.feedback:
            send = partial(self._send, row, hook)
            try:
                send()
            except ComplianceError as error:
                if is_refusal(error):  # it may come from a gateway: the others are sent first
                    later.append(send)
                elif isinstance(error, (ComplianceInputError, ComplianceHttpError)) and not error.transient:
                    refused.append(f"response {row['assessment_response_id']}: {error}")
                else:
                    raise
        for send in later:
            outlast_refusals_sync(send, hook.get_conn(), self._log)
        return refused

    _is_failing = False  # the last feedback got no clear response

    def _send(self, row: dict[str, Any], hook: Any) -> None:
        number = row["assessment_response_id"]
        submit = partial(hook.submit_feedback, **{name: row[name] for name in FEEDBACK_FIELDS})
        try:
            outcome = self.send(_key_of(row), submit)
        except ComplianceUncertainError as error:
            self._log.warning("Not sending feedback on response %s again: %s", number, error)
            self._stop_in_outage(error, hook)
        else:
            self._is_failing = False
            if outcome == UNCERTAIN:
                self._log.warning("Not sending feedback on response %s again: it may have arrived.", number)
            elif not outcome:
                self._log.info("Sent feedback on response %s.", number)

    def _stop_in_outage(self, error: ComplianceError, hook: Any) -> None:
        """Raise a transient error in an outage, so that a retry sends the others: each is sent only once."""
        if self._is_failing:
            raise ComplianceConnectionError(
                "Two feedbacks in a row got no clear response: the service is failing. A retry sends the "
                "others."
            ) from error
        self._is_failing = True
        _check_service(hook)

    def _await_service(self, hook: Any) -> None:
        """Raise in an outage, rather than send a feedback without knowing whether it arrives.

        A task that stores nothing has no retry, so it waits here.
        """
        for _ in range(0 if self.is_persistent else MAX_OUTAGE_CHECKS):
            try:
                _check_service(hook)
            except ComplianceError as outage:
                self._log.warning("Nothing is sent yet: %s", outage)
                time.sleep(OUTAGE_PAUSE_SECONDS)
            else:
                return
        _check_service(hook)


def _check_service(hook: Any) -> None:
    """Raise a transient error if the service does not answer."""
    try:
        hook.list_frameworks()
    except ComplianceError as outage:
        if outage.transient:
            raise


def _key_of(decision: Mapping[str, Any]) -> str:
    return response_key(decision["assessment_response_id"], decision.get("cell"))
