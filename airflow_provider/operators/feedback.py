"""Operators for feedback: send it, and have an expert give it in Airflow's user interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider.compat import apply_map_index_template
from airflow_provider.exceptions import ComplianceInputError, ComplianceUncertainError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.errors import as_non_retryable
from airflow_provider.params import optional
from airflow_provider.review.findings import parse_id

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.operators.review import ComplianceReviewAssessmentOperator

__all__ = ["ComplianceReviewAssessmentOperator", "ComplianceSubmitFeedbackOperator"]


def __getattr__(name: str) -> Any:
    """Load the review operator when it is asked for: it brings Airflow's human in the loop along."""
    if name != "ComplianceReviewAssessmentOperator":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from airflow_provider.operators.review import ComplianceReviewAssessmentOperator

    return ComplianceReviewAssessmentOperator


class ComplianceSubmitFeedbackOperator(BaseOperator):
    """Send an expert's feedback on an assessment result; it is checked before it is sent.

    A feedback that may have gone through, although no good answer came, fails the task without retries: a
    retry would send it again.

    :param expert_id: ID of the expert
    :param rational_feedback: the expert's feedback on the rationale
    :param assessment_response_id: ID of the assessment response that is rated
    :param category_feedback: SUFFICIENTLY_REGULATED, NOT_SUFFICIENTLY_REGULATED or MISSING
    :param conn_id: the Airflow connection
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
        conn_id: str = ComplianceHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or (
            "{{ task.assessment_response_id or task.expert_id }}"
        )
        super().__init__(**kwargs)
        self.expert_id = expert_id
        self.rational_feedback = rational_feedback
        self.assessment_response_id = assessment_response_id
        self.category_feedback = category_feedback
        self.conn_id = conn_id

    def execute(self, context: Context) -> None:
        """Send it."""
        apply_map_index_template(self, context)
        number = _response_id(self.assessment_response_id)
        expert_id, rational_feedback = (optional(each) for each in (self.expert_id, self.rational_feedback))
        try:
            ComplianceHook(self.conn_id).submit_feedback(
                "" if expert_id is None else str(expert_id),
                "" if rational_feedback is None else str(rational_feedback),
                number,
                optional(self.category_feedback),
            )
        except ComplianceUncertainError as error:
            raise as_non_retryable(error) from None
        about = "" if number is None else f" on assessment response {number}"
        self.log.info("The service has taken the feedback of expert %s%s.", expert_id, about)


def _response_id(given: Any) -> int | None:
    """Return the number that a template may have made a text of."""
    given = optional(given)
    if given is not None and (number := parse_id(given)) is None:
        shown = str(given)[:80]
        raise as_non_retryable(ComplianceInputError(f"'{shown}' is no ID of an assessment response."))
    return None if given is None else number
