"""Content processing jobs, and the store that holds them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from airflow_provider.emulator.extraction import ExtractionResult
from airflow_provider.emulator.service.faults import Planned
from airflow_provider.emulator.settings import CompletionRule


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
    outcome: ExtractionResult | None = None
    planned_failure: str | None = None
    forced: str | None = None
    force_finish: bool = False
    charset: str = "utf-8"

    def restart(self, now: float, planned_failure: str | None) -> None:
        """Start processing. Only a page is fetched again: the text of a file does not change."""
        self.started, self.polls, self.finished, self.forced = now, 0, None, None
        self.planned_failure, self.force_finish = planned_failure, False
        if self.source_type == "URL":
            self.outcome = None

    def is_due(self, progress: CompletionRule, now: float) -> bool:
        """Whether the job is finished as soon as it has an outcome."""
        if self.forced:
            return self.forced == "COMPLETED"
        return self.force_finish or progress.phase(self.polls, now - self.started) == "DONE"

    def status(self, progress: CompletionRule, now: float) -> str:
        """Return the current status; the first poll of a finished job sets its end time, also in the past."""
        if self.forced:
            return self.forced
        if self.finished is None:
            if not self.is_due(progress, now):
                return progress.phase(self.polls, now - self.started)
            if self.outcome is None and self.planned_failure is None:
                return "RUNNING"
            by_itself = self.started + progress.amount if progress.kind == "seconds" else now
            self.finished = now if self.force_finish else min(now, by_itself)
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

    def describe(self, status: str) -> dict[str, Any]:
        """Return the job for the controls and the page."""
        return {
            "uuid": self.uuid,
            "source_type": self.source_type,
            "name": self.name,
            "status": status,
            "error": self.error if status == "FAILED" else None,
            "polls": self.polls,
            "characters": len(self.text),
            "excerpt": self.text[:200],
            "subject": self.subject,
            "created": self.created,
            "completed": self.finished,
            "fetched": self.fetched,
        }


class StoredItem(Protocol):
    """An item of a store."""

    uuid: str


Item = TypeVar("Item", bound=StoredItem)


class Store(Generic[Item]):
    """Items by uuid, oldest first, bounded in number."""

    def __init__(self, on_evict: Callable[[Item], None] = lambda item: None) -> None:
        self.evicted = 0
        self._items: dict[str, Item] = {}
        self.on_evict = on_evict

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items, newest first."""
        return iter(reversed(list(self._items.values())))

    def get(self, uuid: str) -> Item | None:
        """Return one item, None if unknown."""
        return self._items.get(uuid)

    def add(self, item: Item, max_items: int) -> None:
        """Add an item, and evict the oldest ones."""
        self._items[item.uuid] = item
        while len(self) > max(1, max_items):
            self.remove(next(iter(self._items.values())))
            self.evicted += 1

    def remove(self, item: Item) -> None:
        """Remove an item."""
        if self._items.pop(item.uuid, None) is not None:
            self.on_evict(item)

    def clear(self) -> None:
        """Remove all items."""
        for item in list(self._items.values()):
            self.remove(item)
        self.evicted = 0


@dataclass(eq=False)
class PlannedFailure(Planned):
    """A failure of the next jobs whose file name or URL matches."""

    error: str
    match: str
