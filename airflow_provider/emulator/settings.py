"""What can be set about the emulator, at its start and while it runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from airflow_provider.emulator.memory.progress import Progress
from airflow_provider.emulator.operations import ENDPOINTS, OPERATIONS

FIXED_AT_START = ("base_path", "endpoints", "frameworks")


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. Times are in seconds, sizes in bytes; `None` means no limit.

    :param jobs: how jobs and assessments advance: `instant`, `polls:N`, `seconds:N` or `manual`
    :param seed: decides which odd but legal forms the answers take
    :param quirks: whether answers take odd but legal forms at all
    :param naive_times: write times without a zone, as Java's LocalDateTime does
    :param visible: when a submitted job can be found, 404 before: `instant`, `polls:N` or `seconds:N`
    :param refresh_lag: so many looks after a refresh still show the state before it
    :param latency: added to every answer
    :param concurrency: with more requests than this in flight, the others get 429
    :param max_batch: with more uuids than this, a batch status request gets 413
    :param max_upload: a larger file gets 413
    :param lock_after: a user is locked out after so many wrong passwords in a row
    :param lock_seconds: for how long
    :param max_jobs: beyond this the oldest jobs are forgotten, the same goes for assessments
    :param max_age: older jobs and assessments are forgotten
    :param max_text: bytes of extracted text kept in all; beyond it the oldest jobs are forgotten
    :param fetch_timeout: for fetching the page of a URL job
    :param fetch_limit: largest page that is fetched
    :param base_path: a path prefix in front of everything that the service offers
    :param endpoints: other paths for what the contract gives no path, named as in the connection's extra
    :param frameworks: a JSON file with the catalogue of frameworks
    """

    jobs: str = "instant"
    seed: int = 0
    quirks: bool = True
    naive_times: bool = False
    visible: str = "instant"
    refresh_lag: int = 0
    username: str = "partner"
    password: str = "partner-password"  # noqa: S105 a demo account of a loopback tool, printed at the start
    client_id: str = "airflow"
    client_secret: str = "airflow-secret"  # noqa: S105 as above
    access_lifetime: float = 300.0
    refresh_lifetime: float = 1800.0
    lock_after: int = 5
    lock_seconds: float = 60.0
    latency: float = 0.0
    concurrency: int | None = None
    max_batch: int | None = None
    max_upload: int | None = 100 * 2**20
    max_jobs: int = 10_000
    max_age: float = 24 * 3600.0
    max_text: int = 256 * 2**20
    fetch_timeout: float = 10.0
    fetch_limit: int = 10 * 2**20
    base_path: str = ""
    endpoints: dict[str, str] = dataclasses.field(default_factory=dict)
    frameworks: str | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(field.name, str(field.type), getattr(self, field.name))
        if self.base_path and (not self.base_path.startswith("/") or self.base_path.endswith("/")):
            raise ValueError(f"base_path must look like '/prefix', not {self.base_path!r}.")
        Progress.parse(self.jobs)
        if Progress.parse(self.visible, "visible").kind == "manual":
            raise ValueError("visible must be instant, polls:N or seconds:N.")
        for entry, path in self.endpoints.items():
            if entry not in ENDPOINTS:
                raise ValueError(f"endpoints has no entry {entry!r}. There are: {', '.join(ENDPOINTS)}.")
            usual = OPERATIONS[ENDPOINTS[entry]][1]
            if not str(path).startswith("/") or ("{" in usual and "{assessment_id}" not in str(path)):
                raise ValueError(f"{entry} of endpoints must look like {usual!r}, not {path!r}.")

    def path_of(self, operation: str) -> str:
        """Return where an operation lives."""
        entry = next((entry for entry, name in ENDPOINTS.items() if name == operation), "")
        return self.base_path + self.endpoints.get(entry, OPERATIONS[operation][1])

    def change(self, **changes: Any) -> Settings:
        """Return the settings with some of them changed while the emulator runs."""
        for name in changes:
            if name in FIXED_AT_START:
                raise ValueError(f"{name} is fixed when the emulator starts.")
        return build_settings(self, changes)

    @property
    def progress(self) -> Progress:
        """How jobs advance."""
        return Progress.parse(self.jobs)


def build_settings(base: Settings, changes: dict[str, Any]) -> Settings:
    """Return `base` with `changes`; a name that does not exist is an error which lists those that do."""
    known = [field.name for field in dataclasses.fields(Settings)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise ValueError(f"The emulator has no setting {', '.join(unknown)}. There are: {', '.join(known)}.")
    return dataclasses.replace(base, **changes)


def _check(name: str, kind: str, value: Any) -> None:
    if value is None and kind.endswith("| None"):
        return
    wanted: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "dict[str, str]": (dict,),
    }
    base = kind.removesuffix(" | None")
    if not isinstance(value, wanted[base]) or (isinstance(value, bool) and base != "bool"):
        raise ValueError(f"The setting {name} must be of type {kind}, not {type(value).__name__}.")
    if isinstance(value, int | float) and value < 0:
        raise ValueError(f"The setting {name} must not be negative: {value}.")
