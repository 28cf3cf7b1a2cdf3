"""What an ingest would do now, and for how long, found out without sending or writing anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_provider.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED
from airflow_provider.bulk.journals import TaskFolder, find_task_folders
from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceError, ComplianceStorageError
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.listing import find_destinations
from airflow_provider.ingest.output import MANIFEST
from airflow_provider.ingest.resuming import reset_outdated, resume_documents
from airflow_provider.ingest.sources import is_page
from airflow_provider.reports.page import read_time
from airflow_provider.storage.jsonl import find_tables, read_valid_rows
from airflow_provider.storage.layout import INGEST_FOLDER, INGEST_WORK
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import estimate_seconds
from airflow_provider.text import is_redacted

if TYPE_CHECKING:
    from airflow_provider.ingest.failures import FailureHistory
    from airflow_provider.ingest.unchanged import UnchangedIndex

MAX_NIGHTS = 7  # whose rates count
MAX_NIGHT_FOLDERS = 100  # in which nights are searched, the latest first
MIN_NIGHT_SECONDS = 1.0  # of a night; shorter ones say little about a rate


@dataclass
class IngestPlan:
    """The documents of an ingest by what it would do with them.

    :param root: what all nights that are compared have in common
    :param sent: submitted
    :param skipped: unchanged since an earlier night
    :param given_up: not sent, because they have failed in too many nights in a row
    :param failed: not sent, because the source can't be read or is not valid
    :param in_flight: submitted by an earlier attempt; their texts are fetched when their jobs complete
    :param done: finished by an earlier attempt
    :param cancelled: jobs of an earlier attempt whose sources have changed since
    :param resumed: the task instances that have started here, as their folders are named
    :param rates: documents per second of earlier nights
    """

    root: str = ""
    sent: list[Document] = field(default_factory=list)
    skipped: list[Document] = field(default_factory=list)
    given_up: list[Document] = field(default_factory=list)
    failed: list[Document] = field(default_factory=list)
    in_flight: list[Document] = field(default_factory=list)
    done: list[Document] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def groups(self) -> dict[str, list[Document]]:
        """The documents of each group."""
        names = ("sent", "skipped", "given_up", "failed", "in_flight", "done")
        return {name: getattr(self, name) for name in names}

    def requests(self, batch_size: int) -> dict[str, int]:
        """Return how many requests of each kind there are, if each job is completed when it is polled.

        :param batch_size: maximum number of jobs in one batch status request
        """
        fetched = len(self.sent) + len(self.in_flight)
        return {
            "submit": len(self.sent),
            "poll": -(-fetched // batch_size),
            "text": fetched,
            "cancel": len(self.cancelled),
        }

    @property
    def seconds(self) -> int | None:
        """How long it takes; None if there is no earlier night."""
        return estimate_seconds(len(self.sent) + len(self.in_flight), self.rates)


def find_started(destination: Location) -> list[TaskFolder]:
    """Return the ingests at a destination that have started, but not finished."""
    found = find_task_folders(destination, INGEST_WORK, INGEST_FOLDER, MANIFEST)
    return [each for each in found if each.has_journal]


def resume_plan(
    addresses: Mapping[str, str], started: list[TaskFolder], log: Any
) -> tuple[list[Document], list[str]]:
    """Return all documents, each as far as these ingests have come, and which of them have begun with any.

    In the thread that may ask Airflow for connections.
    """
    earlier: dict[str, Document] = {}
    resumed: list[str] = []
    for each in started:
        known = {key: item for key, item in each.checkpoint.read(Document).items() if key in addresses}
        earlier |= known
        resumed += [each.name] if known else []
    return resume_documents(addresses, earlier, is_new_attempt=True, log=log), resumed


async def make_plan(
    documents: list[Document],
    root: Location,
    destination: Location,
    history: FailureHistory,
    unchanged: UnchangedIndex | None,
    concurrency: int,
    log: Any,
) -> IngestPlan:
    """Decide on each document as the ingest does."""
    plan = IngestPlan(root=str(root))
    plan.cancelled = await reset_outdated(documents, 2 * concurrency, log)
    await history.read(each.source for each in documents)
    await history.give_up(documents, started=())

    async def decide(number: int) -> None:
        document = documents[number]
        if unchanged and await unchanged.skip(document):
            document.advance(SKIPPED)
            skipped.add(number)
        elif reason := await in_thread(_find_problem, document):
            document.fail(reason)

    skipped: set[int] = set()
    pending = [number for number, each in enumerate(documents) if each.state is PENDING]
    await for_each(decide, pending, concurrency)
    for number, document in enumerate(documents):
        if document.source in history.given_up:
            plan.given_up.append(document)
        elif document.state is FAILED:
            plan.failed.append(document)
        elif number in skipped:
            plan.skipped.append(document)
        elif document.state in (COMPLETED, SKIPPED):
            plan.done.append(document)
        elif document.state is PENDING:
            plan.sent.append(document)
        else:
            plan.in_flight.append(document)
    try:
        plan.rates = await in_thread(read_rates, root, destination)
    except ComplianceStorageError as error:
        log.warning("The rates of earlier nights can't be read: %s", error)
    return plan


def _find_problem(document: Document) -> str:
    """Return why a document can't be submitted; empty if it can, or nobody knows."""
    if is_redacted(document.address):
        return "A login or signature was removed from its address when that was stored."
    if is_page(document.address):
        return ""
    try:
        exists = Location(document.address).size() is not None
    except ComplianceError as error:
        return "" if error.transient else str(error)
    return "" if exists else "There is no such file, or it is not a file."


def read_rates(root: Location, destination: Location) -> list[float]:
    """Return the documents per second of the latest nights below a root, all shards of a night together.

    Only the time counts in which documents were in flight, not the time between two attempts.
    """
    return list(islice(_rates(root, destination), MAX_NIGHTS))


def _rates(root: Location, destination: Location) -> Iterator[float]:
    for folder in islice(find_destinations(root, destination), MAX_NIGHT_FOLDERS):
        runs: dict[str, list[Location]] = {}
        for name, manifest in find_tables(folder / INGEST_FOLDER):
            run, _, file_name = name.rpartition("/")
            if file_name == MANIFEST:
                runs.setdefault(run.rpartition("/")[0], []).append(manifest)
        for run in sorted(runs, reverse=True):
            if rate := _rate(row for manifest in runs[run] for row in read_valid_rows(manifest)):
                yield rate


def _rate(rows: Iterable[dict[str, Any]]) -> float:
    """Return the documents per second of a night; 0 if it has completed none."""
    spans = sorted(span for row in rows if (span := _span(row)))
    seconds, until = 0.0, 0.0
    for start, end in spans:
        seconds += max(0.0, end - max(start, until))
        until = max(until, end)
    return len(spans) / max(seconds, MIN_NIGHT_SECONDS)


def _span(row: dict[str, Any]) -> tuple[float, float] | None:
    """Return from when to when a document was in flight; None if it was not, or nobody knows."""
    if row.get("status") != COMPLETED:
        return None
    submitted, completed = (read_time(row.get(name)) for name in ("submitted_at", "completed_at"))
    if submitted is None or completed is None:
        return None
    return min(submitted, completed), max(submitted, completed)
