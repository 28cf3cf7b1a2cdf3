"""The operator for bulk assessment: every document of a night against compliance frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import ComplianceAssessError, ComplianceError, ComplianceInputError
from airflow_provider.operators.base_bulk import ASSESS, ComplianceBulkOperator
from airflow_provider.runtime.params import as_ids, as_json, required, unique
from airflow_provider.storage.locations import Location
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind

if TYPE_CHECKING:
    from airflow_provider.client.models import Framework
    from airflow_provider.nights.assess.payloads import PayloadTemplate
    from airflow_provider.nights.bulk.engine import BulkRun


class ComplianceAssessOperator(ComplianceBulkOperator):
    """Assess many documents against compliance frameworks, in one task.

    A cell is one document and one framework. A verdict is reused if an earlier night below the same root made
    it from equal input: text, framework with all its criteria, payload as sent, account. A checkpoint lets a
    retry, a cleared task or another worker resume.

    Returns the URIs of `assessments`, `findings` and `report`, how many cells were `assessed`, `carried`
    (reused) and `failed`, how many verdicts `changed` and are `gone`, how many criteria are `unanswered`,
    `warnings` about shortfalls, and `categories`: how many criteria of each framework are in each; with
    `delete_after="assess"` also how many jobs were `deleted`.

    :param documents: one or many of: the URI of a manifest, the result of an ingest task, a uuid, a dict with
        the fields of a manifest row
    :param frameworks: ids or code names, one or many; by default, or if the list is empty, all that the
        service lists
    :param payload: what to send for each document and framework: JSON with placeholders such as
        `{document[uuid]}` and `{framework[codeName]}`; by default the connection's `assessment_payload`,
        otherwise the document's uuid and the framework's code name
    :param changed_only: reuse verdicts of earlier nights; on by default
    :param delete_after: when to delete the jobs of documents at the service: `"assess"`, when all assessments
        of a document are stored and checked, and none failed; `"fetch"` leaves that to
        `ComplianceIngestOperator`; by default never
    :param reassess: ids or code names of frameworks whose earlier verdicts are not reused, tonight or later;
        or the result of `ComplianceJudgeOperator`
    :param dry_run: send nothing; return how many assessments are new, changed and reused, and what they would
        cost; off by default
    """

    template_fields: Sequence[str] = (
        "conn_id", "documents", "frameworks", "payload", "destination", "root",
        "delete_after", "max_submitted", "reassess",
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("documents", "payload", "reassess"), "json"
    )
    kind: ClassVar[JobKind] = ASSESSMENTS
    deletes_after: ClassVar[str] = ASSESS
    ui_color = "#e4dcf5"

    def __init__(
        self,
        *,
        documents: Any,
        frameworks: Any = None,
        payload: Any = None,
        changed_only: bool = True,
        reassess: Any = None,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.documents = documents
        self.frameworks = frameworks
        if callable(payload):
            raise ComplianceInputError(
                "payload is a function: it must be JSON with placeholders. Let an upstream @task return the "
                "payload, and put what differs between documents into fields of the documents."
            )
        self.payload = payload
        # The output of an upstream task may render as nothing: that is not the default.
        self.reassess = reassess
        given = ("frameworks", "payload", "reassess")
        self._given = {name for name in given if getattr(self, name) is not None}
        self.changed_only = changed_only
        self.is_dry_run = dry_run

    @property
    def topic(self) -> object:
        """The subject of the task: its frameworks."""
        wanted = self._wanted_frameworks()
        return f"{', '.join(wanted)}" if wanted else "all frameworks"

    def _wanted_frameworks(self) -> list[str]:
        return unique(as_ids(self.frameworks, "frameworks")) if "frameworks" in self._given else []

    def _judged_since(self, listed: Sequence[Framework]) -> dict[str, str] | None:
        """Return since when verdicts count, by framework id; None without a judge task.

        :return: empty for a framework to be assessed again now
        """
        if "reassess" not in self._given:
            return None
        from airflow_provider.nights.assess.cells import select_frameworks

        given = required(self.reassess, "reassess")  # a judge that failed leaves nothing
        if isinstance(given, str) and given.lstrip().startswith("{"):
            given = as_json(given, "reassess")
        if isinstance(given, Mapping) and "judged_since" in given:
            return dict(given["judged_since"])
        again = as_ids(given["reassess"] if isinstance(given, Mapping) else given, "framework")
        return {one.id: "" for one in select_frameworks(listed, again)} if again else {}

    def _template(self) -> PayloadTemplate:
        from airflow_provider.nights.assess.payloads import DEFAULT_PAYLOAD, PayloadTemplate

        if "payload" in self._given:
            return PayloadTemplate(as_json(self.payload, "payload"))
        return PayloadTemplate(self.hook.assessment_payload or DEFAULT_PAYLOAD)

    def _process(self, run: BulkRun) -> dict[str, Any]:
        from airflow_provider.nights.assess.cells import parse_frameworks, select_frameworks
        from airflow_provider.nights.assess.inputs import read_documents
        from airflow_provider.nights.assess.output import Outcome
        from airflow_provider.nights.assess.task import AssessTask
        from airflow_provider.nights.bulk.counts import check_failures

        documents, without_text, warnings = read_documents(self.documents)
        accounts = ((f"the job of '{one.source}'", one.fields.get("account")) for one in documents)
        self._check_accounts(run.context, accounts)
        self._check_submitted(run.context, [one.uuid for one in documents if not one.fields.get("account")])
        if not documents:
            self.log.warning("Found no documents with a text: nothing to assess.")
        try:
            listed = self.call(self.hook.list_frameworks)
            frameworks = select_frameworks(listed, self._wanted_frameworks())
        except ComplianceError as error:
            # They were listed when the task started.
            error.transient = error.transient or not run.is_new_attempt
            raise
        judged_since = self._judged_since(listed)
        template = self._template()
        template.check(
            [document.fields for document in documents],
            [framework.fields for framework in frameworks],
            [framework.fields for framework in parse_frameworks(listed)],
        )
        task = AssessTask(
            run,
            documents,
            without_text,
            {framework.id: framework for framework in frameworks},
            {framework.id for framework in parse_frameworks(listed)},
            template,
            warnings,
            judged_since,
        )
        if self.is_dry_run:
            return self._loop.run(task.plan(changed_only=self.changed_only))
        run.checkpoint.acquire(len(documents) * len(frameworks))
        if job_ids := self._loop.run(task.assess(changed_only=self.changed_only)):
            self._defer(run, job_ids)
        outcome = Outcome(task)
        result = self._loop.run(outcome.publish())
        outcome.send_metrics(self.conn_id)
        report = Location(result["report"])
        address = self._conclude(run, result, report, outcome.finished_jobs, outcome.lineage())
        check_failures(task.cells, self.max_failed, address, "assessments", ComplianceAssessError, self.log)
        return result
