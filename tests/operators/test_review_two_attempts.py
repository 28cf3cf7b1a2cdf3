"""Two attempts of a review at once: one that Airflow took for dead, and its retry."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from threading import Condition, Thread
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.review.state import FEEDBACK_FIELDS, PENDING, ReviewState
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
    assert sorted(each[1] for each in sent(service)) == [1, 2, 3]
    assert [each["outcome"] for each in retries[1]] == ["uncertain", "sent", "sent"]
    assert [each["outcome"] for each in hitl.run(Made())] == ["sent"] * 3


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
    assert [json.loads(line)["outcome"] for line in path.read_text().splitlines()] == ["uncertain"]


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
    arrived = Counter(each[1] for each in sent(service))
    assert max(arrived.values()) == 1
    outcomes = {each["assessment_response_id"]: each["outcome"] for each in hitl.run(Made(), ANSWER)}
    assert sorted(outcomes) == [1, 2, 3]
    assert all(arrived[number] or outcomes[number] == "uncertain" for number in outcomes)
    assert len(sent(service)) == arrived.total()


class Turns:
    """Lets threads run one operation at a time, in random order."""

    def __init__(self, seed: int) -> None:
        self._lot = Random(seed)
        self._condition = Condition()
        self._busy: set[str] = set()
        self._waiting: set[str] = set()

    def run(self, threads: dict[str, Callable[[], None]]) -> None:
        """Run them until all are done."""

        def to_its_end(name: str) -> None:
            try:
                threads[name]()
            finally:
                with self._condition:
                    self._busy.discard(name)
                    self._next()

        self._busy = set(threads)
        started = [Thread(target=to_its_end, args=(name,)) for name in threads]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(240)

    def wait_for_turn(self, name: str) -> None:
        """Wait for a turn."""
        with self._condition:
            self._busy.discard(name)
            self._waiting.add(name)
            self._next()
            assert self._condition.wait_for(lambda: name in self._busy, timeout=240)

    def _next(self) -> None:
        if not self._busy and self._waiting:
            chosen = self._lot.choice(sorted(self._waiting))
            self._waiting.remove(chosen)
            self._busy.add(chosen)
            self._condition.notify_all()


class Shared:
    """The store as one of several attempts sees it, who take turns."""

    def __init__(self, store: StateStore, turns: Turns, name: str) -> None:
        self._store, self._turns, self._name = store, turns, name

    def get(self, key: str) -> Any:
        self._turns.wait_for_turn(self._name)
        return self._store.get(key)

    def set(self, key: str, value: Any) -> None:
        self._turns.wait_for_turn(self._name)
        self._store.set(key, value)


@pytest.mark.parametrize("seed", range(40))
def test_attempts_that_run_side_by_side_send_each_feedback_at_most_once(seed: int) -> None:
    """Every order of reads and writes will do: 40 of them, which are the same in each run."""
    feedback = [
        {**dict.fromkeys(FEEDBACK_FIELDS, "x"), "assessment_response_id": number, "outcome": PENDING}
        for number in range(1, 6)
    ]
    store, turns = StateStore(), Turns(seed)
    ReviewState(store, {"try_number": 0}, log).record_answer(feedback, [], is_answered=True)
    arrived: Counter[int] = Counter()
    ends: dict[str, Any] = {}

    def attempt(number: int) -> None:
        name = str(number)

        def submit(assessment_response_id: int, **_: Any) -> None:
            turns.wait_for_turn(name)
            arrived[assessment_response_id] += 1

        try:
            state = ReviewState(Shared(store, turns, name), {"try_number": number}, log)
            assert state.send_all(SimpleNamespace(submit_feedback=submit)) == []
            ends[name] = state.results()
        except exc.ComplianceError as error:
            ends[name] = error

    turns.run({str(number): partial(attempt, number) for number in (1, 2, 3)})
    assert max(arrived.values()) == 1
    assert len(ends) == 3
    outcomes = {
        each["assessment_response_id"]: each["outcome"] for each in ends["3"]
    }  # the newest never stops
    assert all(arrived[number] or outcomes[number] == "uncertain" for number in range(1, 6))


def test_an_attempt_that_airflow_does_not_know_any_more_sends_nothing(
    service: Emulator, hitl: FakeHitl
) -> None:
    """Airflow gives a retry's task instance another id; to the old one the store seems to be empty."""

    class Gone(StateStore):
        def set(self, key: str, value: Any) -> None:
            """Forget it."""

    hitl.store = Gone()
    with pytest.raises(exc.ComplianceError, match="has taken over"):
        hitl.run(Made(), ANSWER)
    assert sent(service) == []
