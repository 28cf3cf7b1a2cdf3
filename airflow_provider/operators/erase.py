"""The operator that erases documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.operators.base import ComplianceBaseOperator, StoringMixin, entry_point
from airflow_provider.runtime.params import as_list

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class ComplianceEraseOperator(StoringMixin, ComplianceBaseOperator):
    """Erase documents: everything about them in all nights below a root, and their jobs at the service.

    All other evidence stays valid; a record says which digests were erased, why, by whom and when. Fails if a
    document is on hold. A retry completes the erasure of an earlier attempt.

    Returns the URI of the `record`, the numbers of erased `documents`, `rows` and `digests`, how many jobs
    the service did not delete (`jobs_left`; the next run tries again), and which files could not be read or
    are still being written (`files_left`).

    :param sources: the documents, one or many, as the rows of the tables name them
    :param reason: why; the record keeps it, so put no names into it
    :param root: common prefix of all nights, where the chain of records is
    """

    template_fields: Sequence[str] = ("conn_id", "sources", "reason", "root")
    named_after: ClassVar[str] = "root"
    ui_color = "#dde7ee"

    def __init__(self, *, sources: Any, reason: str, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sources = sources
        self.reason = reason
        self.root = root

    @entry_point
    def execute(self, context: Context) -> dict[str, Any]:
        """Erase them."""
        from airflow_provider.nights.evidence.erasing import Erasure
        from airflow_provider.nights.evidence.jobs import ErasedJobs
        from airflow_provider.storage.locations import Location
        from airflow_provider.storage.names import task_path

        ti = context["ti"]
        root = Location.to_write(self.root, "root")
        erasure = Erasure(
            root,
            set(map(str, as_list(self.sources, "source"))),
            self.reason,
            f"{ti.dag_id}/{ti.task_id}",
            self.log,
            task=task_path(ti),
        )
        erased = erasure.run(ErasedJobs(self.hook, self._loop, self.log)).record
        numbers = {"documents": erased["documents"], "rows": sum(erased["rows"].values())}
        uri = erasure.chain.location(erased["number"]).uri
        left = {"jobs_left": len(erasure.jobs_left), "files_left": erasure.left}
        return {"record": uri, **numbers, "digests": len(erased["digests"]), **left}
