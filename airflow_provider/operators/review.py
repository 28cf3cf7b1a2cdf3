"""The operator that has an expert review the results of an assessment in Airflow's user interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from inspect import unwrap
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.compat import (
    awaiting_input,
    human_in_the_loop,
    response_timeout_for,
    waiting_for_input,
)
from airflow_provider.exceptions import ComplianceError, ComplianceInputError
from airflow_provider.hooks.interop import as_non_retryable
from airflow_provider.operators.base import ComplianceBaseOperator, entry_point
from airflow_provider.params import as_json_or_file, optional
from airflow_provider.review.findings import Finding, Selection, parse_findings, parse_number, select

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.standard.operators.hitl import HITLOperator

    from airflow_provider.review.state import ReviewState
else:
    HITLOperator = human_in_the_loop()

SEND = "Send feedback"
NOTHING = "No feedback"
NEXT_STEP = "Send what is missing with ComplianceSubmitFeedbackOperator, or start a new DAG run."


class ComplianceReviewAssessmentOperator(ComplianceBaseOperator, HITLOperator):
    """Have an expert review the findings of an assessment, and send the answers as feedback.

    Needs Airflow 3.1 or newer. The findings are shown under "Required Actions" with two fields for each: the
    category, as the service gave it, and a rationale. Where an expert writes a rationale, feedback is sent;
    where a finding is left as it is, none is. Returns what was sent: a list of dicts with `expert_id`,
    `rational_feedback`, `assessment_response_id`, `category_feedback` and `outcome`, which is `sent`, or
    `uncertain` where the service may have taken it although no good answer came.

    A retry or clear neither asks nor sends again what was answered or sent before (Airflow 3.3 and newer).

    :param assessment_id: the assessment whose results are reviewed
    :param results: the results themselves, instead of `assessment_id`: JSON, or the address of a JSON file
    :param expert_id: ID of the expert; by default the ID of the Airflow user who answers
    :param threshold: ask only for findings whose score is below this, or that have none
    :param max_findings: most findings on one form; the log says how to ask for more
    :param conn_id: the Airflow connection
    :param subject: headline of the form
    :param body: Markdown to show above the findings
    :param defaults: `No feedback`, to succeed without feedback if nobody answers in time
    :param response_timeout: how long to wait for an answer; by default forever
    :param assigned_users: who may answer; by default everybody who may see the DAG's required actions
    :param notifiers: whom to tell that an answer is needed
    """

    template_fields: Sequence[str] = (
        "conn_id",
        "assessment_id",
        "results",
        "expert_id",
        "threshold",
        "subject",
        "body",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"results": "json"}
    ui_color = "#e3f0e0"

    def __init__(
        self,
        *,
        assessment_id: str | int | None = None,
        results: Any = None,
        expert_id: str | None = None,
        threshold: float | str | None = None,
        max_findings: int = 50,
        subject: str = "",
        response_timeout: timedelta | None = None,  # here too: `partial` asks who knows a parameter
        **kwargs: Any,
    ) -> None:
        kwargs = response_timeout_for(HITLOperator, {**kwargs, "response_timeout": response_timeout})
        super().__init__(subject=subject, options=[SEND, NOTHING], **kwargs)
        if (assessment_id is None) == (results is None):
            raise ComplianceInputError(f"Task '{self.task_id}': give either assessment_id or results.")
        if max_findings < 1:
            raise ComplianceInputError(f"Task '{self.task_id}': max_findings must be at least 1.")
        self.assessment_id = assessment_id
        self.results = results
        self.expert_id = expert_id
        self.threshold = threshold
        self.max_findings = max_findings

    @property
    def topic(self) -> object:
        """What the task is about."""
        return self.assessment_id or "results"

    # -- to be overridden

    def findings_of(self, results: Any) -> list[Finding]:
        """Return the findings in the results; override it where the service's results look different.

        :param results: the JSON that the service gave
        """
        return parse_findings(results)

    def expert_of(self, user: dict[str, str]) -> str:
        """Return the service's ID of an expert; override it where it is not the ID of the Airflow user.

        :param user: `id` and `name` of who answered
        """
        return user["id"]

    # -- asking

    @entry_point
    def execute(self, context: Context) -> Any:
        """Ask, unless an earlier attempt was answered already."""
        state = _state(context)
        if not state.is_persistent and context["ti"].try_number > 1:
            from airflow_provider.triggers.review import ComplianceEarlierAnswerTrigger

            trigger = ComplianceEarlierAnswerTrigger(str(context["ti"].id))
            return self.defer(trigger=trigger, method_name="execute_after_check")
        return self._review(context, state)

    @entry_point
    def execute_after_check(self, context: Context, event: Any = None) -> Any:
        """Resume when it is known whether an earlier attempt was answered; before Airflow 3.3."""
        if event:
            raise as_non_retryable(
                ComplianceError(
                    f"An earlier attempt was answered by {event.get('by')} at {event.get('at')}, and may "
                    "have sent feedback: its log says what. Airflow before 3.3 keeps nothing of it, so "
                    f"nothing is asked or sent again. {NEXT_STEP}"
                )
            )
        return self._review(context, _state(context))

    def _review(self, context: Context, state: ReviewState) -> Any:
        selection = select(self.findings_of(self._load_results()), self._threshold(), self.max_findings)
        if state.asked_digest not in ("", selection.digest):
            raise ComplianceInputError(
                "There are other findings to ask for than when this task asked for the first time, and "
                "Airflow keeps the form of that time. Start a new DAG run to review them."
            )
        if state.is_answered:
            sent = self._send(state)
            if not state.invalid:
                self.log.info("An earlier attempt was answered: nothing is asked again.")
                return sent
        selection.log_summary(self.log, self.max_findings)
        return self._ask(context, state, selection) if selection.asked else []

    def _ask(self, context: Context, state: ReviewState, selection: Selection) -> Any:
        from airflow.sdk import Param
        from airflow.sdk.definitions.param import ParamsDict

        from airflow_provider.review.form import AskedFindings, build_fields, render

        resumed = {"asked": asdict(AskedFindings.from_findings(selection.asked))}
        if state.has_open_form and (awaiting := awaiting_input()):
            # Airflow resumes at once where the answer came, but the attempt before did not get to read it.
            self.log.info("The form of an earlier attempt is still there: waiting for its answer.")
            raise awaiting(method_name="execute_complete", kwargs=resumed, timeout=self.response_timeout)
        self.subject = self.subject or f"Review of assessment {self.assessment_id or 'results'}"
        self.body = render(selection, self.body or "", self._threshold())
        fields = build_fields(selection.asked)
        self.params = ParamsDict({name: Param(**field) for name, field in fields.items()})
        try:
            # Not by way of super(): also a resumed task asks, and Airflow lets only `execute` call `execute`.
            return unwrap(HITLOperator.execute)(self, context)
        except waiting_for_input() as signal:
            waiting: Any = signal
            state.record_form(selection.digest)
            waiting.kwargs = {**(waiting.kwargs or {}), **resumed}
            raise

    def _load_results(self) -> Any:
        if self.results is not None:
            return as_json_or_file(self.results, "results of an assessment")
        if (assessment_id := optional(self.assessment_id)) is None:
            raise ComplianceInputError(
                "There is no assessment_id: the task that should give it has returned nothing."
            )
        return self.hook.get_assessment_results(assessment_id)

    def _threshold(self) -> float | None:
        given = optional(self.threshold)
        if given is not None and (number := parse_number(given)) is None:
            raise ComplianceInputError(f"threshold must be a number, not {given!r}.")
        return None if given is None else number

    # -- the answer

    def validate_params_input(self, params_input: Any) -> None:
        """Leave it to `read`: the form is not known in the process that gets the answer."""

    @entry_point
    def execute_complete(self, context: Context, event: dict[str, Any], asked: Any = None) -> Any:
        """Keep the answer, then send it."""
        from airflow_provider.review.form import Answers, AskedFindings, parse_answers

        state = _state(context)
        user = event.get("responded_by_user")
        if user is None:
            state.expire_form()
        answer = super().execute_complete(context, event)
        if user is None:
            self.log.warning("Nobody answered in time: no feedback is sent.")
        elif SEND in answer["chosen_options"]:
            answers = parse_answers(answer["params_input"], AskedFindings(**asked), self._expert(user))
            known = state.record_answers(answers)
            if known:
                self.log.info("%d findings were answered before: nothing is sent on them again.", known)
        else:
            state.record_answers(Answers())
        sent = self._send(state)
        if state.invalid:
            raise ComplianceInputError(self._fault(state))
        return sent

    def _expert(self, user: dict[str, str]) -> str:
        expert = optional(self.expert_id) or self.expert_of(user)
        if not str(expert or "").strip():
            raise ComplianceInputError("There is no ID of the expert: set expert_id, or override expert_of.")
        return str(expert)

    def _fault(self, state: ReviewState) -> str:
        names = "; ".join(f"'{name}'" for name in state.invalid.values())
        how = (
            "Clear this task to be asked again, and leave the others as they are."
            if state.is_persistent
            else NEXT_STEP
        )
        return (
            f"The category was changed without a rationale, which the service requires, on {names}. Feedback "
            f"on the other findings is sent, and will not be sent again. {how}"
        )

    def _send(self, state: ReviewState) -> list[dict[str, Any]]:
        from airflow_provider.review.state import send

        try:
            return send(self.hook.submit_feedback, state, self.log)
        except ComplianceError as error:
            if state.is_persistent:
                raise
            sent = [each["assessment_response_id"] for each in state.feedback if state.outcome(each)]
            message = (
                f"{error} Feedback was sent on {len(sent)} of {len(state.feedback)} findings: {sent}. "
                f"Airflow before 3.3 keeps nothing of that, so there is no retry. {NEXT_STEP}"
            )
            raise as_non_retryable(ComplianceError(message)) from error


def _state(context: Context) -> ReviewState:
    from airflow_provider.review.state import ReviewState

    return ReviewState(context.get("task_state_store"), context["ti"].try_number)
