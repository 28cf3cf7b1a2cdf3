"""A notification about the progress of a DAG run, for failure callbacks and deadline alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import BaseNotifier
from asgiref.sync import sync_to_async

from airflow_provider.exceptions import ComplianceError
from airflow_provider.nights.assess.cells import Cell
from airflow_provider.nights.assess.task import ASSESSMENTS
from airflow_provider.nights.bulk.checkpoint import Checkpoint, find_checkpoints
from airflow_provider.nights.bulk.counts import Counts
from airflow_provider.nights.bulk.items import FAILED, SUBMITTED, Item
from airflow_provider.nights.ingest.documents import Document
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import one_line, sanitize
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import (
    ASSESS_FOLDER,
    ASSESS_WORK,
    INGEST_FOLDER,
    INGEST_WORK,
    MANIFEST,
    safe,
)

MAX_DEPTH = 4  # folders such as dt=2026-01-01/run=x below a root
MAX_REASON_CHARS = 500
MAX_SHOWN = 2  # stuck or failed items of a kind


class ComplianceProgressNotifier(BaseNotifier):
    """Report done, stuck and missing items of a DAG run, and items in flight, from checkpoints of bulk tasks.

    Override `send`, which logs the message. Use an instance as `on_failure_callback` of a DAG or task; from
    Airflow 3.1 on, the class with `kwargs` in an `AsyncCallback` of a `DeadlineAlert`.

    :param destination: the destination of the tasks, or the archive root; templates may use `run_id`
    :param stuck_after: seconds after which a job in flight counts as stuck; by default two hours
    """

    template_fields: Sequence[str] = ("destination",)

    def __init__(self, destination: str, stuck_after: float = 7200.0, context: Any = None) -> None:
        super().__init__()
        self.destination = destination
        self.stuck_after = stuck_after
        given: Any = context or {}
        if isinstance(run := given.get("dag_run"), Mapping):  # a deadline alert
            given |= {"dag_id": run["dag_id"], "run_id": run["dag_run_id"]}
        self.context = given

    def send(self, message: str) -> None:
        """Send the message; override this."""
        self.log.warning("%s", message)

    def notify(self, context: Any) -> None:
        """Send how far the run is, and what Airflow gives as the reason of the notification."""
        message = self.describe(context.get("dag_id") or context["dag_run"].dag_id, context["run_id"])
        reason = context.get("exception") or context.get("reason")
        self.send(f"{message}\nReason: {sanitize(reason, MAX_REASON_CHARS)}" if reason else message)

    async def async_notify(self, context: Any) -> None:
        """Do the same in a triggerer, where only asgiref's thread may ask Airflow for a connection."""
        await sync_to_async(self.notify)(context)

    def describe(self, dag_id: str, run_id: str) -> str:
        """Return how far a run is, in about ten lines."""
        try:
            lines = list(self._describe_tasks(dag_id, run_id))
        except ComplianceError as error:
            lines = [f"How far it is can't be read: {error}"]
        return "\n".join([f"DAG {dag_id}, run {run_id}:", *lines])

    def _describe_tasks(self, dag_id: str, run_id: str) -> Iterator[str]:
        items: dict[str, list[Any]] = {}
        totals: Counter[str] = Counter()
        for noun, item_type, task in find_tasks(Location(self.destination), f"run={run_id}"):
            if task.name.startswith(f"{safe(dag_id)}/{safe(run_id)}/"):
                known = list(task.read(item_type).values())
                items.setdefault(noun, []).extend(known)
                totals[noun] += max(task.total, len(known))
        for noun in items:
            yield from self._describe(noun, items[noun], totals[noun]) if totals[noun] else ()
        if not items:
            place = one_line(redact(self.destination))
            yield f"No task of this run wrote to '{place}' yet: none started, or its destination is another."
        elif not any(totals.values()):
            yield "No document was submitted."

    def _describe(self, noun: str, items: Sequence[Any], total: int) -> Iterator[str]:
        counts = Counts(item.state for item in items)
        since = (datetime.now(UTC) - timedelta(seconds=self.stuck_after)).isoformat()
        stuck = [
            item for item in items if item.state is SUBMITTED and str(item.submitted_at or since) < since
        ]
        yield (
            f"{counts.done:,} of {total:,} {noun} are done ({counts[FAILED]:,} of them failed), "
            f"{counts[SUBMITTED]:,} are in flight ({len(stuck):,} of them stuck), "
            f"{total - counts.done - counts[SUBMITTED]:,} are missing."
        )
        for item in sorted(stuck, key=lambda item: str(item.submitted_at))[:MAX_SHOWN]:
            yield f"- stuck since {str(item.submitted_at)[:16]}: '{item.label}', job {item.job_id}"
        for item in [item for item in items if item.state is FAILED][:MAX_SHOWN]:
            yield f"- failed: '{item.label}': {item.error}"


def find_tasks(
    folder: Location, run: str = "", depth: int = MAX_DEPTH
) -> Iterator[tuple[str, type[Item], Checkpoint]]:
    """Return the nouns and types of the items of bulk tasks, and the tasks, at a destination or below a root.

    :param run: the only folder such as `run=x` below a root to read
    """
    ingesting = find_checkpoints(folder, INGEST_WORK, INGEST_FOLDER, MANIFEST)
    assessing = find_checkpoints(folder, ASSESS_WORK, ASSESS_FOLDER, ASSESSMENTS)
    yield from (("documents", Document, task) for task in ingesting)
    yield from (("assessments", Cell, task) for task in assessing)
    if not ingesting and not assessing and depth:
        for name in folder.list_names("directory"):
            if "=" in name and (not run or not name.startswith("run=") or name == run):
                yield from find_tasks(folder / name, run, depth - 1)
