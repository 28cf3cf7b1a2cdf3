"""Operators for feedback: send it, and have an expert give it in Airflow's user interface."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_provider.client.findings import parse_id
from airflow_provider.exceptions import ComplianceInputError, ComplianceUncertainError
from airflow_provider.operators.base import ComplianceBaseOperator, entry_point
from airflow_provider.runtime.non_retryable import as_non_retryable
from airflow_provider.runtime.params import as_id, optional
from airflow_provider.runtime.provenance import describe_attempt

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.nights.review.grouping import group_findings
    from airflow_provider.operators.review import ComplianceReviewAssessmentOperator

__all__ = ["ComplianceReviewAssessmentOperator", "ComplianceSubmitFeedbackOperator", "group_findings"]

# Imported on first use: they need Airflow's human-in-the-loop operators, and storage.
LAZY = {
    "ComplianceReviewAssessmentOperator": "airflow_provider.operators.review",
    "group_findings": "airflow_provider.nights.review.grouping",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(LAZY[name]), name)


class ComplianceSubmitFeedbackOperator(ComplianceBaseOperator):
    """Send an expert's feedback on an assessment result, after checking it.

    A refusal, such as 403 or 404, is retried as in a poll, because it may come from a gateway. An uncertain
    submit, which the service may have accepted, fails the task without retries: a retry could send it twice.
    So does a retry after an attempt that died while sending, if that can be stored: below the connection's
    `state_path`, or in Airflow's task state store (since 3.3). There, an attempt that a newer one has
    overtaken stops before it sends. Clearing the task sends the feedback again.

    :param expert_id: ID of the expert
    :param rational_feedback: the expert's feedback on the rationale
    :param assessment_response_id: ID of the assessment response that the feedback rates
    :param category_feedback: a category of the API specification, such as MISSING
    """

    template_fields: Sequence[str] = (
        "conn_id",
        "expert_id",
        "rational_feedback",
        "assessment_response_id",
        "category_feedback",
    )
    ui_color = "#e3f0e0"

    def __init__(
        self,
        *,
        expert_id: str,
        rational_feedback: str,
        assessment_response_id: int | str | None = None,
        category_feedback: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.expert_id = expert_id
        self.rational_feedback = rational_feedback
        self.assessment_response_id = assessment_response_id
        self.category_feedback = category_feedback

    @property
    def topic(self) -> object:
        """The subject of the task."""
        return self.assessment_response_id or self.expert_id

    @entry_point
    def execute(self, context: Context) -> None:
        """Send the feedback, unless a previous attempt has."""
        from airflow_provider.storage.outbox import UNCERTAIN, Outbox
        from airflow_provider.storage.task_state import open_state_store

        number = _response_id(self.assessment_response_id)
        expert_id = as_id(self.expert_id, "expert_id")
        rationale = optional(self.rational_feedback)
        category = optional(self.category_feedback)
        feedback = (expert_id, "" if rationale is None else str(rationale), number, category)
        about = "" if number is None else f" on assessment response {number}"
        ti = context["ti"]
        outbox = Outbox(open_state_store(context, self.hook), describe_attempt(ti), self.log)
        identity = {
            "digest": hashlib.sha256(json.dumps(feedback, default=str).encode()).hexdigest(),
            "max_tries": ti.max_tries,  # a clear raises it, a retry does not
            "run_started": str(getattr(context.get("dag_run"), "start_date", None)),  # or was created again
            "account": self.hook.account_digest,
        }
        try:
            # Checked before each try, because another attempt may have begun.
            outcome = self.call(
                lambda: outbox.send("", lambda: self.hook.submit_feedback(*feedback), identity)
            )
        except ComplianceUncertainError as error:
            raise as_non_retryable(error) from None
        if outcome == UNCERTAIN:
            raise as_non_retryable(
                ComplianceUncertainError(
                    f"A previous attempt ended while it sent this feedback{about}, so the service may "
                    "have accepted it. Check there; to send it again, clear the task."
                )
            )
        sender = "A previous attempt sent" if outcome else "Sent"
        self.log.info("%s the feedback of expert %s%s.", sender, expert_id, about)


def _response_id(given: Any) -> int | None:
    """Return the number, which a template may have turned into text."""
    given = optional(given)
    if given is not None and (number := parse_id(given)) is None:
        shown = str(given)[:80]
        raise ComplianceInputError(f"'{shown}' is not the ID of an assessment response: it must be a number.")
    return None if given is None else number
