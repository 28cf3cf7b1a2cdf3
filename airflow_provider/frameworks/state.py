"""What a watcher remembers, and where: with the asset from Airflow 3.3 on, in a variable before."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from airflow_provider.compat import get_variable, read_state, set_variable, write_state
from airflow_provider.frameworks.catalogue import Catalogue


@dataclass(frozen=True)
class Lease:
    """An event that is about to be sent; it stays where its sender dies before it knows what became of it.

    :param change: the id of the event
    :param by: who sends it
    :param at: when, in seconds since the epoch
    """

    change: str
    by: str
    at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class WatcherState:
    """The catalogue that has been told of, and what is being told."""

    catalogue: Catalogue
    at: float = field(default_factory=time.time)
    claim: Lease | None = None

    def claimed(self, change: str, by: str) -> WatcherState:
        """Return the note of somebody who is about to send an event."""
        return replace(self, at=time.time(), claim=Lease(change, by))

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it; a person may want to look at it, too."""
        packed = self.catalogue.pack()
        return {
            "at": self.at,
            "frameworks": self.catalogue.framework_count,
            "criteria": self.catalogue.criteria_count,
            "digest": self.catalogue.digest,
            **({"packed": packed} if packed is not None else {}),
            **({"claim": asdict(self.claim)} if self.claim else {}),
        }

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> WatcherState:
        """Read what `plain` wrote; anything else is a ValueError."""
        try:
            digest, counts = str(plain["digest"]), (int(plain["frameworks"]), int(plain["criteria"]))
            catalogue = (
                Catalogue.unpack(plain["packed"], digest, counts)
                if "packed" in plain
                else Catalogue({}, digest, counts)
            )
            claim = plain.get("claim")
            known = Lease(str(claim["change"]), str(claim["by"]), float(claim["at"])) if claim else None
            return cls(catalogue, float(plain["at"]), known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"The memory of the watcher is not readable: {error!r}") from None


class StateBackend(Protocol):
    """Where a note is kept."""

    async def read(self) -> dict[str, Any] | None:
        """Return what is kept; an error is raised, never taken for nothing."""

    async def write(self, plain: dict[str, Any]) -> None:
        """Keep something, surely."""


class AssetBackend:
    """Keeps a note with each of the assets that a trigger watches.

    :param stores: the state stores of the assets
    """

    def __init__(self, stores: list[Any], key: str) -> None:
        self._stores = stores
        self._key = key

    async def read(self) -> dict[str, Any] | None:
        """Return the newest note: assets that are watched together may have been watched alone before."""
        found = [await read_state(store, self._key) for store in self._stores]
        notes = [each for each in found if isinstance(each, dict)]
        return max(notes, key=lambda each: float(each.get("at", 0)), default=None)

    async def write(self, plain: dict[str, Any]) -> None:
        """Keep the note with all of them."""
        for store in self._stores:
            await write_state(store, self._key, plain)


class VariableBackend:
    """Keeps a note in an Airflow variable: before 3.3, a trigger can reach nothing else that lasts."""

    def __init__(self, key: str, description: str) -> None:
        self._key = key
        self._description = description

    async def read(self) -> dict[str, Any] | None:
        """Return the note."""
        found = await get_variable(self._key)
        return found if isinstance(found, dict) else None

    async def write(self, plain: dict[str, Any]) -> None:
        """Keep the note, and make sure: Airflow only logs when a variable can't be written."""
        await set_variable(self._key, plain, self._description)
        if await self.read() != plain:
            raise RuntimeError(f"The Airflow variable '{self._key}' could not be written.")


class ProcessBackend:
    """Keeps a note no longer than the trigger: where no asset is watched, nobody gets events either."""

    def __init__(self) -> None:
        self._plain: dict[str, Any] | None = None

    async def read(self) -> dict[str, Any] | None:
        """Return the note."""
        return self._plain

    async def write(self, plain: dict[str, Any]) -> None:
        """Keep the note."""
        self._plain = plain
