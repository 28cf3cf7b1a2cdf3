"""How many jobs and assessments an emulator has in flight, by its own books."""

from __future__ import annotations

from typing import Any

from airflow_provider.emulator import Emulator

IN_FLIGHT = ("PENDING", "RUNNING")


class JobsInFlight:
    """Counts whenever the emulator starts to process something, for the first time or again.

    :ivar peak: the most that there ever were
    """

    def __init__(self, service: Emulator) -> None:
        self.peak = 0
        self._state = state = service._state
        self._follow(state, "restart_job")
        self._follow(state, "add_assessment")

    def _follow(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def followed(*args: Any) -> Any:
            added = original(*args)
            self.peak = max(self.peak, self.count())
            return added

        setattr(owner, name, followed)

    def count(self) -> int:
        """Return how many there are now."""
        statuses = map(self._state.status, self._state.work.values())
        return sum(status in IN_FLIGHT for status in statuses)
