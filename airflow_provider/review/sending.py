"""Sending the feedback of a review, each at most once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceNotFoundError,
    ComplianceRefusedError,
    ComplianceUncertainError,
)
from airflow_provider.review.state import ReviewState

# These say something about one feedback; every other error would meet the next one, too.
ABOUT_ONE = (ComplianceInputError, ComplianceNotFoundError, ComplianceRefusedError)


def send(submit: Callable[..., None], state: ReviewState, log: Any) -> list[dict[str, Any]]:
    """Send what was not sent yet; return everything that was or may have been sent, with its outcome."""
    refused: list[str] = []
    for feedback in state.feedback:
        number = feedback["assessment_response_id"]
        if outcome := state.begin(feedback):
            if outcome == "uncertain":
                log.warning("Feedback on response %s may have been taken before: not sent again.", number)
            continue
        try:
            submit(**feedback)
        except ComplianceUncertainError as error:
            state.note(feedback, "uncertain")
            log.warning("Feedback on response %s is not sent again: %s", number, error)
        except ComplianceError as error:
            state.note(feedback, "")
            if not isinstance(error, ABOUT_ONE):
                raise
            refused.append(f"response {number}: {error}")
        else:
            state.note(feedback, "sent")
            log.info("Sent feedback on response %s.", number)
    if refused:
        raise ComplianceError(f"The service refused the feedback on {'; '.join(refused)}")
    return [{**feedback, "outcome": state.outcome(feedback)} for feedback in state.feedback]
