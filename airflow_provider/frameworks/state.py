"""Where a watcher stores its state: with the asset from Airflow 3.3 on, in a variable before."""

from __future__ import annotations

from typing import Any, Protocol

from airflow_provider.compat import get_variable, read_state, set_variable, write_state


class StateBackend(Protocol):
    """Stores the state of a watcher."""

    async def read(self) -> dict[str, Any] | None:
        """Return the state, None if there is none; raise if it can't be read."""

    async def write(self, state: dict[str, Any]) -> None:
        """Store the state; raise if it can't be written."""


class AssetBackend:
    """Stores the state with each asset that a trigger watches.

    :param stores: the state stores of the assets
    """

    def __init__(self, stores: list[Any], key: str) -> None:
        self._stores = stores
        self._key = key

    async def read(self) -> dict[str, Any] | None:
        """Return the newest state: assets may have been watched separately before."""
        found = [await read_state(store, self._key) for store in self._stores]
        states = [each for each in found if isinstance(each, dict)]
        return max(states, key=lambda each: float(each.get("at", 0)), default=None)

    async def write(self, state: dict[str, Any]) -> None:
        """Store the state with all of them."""
        for store in self._stores:
            await write_state(store, self._key, state)


class VariableBackend:
    """Stores the state in an Airflow variable: before 3.3, a trigger has no other persistent storage."""

    def __init__(self, key: str, description: str) -> None:
        self._key = key
        self._description = description

    async def read(self) -> dict[str, Any] | None:
        """Return the state."""
        found = await get_variable(self._key)
        return found if isinstance(found, dict) else None

    async def write(self, state: dict[str, Any]) -> None:
        """Store the state and read it back: Airflow only logs when a variable can't be written."""
        await set_variable(self._key, state, self._description)
        if await self.read() != state:
            raise RuntimeError(
                f"The Airflow variable '{self._key}' could not be written: see the triggerer's log."
            )


class ProcessBackend:
    """Keeps the state in memory: without a watched asset, nobody receives events either."""

    def __init__(self) -> None:
        self._state: dict[str, Any] | None = None

    async def read(self) -> dict[str, Any] | None:
        """Return the state."""
        return self._state

    async def write(self, state: dict[str, Any]) -> None:
        """Keep the state."""
        self._state = state
