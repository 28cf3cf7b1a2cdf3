"""Content processing jobs and the store that forgets the oldest of them."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider.emulator.memory.progress import Progress

STATUSES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")


@dataclass(frozen=True)
class Outcome:
    """What processing came to: a text or an error."""

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
    looks: int = 0
    fetched: float | None = None
    finished: float | None = None
    outcome: Outcome | None = None
    planned_failure: str | None = None
    forced: str | None = None
    hurried: bool = False
    charset: str = "utf-8"
    size: int = 0
    unseen: int = 0
    lag: int | None = None

    def is_visible(self, visible: Progress, now: float) -> bool:
        """Whether the service finds the job already."""
        if visible.kind == "polls":
            return self.unseen >= visible.amount
        return visible.phase(0, now - self.created) == "DONE"

    def restart(self, now: float, planned_failure: str | None) -> None:
        """Begin (again) to process. Only a page is read anew: the text of a file does not change."""
        self.started, self.looks, self.finished, self.forced = now, 0, None, None
        self.planned_failure, self.hurried, self.lag = planned_failure, False, None
        if self.source_type == "URL":
            self.outcome = None

    def is_due(self, progress: Progress, now: float) -> bool:
        """Whether the job has come to its end, as soon as there is an outcome."""
        if self.forced:
            return self.forced == "COMPLETED"
        return self.hurried or progress.phase(self.looks, now - self.started) == "DONE"

    def status(self, progress: Progress, now: float) -> str:
        """Return the present status; the first time that a job is seen done is its end."""
        if self.forced:
            return self.forced
        if self.finished is None:
            if not self.is_due(progress, now):
                return progress.phase(self.looks, now - self.started)
            if self.outcome is None and self.planned_failure is None:
                return "RUNNING"
            self.finished = now
        return "FAILED" if self.error else "COMPLETED"

    def force(self, status: str, now: float) -> None:
        """Set a status that stays, whatever the progress."""
        self.forced = status
        self.finished = None if status in ("PENDING", "RUNNING") else now

    @property
    def error(self) -> str | None:
        """Why the job fails, as far as that is known."""
        return self.planned_failure or (self.outcome.error if self.outcome else None)

    @property
    def text(self) -> str:
        """The extracted text."""
        return self.outcome.text if self.outcome else ""

    @property
    def name(self) -> str:
        """What a person calls this job."""
        return self.file_name or self.source_url or ""


class Aging(Protocol):
    """What a store can hold."""

    uuid: str
    created: float
    size: int


Item = TypeVar("Item", bound=Aging)


class Store(Generic[Item]):
    """Items by uuid, oldest first, bounded in number, age and bytes."""

    def __init__(self, on_forget: Callable[[Item], None] = lambda item: None) -> None:
        self.forgotten = 0
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._bytes = 0
        self.on_forget = on_forget

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items, newest first."""
        return iter(reversed(list(self._items.values())))

    def get(self, uuid: str) -> Item | None:
        """Return one item, if it is there."""
        return self._items.get(uuid)

    def add(self, item: Item) -> None:
        """Take in a new item."""
        self._items[item.uuid] = item
        self._bytes += item.size

    def resize(self, item: Item, size: int) -> None:
        """Note how many bytes an item holds now."""
        if item.uuid in self._items:
            self._bytes += size - item.size
        item.size = size

    def remove(self, item: Item) -> None:
        """Forget an item."""
        if self._items.pop(item.uuid, None) is not None:
            self._bytes -= item.size
            self.on_forget(item)

    def clear(self) -> None:
        """Forget all items."""
        for item in list(self._items.values()):
            self.remove(item)
        self.forgotten = 0

    def prune(self, now: float, max_items: int, max_age: float, max_bytes: int) -> None:
        """Forget the oldest items until all limits are kept; one item alone is never too much."""
        while self._items:
            oldest = next(iter(self._items.values()))
            too_much = len(self) > max_items or self._bytes > max_bytes
            if now - oldest.created <= max_age and not (too_much and len(self) > 1):
                break
            self.remove(oldest)
            self.forgotten += 1


@dataclass(eq=False)
class PlannedFailure:
    """An order to let coming jobs fail."""

    error: str
    match: str
    times: int | None

    def take(self, job: Job) -> str | None:
        """Return the error that this job shall end with, and count it."""
        if self.times == 0 or not fnmatchcase(job.name, self.match):
            return None
        if self.times is not None:
            self.times -= 1
        return self.error
