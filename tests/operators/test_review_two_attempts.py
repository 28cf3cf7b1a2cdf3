"""Two attempts of a review at once: one that Airflow took for dead, and its retry."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.nights.review.state import FEEDBACK_FIELDS, PENDING, ReviewState
from tests.operators.hitl import FakeHitl, Made, sent
from tests.support.attempts import Interrupted, StateStore

ANSWER: Any = {1: ("MISSING", "One."), 2: ("MISSING", "Two."), 3: ("MISSING", "Three.")}
log = logging.getLogger(__name__)


def test_the_attempt_that_was_taken_for_dead_stops_and_says_so(
    service: Emulator, hitl: FakeHitl, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = ComplianceHook.submit_feedback
    retries: list[Any] = []

    def slowly(self: Any, *args: Any, **feedback: Any) -> None:
        if not retries:
            retries.append(None)
            retries.append(hitl.run(Made()))
        submit(self, *args, **feedback)

    monkeypatch.setattr(ComplianceHook, "submit_feedback", slowly)
    with pytest.raises(exc.ComplianceError, match="Attempt 2 of this task has taken over") as caught:
        hitl.run(Made(), ANSWER)
    assert isinstance(caught.value, AirflowFailException)  # a dead attempt is not retried
    assert sorted(row[1] for row in sent(service)) == [1, 2, 3]
    assert [row["outcome"] for row in retries[1]] == ["uncertain", "sent", "sent"]
    assert [row["outcome"] for row in hitl.run(Made())] == ["sent"] * 3


def test_an_overtaken_attempt_replaces_no_decisions_of_the_next(
    service: Emulator, hitl: FakeHitl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, path = ComplianceHook.submit_feedback, tmp_path / "decisions.jsonl"
    review, retries = Made(destination=str(path)), [None]

    def slowly(self: Any, **feedback: Any) -> None:
        if retries:
            retries.clear()
            hitl.run(review)
        submit(self, **feedback)

    monkeypatch.setattr(ComplianceHook, "submit_feedback", slowly)
    with pytest.raises(exc.ComplianceError, match="Attempt 2 of this task has taken over"):
        hitl.run(review, {1: ("MISSING", "One.")})
    outcomes = [json.loads(line)["outcome"] for line in path.read_text().splitlines()]
    assert outcomes == ["uncertain", "recorded", "recorded"]


@pytest.mark.parametrize("operation", range(1, 36, 2))
def test_a_retry_at_any_moment_of_a_review_sends_nothing_twice(
    service: Emulator, hitl: FakeHitl, operation: int
) -> None:
    hitl.store = store = Interrupted(operation, lambda: hitl.run(Made(), ANSWER))
    try:
        hitl.run(Made(), ANSWER)
    except exc.ComplianceError as error:
        assert "has taken over" in str(error)
    store.left = 0
    arrived = Counter(row[1] for row in sent(service))
    assert max(arrived.values()) == 1
    outcomes = {row["assessment_response_id"]: row["outcome"] for row in hitl.run(Made(), ANSWER)}
    assert sorted(outcomes) == [1, 2, 3]
    assert all(arrived[number] or outcomes[number] == "uncertain" for number in outcomes)
    assert len(sent(service)) == arrived.total()


# -- the lease, which the newest attempt holds


def state(store: Any, try_number: int) -> ReviewState:
    return ReviewState(store, {"try_number": try_number}, log)


def pending(number: int, comment: str = "x") -> dict[str, Any]:
    fields = {**dict.fromkeys(FEEDBACK_FIELDS, comment), "assessment_response_id": number}
    return {**fields, "outcome": PENDING}


@pytest.mark.parametrize("do", ["start", "check", "record", "send"])
def test_an_older_attempt_stops_at_its_next_step(do: str) -> None:
    store = StateStore()
    older = state(store, 1)
    older.record_answer([pending(1)], is_answered=True)
    assert older.check_lease()
    state(store, 2)
    hook: Any = SimpleNamespace(submit_feedback=pytest.fail, list_frameworks=list)
    steps: dict[str, Callable[[], Any]] = {
        "start": lambda: state(store, 1),
        "check": older.check_lease,
        "record": lambda: older.record_form([]),
        "send": lambda: older.send_all(hook),
    }
    with pytest.raises(exc.ComplianceSupersededError, match="Attempt 2 of this task has taken over"):
        steps[do]()


def test_an_answer_replaces_what_was_not_sent_and_keeps_what_was(caplog: pytest.LogCaptureFixture) -> None:
    sent_numbers: list[int] = []

    def submit(assessment_response_id: int, **_: Any) -> None:
        if assessment_response_id == 2:
            raise exc.ComplianceRefusedError("no", status=422)
        sent_numbers.append(assessment_response_id)

    hook: Any = SimpleNamespace(submit_feedback=submit, list_frameworks=list)
    review = state(StateStore(), 1)
    review.record_answer([pending(1, "first"), pending(2, "first")], is_answered=True)
    assert len(review.send_all(hook)) == 1
    review.record_answer([pending(1, "second"), pending(2, "second")], is_answered=True)
    review.send_all(hook)
    assert sent_numbers == [1]
    assert "it may have arrived" not in caplog.text
    assert [(row["rational_feedback"], row["outcome"]) for row in review.results()] == [
        ("first", "sent"),
        ("second", PENDING),
    ]
