"""Content processing jobs and the bounded store that holds them."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider.emulator.settings import Progress

STATUSES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")


@dataclass(frozen=True)
class Outcome:
    """The result of processing: a text or an error."""

    text: str = ""
    error: str | None = None


@dataclass(eq=False)
class Job:
    """One content processing job."""

    subject: str
    source_type: str
    created: float
    source_url: str | None = None
    file_name: str | None = None
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = 0.0
    polls: int = 0
    fetched: float | None = None
    finished: float | None = None
    outcome: Outcome | None = None
    planned_failure: str | None = None
    forced: str | None = None
    force_finish: bool = False
    charset: str = "utf-8"
    size: int = 0
    hidden_polls: int = 0
    stale_polls: int | None = None

    def is_visible(self, visible: Progress, now: float) -> bool:
        """Whether the job can be found yet."""
        if visible.kind == "polls":
            return self.hidden_polls >= visible.amount
        return visible.phase(0, now - self.created) == "DONE"

    def restart(self, now: float, planned_failure: str | None) -> None:
        """Start processing. Only a page is fetched again: the text of a file does not change."""
        self.started, self.polls, self.finished, self.forced = now, 0, None, None
        self.planned_failure, self.force_finish, self.stale_polls = planned_failure, False, None
        if self.source_type == "URL":
            self.outcome = None

    def is_due(self, progress: Progress, now: float) -> bool:
        """Whether the job is finished as soon as it has an outcome."""
        if self.forced:
            return self.forced == "COMPLETED"
        return self.force_finish or progress.phase(self.polls, now - self.started) == "DONE"

    def status(self, progress: Progress, now: float) -> str:
        """Return the current status; the first poll of a finished job sets its end time."""
        if self.forced:
            return self.forced
        if self.finished is None:
            if not self.is_due(progress, now):
                return progress.phase(self.polls, now - self.started)
            if self.outcome is None and self.planned_failure is None:
                return "RUNNING"
            self.finished = now
        return "FAILED" if self.error else "COMPLETED"

    def force(self, status: str, now: float) -> None:
        """Set a status that stays until a refresh."""
        self.forced = status
        self.finished = None if status in ("PENDING", "RUNNING") else now

    @property
    def error(self) -> str | None:
        """Why the job failed, if it did."""
        return self.planned_failure or (self.outcome.error if self.outcome else None)

    @property
    def text(self) -> str:
        """The extracted text."""
        return self.outcome.text if self.outcome else ""

    @property
    def name(self) -> str:
        """The file name or URL."""
        return self.file_name or self.source_url or ""


class StoredItem(Protocol):
    """An item of a store."""

    uuid: str
    created: float
    size: int


Item = TypeVar("Item", bound=StoredItem)


class Store(Generic[Item]):
    """Items by uuid, oldest first, bounded in number, age and bytes."""

    def __init__(self, on_evict: Callable[[Item], None] = lambda item: None) -> None:
        self.evicted = 0
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._bytes = 0
        self.on_evict = on_evict

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items, newest first."""
        return iter(reversed(list(self._items.values())))

    def get(self, uuid: str) -> Item | None:
        """Return one item, None if unknown."""
        return self._items.get(uuid)

    def add(self, item: Item) -> None:
        """Add an item."""
        self._items[item.uuid] = item
        self._bytes += item.size

    def resize(self, item: Item, size: int) -> None:
        """Set the size of an item in bytes."""
        if item.uuid in self._items:
            self._bytes += size - item.size
        item.size = size

    def remove(self, item: Item) -> None:
        """Remove an item."""
        if self._items.pop(item.uuid, None) is not None:
            self._bytes -= item.size
            self.on_evict(item)

    def clear(self) -> None:
        """Remove all items."""
        for item in list(self._items.values()):
            self.remove(item)
        self.evicted = 0

    def prune(self, now: float, max_items: int, max_age: float, max_bytes: int) -> None:
        """Evict the oldest items until all limits hold; a single item always fits."""
        while self._items:
            oldest = next(iter(self._items.values()))
            too_much = len(self) > max_items or self._bytes > max_bytes
            if now - oldest.created <= max_age and not (too_much and len(self) > 1):
                break
            self.remove(oldest)
            self.evicted += 1


@dataclass(eq=False)
class PlannedFailure:
    """Makes future jobs fail."""

    error: str
    match: str
    times: int | None

    def take(self, job: Job) -> str | None:
        """Return the planned error of this job, and count it."""
        if self.times == 0 or not fnmatchcase(job.name, self.match):
            return None
        if self.times is not None:
            self.times -= 1
        return self.error
