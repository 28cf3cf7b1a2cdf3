"""The trigger that looks whether a form was answered in an earlier attempt, for Airflow before 3.3."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent


@dataclass(eq=False, repr=False)
class ComplianceEarlierAnswerTrigger(BaseTrigger):
    """Finds out by whom and when a form was answered, before the task shows it again and loses the answer.

    Before Airflow 3.3 only a triggerer can ask for it. Not needed when 3.3 is the oldest supported version.

    :param ti_id: the task instance
    """

    ti_id: str

    def __post_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the fields."""
        return f"{__name__}.{type(self).__qualname__}", {f.name: getattr(self, f.name) for f in fields(self)}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look once."""
        yield TriggerEvent(await self._look())

    async def _look(self) -> dict[str, str]:
        from uuid import UUID

        from airflow.sdk.execution_time.hitl import get_hitl_detail_content_detail
        from asgiref.sync import sync_to_async

        try:
            detail = await sync_to_async(get_hitl_detail_content_detail)(ti_id=UUID(self.ti_id))
        except Exception as error:  # Airflow raises whatever it raises where there was no form yet
            self.log.info("No form of an earlier attempt is found: %s", type(error).__name__)
            return {}
        user = getattr(detail, "responded_by_user", None)
        if not user or not detail.response_received:
            return {}
        return {"by": str(user.name), "at": str(detail.responded_at)}
