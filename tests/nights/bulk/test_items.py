"""The states of an item: what is allowed, and what of it survives in the journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.bulk.items import (
    COMPLETED,
    FAILED,
    PENDING,
    READY,
    RETRYING,
    SKIPPED,
    SUBMITTED,
    TRANSITIONS,
    Item,
    ItemState,
    now,
)

ALLOWED = [(before, after) for before, many in TRANSITIONS.items() for after in many]


@pytest.mark.parametrize(("before", "after"), list(product(ItemState, ItemState)))
def test_an_item_goes_from_state_to_state_only_as_allowed(before: ItemState, after: ItemState) -> None:
    item = Item("a", state=before)
    if (before, after) in ALLOWED:
        item.advance(after)
        assert item.state is after
    else:
        with pytest.raises(ValueError, match=f"'a' can't go from {before} to {after}"):
            item.advance(after)
        assert item.state is before


def test_final_states_are_the_values_of_the_manifest() -> None:
    final = [state for state in ItemState if state.is_final]
    assert final == [COMPLETED, FAILED, SKIPPED] == ["COMPLETED", "FAILED", "SKIPPED"]


@pytest.mark.parametrize("state", [FAILED, SKIPPED])
def test_a_finished_item_can_t_fail(state: ItemState) -> None:
    item = Item("a", "u", state)
    with pytest.raises(ValueError, match="can't go"):
        item.fail("late")
    assert (item.state, item.error) == (state, "")


@pytest.mark.parametrize(
    ("state", "job_id", "after"),
    [
        (PENDING, "", PENDING),
        (SUBMITTED, "u", SUBMITTED),
        (RETRYING, "u", SUBMITTED),  # polled again, then refreshed
        (READY, "u", SUBMITTED),  # polled again, then fetched
        (COMPLETED, "u", COMPLETED),
        (FAILED, "", FAILED),
        (FAILED, "u", FAILED),
        (SKIPPED, "u", SKIPPED),
    ],
)
def test_a_record_keeps_final_states_and_jobs(state: ItemState, job_id: str, after: ItemState) -> None:
    again = Item.from_record(Item("a", job_id, state).record() | {"key": "a"})
    assert (again.state, again.job_id) == (after, job_id)


def test_a_record_with_an_unknown_status_is_invalid() -> None:
    with pytest.raises(ValueError, match="ODD"):
        Item.from_record({"key": "a", "status": "ODD"})


def test_a_record_with_a_kind_of_a_later_version_is_read() -> None:
    assert Item.from_record({"key": "a", "status": "FAILED", "failure_kind": "quota"}).failure_kind is None


@pytest.mark.parametrize("error", [exc.ComplianceInputError("x"), exc.ComplianceServerError("x"), "x"])
def test_only_a_non_transient_error_is_a_permanent_failure(error: object) -> None:
    item = Item("a")
    item.fail(error)
    assert item.is_permanent_failure is isinstance(error, exc.ComplianceInputError)


def known() -> dict[str, Item]:
    return {
        "done": Item("done", "u1", COMPLETED, completed_at="t", attempts=1),
        "in flight": Item("in flight", "u2", SUBMITTED, attempts=2, retry_count=1),
        "failed": Item("failed", "u3", FAILED, error="x", attempts=3, retry_count=1),
        "not fetched": Item("not fetched", "u4", FAILED, error="x", completed_at="t", attempts=1),
    }


def test_an_attempt_processes_failed_items_again() -> None:
    assert [item.for_retry() for item in known().values()] == [
        known()["done"],
        Item("in flight", "u2", SUBMITTED, attempts=2),
        Item("failed", attempts=3),
        Item("not fetched", "u4", SUBMITTED, attempts=1),
    ]


@pytest.mark.parametrize("try_number", [2, None])
def test_a_row_names_the_attempt_that_finished_it_else_the_one_that_writes_it(try_number: int | None) -> None:
    writer = {"dag_id": "d", "try_number": 3, "bundle_version": None, "provider_version": "2"}
    item = Item("a")
    assert item.provenance(writer) == writer
    item.set_attempt({"try_number": try_number, "bundle_version": "b", "provider_version": "1"})
    assert item.provenance(writer) == {
        "dag_id": "d", "try_number": try_number or 0, "bundle_version": "b", "provider_version": "1"
    }  # fmt: skip


def test_a_new_item_has_everything_still_to_do() -> None:
    item = Item("a")
    assert (item.is_permanent_failure, item.is_resumed, item.last_error) == (False, False, "")
    assert item.record() == {"key": "a"}


def test_the_journal_does_not_keep_what_is_of_this_process_only() -> None:
    item = Item("a", is_resumed=True, last_error="503")
    assert item.record() == {"key": "a"}
    assert item == Item("a")


def test_the_error_of_a_failed_item_is_kept_up_to_500_characters() -> None:
    item = Item("a")
    item.fail("x" * 501)
    assert item.error == "x" * 500


def test_times_are_in_utc_with_milliseconds() -> None:
    text = now()
    at = datetime.fromisoformat(text)
    assert at.utcoffset() == timedelta(0)
    assert text == f"{text[:23]}+00:00" == at.isoformat(timespec="milliseconds")
    assert abs(datetime.now(UTC) - at) < timedelta(hours=1)
