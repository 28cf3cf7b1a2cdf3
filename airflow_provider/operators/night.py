"""The operator that closes a night: one record, one report, one asset event."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import ComplianceInputError, ComplianceVanishedError
from airflow_provider.operators.base import ROOT_KEY, ComplianceBaseOperator, StoringMixin, entry_point
from airflow_provider.operators.base_bulk import RETURN_VALUE
from airflow_provider.operators.links import ComplianceReportLink, forms_url, push_report
from airflow_provider.redaction.text import sanitize
from airflow_provider.runtime.compat import task_states
from airflow_provider.runtime.params import MaxFailed, count_allowed, optional
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import common_root

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.nights.evidence.chain import ChainRecord

OnClosed = Callable[[Any], object]
"""A notifier of Airflow, or a function of the context."""

JUDGE = "ComplianceJudgeOperator"
# Operators whose tasks count even if they are not direct upstream tasks, and the parameter for their outputs.
NIGHT_TASKS = {
    "ComplianceIngestOperator": "ingested",
    "ComplianceAssessOperator": "assessed",
    "ComplianceReviewAssessmentOperator": "reviewed",
    JUDGE: "assessed",
}


def _kinds_of(task: Any) -> set[str]:
    """Return the names of the class of a task, mapped or not, and of its base classes."""
    kind = getattr(task, "operator_class", type(task))
    return {base.__name__ for base in getattr(kind, "__mro__", ())}


class ComplianceCloseNightOperator(StoringMixin, ComplianceBaseOperator):
    """Close a night: evidence that can be verified, a report, and one asset event.

    Run it with `trigger_rule="all_done"`, so that nights with failures are closed as well. Closing a night
    again adds a revision, which replaces the earlier one, or nothing if the outputs are the same.

    Returns the URIs of the record (`night`) and the `report`, the `sha256` of the record and of the
    `previous` one in the chain, the `revision`, the totals, and the `headline` of the report, which it also
    logs.

    :param ingested: outputs of ingest tasks, one or many, mapped or not; or URIs of their manifests
    :param assessed: outputs of assess tasks, one or many, mapped or not; or URIs of their tables
    :param reviewed: outputs of review tasks, one or many, mapped or not; or URIs of files with decisions, or
        of a folder with such files, ending with `/`
    :param destination: prefix of the night; its report goes below `_night/`
    :param root: common prefix of all nights, where the chain of records is; by default the destination up to
        its first part with a `=` in it, such as `dt=2026-01-01`
    :param max_vanished: how many documents of the previous night may be gone before the task fails, after
        writing record and report: a number, a share such as 0.2, or a percentage; None for any number
    :param retire_after: erase documents that were in none of this many latest nights, unless more than
        `max_vanished` are gone; None for never
    :param sample_of: the number of all documents, if the night has only a sample of them: documents outside
        the sample don't count as gone, and nothing is retired
    :param on_closed: one or many notifiers of Airflow, or functions of the context, to call when the night is
        closed, and again when it is closed with something new, such as decisions. `night` in their context
        and templates says what happened. A notifier that fails is a warning
    :param conn_id: the connection to the service, for deleting the jobs of retired documents
    """

    template_fields: Sequence[str] = (
        "ingested", "assessed", "reviewed", "destination", "root", "conn_id", "sample_of"
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("ingested", "assessed", "reviewed"), "json"
    )
    named_after: ClassVar[str] = "destination"
    operator_extra_links = (ComplianceReportLink(),)
    ui_color = "#dde7ee"

    def __init__(
        self,
        *,
        destination: str,
        ingested: Any = None,
        assessed: Any = None,
        reviewed: Any = None,
        root: str | None = None,
        max_vanished: MaxFailed | None = 0.2,
        retire_after: int | None = None,
        sample_of: Any = None,
        on_closed: OnClosed | Iterable[OnClosed] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if max_vanished is not None:
            count_allowed(max_vanished, total=0, name="max_vanished")
        if retire_after is not None and (not isinstance(retire_after, int) or retire_after < 1):
            raise ComplianceInputError(
                f"retire_after must be None or a number from 1 on, not {retire_after!r}."
            )
        self.on_closed = [on_closed] if callable(on_closed) else [*on_closed]
        if wrong := [callback for callback in self.on_closed if not callable(callback)]:
            raise ComplianceInputError(
                f"on_closed takes notifiers or functions of the context, not {wrong[0]!r}."
            )
        self._given = {
            name
            for name, outputs in (("ingested", ingested), ("assessed", assessed))
            if outputs is not None  # the output of a task may be empty when it is rendered
        }
        self.ingested = ingested
        self.assessed = assessed
        self.reviewed = reviewed
        self.destination = destination
        self.root = root
        self.max_vanished = max_vanished
        self.retire_after = retire_after
        self.sample_of = sample_of

    @entry_point
    def execute(self, context: Context) -> dict[str, Any]:
        """Close the night."""
        from airflow_provider.nights.evidence.closing import Closing, has_failures, to_result
        from airflow_provider.nights.evidence.manifests import Outputs
        from airflow_provider.storage.lineage import Lineage

        destination = Location.to_write(self.destination)
        root = Location.to_write(common_root(destination.uri) if self.root is None else self.root, "root")
        outputs = Outputs(ingested=self.ingested, assessed=self.assessed, reviewed=self.reviewed)
        sample_of = optional(self.sample_of)
        self._retire(root, context, None)
        tasks, writers = self._night_tasks()
        states = task_states(context, tasks)
        states |= self._find_causes(context, states)
        closing = Closing(
            context, outputs, states, destination, root, self.log, writers,
            sample_of=None if sample_of is None else int(sample_of),
        )  # fmt: skip
        closed, night = closing.run()
        result = {**to_result(closed, root), "headline": night["headline"]}
        address = push_report(context["ti"], Location(result["report"]))
        level = logging.WARNING if has_failures(closed.record) else logging.INFO
        self.log.log(level, "%s Report: %s", night["headline"], address)
        context["ti"].xcom_push(key=ROOT_KEY, value=root.uri)
        manifests = [root / str(table["path"]) for table in closed.record["manifests"]]
        written = Lineage(tables={Location(closed.uri): 1}, texts=manifests)
        self._report_written(context, written, result)
        context["ti"].xcom_push(key=RETURN_VALUE, value=result)  # Airflow drops the result of a failed task
        if closing.is_new:
            urls = {"report_url": address, "forms_url": forms_url(context["ti"])}
            self._notify(context, {**night, **urls, "report": result["report"]})
        self._check_vanished(closed)
        self._retire(root, context, closed)
        return result

    def _notify(self, context: Context, night: dict[str, Any]) -> None:
        """Call the notifiers; the night stays closed even if one fails."""
        for callback in self.on_closed:
            given: Any = copy(context)  # which it may change
            given["night"] = night
            try:
                callback(given)
            except (Exception, SystemExit) as error:  # any kind: it is users' code
                name = getattr(callback, "__name__", type(callback).__name__)
                self.log.warning(
                    "on_closed: %s failed: %s: %s", name, type(error).__name__, sanitize(error, 500)
                )

    def _retire(self, root: Location, context: Context, closed: ChainRecord | None) -> None:
        """Erase documents that vanished; without a record, complete the erasure of an earlier attempt."""
        if self.retire_after is None:
            return
        from airflow_provider.nights.evidence.erasing import Erasure
        from airflow_provider.nights.evidence.history import find_retired
        from airflow_provider.nights.evidence.jobs import ErasedJobs
        from airflow_provider.storage.names import task_path

        ti, reason = context["ti"], f"Not among the documents of the latest {self.retire_after} nights"
        by, task = f"{ti.dag_id}/{ti.task_id}", task_path(ti)
        erasure = Erasure(root, (), reason, by, self.log, task=task)
        if closed:
            erasure.sources = find_retired(erasure.chain, closed, self.retire_after, self.log)
            retired, documents = len(erasure.sources), closed.record["totals"]["documents"]
            share = 1.0 if self.max_vanished is None else self.max_vanished
            if retired > count_allowed(share, documents + retired):
                erasure.sources = set()
                self.log.warning(
                    "Not retired: %s documents are gone, more than max_vanished=%s allows. If they were "
                    "removed on purpose, set max_vanished, or erase them.",
                    retired,
                    self.max_vanished,
                )
        if erasure.sources or erasure.find_begun():
            erasure.run(ErasedJobs(self.hook, self._loop, self.log, is_required=False))

    def _check_vanished(self, closed: ChainRecord) -> None:
        """Fail if too many documents vanished; not if tasks are missing, which may have had them."""
        compared, vanished = closed.record["compared_with"], closed.record["totals"]["vanished"]
        if self.max_vanished is None or not compared or closed.record["missing"]:
            return
        if vanished > count_allowed(self.max_vanished, compared["documents"]):
            raise ComplianceVanishedError(
                f"{vanished:,} of {compared['documents']:,} documents of the previous night are gone, more "
                f"than max_vanished={self.max_vanished} allows. The night is closed anyway: see its "
                "report. If a source was not available, clear the run; if they were removed on purpose, "
                "set max_vanished."
            )

    def _night_tasks(self) -> tuple[set[str], set[str]]:
        """Return the tasks of the night, whose state shows gaps, and among them the writers of manifests.

        All direct upstream tasks are part of the night. Further upstream, only tasks that leave a manifest:
        others, such as a task that sends a message, matter only if they keep these from running.
        """
        tasks, writers = set(self.upstream_task_ids), set()
        above = self.get_flat_relatives(upstream=True) if self.has_dag() else ()
        kinds = {task.task_id: _kinds_of(task) for task in above}
        judges = [task for task in above if JUDGE in kinds[task.task_id]]
        # Tasks above a judge are about golden documents, and the judge writes their tables.
        golden = {task.task_id for judge in judges for task in judge.get_flat_relatives(upstream=True)}
        for task in above:
            names = set() if task.task_id in golden else kinds[task.task_id] & NIGHT_TASKS.keys()
            if names:
                tasks.add(task.task_id)
            if any(NIGHT_TASKS[name] in self._given for name in names):
                writers.add(task.task_id)
        return tasks, writers

    def _find_causes(
        self, context: Context, states: dict[tuple[str, int], str]
    ) -> dict[tuple[str, int], str]:
        """Return the failed instances that kept tasks with these states from running."""
        causes: dict[tuple[str, int], str] = {}
        while self.has_dag() and "upstream_failed" in states.values():
            above = {
                upstream_id
                for (task_id, _), state in states.items()
                if state == "upstream_failed"
                for upstream_id in self.dag.get_task(task_id).upstream_task_ids
            }
            states = task_states(context, above)
            causes |= {instance: state for instance, state in states.items() if state == "failed"}
        return causes
