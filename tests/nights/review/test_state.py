"""What the attempts of a review tell each other: leases, intents, forms and decisions."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.review.state import REVIEW, Review, ReviewState
from airflow_provider.storage.outbox import LEASE, SENT, Outbox
from tests.support.attempts import StateStore

log = logging.getLogger("task")


def attempt(number: int) -> dict[str, Any]:
    return {"try_number": number, "started_at": float(number)}


def outbox(store: Any, number: int = 1) -> Outbox:
    return Outbox(store, attempt(number), log)


class Calls(list[int]):
    """A submit that records its calls, and may fail."""

    error: Exception | None = None

    def __call__(self) -> None:
        self.append(1)
        if self.error:
            raise self.error


@pytest.mark.parametrize(
    ("error", "first", "second", "calls"),
    [
        (None, "", "sent", 1),
        (exc.ComplianceUncertainError("It may have arrived."), None, "uncertain", 1),
        (SystemExit(), None, "uncertain", 1),  # the attempt died while it sent
        (exc.ComplianceThrottledError("Later."), None, "", 2),  # surely not sent
    ],
)
def test_a_feedback_is_sent_at_most_once(error: Any, first: Any, second: str, calls: int) -> None:
    store, submit = StateStore(), Calls()
    submit.error = error
    if error is None:
        assert outbox(store).send(7, submit) == first
    else:
        with pytest.raises(type(error)):
            outbox(store).send(7, submit)
    submit.error = None
    assert outbox(store, 2).send(7, submit) == second
    assert len(submit) == calls
    assert set(store) == {LEASE, f"{SENT}_7"}


def test_what_was_sent_about_something_else_is_another_feedback() -> None:
    store, submit = StateStore(), Calls()
    for about in ({"digest": "a", "account": "x"}, {"digest": "b", "account": "x"}):
        assert [outbox(store).send("", submit, about) for _ in range(2)] == ["", "sent"]
    assert len(submit) == 2
    assert outbox(store).outcome("", {"digest": "a"}) == ""


def test_an_attempt_that_was_overtaken_stops_before_it_sends_or_writes() -> None:
    store, submit = StateStore(), Calls()
    old, _new = outbox(store), outbox(store, 2)
    with pytest.raises(exc.ComplianceSupersededError, match="2"):
        old.send(7, submit)
    with pytest.raises(exc.ComplianceSupersededError):
        outbox(store)  # one that starts late does not take the lease
    assert (list(submit), set(store)) == ([], {LEASE})
    assert store[LEASE]["try_number"] == 2
    assert store[LEASE]["process"]


def test_a_lease_that_an_older_attempt_took_meanwhile_makes_the_intent_uncertain() -> None:
    """The older one may have sent it: it had checked its lease before."""
    store, submit = StateStore(), Calls()
    newer = outbox(store, 2)
    reads = iter([newer._holder, attempt(1)])
    newer.store = SimpleNamespace(
        get=lambda key: next(reads, None) if key == LEASE else store.get(key), set=store.set
    )
    assert newer.send(7, submit) == "uncertain"
    assert not submit
    assert store[LEASE] == newer._holder


def test_a_lease_that_is_gone_stops_an_attempt() -> None:
    store = StateStore()
    first = outbox(store)
    assert first.check_lease()
    del store[LEASE]
    with pytest.raises(exc.ComplianceSupersededError):
        first.check_lease()


def test_a_store_that_fails_after_a_feedback_was_sent_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(StateStore):
        def set(self, key: str, value: Any) -> None:
            if value.get("outcome") == "sent":
                raise RuntimeError("The API server is away.")
            super().set(key, value)

    store = Failing()
    assert outbox(store).send(7, Calls()) == ""
    assert "Could not store for later attempts" in caplog.text
    assert outbox(store, 2).outcome(7) == "uncertain"


def row(number: int, outcome: str = "pending", **changes: Any) -> dict[str, Any]:
    fields = {"expert_id": "e", "rational_feedback": "So.", "category_feedback": None}
    return {"assessment_response_id": number, "outcome": outcome, **fields, **changes}


def state(store: Any, number: int = 1, **kwargs: Any) -> ReviewState:
    return ReviewState(store, attempt(number), log, **kwargs)


def test_a_review_starts_without_a_form_and_keeps_what_was_recorded() -> None:
    store = StateStore()
    first = state(store, is_new_attempt=True)
    assert first.review == Review([], False, False, False, [])
    assert store[REVIEW]["shown"] == []  # not a tuple, which Airflow's task state store refuses
    first.record_form([{"id": 1}])
    assert state(store, 2).review == Review([{"id": 1}], True, True, False, [])
    first = state(store, 2)
    first.record_answer([row(1), row(2, "recorded")], is_answered=True)
    assert state(store, 3).review == Review([{"id": 1}], True, False, True, [row(1), row(2, "recorded")])
    assert [each["assessment_response_id"] for each in first.feedback] == [1]
    again = state(store, 1 + 2, is_new_attempt=True)  # the run was deleted and created again
    assert (again.review.has_form, again.review.is_answered) == (False, True)


def test_what_was_sent_stays_when_a_form_is_answered_again() -> None:
    store = StateStore()
    first, hook = state(store), SimpleNamespace(submit_feedback=lambda **_: None, list_frameworks=list)
    first.record_answer([row(1), row(2)], is_answered=True)
    resumed = state(store)  # in another process
    assert resumed.send_all(hook) == []
    first.review = Review()
    first.store.set(LEASE, first._holder)
    first.record_answer([row(1, rational_feedback="Another one."), row(3)], is_answered=True)
    assert [(each["rational_feedback"], each["outcome"]) for each in first.results()] == [
        ("So.", "sent"),
        ("So.", "pending"),
        ("So.", "sent"),
    ]


def test_the_log_says_what_was_sent_and_what_may_have_been(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "task")
    store = StateStore()
    first = state(store)
    first.record_answer([row(1), row(2), row(3)], is_answered=True)
    store.set(f"{SENT}_2", {"outcome": "sending"})
    store.set(f"{SENT}_3", {"outcome": "sent"})
    first.send_all(SimpleNamespace(submit_feedback=lambda **_: None, list_frameworks=list))
    assert [record.message for record in caplog.records] == [
        "Sent feedback on response 1.",
        "Not sending feedback on response 2 again: it may have arrived.",
    ]


def test_without_a_store_nothing_survives_an_attempt() -> None:
    submit = Calls()
    assert [outbox(None).send(7, submit) for _ in range(2)] == ["", ""]
    assert (state(None).is_persistent, state(StateStore()).is_persistent) == (False, True)
