"""What partners submit to be processed, and how far it is."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider.emulator.extraction import ExtractionResult
from airflow_provider.emulator.settings import CompletionRule

FormatTime = Callable[[float | None], str | None]


@dataclass(eq=False)
class Work:
    """A content processing job or an assessment.

    :cvar name_of_id: of its paths
    :cvar operations: that show its status and its result
    :param outcome: what was found out so far; it is shown when the work is due
    :param forced: a status that stays until a refresh
    """

    noun: ClassVar[str]
    name_of_id: ClassVar[str]
    operations: ClassVar[tuple[str, str]]
    subject: str
    created: float
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = 0.0
    polls: int = 0
    finished: float | None = None
    outcome: ExtractionResult | None = None
    planned_failure: str | None = None
    forced: str | None = None
    force_finish: bool = False

    def __post_init__(self) -> None:
        self.started = self.created

    def is_due(self, progress: CompletionRule, now: float) -> bool:
        """Whether it is finished as soon as it has an outcome."""
        if self.forced:
            return self.forced == "COMPLETED"
        return self.force_finish or progress.phase(self.polls, now - self.started) == "DONE"

    def status(self, progress: CompletionRule, now: float) -> str:
        """Return the current status; the first poll of finished work sets its end time, also in the past."""
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

    def force(
        self, status: str | None, now: float, text: str | None = None, error: str | None = None
    ) -> None:
        """Set an outcome, or a status that stays until a refresh."""
        if text is not None or error is not None:
            self.planned_failure = None
            self.outcome = ExtractionResult(self.text if text is None else text, error)
        if status is not None:
            self.forced = status
            self.finished = None if status in ("PENDING", "RUNNING") else now

    @property
    def error(self) -> str | None:
        """Why it failed, if it did."""
        return self.planned_failure or (self.outcome.error if self.outcome else None)

    @property
    def text(self) -> str:
        """The extracted text."""
        return self.outcome.text if self.outcome else ""

    def record(self, status: str, format_time: FormatTime) -> dict[str, Any]:
        """Return what partners see."""
        return {
            "uuid": self.uuid,
            "status": status,
            "error": self.error if status == "FAILED" else None,
            "createdAt": format_time(self.created),
            "completedAt": format_time(self.finished if status == "COMPLETED" else None),
        }


@dataclass(eq=False)
class Job(Work):
    """One content processing job."""

    noun: ClassVar[str] = "content processing job"
    name_of_id: ClassVar[str] = "uuid"
    operations: ClassVar[tuple[str, str]] = ("get_status", "get_content")
    source_url: str | None = None
    file_name: str | None = None
    fetched: float | None = None
    charset: str = "utf-8"

    def restart(self, now: float, planned_failure: str | None) -> None:
        """Start processing. Only a page is fetched again: the text of a file does not change."""
        self.started, self.polls, self.finished, self.forced = now, 0, None, None
        self.planned_failure, self.force_finish = planned_failure, False
        if self.source_url:
            self.outcome = None

    def record(self, status: str, format_time: FormatTime) -> dict[str, Any]:
        """Return what partners see."""
        return {
            **super().record(status, format_time),
            "sourceType": "URL" if self.source_url else "FILE",
            "sourceUrl": self.source_url,
            "fileName": self.file_name,
            "fetchedAt": format_time(self.fetched),
        }

    @property
    def name(self) -> str:
        """The file name or URL."""
        return self.file_name or self.source_url or ""

    def describe(self, status: str) -> dict[str, Any]:
        """Return the job for the controls."""
        return {
            "uuid": self.uuid,
            "name": self.name,
            "status": status,
            "error": self.error if status == "FAILED" else None,
            "polls": self.polls,
            "subject": self.subject,
            "created": self.created,
            "completed": self.finished,
            "fetched": self.fetched,
        }


@dataclass(eq=False)
class Assessment(Work):
    """One assessment and, once finished, its results."""

    noun: ClassVar[str] = "assessment"
    name_of_id: ClassVar[str] = "assessment_id"
    operations: ClassVar[tuple[str, str]] = ("get_assessment", "get_assessment_results")
    payload: dict[str, Any] = field(default_factory=dict)
    framework_ids: list[Any] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)

    def record(self, status: str, format_time: FormatTime) -> dict[str, Any]:
        """Return what partners see."""
        return {**super().record(status, format_time), "frameworkIds": self.framework_ids or None}

    def describe(self, status: str) -> dict[str, Any]:
        """Return the assessment for the controls."""
        return {
            "uuid": self.uuid,
            "status": status,
            "error": self.error,
            "payload": self.payload,
            "results": self.results,
        }
