"""Transient errors: who is to blame, and what is retried."""

from __future__ import annotations

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.bulk import backoff
from airflow_provider.nights.bulk.backoff import RetryTracker
from airflow_provider.nights.bulk.items import PENDING, READY, ItemState


class Errors:
    """The errors of some items, on a clock that a story moves."""

    def __init__(self, concurrency: int = 4, *, is_last_attempt: bool = False) -> None:
        self.now = 1000.0
        self.tracker = RetryTracker(concurrency, lambda: self.now, is_last_attempt=is_last_attempt)

    def meet(self, error: exc.ComplianceError, key: str, step: object = "submit") -> float | str:
        """Let a step of an item meet an error; return the delay until its retry, or how that ends.

        Items fail and attempts end for good, or with retries.
        """
        try:
            delay = self.tracker.next_delay(step, key, error)
        except exc.ComplianceError as raised:
            assert raised is error
            return "ends" if error.transient else "ends for good"
        return delay or ("fails" if error.transient else "fails for good")

    def play(self, story: str) -> None:
        """Play a story such as `fault a: 2; wait 3; success b; refusal 0-9: 6`."""
        for step, _, expected in (part.partition(": ") for part in story.split("; ")):
            match step.split():
                case ["wait", seconds]:
                    self.now += float(seconds)
                case ["success", key, *ago]:  # started so many seconds before
                    self.tracker.record_success("submit", key, self.now - float(ago[0] if ago else 0))
                case ["answer"]:
                    self.tracker.record_answer()
                case ["fetched", key]:
                    self.tracker.record_success("fetch", key, self.now)
                case ["earlier"]:
                    self.tracker.record_earlier_success("submit")
                case ["held"]:
                    assert str(self.tracker.pause_seconds("submit")) == expected
                case [kind, keys]:
                    first, _, last = keys.partition("-")
                    for key in map(str, range(int(first), int(last) + 1)) if last else [first]:
                        error = {
                            "fault": exc.ComplianceServerError("The service has a fault.", status=500),
                            "refusal": exc.ComplianceRefusedError("Forbidden.", status=403),
                            "unread": exc.ComplianceReadError("'a.pdf' can't be read."),
                        }[kind]
                        assert str(self.meet(error, key)).removesuffix(".0") == expected, step
                case _:
                    pytest.fail(f"What is '{step}'?")


@pytest.mark.parametrize(
    "story",
    [
        # An item is given up at its third error if others succeed, which have started after its first one.
        "fault a: 2; wait 2; fault a: 6; wait 6; success b; success c 8; fault a: fails",
        "fault a: 2; wait 2; success b 2; fault a: 6; wait 6; fault a: 18",  # it began with the errors
        "fault a: 2; wait 9; success b 1; success c 10; fault a: 6; fault a: fails",  # a newer one counts
        "fault a: 2; wait 1000; success b; fault a: 6",  # two errors are not enough
        # Without a sign that others succeed it is retried for five minutes.
        "fault a: 2; fault a: 6; fault a: 18; fault a: 54; fault a: 120; wait 299.9; fault a: 120",
        "fault a: 2; fault a: 6; wait 300; answer; fault a: fails",  # the service is there
        "fault a: 2; fault a: 6; wait 1; fetched b; wait 299; fault a: fails",
        # If the service has not answered at all, it is away: the attempt ends, and the next one goes on.
        "fault a: 2; fault a: 6; wait 300; fault a: ends",
        "answer; fault a: 2; fault a: 6; wait 300; fault a: ends",
        "fault a: 2; wait 300; fault a: 6; fault a: ends",
        "fault a: 2; wait 1; answer; wait 1; fault a: 6; wait 300; fault a: ends",  # sent before it went away
        "fault a: 2; fetched b; fault a: 6; fault a: 18",  # another step says nothing
        # Errors before a success are forgotten.
        "fault a: 2; fault a: 6; success a; wait 1; success b; fault a: 2; fault a: 6",
        # Many items in a row end the attempt; few, however often, do not, and a success restarts the count.
        "fault 0-10: 2; fetched x; fault 11: ends",
        "fault 0-10: 2; success x; fault 11-21: 2; success x; fault 22-32: 2",
        "fault 0-2: 2; wait 30; fault 0-2: 6; wait 30; fault 0-2: 18; fault 0-2: 54; fault 0-2: 120",
        # A refusal of all is believed after half a minute; it is final unless the step has worked before.
        "refusal 0-19: 2; wait 29; refusal a: 2; wait 1; refusal b: ends for good",
        "earlier; refusal 0-19: 2; wait 29; refusal a: 2; wait 1; refusal b: ends",
        # So is that of an item, if the step has never worked.
        "fetched b; refusal a: 2; refusal a: 6; wait 29.9; refusal a: 18",
        "fetched b; refusal a: 2; refusal a: 6; wait 30; refusal a: fails",
        # A refusal of few after others succeeded ends nothing; only where they succeed now is it the item's.
        "earlier; refusal a: 2; wait 60; refusal a: 6",
        "earlier; refusal a: 2; refusal a: 6; wait 1; success b; refusal a: fails for good",
        "earlier; refusal a: 2; refusal a: 6; wait 300; refusal a: fails",
        # No item tries while all are refused, then some do less and less often.
        "refusal 0-10: 2; held: 0.0; refusal 11: 2; held: 2.0; wait 2; refusal a: 2; held: 6.0",
        "refusal 0-11: 2; held: 2.0; success b; held: 0.0",
        # The last source that can't be read is given up within two minutes, however long a read takes.
        "success b; unread a: 2; wait 2; unread a: 6; wait 6; unread a: 18; wait 22; unread a: fails",
        "success b; wait 60; unread a: 2; wait 62; unread a: fails",
    ],
)
def test_an_item_is_retried_until_it_is_clear_who_is_to_blame(story: str) -> None:
    Errors().play(story)


def test_last_attempt_gives_up_what_an_outage_has_left() -> None:
    """Else all that was done would be in no manifest."""
    Errors(is_last_attempt=True).play("fault a: 2; fault a: 6; wait 300; fault a: fails")


@pytest.mark.parametrize(("concurrency", "many"), [(1, 12), (4, 12), (5, 15)])
def test_many_are_three_times_as_many_as_are_processed_at_a_time(concurrency: int, many: int) -> None:
    Errors(concurrency).play(f"fault 1-{many - 1}: 2; fault last: ends")


def test_errors_of_one_step_do_not_count_for_the_next() -> None:
    errors = Errors()
    errors.play("fault a: 2; fault a: 6; wait 1; success b; fetched b")
    assert errors.meet(exc.ComplianceServerError("x"), "a", "fetch") == 2.0
    assert errors.tracker.pause_seconds("fetch") == 0


def test_success_of_another_item_ends_the_wait_of_those_that_met_an_outage() -> None:
    tracker, fault = RetryTracker(4, lambda: 1000.0), exc.ComplianceServerError("x", status=500)
    for step, key, errors in (("submit", "a", 4), ("submit", "b", 3), ("fetch", "c", 4)):
        for _ in range(errors):
            tracker.next_delay(step, key, fault)
    assert tracker.record_success("submit", "x", 1000.0) == []  # it may have been sent before the outage
    tracker.next_delay("submit", "y", fault)
    assert tracker.record_success("submit", "x", 1001.0) == ["a"]
    assert tracker.next_delay("submit", "a", fault) == 2.0  # as for a first error


def test_an_earlier_success_is_not_one_of_this_process() -> None:
    errors = Errors()
    errors.play("earlier")
    assert not errors.tracker.has_any_success
    errors.play("fetched a")
    assert errors.tracker.has_any_success


def transient(error: exc.ComplianceError) -> exc.ComplianceError:
    error.transient = True
    return error


def with_fresh_token(error: exc.ComplianceAuthError) -> exc.ComplianceAuthError:
    error.has_fresh_token = True
    return error


@pytest.mark.parametrize(
    ("step", "error", "has_worked", "outcome"),
    [
        (PENDING, exc.ComplianceConfigError("x"), True, "ends for good"),
        (PENDING, exc.ComplianceAuthError("x"), True, "ends for good"),
        (PENDING, with_fresh_token(exc.ComplianceAuthError("x")), False, 2.0),  # likewise, as a 403 is
        (PENDING, transient(exc.ComplianceAuthError("x")), True, 2.0),  # such as stale keys
        (READY, exc.ComplianceSupersededError("x"), True, "ends for good"),
        (READY, exc.ComplianceStorageDeniedError("x"), False, "ends for good"),  # no result can be stored
        (READY, exc.ComplianceStorageDeniedError("x"), True, 2.0),
        (PENDING, exc.ComplianceStorageDeniedError("x"), False, "fails for good"),  # one source can't be read
        (PENDING, exc.ComplianceInputError("x"), True, "fails for good"),
        (PENDING, exc.ComplianceServerError("x", status=503), True, 2.0),
        *(
            (step, exc.ComplianceRefusedError("x", status=status), True, 2.0)  # maybe of a gateway
            for step in (PENDING, READY)
            for status in (302, 403, 404, 405)
        ),
        (PENDING, exc.ComplianceProtocolError("x"), True, 2.0),  # likewise, such as a page
        (PENDING, exc.ComplianceRefusedError("x", status=422), True, "fails for good"),
    ],
)
def test_an_error_ends_the_attempt_or_concerns_one_item(
    step: ItemState, error: exc.ComplianceError, has_worked: bool, outcome: float | str
) -> None:
    errors = Errors()
    if has_worked:
        errors.tracker.record_earlier_success(step)
    assert errors.meet(error, "a", step) == outcome


@pytest.mark.parametrize(("retries", "seconds"), [(0, 2.0), (2, 18.0), (5, 120.0), (10_000, 120.0)])
def test_delay_grows_up_to_a_limit(retries: int, seconds: float) -> None:
    assert backoff._delay(retries) == seconds
