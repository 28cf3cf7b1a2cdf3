"""What operators share that write to object storage."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import Asset

from airflow_provider import lineage
from airflow_provider.event_loop import EventLoop

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.hooks.compliance import ComplianceHook

T = TypeVar("T")


class StoringMixin:
    """Runs asynchronous work that a kill cancels, and reports to lineage and assets what was written."""

    _loop: EventLoop | None = None
    _transfers: tuple[lineage.Transfer, ...] = ()

    if TYPE_CHECKING:  # of the operator
        outlets: list[Any]

    def on_kill(self) -> None:
        """Cancel the work, and leave nothing half-written behind."""
        if self._loop:
            self._loop.cancel()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Report to OpenLineage which documents went into which objects."""
        return lineage.openlineage(self._transfers)

    def _run_in_loop(self, work: Coroutine[Any, Any, T], threads: int) -> T:
        self._loop = EventLoop(threads)
        return self._loop.run(work)

    def _report_written(
        self,
        context: Context,
        hook: ComplianceHook,
        transfers: Iterable[lineage.Transfer],
        extra: Mapping[str, Any],
    ) -> None:
        """Report to Airflow's lineage, and to the assets that the task updates.

        :param extra: of their events
        """
        self._transfers = tuple(transfers)
        lineage.report(hook, self._transfers)
        for outlet in self.outlets or ():
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(extra)
