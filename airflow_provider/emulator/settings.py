"""The settings of the emulator, the operations of the service, and how jobs progress."""

from __future__ import annotations

import dataclasses
import functools
import time
from dataclasses import dataclass
from typing import Any, Literal

CONTENT = "/api/v1/content-processing"
FRAMEWORKS = "/api/v1/frameworks"
# The contract gives no paths for application info and assessments: these are the provider's defaults.
ASSESSMENTS = "/api/v1/assessments"

OPERATIONS: dict[str, tuple[str, str]] = {
    "submit_file": ("POST", f"{CONTENT}/file"),
    "submit_url": ("POST", f"{CONTENT}/url"),
    "get_status": ("GET", f"{CONTENT}/{{uuid}}/status"),
    "get_statuses": ("POST", f"{CONTENT}/status/batch"),
    "get_content": ("GET", f"{CONTENT}/{{uuid}}/content"),
    "cancel": ("DELETE", f"{CONTENT}/{{uuid}}"),
    "refresh": ("POST", f"{CONTENT}/{{uuid}}/refresh"),
    "list_frameworks": ("GET", FRAMEWORKS),
    "list_criteria": ("GET", f"{FRAMEWORKS}/{{framework_id}}/criteria"),
    "submit_feedback": ("POST", "/api/v1/assessmentFeedback"),
    "get_application_info": ("GET", "/api/v1/info"),
    "submit_assessment": ("POST", ASSESSMENTS),
    "get_assessment": ("GET", f"{ASSESSMENTS}/{{assessment_id}}/status"),
    "get_assessment_results": ("GET", f"{ASSESSMENTS}/{{assessment_id}}/results"),
    "cancel_assessment": ("DELETE", f"{ASSESSMENTS}/{{assessment_id}}"),
}

# Entries of the connection's `endpoints` extra, which replace those paths.
ENDPOINTS = {
    "application_info": "get_application_info",
    "assessment_submit": "submit_assessment",
    "assessment_status": "get_assessment",
    "assessment_results": "get_assessment_results",
    "assessment_cancel": "cancel_assessment",
}

TOKEN_PATH = "/realms/partners/protocol/openid-connect/token"  # noqa: S105 a path

# The token endpoint counts as two operations, so that a test can fail one grant only.
LOGIN, REFRESH_TOKEN, OTHER = "login", "refresh_token", "other"
NAMES = (*OPERATIONS, LOGIN, REFRESH_TOKEN, OTHER)

# A change of these needs other routes, tokens or texts.
FIXED_AT_START = {"endpoints", "frameworks", "replay", "username", "password", "client_id", "client_secret"}

Phase = Literal["PENDING", "RUNNING", "DONE"]


@dataclass(frozen=True)
class CompletionRule:
    """When a job finishes: at once, after `amount` polls or seconds, or when a test finishes it."""

    kind: str
    amount: float = 0

    @staticmethod
    @functools.cache
    def parse(text: str) -> CompletionRule:
        """Parse `instant`, `polls:N`, `seconds:N` or `manual`."""
        kind, colon, amount = text.partition(":")
        try:
            match kind:
                case "instant" | "manual" if not colon:
                    return CompletionRule(kind)
                case "polls" if int(amount) >= 0:
                    return CompletionRule(kind, int(amount))
                case "seconds" if 0 <= float(amount) < float("inf"):
                    return CompletionRule(kind, float(amount))
        except ValueError:
            pass
        raise ValueError(f"jobs must be instant, polls:N, seconds:N or manual, not {text!r}.")

    def phase(self, polls: int, age: float) -> Phase:
        """Return the phase of a job after `polls` polls and `age` seconds."""
        match self.kind:
            case "instant":
                return "DONE"
            case "polls":
                if polls > self.amount or not self.amount:
                    return "DONE"
                return "PENDING" if polls < min(2, self.amount) else "RUNNING"
            case "seconds":
                if age >= self.amount:
                    return "DONE"
                return "PENDING" if age < self.amount / 4 else "RUNNING"
            case _:
                return "PENDING" if polls < 2 else "RUNNING"


class Clock:
    """Wall-clock time plus an offset that a test can add."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time() + self.offset

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise ValueError("The clock moves forward only: seconds must not be negative.")
        self.offset += seconds


@dataclass(frozen=True)
class Settings:
    """The settings of the emulator. Times are in seconds, sizes in bytes; `None` means no limit.

    :param jobs: how jobs and assessments progress: `instant`, `polls:N`, `seconds:N` or `manual`
    :param quirks: vary responses within the contract: unknown fields, relative Locations, time formats
    :param latency: added to every response
    :param concurrency: with more requests in flight, further ones get 429
    :param max_batch: with more uuids than this, a batch status request gets 413
    :param endpoints: paths of application info and assessments, as in the connection's extra
    :param model: 2 or more judges the first criterion of the first framework one step more strictly
    :param frameworks: a JSON file with the catalog of frameworks
    :param replay: a recording of a service, whose dialect is spoken
    """

    jobs: str = "instant"
    quirks: bool = True
    username: str = "partner"
    password: str = "partner-password"  # noqa: S105 a demo account on loopback, printed at the start
    client_id: str = "airflow"
    client_secret: str = "airflow-secret"  # noqa: S105 as above
    access_lifetime: float = 300
    refresh_lifetime: float = 1800
    latency: float = 0
    concurrency: int | None = None
    max_batch: int | None = None
    endpoints: dict[str, str] = dataclasses.field(default_factory=dict)
    model: int = 1
    frameworks: str | None = None
    replay: str | None = None

    def __post_init__(self) -> None:
        CompletionRule.parse(self.jobs)
        for entry, path in self.endpoints.items():
            if entry not in ENDPOINTS:
                raise ValueError(f"endpoints has no entry {entry!r}. Use one of: {', '.join(ENDPOINTS)}.")
            usual = OPERATIONS[ENDPOINTS[entry]][1]
            if not str(path).startswith("/") or ("{" in usual and "{assessment_id}" not in str(path)):
                raise ValueError(f"{entry} of endpoints must look like {usual!r}, not {path!r}.")

    def get_path(self, operation: str) -> str:
        """Return the path of an operation."""
        entry = next((entry for entry, name in ENDPOINTS.items() if name == operation), "")
        return self.endpoints.get(entry, OPERATIONS[operation][1])

    def change(self, **changes: Any) -> Settings:
        """Return changed settings; the error for an unknown name lists the known ones."""
        known = [field.name for field in dataclasses.fields(Settings)]
        if unknown := sorted(set(changes) - set(known)):
            raise ValueError(
                f"The emulator has no setting {', '.join(unknown)}. Use one of: {', '.join(known)}."
            )
        return dataclasses.replace(self, **changes)

    @property
    def progress(self) -> CompletionRule:
        """How jobs progress."""
        return CompletionRule.parse(self.jobs)
