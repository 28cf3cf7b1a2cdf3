"""The trigger that checks whether a form was answered in an earlier attempt, of which nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from airflow.triggers.base import BaseTrigger, TriggerEvent


class ComplianceEarlierAnswerTrigger(BaseTrigger):
    """Finds out by whom and when a form was answered, before the task shows it again and loses the answer.

    Only a triggerer can ask for it.

    :param ti_id: the task instance
    """

    def __init__(self, ti_id: str) -> None:
        super().__init__()
        self.ti_id = ti_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the fields."""
        return f"{__name__}.{type(self).__qualname__}", {"ti_id": self.ti_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check once."""
        from airflow.sdk.execution_time.hitl import get_hitl_detail_content_detail
        from asgiref.sync import sync_to_async

        answer: dict[str, str] = {}
        try:
            detail = await sync_to_async(get_hitl_detail_content_detail)(ti_id=UUID(self.ti_id))
        except Exception as error:  # without a form, Airflow raises different errors
            self.log.info("Found no form of an earlier attempt: %s", type(error).__name__)
        else:
            user = getattr(detail, "responded_by_user", None)
            if user and detail.response_received:
                answer = {"by": str(user.name), "at": str(detail.responded_at)}
        yield TriggerEvent(answer)
