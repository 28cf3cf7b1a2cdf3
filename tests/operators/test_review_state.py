"""A review asks and sends once, in every store of its state, also after a clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.human_in_the_loop", reason="human in the loop is in Airflow 3.1+")

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.nights.review.state import REVIEW
from airflow_provider.storage.locations import Location
from airflow_provider.storage.outbox import LEASE, SENT
from tests.operators.hitl import RESULTS, FakeHitl, Made, sent
from tests.support.state_stores import STATE_STORES, make_store, use_state_path

ANSWERS: Any = {1: ("MISSING", "One."), 2: ("MISSING", "Two."), 3: ("MISSING", "Three.")}


@pytest.fixture(params=[*STATE_STORES, "destination"])
def memory(
    request: pytest.FixtureRequest,
    service: Emulator,
    hitl: FakeHitl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Made:
    """Return how to make the review whose state is stored there."""
    if request.param == "destination":
        hitl.store = None
        monkeypatch.setattr(Location, "is_local", False)
        return Made(destination=f"file://{tmp_path}/decisions/")
    hitl.store = make_store(request.param, tmp_path, monkeypatch)
    return Made()


@pytest.fixture
def in_objects(
    service: Emulator, hitl: FakeHitl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeHitl:
    hitl.store = None
    use_state_path(tmp_path, monkeypatch)
    return hitl


def test_a_clear_after_the_answer_neither_asks_nor_sends(
    service: Emulator, hitl: FakeHitl, memory: Made
) -> None:
    returned = hitl.run(memory, ANSWERS)
    assert [row["outcome"] for row in returned] == ["sent"] * 3
    for _ in range(2):
        assert hitl.run(memory, {1: ("MISSING", "Another one.")}) == returned
    assert (hitl.asked, service.count("submit_feedback")) == (1, 3)


def test_a_clear_before_the_answer_asks_and_sends_once(
    service: Emulator, hitl: FakeHitl, memory: Made
) -> None:
    with pytest.raises(Exception, match="time is up"):
        hitl.run(memory)
    hitl.run(memory, ANSWERS)
    hitl.run(memory, ANSWERS)
    assert [row[1] for row in sent(service)] == [1, 2, 3]


# -- state that is lost


def check_refuses(service: Emulator, hitl: FakeHitl) -> None:
    """Check that a review of which nothing is stored neither asks nor sends again."""
    asked = hitl.asked
    with pytest.raises(
        exc.ComplianceError, match=r"answered by Ada L\..* neither asks nor sends again"
    ) as caught:
        hitl.run(Made(), ANSWERS)
    assert isinstance(caught.value, AirflowFailException)
    assert (hitl.asked, service.count("submit_feedback")) == (asked, 3)


@pytest.mark.parametrize("is_cleared_before", [False, True])
def test_where_a_retention_rule_has_deleted_old_state_it_sends_nothing_again(
    service: Emulator, in_objects: FakeHitl, tmp_path: Path, is_cleared_before: bool
) -> None:
    in_objects.run(Made(), ANSWERS)
    kept: set[Path] = set()
    if is_cleared_before:  # which has written the lease again, and nothing else
        in_objects.run(Made())
        kept = set(tmp_path.rglob(f"{LEASE}.json"))
    for path in {*tmp_path.rglob("*.json")} - kept:
        path.unlink()
    check_refuses(service, in_objects)


def test_an_attempt_that_failed_before_it_asked_needs_no_check(
    service: Emulator, in_objects: FakeHitl
) -> None:
    """So a deployment without a triggerer can retry it."""
    service.fail("get_assessment_results", status=500)
    with pytest.raises(exc.ComplianceServerError):
        in_objects.run(Made(results=None, assessment_id="a"))
    in_objects.run(Made(), ANSWERS)
    assert len(in_objects.kwargs) == 1  # it has waited for the answer only
    assert [row[1] for row in sent(service)] == [1, 2, 3]


@pytest.mark.parametrize("key", [LEASE, REVIEW, f"{SENT}_1"])
def test_damaged_state_stops_a_review(
    service: Emulator, in_objects: FakeHitl, tmp_path: Path, key: str
) -> None:
    in_objects.run(Made(), ANSWERS)
    (path,) = tmp_path.rglob(f"{key}.json")
    path.write_text("{")
    with pytest.raises(exc.ComplianceStateError, match="is damaged") as caught:
        in_objects.run(Made(), ANSWERS)
    assert isinstance(caught.value, AirflowFailException)
    assert (in_objects.asked, service.count("submit_feedback")) == (1, 3)


# -- a run that was deleted and created again


def created_again(hitl: FakeHitl) -> None:
    """Let the next attempt be the first one of a run with the same ID, which has no form."""
    hitl.tries, hitl.form, hitl.response = 0, None, None


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_run_that_was_created_again_sends_nothing_again(
    service: Emulator, in_objects: FakeHitl, attempts: int
) -> None:
    for _ in range(attempts):
        returned = in_objects.run(Made(), ANSWERS)
    created_again(in_objects)
    assert in_objects.run(Made()) == returned
    assert service.count("submit_feedback") == 3


def test_a_run_that_was_created_again_does_not_wait_for_the_form_of_the_earlier_one(
    service: Emulator, in_objects: FakeHitl
) -> None:
    in_objects.die_while_waiting(Made())
    created_again(in_objects)
    in_objects.run(Made(), ANSWERS)
    assert in_objects.asked == 2
    assert [row[1] for row in sent(service)] == [1, 2, 3]


def test_a_run_that_was_created_again_asks_about_other_findings(
    service: Emulator, in_objects: FakeHitl
) -> None:
    in_objects.run(Made(results=RESULTS[:1]), {1: ("MISSING", "One.")})
    created_again(in_objects)
    service.fail("get_assessment_results", status=500)
    with pytest.raises(exc.ComplianceServerError):  # the second attempt still knows that the run is new
        in_objects.run(Made(results=None, assessment_id="a"))
    returned = in_objects.run(Made(), ANSWERS)
    assert [row["outcome"] for row in returned] == ["sent"] * 3
    assert [row[1] for row in sent(service)] == [1, 2, 3]
    with pytest.raises(exc.ComplianceInputError, match="Start a new DAG run"):
        in_objects.run(Made(results=[*RESULTS, {"id": 4, "category": "MISSING"}]))


def test_a_form_of_a_run_that_was_created_again_is_asked_again_though_an_earlier_one_was_answered(
    service: Emulator, in_objects: FakeHitl
) -> None:
    in_objects.run(Made(results=RESULTS[:1]), {1: ("MISSING", "One.")})
    created_again(in_objects)
    with pytest.raises(Exception, match="time is up"):
        in_objects.run(Made())
    in_objects.run(Made(), ANSWERS)
    assert [row[1] for row in sent(service)] == [1, 2, 3]
