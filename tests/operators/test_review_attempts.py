"""The attempts of a review: nothing is asked or sent twice, and no answer is lost."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.exceptions import HITLTimeoutError

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.waiting import refusals, rules
from tests.operators.hitl import RESULTS, FakeHitl, Made, sent

ANSWER: Any = {1: ("MISSING", "One."), 2: ("MISSING", "Two."), 3: ("MISSING", "Three.")}


def test_no_feedback_is_an_answer_that_is_not_asked_for_again(service: Emulator, hitl: FakeHitl) -> None:
    first, second = (hitl.run(Made(), "No feedback") for _ in range(2))
    assert [row["decision"] for row in first] == ["none"] * 3
    assert second == first
    assert (hitl.asked, len(hitl.kwargs), sent(service)) == (1, 1, [])  # the second one has not waited


@pytest.mark.parametrize("fault", [{"reset": "after"}, {"reset": "before"}, {"status": 500}])
def test_feedback_that_is_uncertain_is_not_sent_again_and_is_said_to_be(
    service: Emulator, hitl: FakeHitl, fault: dict[str, Any]
) -> None:
    service.fail("submit_feedback", skip=1, **fault)
    returned = hitl.run(Made(), ANSWER)
    assert [row["outcome"] for row in returned] == ["sent", "uncertain", "sent"]
    assert hitl.run(Made()) == returned
    assert service.count("submit_feedback") == 3


def test_an_outage_makes_one_feedback_uncertain_and_a_retry_sends_the_others(
    service: Emulator, hitl: FakeHitl
) -> None:
    for operation in ("submit_feedback", "list_frameworks"):
        service.fail(operation, status=500, times=20)
    with pytest.raises(exc.ComplianceServerError) as caught:
        hitl.run(Made(), ANSWER)
    assert not isinstance(caught.value, AirflowFailException)
    assert service.count("submit_feedback") == 1
    service.clear_faults()
    returned = hitl.run(Made())
    assert [row["outcome"] for row in returned] == ["uncertain", "sent", "sent"]
    assert [row[1] for row in sent(service)] == [2, 3]


def test_two_uncertain_feedbacks_in_a_row_end_the_attempt(service: Emulator, hitl: FakeHitl) -> None:
    service.fail("submit_feedback", status=500, times=2)
    with pytest.raises(exc.ComplianceConnectionError, match="A retry sends the others") as caught:
        hitl.run(Made(), ANSWER)
    assert not isinstance(caught.value, AirflowFailException)
    assert [row["outcome"] for row in hitl.run(Made())] == ["uncertain", "uncertain", "sent"]


def test_a_refused_feedback_fails_the_task_after_the_others_are_sent(
    service: Emulator, hitl: FakeHitl
) -> None:
    service.fail("submit_feedback", status=422, skip=1)
    with pytest.raises(exc.ComplianceError, match="refused the feedback on response 2") as caught:
        hitl.run(Made(), ANSWER)
    assert isinstance(caught.value, AirflowFailException)
    assert [row[1] for row in sent(service)] == [1, 3]
    hitl.run(Made())
    assert [row[1] for row in sent(service)] == [1, 3, 2]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_short_refusal_is_outlasted(
    service: Emulator, hitl: FakeHitl, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 0.0)
    service.fail("submit_feedback", status=status, skip=1, times=2)
    returned = hitl.run(Made(), ANSWER)
    assert [row["outcome"] for row in returned] == ["sent"] * 3
    assert sorted(row[1] for row in sent(service)) == [1, 2, 3]


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
    hitl.run(Made(), "No feedback")
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


def test_before_3_3_an_attempt_after_an_answer_neither_asks_nor_sends(
    service: Emulator, older: FakeHitl
) -> None:
    older.run(Made(), ANSWER)
    with pytest.raises(exc.ComplianceError, match=r"answered by Ada L\. at .* nothing is asked") as caught:
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
        older.run(Made(results=RESULTS[:1]), {1: ("MISSING", "On the old form.")})
    assert sent(service) == []
