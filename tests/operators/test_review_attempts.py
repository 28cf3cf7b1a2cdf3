"""The attempts of a review: nothing is asked or sent twice, and no answer is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.exceptions import HITLTimeoutError

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.nights.review import state
from airflow_provider.waiting import refusals, rules
from tests.operators.hitl import RESULTS, FakeHitl, Made, sent

ANSWER: Any = {1: ("MISSING", "One."), 2: ("MISSING", "Two."), 3: ("MISSING", "Three.")}


def test_no_feedback_is_an_answer_that_is_not_asked_for_again(service: Emulator, hitl: FakeHitl) -> None:
    first, second = (hitl.run(Made(), "Decide later") for _ in range(2))
    assert [row["decision"] for row in first] == ["none"] * 3
    assert second == first
    assert (hitl.asked, len(hitl.kwargs), sent(service)) == (1, 1, [])  # the second one has not waited


Faults = list[dict[str, Any]]
# From the first feedback on: the service has answered before.
DOWN: Faults = [
    {"operation": "submit_feedback", "status": 500, "times": 20},
    {"operation": "list_frameworks", "status": 500, "times": 20, "skip": 1},
]
REFUSED = exc.ComplianceError, "refused the feedback on response 2"
THROTTLED = exc.ComplianceThrottledError, None
TWICE = exc.ComplianceConnectionError, "A retry sends the others"
# The faults of the service, how the attempt ends, whether that is final, and the outcomes after a retry.
SENDING: list[tuple[Faults, Any, bool, list[str]]] = [
    *(([{**fault, "skip": 1}], None, False, ["sent", "uncertain", "sent"])
      for fault in ({"reset": "after"}, {"reset": "before"}, {"status": 500})),
    *(([{"status": status, "skip": 1, "times": 2}], None, False, ["sent"] * 3)  # a short refusal is outlasted
      for status in (401, 403, 404)),
    ([{"status": 500, "times": 2}], TWICE, False, ["uncertain", "uncertain", "sent"]),
    (DOWN, (exc.ComplianceServerError, None), False, ["uncertain", "sent", "sent"]),  # an outage
    ([{"status": 429, "retry_after": 0, "skip": 1}], THROTTLED, False, ["sent"] * 3),
    ([{"status": 422, "skip": 1}], REFUSED, True, ["sent"] * 3),  # after the others are sent
]  # fmt: skip


@pytest.mark.parametrize(("faults", "error", "is_final", "outcomes"), SENDING)
def test_each_feedback_is_sent_once_or_said_to_be_uncertain(
    service: Emulator,
    hitl: FakeHitl,
    monkeypatch: pytest.MonkeyPatch,
    faults: Faults,
    error: tuple[type[Exception], str | None] | None,
    is_final: bool,
    outcomes: list[str],
) -> None:
    monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 0.0)
    for fault in faults:
        service.fail(**{"operation": "submit_feedback", **fault})
    if error is None:
        returned = hitl.run(Made(), ANSWER)
    else:
        with pytest.raises(error[0], match=error[1]) as caught:
            hitl.run(Made(), ANSWER)
        assert isinstance(caught.value, AirflowFailException) is is_final
        if faults is DOWN:
            assert service.count("submit_feedback") == 1
        if is_final:
            assert [row[1] for row in sent(service)] == [1, 3]
        service.clear_faults()
        returned = hitl.run(Made())
    assert [row["outcome"] for row in returned] == outcomes
    count = service.count("submit_feedback")
    assert hitl.run(Made()) == returned
    assert service.count("submit_feedback") == count
    arrived = sorted(row[1] for row in sent(service))
    assert arrived == sorted(set(arrived))
    assert set(arrived) >= {number for number, outcome in enumerate(outcomes, 1) if outcome == "sent"}


def test_no_feedback_is_tried_while_the_service_is_away(service: Emulator, hitl: FakeHitl) -> None:
    """However many attempts the outage takes: each would leave one of which no one knows if it arrived."""
    for fault in DOWN:
        service.fail(**{**fault, "times": None, "skip": 0})
    for given in (ANSWER, None):
        with pytest.raises(exc.ComplianceServerError):
            hitl.run(Made(), given)
    assert service.count("submit_feedback") == 0
    service.clear_faults()
    assert [row["outcome"] for row in hitl.run(Made())] == ["sent"] * 3
    assert hitl.asked == 1


def test_a_lasting_refusal_is_retried_after_the_others_are_sent(
    service: Emulator, hitl: FakeHitl, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = ComplianceHook.submit_feedback

    def refuse(self: Any, **feedback: Any) -> None:
        if feedback["assessment_response_id"] == 2:
            raise exc.ComplianceNotFoundError("404", status=404)
        submit(self, **feedback)

    with monkeypatch.context() as patched:
        patched.setattr(rules, "OUTAGE_SECONDS", 0.0)
        patched.setattr(ComplianceHook, "submit_feedback", refuse)
        with pytest.raises(exc.ComplianceNotFoundError) as caught:
            hitl.run(Made(), ANSWER)
    assert not isinstance(caught.value, AirflowFailException)
    assert [row[1] for row in sent(service)] == [1, 3]
    hitl.run(Made())
    assert [row[1] for row in sent(service)] == [1, 3, 2]


def test_an_answer_that_no_attempt_has_read_is_not_lost(service: Emulator, hitl: FakeHitl) -> None:
    hitl.die_while_waiting(Made())
    hitl.answer({1: ("MISSING", "Unread.")})
    hitl.run(Made())
    assert sent(service) == [("e-1", 1, "MISSING", "Unread.")]
    assert hitl.asked == 1


def test_other_findings_than_those_of_the_form_need_a_new_run(service: Emulator, hitl: FakeHitl) -> None:
    hitl.run(Made(), "Decide later")
    with pytest.raises(exc.ComplianceInputError, match="Start a new DAG run"):
        hitl.run(Made(results=[*RESULTS, {"id": 4, "category": "MISSING"}]))
    assert hitl.asked == 1


# -- before Airflow 3.3


@pytest.fixture
def older(hitl: FakeHitl) -> FakeHitl:
    """Airflow without a task state store."""
    hitl.store = None
    return hitl


def test_before_3_3_a_fault_while_sending_is_final_and_says_what_was_sent(
    service: Emulator, older: FakeHitl
) -> None:
    service.fail("submit_feedback", status=429, retry_after=0, skip=1)
    with pytest.raises(exc.ComplianceError, match=r"sent on 1 of 3 findings: \[1\]") as caught:
        older.run(Made(), ANSWER)
    assert isinstance(caught.value, AirflowFailException)


def test_before_3_3_the_task_waits_until_the_service_is_back(
    service: Emulator, older: FakeHitl, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 120:
            service.start()

    monkeypatch.setattr(state, "time", SimpleNamespace(sleep=pause))
    service.stop()
    assert [row["outcome"] for row in older.run(Made(), ANSWER)] == ["sent"] * 3
    assert sum(pauses) == 7200.0


def test_before_3_3_an_attempt_after_an_answer_neither_asks_nor_sends(
    service: Emulator, older: FakeHitl
) -> None:
    older.run(Made(), ANSWER)
    with pytest.raises(
        exc.ComplianceError, match=r"answered by Ada L\. at .* neither asks nor sends"
    ) as caught:
        older.run(Made(), ANSWER)
    assert isinstance(caught.value, AirflowFailException)
    assert (older.asked, service.count("submit_feedback")) == (1, 3)


def test_before_3_3_an_attempt_after_no_answer_asks_again(service: Emulator, older: FakeHitl) -> None:
    service.fail("get_assessment_results", status=500)
    with pytest.raises(exc.ComplianceServerError):
        older.run(Made(results=None, assessment_id="a"))
    with pytest.raises(HITLTimeoutError):
        older.run(Made())
    older.run(Made(), {1: ("MISSING", "At last.")})
    assert len(sent(service)) == 1


def test_before_3_3_answers_to_the_form_of_other_findings_are_not_sent(
    service: Emulator, older: FakeHitl
) -> None:
    with pytest.raises(HITLTimeoutError):
        older.run(Made())
    with pytest.raises(exc.ComplianceInputError, match="Nothing was sent"):
        older.run(Made(results=[{**RESULTS[0], "id": 9}]), {1: ("MISSING", "On the old form.")})
    assert sent(service) == []
