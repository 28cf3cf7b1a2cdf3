"""The operator that closes a night: one record, one report, one asset event."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import Asset, BaseOperator

from airflow_provider import lineage
from airflow_provider.compat import HAS_PARTITION_KEYS, add_partition_key, task_states
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.ingest.output import common_root, report_link
from airflow_provider.operators.base import MAX_TITLE_CHARS, REPORT_URL, ComplianceReportLink, entry_point
from airflow_provider.params import optional
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import printable

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.evidence.chain import ChainRecord

# Whose instances are looked for also where they are not directly upstream.
NIGHT_TASKS = frozenset(
    {"ComplianceIngestOperator", "ComplianceAssessOperator", "ComplianceReviewAssessmentOperator"}
)
MAX_PARTITION_KEY_CHARS = 250  # of Airflow's database


class ComplianceCloseNightOperator(BaseOperator):
    """Tie the outputs of a night together: evidence that can be verified, a report, and one asset event.

    Run it with `trigger_rule="all_done"`, so that a night with failures is closed, too. Closing a night again
    adds a revision, which replaces the earlier one; if nothing has changed, it adds nothing.

    Returns the URIs of the record (`night`) and the `report`, the `sha256` of the record and of the
    `previous` one in the chain, the `revision`, and the totals.

    :param ingested: outputs of ingest tasks, one or many, mapped or not; or URIs of their manifests
    :param assessed: outputs of assess tasks, one or many, mapped or not; or URIs of their tables
    :param reviewed: outputs of review tasks, one or many, mapped or not; or URIs of files with decisions, or
        of a folder with such files, ending with `/`
    :param destination: prefix of the night; its evidence goes below `_evidence/`
    :param root: common prefix of all nights, where the chain of records is; by default the destination up to
        its first part with a `=` in it, such as `dt=2026-01-01`
    :param partition_key: of the asset events, from Airflow 3.3 on, such as the date
    :param report_base_url: where a person finds the destination in a browser, for the link to the report
    """

    template_fields: Sequence[str] = (
        "ingested", "assessed", "reviewed", "destination", "root", "partition_key", "report_base_url"
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("ingested", "assessed", "reviewed"), "json"
    )
    operator_extra_links = (ComplianceReportLink(),)
    ui_color = "#dde7ee"
    _closed: ChainRecord | None = None

    def __init__(
        self,
        *,
        destination: str,
        ingested: Any = None,
        assessed: Any = None,
        reviewed: Any = None,
        root: str | None = None,
        partition_key: str | None = None,
        report_base_url: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if partition_key is not None and not HAS_PARTITION_KEYS:
            warnings.warn("`partition_key` has no effect before Airflow 3.3.", UserWarning, stacklevel=2)
        self.ingested = ingested
        self.assessed = assessed
        self.reviewed = reviewed
        self.destination = destination
        self.root = root
        self.partition_key = partition_key
        self.report_base_url = report_base_url

    @property
    def title(self) -> str:
        """The name of a mapped task: short, because Airflow stores 250 characters."""
        text = printable(str(self.destination))
        return text if len(text) <= MAX_TITLE_CHARS else f"{text[: MAX_TITLE_CHARS - 1]}…"

    @entry_point
    def execute(self, context: Context) -> dict[str, Any]:
        """Close the night."""
        from airflow_provider.evidence.closing import NightCloser, to_result
        from airflow_provider.evidence.manifests import Outputs

        partition_key = self._partition_key()
        destination = Location.to_write(self.destination)
        root = Location.to_write(common_root(destination.uri) if self.root is None else self.root, "root")
        outputs = Outputs.parse(ingested=self.ingested, assessed=self.assessed, reviewed=self.reviewed)
        states = task_states(context, self._night_tasks())
        self._closed = NightCloser(context, outputs, states, destination, root, self.log).close()
        result = to_result(self._closed)
        # Even an empty link: Airflow logs an error for a link whose XCom is missing.
        report = Location(result["report"])
        link = report_link(report, str(self.destination), optional(self.report_base_url))
        context["ti"].xcom_push(key=REPORT_URL, value=link)
        for outlet in self.outlets or ():
            if isinstance(outlet, Asset):
                event = context["outlet_events"][outlet]
                event.extra.update({**result, "destination": str(self.destination)})
                if partition_key:
                    add_partition_key(event, partition_key)
        return result

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Report to OpenLineage which manifests are in the record."""
        if not self._closed:
            return None
        from airflow_provider.evidence.snapshots import FROM_XCOM

        origins = [str(each["origin"]) for each in self._closed.record["manifests"]]
        return lineage.openlineage_night([each for each in origins if each != FROM_XCOM], self._closed.uri)

    def _partition_key(self) -> str:
        key = str(optional(self.partition_key) or "")
        if len(key) > MAX_PARTITION_KEY_CHARS:
            raise ComplianceInputError(
                f"partition_key has {len(key)} characters; Airflow allows {MAX_PARTITION_KEY_CHARS}."
            )
        return key

    def _night_tasks(self) -> set[str]:
        """Return the tasks whose state tells what is missing.

        Whatever is directly upstream is part of the night. Of what is above that, only the tasks that leave
        something: others, such as one that sends a message, are none of its business.
        """
        tasks = set(self.upstream_task_ids)
        for task in self.get_flat_relatives(upstream=True) if self.has_dag() else ():
            kind = getattr(task, "operator_class", type(task))
            if any(each.__name__ in NIGHT_TASKS for each in getattr(kind, "__mro__", ())):
                tasks.add(task.task_id)
        return tasks
