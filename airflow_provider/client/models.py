"""Records of the service as frozen models. No field is required; invalid values are ignored."""

from __future__ import annotations

import enum
import logging
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from airflow_provider.redaction.text import mask, one_line

T = TypeVar("T")
log = logging.getLogger(__name__)


class JobStatus(enum.StrEnum):
    """State of a job at the service."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        """Whether the job has finished."""
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)

    @classmethod
    def _missing_(cls, value: object) -> JobStatus:
        """Treat an unknown status as still running, and log it once, unless it may be an echoed token."""
        text = value.upper() if isinstance(value, str) and _STATUS.fullmatch(value) else "(not a word)"
        if text in cls.__members__:
            return cls[text]
        if text not in _unknown_statuses and len(_unknown_statuses) < 100:
            _unknown_statuses.add(text)
            log.warning("Unknown job status %s: treated as still running.", text)
        return cls.RUNNING


_STATUS = re.compile("[A-Za-z_]{1,30}")
_unknown_statuses: set[str] = set()


class WireModel(BaseModel):
    """Camel case on the wire, snake case in Python; unknown fields and invalid values are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _ignore_invalid(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            invalid = {str(problem["loc"][0]) for problem in error.errors() if problem["loc"]}
            if not isinstance(data, dict) or not invalid:
                raise
            log.debug("%s has invalid values, which are ignored: %s", cls.__name__, sorted(invalid))
            return handler(
                {name: value for name, value in data.items() if invalid.isdisjoint((name, to_camel(name)))}
            )


def _default_to_utc(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _check_id(value: str) -> str:
    if not value.isprintable():
        raise ValueError("An id must be printable.")
    return value


Id = Annotated[str, AfterValidator(_check_id)]
UtcDatetime = Annotated[datetime, AfterValidator(_default_to_utc)]
SingleLine = Annotated[str, AfterValidator(one_line)]  # safe to log


class ContentJob(WireModel):
    """A content processing job."""

    uuid: Id = ""
    source_type: str | None = None
    source_url: str | None = None
    file_name: str | None = None
    status: JobStatus = JobStatus.RUNNING
    error: SingleLine | None = None
    created_at: UtcDatetime | None = None
    completed_at: UtcDatetime | None = None
    fetched_at: UtcDatetime | None = None


class Criterion(WireModel):
    """A criterion of a compliance framework."""

    name: str | None = None
    code_name: str | None = None
    description: str | None = None


class Framework(WireModel):
    """A compliance framework with its criteria; `raw` is all that the service lists of it."""

    id: str | None = None
    name: str | None = None
    code_name: str | None = None
    description: str | None = None
    criteria: list[Criterion] = Field(default_factory=list)
    raw: dict[str, Any] = Field(default_factory=dict, repr=False, exclude=True)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_raw(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        framework = handler(data)
        if isinstance(data, dict):
            framework.raw.clear()  # the service may have a field `raw`
            framework.raw.update(data)
        return framework

    @field_validator("criteria", mode="before")
    @classmethod
    def _only_objects(cls, value: Any) -> list[dict[str, Any]]:
        return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class Assessment(WireModel):
    """An assessment; `raw` is the whole response, because the contract does not define its fields."""

    id: Id = ""
    status: JobStatus = JobStatus.RUNNING
    error: SingleLine | None = None
    raw: dict[str, Any] = Field(default_factory=dict, repr=False)


class FeedbackCategory(enum.StrEnum):
    """A category corrected by an expert."""

    SUFFICIENTLY_REGULATED = "SUFFICIENTLY_REGULATED"
    NOT_SUFFICIENTLY_REGULATED = "NOT_SUFFICIENTLY_REGULATED"
    MISSING = "MISSING"


def mask_reasons(result: T, secrets: Callable[[], Iterable[str]]) -> T:
    """Mask our secrets in the reasons of failed jobs, one or many: a service may echo its input.

    :param secrets: returns them
    """
    jobs: Any = result
    match jobs:
        case ContentJob(error=str(reason)) | Assessment(error=str(reason)):
            return cast("T", jobs.model_copy(update={"error": mask(reason, secrets())}))
        case list() if any(isinstance(job, ContentJob) and job.error for job in jobs):
            return cast("T", [mask_reasons(job, secrets) for job in jobs])
    return result
