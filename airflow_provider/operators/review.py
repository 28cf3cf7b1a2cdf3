"""The operator that has an expert review the results of an assessment in Airflow's user interface."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from inspect import unwrap
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.client.findings import Finding, parse_number
from airflow_provider.compat import (
    awaiting_input,
    human_in_the_loop,
    response_timeout_for,
    send_map_index,
    waiting_for_input,
)
from airflow_provider.exceptions import ComplianceError, ComplianceInputError
from airflow_provider.hooks.interop import as_non_retryable
from airflow_provider.operators.base import ComplianceBaseOperator, entry_point
from airflow_provider.params import as_json_or_file, optional
from airflow_provider.review.findings import Selection, add_context, select
from airflow_provider.storage.names import digest, name_in, safe

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.standard.operators.hitl import HITLOperator

    from airflow_provider.review.state import ReviewState
else:
    HITLOperator = human_in_the_loop()

SEND = "Send feedback"
NOTHING = "No feedback"
MAX_SUBJECT_CHARS = 160
MAX_TEXT_BYTES = 10 << 20  # of a text, to find passages in
NEXT_STEP = "Send what is missing with ComplianceSubmitFeedbackOperator, or start a new DAG run."


class ComplianceReviewAssessmentOperator(ComplianceBaseOperator, HITLOperator):
    """Have an expert review the findings of an assessment, and send the answers as feedback.

    Needs Airflow 3.1 or newer. The findings are shown under "Required Actions" with three fields for each:
    the category, as the service gave it, a switch to agree, and a rationale. Where an expert writes a
    rationale, feedback is sent. An agreement is only recorded. A finding that is left unchanged is undecided.

    Returns the decisions, a list of dicts: `document`, `framework`, `criterion`, `decision` (`agreed`,
    `commented` or `changed`), `category_before`, `category_after`, `answered_by` and `decided_at`; what was
    sent: `expert_id`, `rational_feedback`, `assessment_response_id` and `category_feedback`; and `outcome`:
    `sent`, `recorded` if there was nothing to send, or `uncertain` if the service may have accepted it
    although the submit failed.

    A retry or clear neither asks nor sends again what was answered or sent before (Airflow 3.3 and newer).

    :param assessment_id: the assessment whose results are reviewed
    :param results: the results themselves, instead of `assessment_id`: JSON, or the address of a JSON file
    :param document: name of the document; by default that of `source_uri`, or what the results say
    :param framework: name of the framework; by default what the results say
    :param text_uri: where the text is: linked from the form if it is an http or https URL, else read, so that
        the form can show a finding's passage in its context
    :param source_uri: where the document came from; linked from the form if it is an http or https URL
    :param destination: where to write the decisions as JSON Lines, such as `s3://conn_id@bucket/decisions/`;
        below a prefix that ends with a slash each task has a file of its own. An existing file is replaced.
    :param expert_id: ID of the expert; by default the ID of the Airflow user who answers
    :param threshold: ask only for findings whose score is below this, or that have none
    :param max_findings: most findings on one form; the log says how to ask for more
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
    template_fields_renderers: ClassVar[dict[str, str]] = {"results": "json"}
    ui_color = "#e3f0e0"

    def __init__(
        self,
        *,
        assessment_id: str | int | None = None,
        results: Any = None,
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
        if (assessment_id is None) == (results is None):
            raise ComplianceInputError(f"Task '{self.task_id}': give either assessment_id or results.")
        if max_findings < 1:
            raise ComplianceInputError(f"Task '{self.task_id}': max_findings must be at least 1.")
        self.assessment_id = assessment_id
        self.results = results
        self.document = document
        self.framework = framework
        self.text_uri = text_uri
        self.source_uri = source_uri
        self.destination = destination
        self.expert_id = expert_id
        self.threshold = threshold
        self.max_findings = max_findings

    @property
    def topic(self) -> object:
        """The document and the framework."""
        return ", ".join(filter(None, [self._reviewed, optional(self.framework)]))

    @property
    def _reviewed(self) -> str:
        """The name of the document, or what is known instead."""
        source = str(optional(self.source_uri) or optional(self.text_uri) or "")
        if name := optional(self.document) or name_in(source):
            return str(name)
        if self.results is None:
            return f"assessment {self.assessment_id}"
        is_uri = isinstance(self.results, str) and not self.results.lstrip().startswith(("{", "["))
        return name_in(self.results) if is_uri else "results"

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
        selection = select(self._load_findings(), self._threshold(), self.max_findings)
        self._adopt_names([(each.document, each.framework) for each in selection.asked])
        if state.asked_digest not in ("", selection.digest):
            raise ComplianceInputError(
                "There are other findings to ask for than when this task asked for the first time, and "
                "Airflow keeps the form of that time. Start a new DAG run to review them."
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
        if state.has_open_form and (awaiting := awaiting_input()):
            # Airflow resumes at once where the answer came, but the attempt before did not get to read it.
            self.log.info("Waiting for the answer to the form of an earlier attempt.")
            raise awaiting(method_name="execute_complete", kwargs=resumed, timeout=self.response_timeout)
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

    def _load_findings(self) -> list[Finding]:
        """Return the findings, with the document and the framework of the parameters."""
        given, framework = optional(self.document) or optional(self.source_uri), optional(self.framework)
        return [
            replace(
                each,
                document=self._reviewed if given else each.document or self._reviewed,
                framework=framework or each.framework,
            )
            for each in self.findings_of(self._load_results())
        ]

    def _adopt_names(self, names: Collection[tuple[str, str]]) -> None:
        """Take the document and the framework of all findings on the form, where no parameter gives them."""
        self.document = optional(self.document) or _only(document for document, _ in names)
        self.framework = optional(self.framework) or _only(framework for _, framework in names)

    def _add_contexts(self, selection: Selection) -> Selection:
        """Show passages in the context of the text, where it can be read."""
        uri = optional(self.text_uri)
        if not uri or uri.startswith(("http://", "https://")):
            return selection
        from airflow_provider.storage.locations import Location, storage_errors

        try:
            location = Location(uri)
            with (
                storage_errors(location, "read"),
                location.fs.open(location.path, "rb", compression="infer") as file,
            ):
                text = file.read(MAX_TEXT_BYTES).decode(errors="replace")
        except ComplianceError as error:
            self.log.warning("Showing passages without their context: %s", error)
            return selection
        return replace(selection, asked=tuple(add_context(each, text) for each in selection.asked))

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
        """Leave it to `parse_answers`: the form is not known in the process that gets the answer."""

    @entry_point
    def execute_complete(self, context: Context, event: dict[str, Any], asked: Any = None) -> Any:
        """Store the answer, then send it."""
        from airflow_provider.review.form import parse_answers

        asked = asked or {}
        self._adopt_names([(each["document"], each["framework"]) for each in asked.values()])
        state = _state(context)
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
                by = {"answered_by": user["id"], "decided_at": event["responded_at"].isoformat()}
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
                f"Airflow before 3.3 keeps nothing of that, so there is no retry. {NEXT_STEP}"
            )
            raise as_non_retryable(ComplianceError(message)) from error
        return decisions

    def _write(self, context: Context, decisions: Iterable[dict[str, Any]]) -> None:
        """Write decisions as JSON Lines, replacing those of an earlier attempt."""
        if not (destination := optional(self.destination)):
            return
        from airflow_provider.storage.atomic import put_sync
        from airflow_provider.storage.locations import Location

        location = Location.to_write(destination)
        if location.is_prefix:
            ti = context["ti"]
            task = digest(json.dumps([ti.dag_id, ti.run_id, ti.task_id, ti.map_index]))
            location = location / f"{safe(self._reviewed)}-{task}.jsonl"
        put_sync(location, b"".join(json.dumps(each).encode() + b"\n" for each in decisions))
        self.log.info("Wrote the decisions to %s.", location)


def _only(values: Iterable[str]) -> str:
    """Return the value that all have in common; empty if there is none."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""


def _state(context: Context) -> ReviewState:
    from airflow_provider.review.state import ReviewState

    return ReviewState(context.get("task_state_store"), context["ti"].try_number)
