"""Airflow's human in the loop, as far as a task sees it, and the expert who answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.operators import feedback
from airflow_provider.runtime.compat import waiting_for_input
from airflow_provider.triggers.review import ComplianceEarlierAnswerTrigger
from tests.support.attempts import StateStore, TaskInstance, fire, heard

RESULTS = [
    {"id": 1, "name": "Exit", "category": "MISSING", "rationale": "Nothing was found.", "score": 0.5},
    {"id": 2, "name": "Audit", "category": "NOT_SUFFICIENTLY_REGULATED", "rationale": "Half of it."},
    {"id": 3, "name": "Data", "category": "SUFFICIENTLY_REGULATED", "rationale": "Clause 2.", "score": 0.95},
]
EXPERT = {"id": "ada", "name": "Ada L."}
Answer = dict[int | Literal["rest"], tuple[str | None, str | None] | Literal["agreed"]] | str | None


def stored(value: Any) -> Any:
    """Return what Airflow makes of a value: JSON in UTF-8, without NUL, which PostgreSQL refuses."""
    text = json.dumps(value, ensure_ascii=False).encode()
    assert b"\\u0000" not in text
    return json.loads(text)


@dataclass
class Instance(TaskInstance):
    """A task instance with the id that forms are kept under."""

    id: UUID = field(default_factory=uuid4)


@dataclass
class FakeHitl:
    """Keeps the one form of a task and its answer, over all attempts, as Airflow does."""

    store: StateStore | None = field(default_factory=StateStore)
    form: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    asked: int = 0
    tries: int = 0
    kwargs: list[Any] = field(default_factory=list)
    map_index: int = -1
    context: dict[str, Any] = field(default_factory=dict)
    is_dying: bool = False

    def upsert(self, **form: Any) -> None:
        """Take a form: only the first one of a task is kept, and an answer to it is forgotten."""
        self.asked += 1
        self.response = None
        self.form = self.form or stored({**form, "ti_id": ""})

    def detail(self, ti_id: UUID) -> Any:
        if self.form is None:
            raise RuntimeError("HITLDetail not found.")
        response = self.response or {}
        user = response.get("responded_by_user")
        return SimpleNamespace(
            response_received=bool(response),
            responded_by_user=SimpleNamespace(**user) if user else None,
            responded_at=response.get("responded_at"),
        )

    def answer(self, given: Answer) -> dict[str, Any]:
        """Fill in the form, by id, click an option, or let the time pass."""
        assert self.form is not None
        values = {name: row["value"] for name, row in self.form["params"].items()}
        if isinstance(given, dict):
            for number, one in given.items():
                values |= (
                    {"agree_with_the_rest": True}
                    if one == "agreed"
                    else dict(zip((f"category_{number}", f"rationale_{number}"), one, strict=True))
                )
        chosen = given if isinstance(given, str) else "Send feedback"
        self.response = {
            "chosen_options": self.form["defaults"] if given is None else [chosen],
            "params_input": values,
            "responded_at": datetime.now(UTC),
            "responded_by_user": None if given is None else EXPERT,
            "timedout": given is None,
        }
        return self.response

    def run(self, make: Callable[[], Any], given: Answer = None, **more: Any) -> Any:
        """Make one attempt; each of its parts is a process of its own, with a new task object.

        :param more: of the context
        """
        self.tries += 1
        ti = Instance(try_number=self.tries, map_index=self.map_index)
        context: Any = {"ti": ti, "task_instance": ti, **more}
        self.context = context
        if self.store is not None:
            context["task_state_store"] = self.store
        step: Callable[[], Any] = partial(make().execute, context)
        while True:
            try:
                return stored(step())
            except waiting_for_input() as signal:
                waiting: Any = signal
                event = self._event(waiting, given)
                self.kwargs.append(stored(waiting.kwargs or {}))
                resumed = {**self.kwargs[-1], "event": event}
                step = partial(make().resume_execution, waiting.method_name, resumed, context)

    def die_while_waiting(self, make: Callable[[], Any]) -> None:
        """Make an attempt that asks, and ends before the answer comes."""
        self.is_dying = True
        with suppress(SystemExit):
            self.run(make)
        self.is_dying = False

    def _event(self, waiting: Any, given: Answer) -> dict[str, Any]:
        if self.is_dying:
            raise SystemExit
        trigger = getattr(waiting, "trigger", None)
        if isinstance(trigger, ComplianceEarlierAnswerTrigger):
            _, kwargs = trigger.serialize()
            return asyncio.run(fire(ComplianceEarlierAnswerTrigger(**json.loads(json.dumps(kwargs)))))
        if self.response is not None:
            return self.response
        assert self.form is not None
        if given is None and self.form["defaults"] is None:
            return {"error": "The time is up.", "error_type": "timeout"}
        return self.answer(given)


class Made:
    """Makes the same operator again and again, as every process of an attempt does."""

    def __init__(self, kind: Any = None, *, log_here: bool = False, **kwargs: Any) -> None:
        self.kind = kind
        self.log_here = log_here
        self.kwargs: dict[str, Any] = {"results": RESULTS, "expert_id": "e-1", **kwargs}

    def __call__(self) -> Any:
        made = (self.kind or feedback.ComplianceReviewAssessmentOperator)(task_id="t", **self.kwargs)
        return heard(made) if self.log_here else made


def sent(service: Emulator) -> list[tuple[Any, ...]]:
    """Return the feedback that has arrived: expert, response, category, rationale."""
    names = ("expertId", "assessmentResponseId", "categoryFeedback", "rationalFeedback")
    return [tuple(row.get(name) for name in names) for row in service.feedback()]


@pytest.fixture
def hitl(monkeypatch: pytest.MonkeyPatch) -> FakeHitl:
    made = FakeHitl()
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", made.upsert)
    monkeypatch.setattr("airflow.sdk.execution_time.hitl.get_hitl_detail_content_detail", made.detail)
    return made
