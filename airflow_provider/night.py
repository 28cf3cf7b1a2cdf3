"""A whole night as a task group: list, ingest, assess, close, and have experts review what changed."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat.sdk import (
    AirflowSkipException,
    BaseOperator,
    TaskGroup,
    conf,
    task,
    task_group,
)

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.ingest.shards import list_shards
from airflow_provider.nights.ingest.sources import JSON_LISTS
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.base import entry_point
from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator, group_findings
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.judge import ComplianceJudgeOperator
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.runtime.compat import HAS_FORMS
from airflow_provider.runtime.params import MaxFailed, MaxFailedByGroup, RedactedField, optional, required

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Asset, Context

# The night of a run without a logical date is the day on which it was due.
DATE = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"
PARTS: dict[str, Any] = {
    "ingest": ComplianceIngestOperator,
    "assess": ComplianceAssessOperator,
    "close": ComplianceCloseNightOperator,
    "review": ComplianceReviewAssessmentOperator,
    "group_findings": group_findings,
}
LISTED = "listed"  # XCom: the number of documents
MAX_REVIEWED = 200  # findings a night that experts are asked about, unless `limit` says otherwise
# Parameters that the night sets itself, or that make no sense in it.
RESERVED = frozenset({
    "assessed", "assessment_id", "documents", "dry_run", "findings", "ingested", "only", "reassess",
    "results", "reviewed", "root", "sample_of", "task_id", "trigger_rule",
})  # fmt: skip
# Of all tasks, unless the DAG or a parameter says otherwise: more than two hours without the service.
RETRIES: dict[str, Any] = {"retries": 6}
RETRY_DELAYS: dict[str, Any] = {
    "retry_delay": timedelta(minutes=5),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=30),
}
NOT_FOR_GOLDEN = frozenset({"delete_after", "max_failed", "max_submitted"})  # they come every night


def compliance_night(
    sources: Any,
    destination: str,
    *,
    frameworks: Any = None,
    review: Literal["changed", "insufficient", "all"] | None = "changed",
    shard_size: int | None = None,
    sample: int | None = None,
    max_failed: MaxFailed | MaxFailedByGroup = 0.1,
    golden: Any = None,
    on_drift: Literal["reassess", "fail", "warn"] = "reassess",
    outlets: Sequence[Asset] = (),
    conn_id: str = "compliance_default",
    group_id: str = "night",
    **options: Any,
) -> TaskGroup:
    """Build the tasks of a night in a DAG, and return their group.

    Each run has its own folder below the destination. If a shard, an assessment or a review fails, the night
    is closed with the rest, and the run fails.

    :param sources: as in `ComplianceIngestOperator`
    :param destination: archive root of all nights, such as `s3://conn_id@bucket/nights/`
    :param frameworks: as in `ComplianceAssessOperator`
    :param review: which findings experts are asked about; None for no review. Needs Airflow 3.1
    :param shard_size: about how many documents a shard has; by default 1,000, and more only if these would be
        more than half as many shards as Airflow maps: `[core] max_map_length`
    :param sample: process only this many documents, the same every night, for first nights with a service;
        documents outside the sample don't count as gone
    :param max_failed: as in `ComplianceIngestOperator`, for the documents of each shard, and for its
        assessments
    :param golden: documents that experts decided about, assessed every night before all others: as in
        `ComplianceJudgeOperator`; a manifest must end with `.jsonl` or `.ndjson`
    :param on_drift: as in `ComplianceJudgeOperator`
    :param outlets: assets that get an event when the night is closed
    :param options: parameters of the operators inside, each for the tasks that know it, and of every Airflow
        operator, such as `pool`. Without `retries` here or in `default_args`, each task has six, after 5 to
        30 minutes, which outlast two hours without the service
    """
    for name, number in (("shard_size", shard_size), ("sample", sample)):
        if number is not None and (type(number) is not int or number < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, not {number!r}.")
    folder = f"dt={DATE}/run={{{{ run_id }}}}/"
    night = f"{str(required(destination, 'destination')).rstrip('/')}/{folder}"
    given = _split(options)
    common = {"conn_id": conn_id, "destination": night, "root": destination, "deferrable": True}
    with TaskGroup(group_id, default_args=given["default_args"]) as group:  # type: ignore[arg-type] # attrs loses the type of a converter
        dag_args = group.dag.default_args if group.dag else {}
        for defaults in (RETRIES, RETRY_DELAYS):  # Airflow prefers a group's arguments to the DAG's
            if defaults.keys().isdisjoint({**dag_args, **group.default_args}):
                group.default_args.update(defaults)
        shards = _ListDocumentsOperator(
            task_id="list_documents",
            sources=sources,
            destination=night,
            shard_size=shard_size,
            sample=sample,
        )
        judge = None
        if golden is not None:
            place = f"{destination.rstrip('/')}/golden/"
            golden_tree = {**common, "destination": place + folder, "root": place, "max_failed": 1.0}
            judge = ComplianceJudgeOperator(
                task_id="judge",
                golden=golden,
                assessed=_assess_golden(golden, frameworks, golden_tree, given),
                destination=night,
                root=destination,
                on_drift=on_drift,
                conn_id=conn_id,
                trigger_rule="all_done",  # a night without golden documents is better than none
            )
        steps: dict[str, Any] = {}

        @task_group(group_id="shard")
        def process_shard(sources: Any) -> None:
            steps["ingest"] = ComplianceIngestOperator(
                task_id="ingest",
                sources=sources,
                **{
                    **common, "max_failed": max_failed, "skip_unchanged": timedelta(days=7), **given["ingest"]
                },
            )  # fmt: skip
            steps["assess"] = _AssessShardOperator(
                task_id="assess",
                documents=steps["ingest"].output,
                frameworks=frameworks,
                trigger_rule="all_done",  # too many failed documents leave others to assess
                reassess=judge and judge.output,
                **{**common, "max_failed": max_failed, **given["assess"]},
            )

        process_shard.expand(sources=shards.output)
        ingest, assess = steps["ingest"], steps["assess"]
        closing: dict[str, Any] = {
            "ingested": ingest.output,
            "assessed": [assess.output, judge.output] if judge else assess.output,
            "conn_id": conn_id,
            "destination": night,
            "root": destination,
            "trigger_rule": "all_done",
            "sample_of": sample and f"{{{{ ti.xcom_pull({shards.task_id!r}, key={LISTED!r}) or 0 }}}}",
            **given["close"],
        }
        close = ComplianceCloseNightOperator(task_id="close", outlets=outlets, **closing)
        tasks: list[Any] = [ingest, assess, close, *([judge] if judge else ())]
        if review and HAS_FORMS:
            # A shard without findings does not keep experts from the others; a list may be empty.
            forms: Any = task(task_id="group_findings", trigger_rule="all_done")(group_findings)(
                [assess.output], only=review, **{"limit": MAX_REVIEWED, **given["group_findings"]}
            )
            reviewed = ComplianceReviewAssessmentOperator.partial(
                task_id="review",
                conn_id=conn_id,
                **{"response_timeout": timedelta(hours=20), "defaults": "Decide later", **given["review"]},
            ).expand(findings=forms)
            last = ComplianceCloseNightOperator(task_id="close_reviewed", reviewed=reviewed.output, **closing)
            close >> last
            tasks += [reviewed, last]
            if group.dag and group.dag.max_active_runs == 1:
                warnings.warn(
                    "A night with a review runs until experts answer: with max_active_runs=1 it "
                    "delays the next one. Allow more runs, or set review=None.",
                    stacklevel=2,
                )
        tasks >> task(task_id="finish", trigger_rule="none_failed")(_finish)()
    return group


def _assess_golden(golden: Any, frameworks: Any, common: dict[str, Any], given: dict[str, Any]) -> Any:
    """Add the tasks that ingest and assess golden documents; return the output of the last one."""
    if isinstance(golden, list | tuple):
        sources: Any = [row.get("source", "") for row in golden]
    elif isinstance(golden, str) and golden.lower().endswith(JSON_LISTS):
        sources = golden
    else:
        raise ComplianceInputError(
            f"golden must be a list of rows, or the URI of a file that ends with {' or '.join(JSON_LISTS)}, "
            f"not {golden!r}."
        )
    options = {
        part: {name: given[part][name] for name in given[part].keys() - NOT_FOR_GOLDEN}
        for part in ("ingest", "assess")
    }
    ingest = ComplianceIngestOperator(
        task_id="ingest_golden",
        sources=sources,
        **{**common, "skip_unchanged": timedelta(days=7), **options["ingest"]},
    )
    assess = ComplianceAssessOperator(
        task_id="assess_golden",
        documents=ingest.output,
        frameworks=frameworks,
        **{**common, **options["assess"], "changed_only": False},
    )
    return assess.output


class _ListDocumentsOperator(BaseOperator):
    """List all documents of a night; return the list file of each shard."""

    template_fields: Sequence[str] = ("sources", "destination")
    sources = RedactedField()

    def __init__(
        self, *, sources: Any, destination: str, shard_size: int | None, sample: int | None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.sources = sources
        self.destination = destination
        self.shard_size = shard_size
        self.sample = sample

    @entry_point
    def execute(self, context: Context) -> list[str]:
        """List them."""
        most = conf.getint("core", "max_map_length")
        uris, total = list_shards(self.sources, self.destination, self.shard_size, most, self.sample)
        context["ti"].xcom_push(key=LISTED, value=total)
        return uris


class _AssessShardOperator(ComplianceAssessOperator):
    """Assess a shard, if its documents were ingested and the judge decided."""

    @property
    def topic(self) -> object:
        """The subject of the task: the shard whose manifest it has."""
        found = re.search(r"-(\d+)-[0-9a-f]{12}/", str(self.documents))
        return f"shard {int(found[1]) + 1}" if found else super().topic

    def execute(self, context: Context) -> Any:
        """Assess them."""
        if self.documents is None:
            raise AirflowSkipException("The shard was not ingested: clear its ingest task.")
        if "reassess" in self._given and optional(self.reassess) is None:
            raise AirflowSkipException(
                "The task judge failed, so nothing is assessed: see its log, then clear it with all "
                "tasks downstream."
            )
        return super().execute(context)


def _finish() -> None:
    """Fail with any other task: the last one decides about the run, and closing succeeds."""


def _split(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of each part of a night, and the options of all operators."""
    common = inspect.signature(BaseOperator.__init__).parameters.keys() - RESERVED
    names = {name: _parameters(part) - common - RESERVED for name, part in PARTS.items()}
    names["review"] -= names["group_findings"]
    known = common.union(*names.values())
    for unknown in sorted(options.keys() - known):
        own = inspect.signature(compliance_night).parameters.keys() - {"options"}
        nearest = get_close_matches(unknown, known | own, n=1)
        advice = f" Did you mean {nearest[0]}?" if nearest else ""
        raise TypeError(f"A night does not take the parameter {unknown}.{advice}")
    found = {name: {key: options[key] for key in options.keys() & keys} for name, keys in names.items()}
    return {**found, "default_args": {key: options[key] for key in options.keys() & common}}


def _parameters(part: Any) -> set[str]:
    """Return the parameters of a function, or of an operator and its base classes."""
    made = [vars(base).get("__init__") for base in part.__mro__] if inspect.isclass(part) else [part]
    functions = [function for function in made if inspect.isfunction(function)]
    return {name for function in functions for name in inspect.signature(function).parameters}
