"""What becomes of an item, step by step, in virtual time."""

from __future__ import annotations

import copy
import json
from datetime import datetime
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, READY, RETRYING, SKIPPED, SUBMITTED, Item
from tests.support.bulk import Night
from tests.support.polled import COMPLETED as DONE
from tests.support.polled import RUNNING

AWAY = exc.ComplianceServerError("The service is away.", status=503)
AT, LATER = "2026-01-01T00:00:00+00:00", "2026-01-01T00:01:00+00:00"
UNKNOWN, CANCELLED = {"status": "UNKNOWN"}, {"status": "CANCELLED"}
RETRIED = {"status": "FAILED", "completed_at": AT, "error": "It is damaged."}
LATE = {"deadline": 19.5, "poll_interval": 3600.0}


def failed(reason: str | None = "It is damaged.", at: str = AT) -> dict[str, Any]:
    return {"status": "FAILED", "error": reason, "completed_at": at}


def forbidden() -> exc.ComplianceError:
    return exc.ComplianceRefusedError("Forbidden.", status=403)  # which the engine may change


def running(job_id: str = "a", **fields: Any) -> Item:
    return Item("a", job_id, SUBMITTED, **fields)


def gone(status: str, **fields: Any) -> dict[str, Any]:
    error = f"The job was cancelled, or is gone ({status})."
    return {"state": FAILED, "error": error, "failure_kind": "gone", **fields}


def test_an_item_is_submitted_polled_and_fetched(night: Night) -> None:
    night.script({"a": {3: DONE | {"completed_at": AT}}})
    item = Item("a", is_resumed=True)
    assert night.run(item) == []
    assert str(night.steps) == "submit@0 fetch@3"
    assert (item.state, item.job_id, item.attempts, item.is_resumed) == (COMPLETED, "a", 1, False)
    assert item.completed_at == AT
    assert item.submitted_at
    assert [record.get("status") for record in night.journal.records] == [None, "COMPLETED"]
    assert night.journal.records[0]["job_id"] == "a"


class Made(Item):
    """An item whose key says what it is made of."""

    @property
    def input(self) -> str:
        return self.key[0]


def test_items_share_a_job_only_if_they_are_made_of_the_same(night: Night) -> None:
    given = [{"uuid": "x", "status": "RUNNING"}]
    script = {f"submit {key}": given for key in ("a1", "a2", "c1")}
    night.script({"x": {3: DONE}}, script)
    equal = Made("a1"), Made("a2")
    night.run(*equal)
    assert [item.state for item in equal] == [COMPLETED, COMPLETED]
    night.script({}, script)
    others = Made("a1"), Made("c1")
    night.run(*others)
    assert [(item.state, item.completed_at) for item in others] == [(FAILED, None)] * 2
    assert "same job" in others[0].error
    again = Made("a1", "x", COMPLETED), Made("c1")  # a later attempt knows what is done
    night.script({}, script)
    night.run(*again)
    assert [(item.state, item.completed_at) for item in again] == [(FAILED, None)] * 2


def test_an_item_that_was_completed_fails_once_its_job_is_given_to_another(night: Night) -> None:
    given = [{"uuid": "x", "status": "RUNNING"}]
    late = [{"uuid": "x", "status": "FAILED"}]
    night.script({"x": {1: DONE}}, {"submit a1": given, "submit c1": [5.0, *late]})
    items = Made("a1"), Made("c1")
    night.run(*items)
    assert [(item.state, item.completed_at) for item in items] == [(FAILED, None)] * 2
    assert [record.get("status") for record in night.journal.records if record["key"] == "a1"][1:] == [
        "COMPLETED", "FAILED",
    ]  # fmt: skip


def test_a_job_of_an_earlier_night_with_another_input_is_refused(night: Night) -> None:
    night.steps.earlier_inputs = {"x": "b", "y": "c"}
    script = {
        "submit a1": [{"uuid": "x", "status": "RUNNING"}],
        "submit c1": [{"uuid": "y", "status": "RUNNING"}],
    }
    night.script({"x": {1: DONE}, "y": {1: DONE}}, script)
    items = Made("a1"), Made("c1")
    night.run(*items)
    assert [item.state for item in items] == [FAILED, COMPLETED]


@pytest.mark.parametrize(
    ("item", "job", "steps", "options", "expected", "calls"),
    [
        # A failed job is processed again as often as wanted, and may become another one.
        (Item("a"), {0: failed(), 5: failed(at=LATER), 9: DONE}, {}, {"retry_failed": 2},
         {"state": COMPLETED, "attempts": 3, "retry_count": 2,
          "retried_from": RETRIED | {"completed_at": LATER}}, "submit@0 retry@1 retry@5 fetch@9"),
        (Item("a"), {0: failed(), 5: failed(at=LATER)}, {}, {"retry_failed": 1},
         {"state": FAILED, "error": "It is damaged.", "is_permanent_failure": False,
          "failure_kind": "failed", "attempts": 2},
         "submit@0 retry@1"),
        (Item("a"), {0: failed(None)}, {}, {}, {"error": "The service gave no reason."}, "submit@0"),
        (Item("a"), {0: failed()}, {"retry a": [{"uuid": "new", "status": "RUNNING"}]}, {"retry_failed": 1},
         {"state": COMPLETED, "job_id": "new", "attempts": 2}, "submit@0 retry@1 fetch@5"),
        # An unchanged result counts after five minutes.
        (Item("a"), {0: failed()}, {}, {"retry_failed": 1},
         {"state": FAILED, "error": "It is damaged.", "last_poll": pytest.approx(305, abs=5)},
         "submit@0 retry@1"),
        # Before a crash, it was to be processed again, or it was.
        (running(retried_from=RETRIED), {0: failed(), 5: DONE}, {}, {"retry_failed": 1},
         {"state": COMPLETED}, "retry@1 fetch@5"),
        (running(retried_from=RETRIED, retry_count=1), {0: failed(), 50: DONE}, {}, {"retry_failed": 1},
         {"state": COMPLETED}, "fetch@50"),
        # After the deadline, nothing is processed again.
        (running(), {19: failed()}, {}, {"retry_failed": 1, **LATE}, {"error": "It is damaged."}, ""),
        (running(is_resumed=True), {19: CANCELLED}, {}, LATE, gone("CANCELLED"), ""),
        # A job of an earlier attempt that is gone is submitted again once, one of this attempt is not.
        (running("old", is_resumed=True, attempts=1), {0: UNKNOWN}, {}, {},
         gone("UNKNOWN", resubmit_count=1, attempts=2), "submit@32"),
        (running("old", is_resumed=True, attempts=1), {0: CANCELLED}, {}, {},
         gone("CANCELLED", resubmit_count=1, attempts=2), "submit@1"),
        (running(is_resumed=True, resubmit_count=1), {0: UNKNOWN}, {}, {}, gone("UNKNOWN"), ""),
        (Item("a"), {0: CANCELLED}, {}, {}, gone("CANCELLED"), "submit@0"),
        # Errors are retried after a delay; the next attempt does not rely on a job whose result is refused.
        (Item("a"), {20: DONE}, {"submit a": [AWAY, AWAY]}, {},
         {"state": COMPLETED, "attempts": 1, "last_error": "The service is away."},
         "submit@0 submit@2 submit@8 fetch@20"),
        (Item("a"), {0: DONE}, {"fetch a": [exc.ComplianceRefusedError("Too large.", status=413)]}, {},
         {"state": FAILED, "completed_at": None, "is_permanent_failure": False}, "submit@0 fetch@1"),
    ],
)  # fmt: skip
def test_an_item_ends_as_its_job_does(
    night: Night, item: Item, job: Any, steps: Any, options: Any, expected: dict[str, Any], calls: str
) -> None:
    night.script({"a": job, "old": job, "new": {5: DONE}}, steps)
    night.run(item, **options)
    last_poll = {"last_poll": night.service.poll_times[-1]} if "last_poll" in expected else {}
    assert {name: getattr(item, name) for name in expected.keys() - last_poll.keys()} | last_poll == expected
    assert str(night.steps) == calls
    assert night.journal.records[-1].get("error", "") == item.error


REFUSED = exc.ComplianceRefusedError
TOO_LARGE, BUSY = REFUSED("Too large.", status=413), REFUSED("Not now.", status=409)
NO_JOB = exc.ComplianceNotFoundError("Unknown.", status=404)


@pytest.mark.parametrize(
    ("job", "steps", "kind"),
    [
        # Others are submitted meanwhile, so it is this one that is refused.
        ({}, {"submit a": [NO_JOB] * 3}, "rejected"),
        ({}, {"submit a": [forbidden()] * 3}, "rejected"),
        ({}, {"submit a": [AWAY] * 3}, "service"),
        ({}, {"submit a": [TOO_LARGE]}, "too_large"),
        # What the service has accepted is not refused.
        ({0: BUSY}, {}, "service"),
        ({0: TOO_LARGE}, {}, "service"),
        ({0: DONE}, {"fetch a": [TOO_LARGE]}, "service"),
        ({0: DONE}, {"fetch a": [NO_JOB] * 99}, "gone"),
        ({0: failed()}, {"retry a": [BUSY] * 99}, "failed"),
        ({0: failed()}, {"retry a": [NO_JOB] * 99}, "gone"),
        ({0: failed()}, {"retry a": [AWAY] * 99}, "service"),
    ],
)
def test_a_refusal_is_about_the_item_only_where_that_is_refused(
    night: Night, job: Any, steps: Any, kind: str
) -> None:
    others = [Item(str(number)) for number in range(9)]
    pauses = {f"submit {item.key}": [10.0 * number] for number, item in enumerate(others)}
    night.script({"a": job} | {item.key: {0: DONE} for item in others}, pauses | copy.deepcopy(steps))
    item = Item("a")
    night.run(item, *others, concurrency=2, retry_failed=1, is_last_attempt=True)
    assert (item.state, item.failure_kind) == (FAILED, kind)
    assert ("It is damaged." in item.error) is ("retry a" in steps)


def test_the_journal_of_a_job_that_is_processed_again_has_no_secrets(night: Night) -> None:
    night.script({"a": {0: failed(f"No text at https://h/a.pdf?token=s3cr3t{'.' * 9999}"), 5: DONE}})
    night.run(Item("a"), retry_failed=1)
    journal = json.dumps(night.journal.records)
    assert "No text at https://h/" in journal
    assert "s3cr3t" not in journal
    assert len(journal) < 2000


@pytest.mark.parametrize(
    ("item", "job", "options", "is_damaged"),
    [
        (Item("a"), {0: failed()}, {}, False),
        (Item("a"), {0: failed(), 5: failed(at=LATER)}, {"retry_failed": 1}, True),
        (Item("a", failed_jobs=1), {0: failed()}, {}, True),
        # It was submitted before, but cancelled with the task, gone, or stuck.
        (Item("a", attempts=3), {0: failed()}, {}, False),
        (running("old", is_resumed=True, attempts=1), {0: UNKNOWN, 40: failed()}, {}, False),
        (Item("a"), {12: failed()}, {"job_seconds": 9.0, "retry_failed": 1}, False),
    ],
)
def test_an_item_is_damaged_if_the_service_could_not_process_it_twice(
    night: Night, item: Item, job: Any, options: dict[str, Any], *, is_damaged: bool
) -> None:
    night.script({"a": job, "old": {0: UNKNOWN}})
    night.run(item, **options)
    assert (item.failure_kind, item.is_damaged) == ("failed", is_damaged)


def test_the_time_of_completion_is_now_if_the_service_does_not_say(night: Night) -> None:
    night.outcome("submit", "a", {"uuid": "a"} | DONE)
    item = Item("a")
    night.run(item)
    assert night.service.polls == []
    assert datetime.fromisoformat(str(item.completed_at)).tzinfo


def test_finished_items_are_left_alone(night: Night) -> None:
    items = [Item("a", "a", COMPLETED), Item("b", state=FAILED), Item("c", "c", SKIPPED)]
    assert night.run(*items) == []
    assert (night.steps.calls, night.journal.records) == ([], [])


def test_results_go_first_but_submits_do_not_wait_for_all_of_them(night: Night) -> None:
    night.script({key: {0: DONE} for key in "abcdefgh"})
    failed_job = Item("c", "c", RETRYING, retried_from=RETRIED)
    results = (Item(key, key, READY) for key in "defgh")
    night.run(Item("a"), Item("b"), failed_job, *results, concurrency=1)
    calls = " ".join(f"{step} {key}," for _, step, key in night.steps.calls[:8])
    assert calls == "fetch d, fetch e, retry c, fetch f, fetch g, submit a, fetch h, submit b,"


def test_while_submits_fail_results_are_fetched(night: Night) -> None:
    results = [Item(key, key, READY) for key in "cdefgh"]
    night.script({"a": {0: DONE}}, {"submit a": [AWAY], "submit b": [AWAY]})
    night.run(Item("a"), Item("b"), *results, concurrency=1)
    calls = " ".join(f"{step} {key}," for _, step, key in night.steps.calls[:7])
    assert calls == "fetch c, fetch d, submit a, fetch e, fetch f, fetch g, fetch h,"


def test_a_retry_that_is_answered_with_its_result_is_not_polled(night: Night) -> None:
    night.script({"a": {0: failed()}, "b": {400: DONE}}, {"retry a": [{"uuid": "a"} | DONE]})
    item = Item("a")
    assert night.run(item, Item("b", "b", SUBMITTED), retry_failed=1, may_defer=True) == ["b"]
    assert item.state == COMPLETED
    assert [at for at, jobs in night.service.polls if "a" in jobs] == [1]


def test_an_item_that_fails_while_others_succeed_is_given_up(night: Night) -> None:
    night.script({"b": {0: DONE}}, {"submit a": [AWAY] * 3, "submit b": [AWAY]})
    items = [Item("a"), Item("b")]
    night.run(*items)
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert night.steps.of("submit")[-1] == (8, "a")
    assert (items[0].error, items[0].is_permanent_failure) == ("The service is away.", False)


def test_retries_of_one_wave_are_one_line(night: Night, caplog: pytest.LogCaptureFixture) -> None:
    steps = {"submit 0": [AWAY], "submit 1": [AWAY], "submit 2": [AWAY, AWAY]}
    night.script({key: {0: DONE} for key in "012"}, steps)
    night.run(*map(Item, "012"))
    assert [line for line in caplog.messages if line.startswith("Retrying")] == [
        "Retrying '0' and 2 more items in 2 s: The service is away.",
        "Retrying '2' in 6 s: The service is away.",
    ]


def test_error_of_all_items_has_one_traceback_and_logs_the_retries(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    shared = exc.ComplianceServerError("The service is away.", status=503)
    night.script({}, {f"submit {number}": [shared] * 9 for number in range(40)})
    with pytest.raises(exc.ComplianceServerError) as raised:
        night.run(*(Item(str(number)) for number in range(40)), concurrency=40)
    assert "_process" not in {entry.name for entry in raised.traceback}
    lines = [line for line in caplog.messages if line.startswith("Retrying")]
    assert [line.partition("' and ")[2] for line in lines] == [
        f"{number} more items in {delay} s: The service is away."
        for number, delay in ((39, 2), (39, 6), (38, 18))
    ]


def test_an_outage_that_ends_the_attempt_loses_no_submit_in_flight(night: Night) -> None:
    """A submit of a healthy service counts, and nothing else is begun while its answer is awaited."""
    away = [str(number) for number in range(30)]
    night.script({"slow": {}}, {"submit slow": [20.0]} | {f"submit {key}": [AWAY] * 9 for key in away})
    with pytest.raises(exc.ComplianceServerError):
        night.run(Item("slow"), *map(Item, away), concurrency=5)
    assert [record["key"] for record in night.journal.records if record.get("job_id")] == ["slow"]
    assert len(night.steps.of("submit")) == 16


def test_all_items_continue_when_one_of_them_succeeds_after_an_outage(night: Night) -> None:
    steps = {f"submit {key}": [AWAY, AWAY, AWAY, 4.0 if key == "c" else AWAY] for key in "abc"}
    night.script({key: {0: DONE} for key in "abc"}, steps)
    items = [Item(key) for key in "abc"]
    night.run(*items)
    assert {item.state for item in items} == {COMPLETED}
    assert sorted(call for call in night.steps.of("submit") if call[0] > 26) == [(30, "a"), (30, "b")]


@pytest.mark.parametrize(
    ("outcome", "job", "error", "is_permanent"),
    [
        (exc.ComplianceInputError("There is no such file."), DONE, "There is no such file.", True),
        (ValueError("a bug"), DONE, "Unexpected ValueError: a bug", False),
        ({"status": "RUNNING"}, DONE, "Unexpected KeyError: 'uuid'", False),  # a response without an id
        (None, DONE | {"completed_at": "yesterday"}, "Unexpected ValueError: Invalid isoformat", False),
    ],
)
def test_fault_of_one_item_fails_it_alone(
    night: Night, outcome: Any, job: Any, error: str, is_permanent: bool
) -> None:
    night.script({"a": {0: job}, "b": {0: DONE}}, {"submit a": [outcome] if outcome else []})
    items = [Item("a"), Item("b")]
    night.run(*items, concurrency=1)
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert items[0].error.startswith(error)
    assert items[0].is_permanent_failure is is_permanent


def test_an_unexpected_error_is_logged_with_one_traceback(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    night.script({}, {f"submit {key}": [ValueError("a bug")] for key in "ab"})
    night.run(Item("a"), Item("b"))
    found = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [bool(record.exc_info and record.exc_info[0]) for record in found] == [True, False]


@pytest.mark.parametrize("kind", [exc.ComplianceAuthError, exc.ComplianceConfigError, exc.ComplianceTlsError])
def test_an_error_that_all_items_would_meet_ends_the_attempt(night: Night, kind: Any) -> None:
    night.script({"b": {}}, {"submit a": [kind("Wrong.")]})
    with pytest.raises(kind):
        night.run(Item("a"), Item("b", "b", SUBMITTED))
    assert night.journal.flushes[0] == 0
    assert night.service.cancelled == ["b"]  # because no attempt follows


@pytest.mark.parametrize(
    ("error", "attempts"), [(exc.ComplianceUncertainError("Maybe."), [1, 2, 2]), (AWAY, [1, 1])]
)
def test_only_a_submit_that_may_have_arrived_is_counted_and_journaled(
    night: Night, error: Exception, attempts: list[int]
) -> None:
    night.script({"a": {0: DONE}}, {"submit a": [error]})
    night.run(Item("a"))
    assert [record.get("attempts") for record in night.journal.records] == attempts


@pytest.mark.parametrize("slow", ["journal", "submit"])
def test_as_many_items_as_wanted_are_processed_at_a_time(night: Night, slow: str) -> None:
    """Also until the journal has their submits: as many may be submitted twice after a crash."""
    items = [Item(str(number)) for number in range(5)]
    night.script({item.key: {0: DONE} for item in items})
    night.journal.write_seconds = 10.0 if slow == "journal" else 0.0
    for item in items if slow == "submit" else ():
        night.outcome("submit", item.key, 10.0)
    night.run(*items, concurrency=2)
    assert [at for at, _ in night.steps.of("submit")] == [0, 0, 10, 10, 20]


def test_a_refused_job_fails_alone_while_others_can_be_polled(night: Night) -> None:
    night.script({"a": {0: forbidden()}, "b": {150: DONE}})
    items = [running(), Item("b", "b", SUBMITTED)]
    night.run(*items)
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert items[0].error.startswith("No request has succeeded for")


def test_polls_that_are_all_refused_end_the_attempt(night: Night) -> None:
    night.script({"a": {0: forbidden()}})
    item = running()
    with pytest.raises(exc.ComplianceRefusedError):
        night.run(item)
    assert item.state == SUBMITTED


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (Item("a"), "it was not submitted yet"),
        (Item("a", last_error="503."), "the last error was: 503"),
        (running(), "its job was RUNNING"),
        (running("away"), "the last poll of its job failed: The service is away"),
        (
            Item("a", "a", RETRYING, retried_from=RETRIED),
            "its job failed and was not processed again yet",
        ),
        (Item("a", "a", READY), "its job is completed, but its result was not fetched yet"),
    ],
)
def test_an_item_that_is_not_finished_in_time_says_why(night: Night, item: Item, cause: str) -> None:
    slow = {f"{step} a": [1e5] for step in ("submit", "retry", "fetch")}
    night.script({"a": {}, "away": {0: AWAY}}, slow)
    night.run(item, deadline=20.0)
    assert (item.state, item.error) == (FAILED, f"Not finished in time: {cause}.")


@pytest.mark.parametrize("max_in_flight", [None, 2])
def test_while_all_are_refused_no_item_tries(night: Night, max_in_flight: int | None) -> None:
    items = [Item(str(number)) for number in range(40)]
    night.script({item.key: {0: DONE} for item in items}, {f"submit {n}": [forbidden()] for n in range(40)})
    night.run(*items, concurrency=4, max_in_flight=max_in_flight)
    assert {item.state for item in items} == {COMPLETED}
    assert sum(at < 2 for at, _ in night.steps.of("submit")) <= 16


@pytest.mark.parametrize("has_worked", [False, True])
def test_a_refused_submit_is_retried_for_longer_if_earlier_ones_were_accepted(
    night: Night, has_worked: bool
) -> None:
    night.script({"b": {400: DONE}}, {"submit a": [forbidden() for _ in range(20)]})
    items = [Item("a")] + [Item("b", "b", SUBMITTED)] * has_worked
    if has_worked:
        night.run(*items)
        assert items[0].state == FAILED
    else:
        with pytest.raises(exc.ComplianceRefusedError) as error:
            night.run(*items)
        assert not error.value.transient
    assert (night.steps.of("submit")[-1][0] >= 300) is has_worked


def test_a_refused_job_of_a_retry_does_not_keep_the_task_from_deferring(night: Night) -> None:
    night.script({"a": {0: forbidden()}, "b": {}})
    items = [running(retry_count=1, retried_from=RETRIED), Item("b", "b", SUBMITTED)]
    assert night.run(*items, may_defer=True) == ["b"]
    assert items[0].state == FAILED


def test_a_job_is_polled_once_for_all_items_that_share_it(night: Night) -> None:
    night.script({"j": {3: DONE}}, {f"submit {key}": [{"uuid": "j"} | RUNNING] for key in "ab"})
    items = [Item("a"), Item("b")]
    night.run(*items)
    assert [item.state for item in items] == [COMPLETED, COMPLETED]
    assert night.service.polls[-1] == (3, ["j"])
