"""The operator that has an expert review the results of an assessment in Airflow's user interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from inspect import unwrap
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.compat import (
    human_in_the_loop,
    response_timeout_for,
    send_map_index,
    wait_for_form,
    waiting_for_input,
)
from airflow_provider.exceptions import ComplianceError, ComplianceInputError
from airflow_provider.hooks.interop import as_non_retryable
from airflow_provider.operators.base import ComplianceBaseOperator, entry_point
from airflow_provider.params import optional
from airflow_provider.provenance import describe_attempt, read_provenance
from airflow_provider.review.subject import ReviewedFindingsMixin

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.standard.operators.hitl import HITLOperator

    from airflow_provider.client.findings import Finding
    from airflow_provider.review.selection import Selection
    from airflow_provider.review.state import ReviewState
else:
    HITLOperator = human_in_the_loop()

SEND = "Send feedback"
NOTHING = "No feedback"
MAX_SUBJECT_CHARS = 160
STORE_HINT = "To have it stored from now on, set `state_path` in the connection, or a `destination`."
NEXT_STEP = "Send what is missing with ComplianceSubmitFeedbackOperator, or start a new DAG run."


class ComplianceReviewAssessmentOperator(ReviewedFindingsMixin, ComplianceBaseOperator, HITLOperator):
    """Have an expert review the findings of an assessment or of a night, and send the answers as feedback.

    Needs Airflow 3.1 or newer. The findings are shown under "Required Actions" with three fields for each:
    the category, as the service gave it, a switch to agree, and a rationale. Where an expert writes a
    rationale, feedback is sent. An agreement is only recorded. A finding that is left unchanged is undecided.

    Returns the decisions, a list of dicts: `document`, `framework`, `criterion`, `decision` (`agreed`,
    `commented` or `changed`), `category_before`, `category_after`, `answered_by` and `decided_at`; what was
    sent: `expert_id`, `rational_feedback`, `assessment_response_id` and `category_feedback`; and `outcome`:
    `sent`, `recorded` if there was nothing to send, or `uncertain` if the service may have accepted it
    although the submit failed.

    Decisions on `findings` also have their `source`, `night`, `cell` and `findings`. They are written below
    the root of the night, too: the next night carries them forward with the verdicts.

    A retry or clear neither asks nor sends again what was answered or sent before. That is stored below the
    connection's `state_path`, else in `_work/` at a `destination` in object storage, else in Airflow's task
    state store (since 3.3). If nothing is stored of an answer, the next attempt neither asks nor sends: it
    fails, and says what to do.

    :param assessment_id: the assessment whose results are reviewed
    :param results: the results themselves, instead of `assessment_id`: JSON, or the address of a JSON file
    :param findings: the findings of a night, instead: what an assess task returned, or the URI of its
        `findings.jsonl`, one or many; or one of the groups of `group_findings`, which is asked as it is
    :param only: of `findings`: `changed` since the night before, the default, `insufficient`, both without
        what an expert has decided before, or `all`
    :param limit: at most that many of `findings`, by default all; what has become worse first, then what is
        missing
    :param document: name of the document; by default that of `source_uri`, or what the results say
    :param framework: name of the framework; by default what the results say
    :param text_uri: where the text is: linked from the form if it is an http or https URL, else read, so that
        the form can show a finding's passage in its context
    :param source_uri: where the document came from; linked from the form if it is an http or https URL
    :param destination: where to write the decisions as JSON Lines, such as `s3://conn_id@bucket/decisions/`;
        below a prefix that ends with a slash each task has a file of its own. An existing file is replaced.
    :param expert_id: ID of the expert; by default the ID of the Airflow user who answers
    :param threshold: ask only for findings whose score is below this, or that have none; by default
        for all
    :param max_findings: most findings on one form, by default 50; the log says how to ask for more
    :param conn_id: the Airflow connection
    :param subject: headline of the form; by default it names the document and the framework
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
        "findings",
        "only",
        "limit",
        "document",
        "framework",
        "text_uri",
        "source_uri",
        "destination",
        "expert_id",
        "threshold",
        "subject",
        "body",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"results": "json", "findings": "json"}
    ui_color = "#e3f0e0"

    def __init__(
        self,
        *,
        assessment_id: str | int | None = None,
        results: Any = None,
        findings: Any = None,
        only: str = "changed",
        limit: int | str | None = None,
        document: str | None = None,
        framework: str | None = None,
        text_uri: str | None = None,
        source_uri: str | None = None,
        destination: str | None = None,
        expert_id: str | None = None,
        threshold: float | str | None = None,
        max_findings: int = 50,
        subject: str = "",
        response_timeout: timedelta | None = None,  # here too: `partial` asks who knows a parameter
        **kwargs: Any,
    ) -> None:
        kwargs = response_timeout_for(HITLOperator, {**kwargs, "response_timeout": response_timeout})
        super().__init__(subject=subject, options=[SEND, NOTHING], **kwargs)
        if sum(each is not None for each in (assessment_id, results, findings)) != 1:
            raise ComplianceInputError(
                f"Task '{self.task_id}': give either assessment_id or results or findings."
            )
        if max_findings < 1:
            raise ComplianceInputError(f"Task '{self.task_id}': max_findings must be at least 1.")
        self.assessment_id = assessment_id
        self.results = results
        self.findings = findings
        self.only = only
        self.limit = limit
        self.document = document
        self.framework = framework
        self.text_uri = text_uri
        self.source_uri = source_uri
        self.destination = destination
        self.expert_id = expert_id
        self.threshold = threshold
        self.max_findings = max_findings

    # -- to be overridden

    def findings_of(self, results: Any) -> list[Finding]:
        """Return the findings in the results, as the hook reads them; override that one for all operators.

        :param results: the JSON that the service gave
        """
        return self.hook.findings_of(results)

    def expert_of(self, user: dict[str, str]) -> str:
        """Return the service's ID of an expert; override it where it is not the ID of the Airflow user.

        :param user: `id` and `name` of who answered
        """
        return user["id"]

    # -- asking

    @entry_point
    def execute(self, context: Context) -> Any:
        """Ask, unless an earlier attempt was answered already."""
        from airflow_provider.review.state import ReviewState

        if context["ti"].try_number > 1 and ReviewState.is_lost(self._open_store(context)):
            from airflow_provider.triggers.review import ComplianceEarlierAnswerTrigger

            trigger = ComplianceEarlierAnswerTrigger(str(context["ti"].id))
            return self.defer(trigger=trigger, method_name="execute_after_check")
        return self._review(context, self._state(context, is_new_attempt=True))

    @entry_point
    def execute_after_check(self, context: Context, event: Any = None) -> Any:
        """Resume when it is known whether an earlier attempt was answered, of which nothing is stored."""
        if event:
            raise as_non_retryable(
                ComplianceError(
                    f"An earlier attempt was answered by {event.get('by')} at {event.get('at')}, and may "
                    "have sent feedback: its log says what. Nothing of it is stored, so nothing is asked or "
                    f"sent again. {NEXT_STEP} {STORE_HINT}"
                )
            )
        return self._review(context, self._state(context))

    def _review(self, context: Context, state: ReviewState) -> Any:
        from airflow_provider.review.form import keep_asked

        selection = self._select()
        self._adopt_names(keep_asked(selection.asked))
        if state.asked_digest not in ("", selection.digest) and not state.start_over():
            raise ComplianceInputError(
                "The findings have changed since this task first asked, and Airflow keeps the first form. "
                "Start a new DAG run to review them."
            )
        if state.is_answered:
            decisions = self._finish(context, state)
            if not state.invalid:
                self.log.info("Returning the decisions of an earlier attempt: nothing is asked again.")
                return decisions
        selection.log_summary(self.log, self.max_findings)
        return self._ask(context, state, selection) if selection.asked else self._finish(context, state)

    def _ask(self, context: Context, state: ReviewState, selection: Selection) -> Any:
        from airflow.sdk import Param
        from airflow.sdk.definitions.param import ParamsDict

        from airflow_provider.review.form import build_fields, keep_asked, render, to_line

        resumed = {"asked": keep_asked(selection.asked)}
        send_map_index(self, context)
        fields = build_fields(selection.asked)
        self.params = ParamsDict({name: Param(**field) for name, field in fields.items()})
        if state.has_open_form:
            # Airflow resumes at once where the answer came, but the attempt before did not get to read it.
            self.log.info("Waiting for the answer to the form of an earlier attempt.")
            return wait_for_form(self, context, resumed)
        against = f" against {self.framework}" if self.framework else ""
        self.subject = self.subject or to_line(f"Review of {self._reviewed}{against}", MAX_SUBJECT_CHARS)
        self.body = render(
            self._add_contexts(selection),
            self.body or "",
            self._threshold(),
            reviewed=" · ".join(filter(None, [self._reviewed, self.framework])),
            links={
                label: uri
                for label, given in (("Text", self.text_uri), ("Source", self.source_uri))
                if (uri := optional(given))
            },
        )
        try:
            # Not by way of super(): also a resumed task asks, and Airflow lets only `execute` call `execute`.
            return unwrap(HITLOperator.execute)(self, context)
        except waiting_for_input() as signal:
            waiting: Any = signal
            state.record_form(selection.digest)
            waiting.kwargs = {**(waiting.kwargs or {}), **resumed}
            raise

    # -- the answer

    def validate_params_input(self, params_input: Any) -> None:
        """Leave it to `parse_answers`: the form is not known in the process that gets the answer."""

    @entry_point
    def execute_complete(self, context: Context, event: dict[str, Any], asked: Any = None) -> Any:
        """Store the answer, then send it."""
        from airflow_provider.review.form import parse_answers

        asked = asked or {}
        self._adopt_names(asked)
        state = self._state(context)
        user = event.get("responded_by_user")
        if user is None:
            state.expire_form()
        answer = super().execute_complete(context, event)
        if user is None:
            self.log.warning("Nobody answered in time: sending no feedback.")
        else:
            is_feedback = SEND in answer["chosen_options"]
            answers = parse_answers(answer["params_input"], asked, with_feedback=is_feedback)
            if answers.decisions:
                by = {
                    "answered_by": user["id"],
                    "decided_at": event["responded_at"].isoformat(),
                    **read_provenance(context),
                }
                signed = [{**each, "expert_id": self._expert(user), **by} for each in answers.decisions]
                answers = replace(answers, decisions=signed)
            if known := state.record_answers(answers):
                self.log.info(
                    "Sending nothing on %d findings again, on which feedback was given before.", known
                )
        decisions = self._finish(context, state)
        counts = Counter(each["decision"] for each in decisions)
        self.log.info(
            "Recorded decisions: %s. Undecided findings: %d.",
            ", ".join(f"{number} {decision}" for decision, number in counts.items()) or "none",
            len(asked) - len(decisions) - len(state.invalid),
        )
        if state.invalid:
            raise ComplianceInputError(self._fault(state))
        return decisions

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

    def _finish(self, context: Context, state: ReviewState) -> list[dict[str, Any]]:
        """Send what is not sent yet, write all decisions, and return them."""
        from airflow_provider.review.state import send

        try:
            self._write(context, state.results())  # before anything is sent: sending may fail
            refused = send(self.hook.submit_feedback, state, self.log)
            decisions = state.results()
            self._write(context, decisions)
            if refused:
                raise ComplianceError(f"The service refused the feedback on {'; '.join(refused)}")
        except ComplianceError as error:
            if state.is_persistent:
                raise
            sent = [each["assessment_response_id"] for each in state.feedback if state.outcome(each)]
            message = (
                f"{error} Feedback was sent on {len(sent)} of {len(state.feedback)} findings: {sent}. "
                f"Nothing of that is stored, so there is no retry. {NEXT_STEP} {STORE_HINT}"
            )
            raise as_non_retryable(ComplianceError(message)) from error
        return decisions

    def _open_store(self, context: Context) -> Any:
        from airflow_provider.storage.task_state import open_state_store

        return open_state_store(context, self.hook, optional(self.destination))

    def _state(self, context: Context, *, is_new_attempt: bool = False) -> ReviewState:
        from airflow_provider.review.state import ReviewState

        attempt = describe_attempt(context["ti"])
        return ReviewState(self._open_store(context), **attempt, is_new_attempt=is_new_attempt)

    def _write(self, context: Context, decisions: list[dict[str, Any]]) -> None:
        from airflow_provider.review.decisions import write_decisions

        for location in write_decisions(decisions, optional(self.destination), context["ti"], self._reviewed):
            self.log.info("Wrote the decisions to %s.", location)
