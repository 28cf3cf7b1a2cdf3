"""The operator that has an expert review the results of an assessment in Airflow's user interface."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from inspect import unwrap
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.client.findings import Finding
from airflow_provider.exceptions import ComplianceError, ComplianceInputError
from airflow_provider.nights.reports.page import DECISIONS
from airflow_provider.nights.review.form import Form, list_demands
from airflow_provider.nights.review.selection import (
    BEYOND_LIMIT,
    ON_NO_FORM,
    ReviewedFinding,
    Selection,
    Verdict,
    check_only,
    select,
)
from airflow_provider.nights.review.state import EXPIRED, NO_DECISION, REVIEW, SENT, ReviewState
from airflow_provider.operators.base import ComplianceBaseOperator, entry_point
from airflow_provider.operators.links import page_of
from airflow_provider.redaction.text import plural
from airflow_provider.runtime.compat import (
    human_in_the_loop,
    response_timeout_for,
    send_map_index,
    wait_for_form,
    waiting_for_input,
)
from airflow_provider.runtime.non_retryable import as_non_retryable
from airflow_provider.runtime.params import as_ids, optional, required
from airflow_provider.runtime.provenance import describe_attempt, read_provenance
from airflow_provider.storage.locations import as_json_or_file
from airflow_provider.storage.names import name_in

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.standard.operators.hitl import HITLOperator
else:
    HITLOperator = human_in_the_loop()

SEND = "Send feedback"
LATER = "Decide later"
MORE_HINT = (
    "Some findings are beyond the limit of the form. For a form with those, map the task over "
    "group_findings(), or over chunk(results, 15); or raise the limit."
)
NO_UI = "No one can answer in `airflow dags test`. Set defaults, or leave it out by --mark-success-pattern"
STORE_HINT = "To have it stored from now on, set `state_path` in the connection, or a `destination`."
NEXT_STEP = "Send missing feedback with ComplianceSubmitFeedbackOperator, or start a new DAG run."


class ComplianceReviewAssessmentOperator(ComplianceBaseOperator, HITLOperator):
    """Have an expert review the findings of an assessment or of a night, and send the answers as feedback.

    Needs Airflow 3.1 or newer. Shows the findings under "Required Actions" with two fields for each: the
    category, as the service gave it, and a rationale. Feedback is sent where the expert writes a rationale. A
    corrected category without a rationale is only recorded, and so is everything with "Decide later". With
    one switch the expert agrees with all findings that stay as they are; otherwise these stay open.

    Returns the decisions, a list of dicts: what each is about, `decision` (`agreed`, `commented` or
    `changed`; `none` if it is still open, `expired` if no one answered in time), `category_before`,
    `category_after`, who decided and when, what was sent, and `outcome`: `sent`, `recorded` if there was
    nothing to send, or `uncertain` if the service may have accepted it although the submit failed. Later
    nights below the same root reuse decisions on `findings`.

    A retry or a cleared task never asks or sends twice. Answers are stored below the connection's
    `state_path`, otherwise in `_work/` at a `destination` in object storage, otherwise in Airflow's task
    state store (since 3.3). If an answer was not stored, the next attempt fails, and says what to do.

    :param assessment_id: the assessment whose results are reviewed
    :param results: the results themselves, instead of `assessment_id`: JSON, or the address of a JSON file
    :param findings: instead, the findings of a night: the result of an assess task, or the URI of its
        `findings.jsonl.gz`, one or many; or a form of `group_findings`, which is asked as it is
    :param only: which `findings`: `changed` since the previous night (the default) or `insufficient`, both
        without findings that an expert decided before; or `all`
    :param limit: at most this many findings on the form, by default 15: first verdicts that got worse, then
        missing ones
    :param destination: where to write the decisions as JSON Lines, such as `s3://conn_id@bucket/decisions/`;
        below a prefix that ends with a slash each task has its own file. An existing file is replaced
    :param expert_id: ID of the expert; by default the ID of the Airflow user who answers
    :param body: Markdown to show above the findings
    :param defaults: `Decide later`, to succeed without feedback if no one answers in time
    :param response_timeout: how long to wait for an answer; by default forever
    :param assigned_users: who may answer; by default everyone who may see the DAG's required actions
    :param notifiers: who is told that an answer is needed
    """

    template_fields: Sequence[str] = (
        "conn_id", "assessment_id", "results", "findings", "only", "limit", "destination", "expert_id",
        "body",
    )  # fmt: skip
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
        destination: str | None = None,
        expert_id: str | None = None,
        response_timeout: timedelta | None = None,  # here too: `partial` asks who knows a parameter
        **kwargs: Any,
    ) -> None:
        kwargs = response_timeout_for(HITLOperator, {**kwargs, "response_timeout": response_timeout})
        super().__init__(subject="", options=[SEND, LATER], **kwargs)
        if sum(value is not None for value in (assessment_id, results, findings)) != 1:
            raise ComplianceInputError(
                f"Task '{self.task_id}': give either assessment_id or results or findings."
            )
        self.assessment_id = assessment_id
        self.results = results
        self.findings = findings
        self.only = only
        self.limit = limit
        self.destination = destination
        self.expert_id = expert_id
        self._form = Form(())

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

    @property
    def topic(self) -> object:
        """The document and the framework, for the name of a mapped task."""
        return ", ".join(filter(None, [self._reviewed, self._form.common("framework")]))

    @entry_point
    def execute(self, context: Context) -> Any:
        """Ask, unless an earlier attempt was answered already."""
        store = self._open_store(context)
        if context["ti"].try_number > 1 and (store is None or store.get(REVIEW) is None):
            from airflow_provider.triggers.review import ComplianceEarlierAnswerTrigger

            trigger = ComplianceEarlierAnswerTrigger(str(context["ti"].id))
            return self.defer(trigger=trigger, method_name="execute_after_check")
        return self._review(context, self._state(context, is_new_attempt=True))

    @entry_point
    def execute_after_check(self, context: Context, event: Any = None) -> Any:
        """Resume when it is known whether an earlier attempt, which stored nothing, was answered."""
        if event:
            raise as_non_retryable(
                ComplianceError(
                    f"An earlier attempt was answered by {event.get('by')} at {event.get('at')}, and may "
                    "have sent feedback: see its log. It stored nothing, so this attempt neither asks nor "
                    f"sends again. {NEXT_STEP} {STORE_HINT}"
                )
            )
        return self._review(context, self._state(context))

    def _review(self, context: Context, state: ReviewState) -> Any:
        review = state.review
        shown = [ReviewedFinding(**record) for record in review.shown]
        earlier = {finding.verdict for finding in shown}
        if self.assessment_id is not None:
            self._check_submitted(context, as_ids(self.assessment_id, "assessment id"))
        selection = self._select(earlier)
        new = {finding.verdict for finding in selection.asked} - earlier
        if not review.has_form:
            shown = list(selection.asked)
        outdated = [key for key, _ in earlier - selection.valid] if review.has_form else []
        resumed = {"shown": [finding.record() for finding in shown], "outdated": outdated}
        self._form = Form(shown, self._reviewed)
        if review.is_open:
            self.log.info("Waiting for the answer to the form of an earlier attempt.")
            send_map_index(self, context)
            self._set_fields()
            # Airflow resumes at once where the answer came, but the attempt before did not get to read it.
            return wait_for_form(self, context, resumed)
        if review.has_form and new:
            self._finish(context, state)
            raise ComplianceInputError(
                "The findings changed after this task first asked, and Airflow keeps the first form. "
                "Start a new DAG run to review them."
            )
        if review.is_answered and not new:
            self.log.info("Returning the decisions of an earlier attempt: nothing is asked again.")
            return self._finish(context, state)
        self._check_findings(context, selection.asked)
        left_out = f" Left out: {selection.omitted}." if selection.omitted else ""
        self.log.info("Asking about %s.%s", plural(len(selection.asked), "finding"), left_out)
        if selection.left_out[BEYOND_LIMIT]:
            self.log.warning(MORE_HINT)
        if not selection.asked:
            return self._finish(context, state)
        if getattr(context.get("dag_run"), "triggering_user_name", None) == "dag_test":
            self.log.warning("%s %s", NO_UI, self.task_id)
            if self.defaults:
                return self._finish(context, state)
        return self._ask(context, state, selection, resumed)

    def _ask(
        self, context: Context, state: ReviewState, selection: Selection, resumed: dict[str, Any]
    ) -> Any:
        send_map_index(self, context)
        self._set_fields()
        self.subject = self._form.subject
        ti = context["ti"]
        page = page_of("runs", ti.dag_id, ti.run_id) if self.findings is not None else ""
        self.body = self._form.render(self.body or "", selection.omitted, self._read_demands(), page)
        try:
            # Not by way of super(): also a resumed task asks, and Airflow lets only `execute` call `execute`.
            return unwrap(HITLOperator.execute)(self, context)
        except waiting_for_input() as signal:
            waiting: Any = signal
            state.record_form(resumed["shown"])
            waiting.kwargs = {**(waiting.kwargs or {}), **resumed}
            raise

    def _read_demands(self) -> dict[tuple[str, str], str]:
        """Return the requirements of the criteria, as the service lists them, by framework and criterion."""
        if not any(finding.framework for finding in self._form.findings):
            return {}
        try:
            return list_demands(self.hook.list_frameworks())
        except ComplianceError as error:
            self.log.warning("The form does not show the requirements of the criteria: %s", error)
            return {}

    def _set_fields(self) -> None:
        from airflow.sdk import Param
        from airflow.sdk.definitions.param import ParamsDict

        self.params = ParamsDict({name: Param(**field) for name, field in self._form.fields.items()})

    # -- the answer

    def validate_params_input(self, params_input: Any) -> None:
        """Leave it to `Form.parse`: the form is not known in the process that gets the answer."""

    @entry_point
    def execute_complete(
        self,
        context: Context,
        event: dict[str, Any],
        shown: Iterable[Mapping[str, Any]] = (),
        outdated: Collection[str] = (),
    ) -> Any:
        """Store the answer, then send it.

        :param shown: the findings on the form
        :param outdated: keys of findings whose verdict changed since then
        """
        self._form = Form([ReviewedFinding(**record) for record in shown], self._reviewed)
        state = self._state(context)
        self._record(context, state, event, outdated)
        if event.get("responded_by_user") is None:
            self.log.warning("No one answered in time: sending no feedback.")
            self._write(context, state)
        super().execute_complete(context, event)  # fails without an answer and without defaults
        return self._finish(context, state)

    def _record(
        self, context: Context, state: ReviewState, event: dict[str, Any], outdated: Collection[str]
    ) -> None:
        """Store the decisions of a form; after an expired form, the next attempt asks again."""
        user, at = event.get("responded_by_user"), event.get("responded_at")
        decisions, warnings = self._form.parse(
            event.get("params_input") or {},
            outdated=outdated,
            undecided=NO_DECISION if user else EXPIRED,
            is_sent=user is not None and SEND in event["chosen_options"],
        )
        for warning in warnings:
            self.log.warning("%s", warning)
        signature = {
            "expert_id": self._expert(user) if user and decisions else "",
            "answered_by": user["id"] if user else "",
            "decided_at": (at or datetime.now(UTC)).isoformat(),
            **read_provenance(context),
        }
        state.record_answer(
            [{**decision, **signature} for decision in decisions], is_answered=user is not None
        )
        counts = Counter(decision["decision"] for decision in decisions)
        recorded = ", ".join(f"{number:,} {DECISIONS[kind]}" for kind, number in counts.items())
        self.log.info("Recorded: %s.", recorded or "nothing")

    def _expert(self, user: dict[str, str]) -> str:
        expert = optional(self.expert_id) or self.expert_of(user)
        if not str(expert or "").strip():
            raise ComplianceInputError(
                "The ID of the expert is missing: set expert_id or override expert_of."
            )
        return str(expert)

    def _finish(self, context: Context, state: ReviewState) -> list[dict[str, Any]]:
        """Send unsent feedback, write all decisions, and return them."""
        try:
            self._write(context, state)  # before anything is sent: the task may die
            self._check_findings(context, self._form.findings)
            try:
                refused = state.send_all(self.hook)
            finally:
                decisions = self._write(context, state)
            if refused:
                raise ComplianceError(f"The service refused the feedback on {'; '.join(refused)}")
        except ComplianceError as error:
            if state.is_persistent:
                raise
            sent = [row["assessment_response_id"] for row in state.results() if row["outcome"] in SENT]
            message = (
                f"{error} Feedback was sent on {len(sent)} of {len(state.feedback)} findings: {sent}. "
                f"None of this is stored, so the task is not retried. {NEXT_STEP} {STORE_HINT}"
            )
            raise as_non_retryable(ComplianceError(message)) from error
        return decisions

    def _open_store(self, context: Context) -> Any:
        from airflow_provider.storage.task_state import open_state_store

        return open_state_store(context, self.hook, optional(self.destination))

    def _state(self, context: Context, *, is_new_attempt: bool = False) -> ReviewState:
        attempt = describe_attempt(context["ti"])
        return ReviewState(self._open_store(context), attempt, self.log, is_new_attempt=is_new_attempt)

    def _write(self, context: Context, state: ReviewState) -> list[dict[str, Any]]:
        """Write all decisions, unless another attempt took over; return them."""
        from airflow_provider.nights.review.decisions import write_decisions

        state.check_lease()
        decisions, destination = state.results(), optional(self.destination)
        for location in write_decisions(decisions, destination, context["ti"], self.hook.account_digest):
            self.log.info("Wrote the decisions to %s.", location)
        return decisions

    # -- the findings

    def _select(self, shown: Collection[Verdict]) -> Selection:
        """Select the findings to ask about.

        :param shown: the verdicts on the form of an earlier attempt
        """
        from airflow_provider.nights.review.grouping import MAX_FINDINGS, load_findings, parse_limit

        limit = parse_limit(self.limit) or MAX_FINDINGS
        if self.findings is None:
            found = self.findings_of(self._load_results())
            account = self.hook.account_digest  # which may change until the answer
            named = (
                replace(
                    ReviewedFinding.of(finding),
                    document=finding.document or self._reviewed,
                    account=account,
                )
                for finding in found
            )
            return select(named, limit, shown=shown)
        findings, on_no_form = load_findings(self.findings)
        if on_no_form is not None:
            selection = select(findings, sys.maxsize, shown=shown)
            selection.left_out[ON_NO_FORM] = on_no_form
            return selection
        return select(findings, limit, only=check_only(self.only), shown=shown)

    def _check_findings(self, context: Context, findings: Iterable[ReviewedFinding]) -> None:
        accounts = ((f"the finding on '{one.criterion}'", one.account) for one in findings)
        self._check_accounts(context, accounts)

    def _load_results(self) -> Any:
        if self.results is not None:
            return as_json_or_file(self.results, "results of an assessment")
        return self.hook.get_assessment_results(required(self.assessment_id, "assessment_id"))

    @property
    def _reviewed(self) -> str:
        """The name of the document, or another name for it."""
        if name := self._form.document:
            return name
        if self.findings is not None:
            return "findings"
        if self.results is None:
            return f"assessment {self.assessment_id}"
        is_uri = isinstance(self.results, str) and not self.results.lstrip().startswith(("{", "["))
        return name_in(self.results) if is_uri else "results"
