"""The operator that compares the verdicts on golden documents with experts and with earlier nights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_provider.exceptions import ComplianceAssessError
from airflow_provider.operators.base import ComplianceBaseOperator, StoringMixin, entry_point
from airflow_provider.runtime.params import optional
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import ASSESS_FOLDER, common_root, task_folder

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class ComplianceJudgeOperator(StoringMixin, ComplianceBaseOperator):
    """Compare verdicts on golden documents with experts' decisions, and with earlier nights.

    Returns the URIs of the tables `golden` and `agreement`, what `drifted`, the frameworks to `reassess`,
    since when verdicts count on frameworks that ever drifted (`judged_since`), and `warnings`: give it to
    `reassess` of `ComplianceAssessOperator`, and to `assessed` of `ComplianceCloseNightOperator`.

    :param golden: documents that experts decided about: the URI of a manifest in JSON Lines, or its rows,
        with `source`, `framework`, `criterion` and `category`
    :param assessed: result of the task that assessed these documents tonight, with `changed_only=False`
    :param destination: prefix of the night; the tables go below its `_assess/`
    :param root: common prefix of all nights; by default the destination up to its first part with a `=` in
        it, such as `dt=2026-01-01`
    :param on_drift: what to do if the service decides differently than before: `"reassess"` returns the
        frameworks to assess again; `"fail"` fails the task, so that nothing is assessed; `"warn"` only
        reports it
    """

    template_fields: Sequence[str] = ("conn_id", "golden", "assessed", "destination", "root")
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(("golden", "assessed"), "json")
    named_after: ClassVar[str] = "destination"
    ui_color = "#e4dcf5"

    def __init__(
        self,
        *,
        golden: Any,
        assessed: Any,
        destination: str,
        root: str | None = None,
        on_drift: Literal["reassess", "fail", "warn"] = "reassess",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if on_drift not in ("reassess", "fail", "warn"):
            raise ValueError(f"on_drift must be 'reassess', 'fail' or 'warn', not {on_drift!r}.")
        self.golden = golden
        self.assessed = assessed
        self.destination = destination
        self.root = root
        self.on_drift = on_drift

    @entry_point
    def execute(self, context: Context) -> dict[str, Any]:
        """Judge the judge."""
        from airflow_provider.nights.assess.agreement import (
            AGREEMENT,
            agreement_rows,
            assert_agreement,
            report_agreement,
        )
        from airflow_provider.nights.assess.golden import KIND, TABLE, GoldenNight, read_golden
        from airflow_provider.nights.assess.verdicts import JUDGED_SINCE, read_judged_since
        from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey
        from airflow_provider.nights.review.decisions import read_decisions
        from airflow_provider.redaction.text import enumerate_few
        from airflow_provider.runtime.non_retryable import as_non_retryable
        from airflow_provider.storage.jsonl import TableFile, complete_once
        from airflow_provider.storage.lineage import Lineage

        ti, destination = context["ti"], Location.to_write(self.destination)
        root = Location.to_write(common_root(destination.uri) if self.root is None else self.root, "root")
        nights = EarlierNights(root, KIND, Night.of(context), TaskKey.of(ti), self.hook.account_digest)
        night = GoldenNight(read_golden(self.golden), self.assessed, nights)
        for warning in night.warnings:
            self.log.warning("%s", warning)
        frameworks = {group.framework_id: group.framework for group in night.drifted}
        judged_since = read_judged_since(nights)
        if night.drifted:
            found = f"The service drifted: {enumerate_few(map(str, night.drifted), 400)}."
            if self.on_drift == "fail":
                error = ComplianceAssessError(
                    f"{found} Ask the operator of the service what changed. Nothing was published: set "
                    "on_drift to 'reassess' or 'warn', then clear this task."
                )
                raise as_non_retryable(error)
            if self.on_drift == "reassess":
                found += f" No earlier verdict on {enumerate_few(frameworks.values())} is reused."
                judged_since |= {framework: night.judged_since(framework) for framework in frameworks}
            self.log.warning("%s", found)
        agreement = agreement_rows(nights.night.at, night.rows, read_decisions(nights), night.judged)
        folder = destination / task_folder(ti, ASSESS_FOLDER)
        tables: dict[str, TableFile] = {}
        for name, rows in ((TABLE, night.rows), (AGREEMENT, agreement)):
            if rows or name == TABLE:
                tables[name] = TableFile(folder / f"{name}.jsonl")
                tables[name].add(rows)
        complete_once(list(tables.values()))
        for table in tables.values():
            table.publish()
        published = {name: Table.of(table.location, table.sha256) for name, table in tables.items()}
        nights.publish(published, (), {JUDGED_SINCE: judged_since})
        report_agreement(self.conn_id, agreement)
        given = optional(self.golden) if isinstance(self.golden, str) else None
        place = [Location(given)] if given and given[0] not in "[{" else []
        counts = {TABLE: len(night.rows), AGREEMENT: len(agreement)}
        written = Lineage(
            tables={table.location: counts[name] for name, table in tables.items()},
            texts=place,
            verdicts=assert_agreement(place[0], agreement) if place else (),
        )
        result = {
            **{name: table.location.uri for name, table in tables.items()},
            "drifted": [group.summarize() for group in night.drifted],
            "reassess": list(frameworks) if self.on_drift == "reassess" else [],
            "judged_since": judged_since,
            "warnings": night.warnings,
        }
        self._report_written(context, written, result, self.hook)
        return result
