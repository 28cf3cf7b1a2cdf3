"""What becomes of an item, step by step, in virtual time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.bulk import backoff, pipeline
from airflow_provider.bulk.items import COMPLETED, FAILED, READY, RETRYING, SKIPPED, SUBMITTED, Item
from airflow_provider.waiting import rules
from tests.support.bulk import Night

AWAY = exc.ComplianceServerError("The service is away.", status=503)
AT = "2026-01-01T00:00:00+00:00"
DONE = {"status": "COMPLETED"}
UNKNOWN = {"status": "UNKNOWN"}
PRODUCTION = {
    name: getattr(backoff, name)
    for name in ("FIRST_DELAY_SECONDS", "MAX_DELAY_SECONDS", "OUTAGE_RETRY_SECONDS")
}


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch, _impatient: None, _soon_sure: None) -> None:
    for name, value in PRODUCTION.items():
        monkeypatch.setattr(backoff, name, value)
    monkeypatch.setattr(pipeline, "UNCHANGED_SECONDS", 300.0)
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 30.0)
    monkeypatch.setattr(rules, "REFRESH_GRACE_SECONDS", 30.0)
    monkeypatch.setattr(rules, "MAX_OUTAGE_PAUSE_SECONDS", 60.0)
    monkeypatch.setattr(rules, "OUTAGE_SECONDS", 90.0)  # a tenth: the engine looks at its clock every second


@pytest.fixture
def night() -> Night:
    return Night()


def failed(reason: str | None = "It is damaged.", at: str = AT) -> dict[str, Any]:
    return {"status": "FAILED", "error": reason, "completed_at": at}


def test_an_item_is_submitted_polled_and_fetched(night: Night) -> None:
    night.service.job("a", s3=DONE | {"completed_at": AT})
    item = Item("a", is_resumed=True)
    assert night.run(item) == []
    assert night.steps.calls == [(0, "submit", "a"), (3, "fetch", "a")]
    assert (item.state, item.job_id, item.attempts, item.is_resumed) == (COMPLETED, "a", 1, False)
    assert item.completed_at == AT
    assert item.submitted_at
    assert [record.get("status") for record in night.journal.records] == [None, "COMPLETED"]
    assert night.journal.records[0]["job_id"] == "a"


def test_the_time_of_completion_is_now_if_the_service_does_not_say(night: Night) -> None:
    night.outcome("submit", "a", {"uuid": "a"} | DONE)
    item = Item("a")
    night.run(item)
    assert night.service.polls == []
    assert item.completed_at
    assert datetime.fromisoformat(item.completed_at).tzinfo


def test_finished_items_are_left_alone(night: Night) -> None:
    items = [Item("a", "a", COMPLETED), Item("b", state=FAILED), Item("c", "c", SKIPPED)]
    assert night.run(*items) == []
    assert (night.steps.calls, night.journal.records) == ([], [])


def test_items_nearer_to_their_end_go_first(night: Night) -> None:
    for key in "abc":
        night.service.job(key, DONE)
    items = [
        Item("a"),
        Item("b", "b", RETRYING, retried_from={"status": "FAILED"}),
        Item("c", "c", READY),
    ]
    night.run(*items, concurrency=1)
    assert [(step, key) for _, step, key in night.steps.calls[:3]] == [
        ("fetch", "c"),
        ("retry", "b"),
        ("submit", "a"),
    ]


def test_equal_items_may_share_a_job(night: Night) -> None:
    night.outcome("submit", "a", {"uuid": "j", "status": "RUNNING"})
    night.outcome("submit", "b", {"uuid": "j", "status": "RUNNING"})
    night.service.job("j", s3=DONE)
    items = [Item("a"), Item("b")]
    night.run(*items)
    assert [item.state for item in items] == [COMPLETED, COMPLETED]
    assert night.service.polls[-1] == (3, ["j"])


def test_a_failed_job_is_processed_again_as_often_as_wanted(night: Night) -> None:
    night.service.job("a", failed(), s5=failed(at="2026-01-01T00:01:00+00:00"), s9=DONE)
    item = Item("a")
    night.run(item, retry_failed=2)
    assert (item.state, item.attempts, item.retry_count) == (COMPLETED, 3, 2)
    assert [at for at, _ in night.steps.of("retry")] == [1, 5]
    assert item.retried_from == {"status": "FAILED", "completed_at": "2026-01-01T00:01:00+00:00"}


@pytest.mark.parametrize(
    ("reason", "shown"), [("It is damaged.", "It is damaged."), (None, "The service gave no reason.")]
)
def test_a_job_that_keeps_failing_fails_its_item(night: Night, reason: str | None, shown: str) -> None:
    night.service.job("a", failed(reason), s5=failed(reason, "2026-01-01T00:01:00+00:00"))
    item = Item("a")
    night.run(item, retry_failed=1)
    assert (item.state, item.error, item.is_permanent_failure) == (FAILED, shown, False)
    assert len(night.steps.of("retry")) == 1
    assert night.journal.records[-1]["error"] == shown


def test_a_retry_that_is_answered_with_its_result_is_not_polled(night: Night) -> None:
    night.service.job("a", failed())
    night.outcome("retry", "a", {"uuid": "a"} | DONE)
    night.service.job("b", s400=DONE)
    item = Item("a")
    assert night.run(item, Item("b", "b", SUBMITTED), retry_failed=1, may_defer=True) == ["b"]
    assert item.state == COMPLETED
    assert [at for at, jobs in night.service.polls if "a" in jobs] == [1]


def test_a_retry_may_be_another_job(night: Night) -> None:
    night.service.job("a", failed())
    night.service.job("a2", s5=DONE)
    night.outcome("retry", "a", {"uuid": "a2", "status": "RUNNING"})
    item = Item("a")
    night.run(item, retry_failed=1)
    assert (item.state, item.job_id, item.attempts) == (COMPLETED, "a2", 2)


def test_an_unchanged_result_of_a_retry_is_believed_after_five_minutes(night: Night) -> None:
    night.service.job("a", failed())
    item = Item("a")
    night.run(item, retry_failed=1)
    assert (item.state, item.error) == (FAILED, "It is damaged.")
    assert 300 <= night.service.poll_times[-1] <= 310


@pytest.mark.parametrize("status", ["UNKNOWN", "CANCELLED"])
def test_a_job_of_an_earlier_attempt_that_is_gone_is_submitted_again_once(night: Night, status: str) -> None:
    night.service.job("old", {"status": status})
    night.service.job("a", {"status": status})
    item = Item("a", "old", SUBMITTED, is_resumed=True, attempts=1)
    night.run(item)
    assert len(night.steps.of("submit")) == 1
    assert (item.state, item.resubmit_count, item.attempts) == (FAILED, 1, 2)
    assert item.error == f"The job was cancelled, or is gone ({status})."


def test_after_the_deadline_a_job_that_is_gone_is_not_submitted_again(night: Night) -> None:
    night.service.job("old", s19={"status": "CANCELLED"})
    item = Item("a", "old", SUBMITTED, is_resumed=True)
    night.run(item, deadline=19.5, poll_interval=3600.0)
    assert (item.state, item.error) == (FAILED, "The job was cancelled, or is gone (CANCELLED).")
    assert night.steps.of("submit") == []


def test_a_job_of_this_attempt_that_is_gone_fails_its_item(night: Night) -> None:
    night.service.job("a", {"status": "CANCELLED"})
    item = Item("a")
    night.run(item)
    assert (item.state, len(night.steps.of("submit"))) == (FAILED, 1)


def test_a_transient_error_is_retried_after_a_delay(night: Night, caplog: pytest.LogCaptureFixture) -> None:
    night.service.job("a", s20=DONE)
    night.outcome("submit", "a", AWAY, AWAY)
    item = Item("a")
    night.run(item)
    assert night.steps.of("submit") == [(0, "a"), (2, "a"), (8, "a")]
    assert (item.state, item.attempts) == (COMPLETED, 1)
    assert item.last_error == "The service is away."
    assert "Retrying 'a' in 2 s: The service is away." in caplog.messages


def test_retries_of_one_wave_are_one_line(night: Night, caplog: pytest.LogCaptureFixture) -> None:
    items = [Item(str(number)) for number in range(3)]
    for item in items:
        night.service.job(item.key, DONE)
        night.outcome("submit", item.key, AWAY, *([AWAY] if item.key == "2" else []))
    night.run(*items)
    assert [line for line in caplog.messages if line.startswith("Retrying")] == [
        "Retrying '0' and 2 more items in 2 s: The service is away.",
        "Retrying '2' in 6 s: The service is away.",
    ]


def test_error_of_all_items_has_one_traceback_and_logs_the_retries(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    items = [Item(str(number)) for number in range(40)]
    shared = exc.ComplianceServerError("The service is away.", status=503)
    for item in items:
        night.outcome("submit", item.key, *[shared] * 9)
    with pytest.raises(exc.ComplianceServerError) as raised:
        night.run(*items, concurrency=40)
    assert "_process" not in {entry.name for entry in raised.traceback}
    lines = [line for line in caplog.messages if line.startswith("Retrying")]
    assert [line.partition("' and ")[2] for line in lines] == [
        f"{number} more items in {delay} s: The service is away."
        for number, delay in ((39, 2), (39, 6), (38, 18))
    ]


def test_all_items_continue_when_one_of_them_succeeds_after_an_outage(night: Night) -> None:
    items = [Item("a"), Item("b"), Item("c")]
    for item in items:
        night.service.job(item.key, DONE)
        night.outcome("submit", item.key, AWAY, AWAY, AWAY, 4.0 if item.key == "c" else AWAY)
    night.run(*items)
    assert {item.state for item in items} == {COMPLETED}
    assert sorted(call for call in night.steps.of("submit") if call[0] > 26) == [(30, "a"), (30, "b")]


def test_an_item_that_fails_while_others_succeed_is_given_up(night: Night) -> None:
    night.service.job("b", DONE)
    night.outcome("submit", "a", AWAY, AWAY, AWAY)
    night.outcome("submit", "b", AWAY)
    items = [Item("a"), Item("b")]
    night.run(*items)
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert night.steps.of("submit")[-1] == (8, "a")
    assert (items[0].error, items[0].is_permanent_failure) == ("The service is away.", False)


def test_an_invalid_item_fails_alone(night: Night) -> None:
    night.outcome("submit", "a", exc.ComplianceInputError("There is no such file."))
    night.service.job("b", DONE)
    items = [Item("a"), Item("b")]
    night.run(*items)
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert items[0].is_permanent_failure


@pytest.mark.parametrize("kind", [exc.ComplianceAuthError, exc.ComplianceConfigError, exc.ComplianceTlsError])
def test_an_error_that_all_items_would_meet_ends_the_attempt(night: Night, kind: Any) -> None:
    night.outcome("submit", "a", kind("Wrong."))
    night.service.job("b")
    with pytest.raises(kind):
        night.run(Item("a"), Item("b", "b", SUBMITTED))
    assert night.journal.flushes[0] == 0
    assert night.service.cancelled == ["b"]  # because no attempt follows


def test_the_next_attempt_does_not_rely_on_a_job_whose_result_is_refused(night: Night) -> None:
    night.service.job("a", DONE)
    night.outcome("fetch", "a", exc.ComplianceRefusedError("Too large.", status=413))
    item = Item("a")
    night.run(item)
    assert (item.state, item.completed_at, item.is_permanent_failure) == (FAILED, None, False)


def test_an_unexpected_error_fails_one_item_with_one_traceback(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    for key in "ab":
        night.outcome("submit", key, ValueError("a bug"))
    night.service.job("c", DONE)
    items = [Item(key) for key in "abc"]
    night.run(*items)
    assert [item.state for item in items] == [FAILED, FAILED, COMPLETED]
    assert items[0].error == "Unexpected ValueError: a bug"
    found = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [bool(item.exc_info and item.exc_info[0]) for item in found] == [True, False]


def test_an_unreadable_record_fails_its_items_alone(night: Night) -> None:
    night.service.job("a", DONE | {"completed_at": "yesterday"})
    night.service.job("b", DONE)
    items = [Item("a"), Item("b")]
    night.run(*items)
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert items[0].error.startswith("Unexpected ValueError")


def test_a_submit_that_may_have_arrived_is_counted_and_journaled(night: Night) -> None:
    night.outcome("submit", "a", exc.ComplianceUncertainError("Maybe."))
    night.service.job("a", DONE)
    item = Item("a")
    night.run(item)
    assert item.attempts == 2
    assert [record.get("attempts") for record in night.journal.records] == [1, 2, 2]


def test_a_submit_that_did_not_arrive_is_not_journaled(night: Night) -> None:
    night.outcome("submit", "a", AWAY)
    night.service.job("a", DONE)
    night.run(Item("a"))
    assert [record.get("attempts") for record in night.journal.records] == [1, 1]


def test_no_more_than_the_concurrency_is_submitted_before_the_journal_has_it(night: Night) -> None:
    night.journal.write_seconds = 10.0
    items = [Item(str(number)) for number in range(5)]
    for each in items:
        night.service.job(each.key, DONE)
    night.run(*items, concurrency=2)
    assert [at for at, _ in night.steps.of("submit")] == [0, 0, 10, 10, 20]


def test_a_refused_job_fails_alone_while_others_can_be_polled(night: Night) -> None:
    night.service.job("a", exc.ComplianceRefusedError("Forbidden.", status=403))
    night.service.job("b", s150=DONE)
    items = [Item("a", "a", SUBMITTED), Item("b", "b", SUBMITTED)]
    night.run(*items)
    assert [item.state for item in items] == [FAILED, COMPLETED]
    assert items[0].error.startswith("No request has succeeded for")


def test_polls_that_are_all_refused_end_the_attempt(night: Night) -> None:
    night.service.job("a", exc.ComplianceRefusedError("Forbidden.", status=403))
    item = Item("a", "a", SUBMITTED)
    with pytest.raises(exc.ComplianceRefusedError):
        night.run(item)
    assert item.state == SUBMITTED


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (Item("a"), "it was not submitted yet"),
        (Item("a", last_error="503."), "the last error was: 503"),
        (Item("a", "a", SUBMITTED), "its job was RUNNING"),
        (Item("a", "away", SUBMITTED), "the last poll of its job failed: The service is away"),
        (
            Item("a", "a", RETRYING, retried_from={"status": "FAILED"}),
            "its job has failed and was not processed again yet",
        ),
    ],
)
def test_an_item_that_is_not_finished_in_time_says_why(night: Night, item: Item, cause: str) -> None:
    night.service.job("a")
    night.service.job("away", AWAY)
    for step in ("submit", "retry"):
        night.outcome(step, "a", 1e5)
    night.run(item, deadline=20.0)
    assert (item.state, item.error) == (FAILED, f"Not finished in time: {cause}.")


def test_a_result_that_was_not_fetched_in_time_says_so(night: Night) -> None:
    night.outcome("fetch", "a", 1e5)
    item = Item("a", "a", READY)
    night.run(item, deadline=20.0)
    assert item.error == "Not finished in time: its job is completed, but its result was not fetched yet."


def test_after_the_deadline_failed_jobs_are_not_processed_again(night: Night) -> None:
    night.service.job("a", s19=failed())
    item = Item("a", "a", SUBMITTED)
    night.run(item, retry_failed=1, deadline=19.5, poll_interval=3600.0)
    assert (item.state, item.error) == (FAILED, "It is damaged.")
    assert night.steps.of("retry") == []


def test_while_all_are_refused_no_item_tries(night: Night) -> None:
    items = [Item(str(number)) for number in range(40)]
    for each in items:
        night.service.job(each.key, DONE)
        night.outcome("submit", each.key, exc.ComplianceRefusedError("Forbidden.", status=403))
    night.run(*items, concurrency=4)
    assert {item.state for item in items} == {COMPLETED}
    assert sum(at < 2 for at, _ in night.steps.of("submit")) <= 16


def test_a_job_that_was_submitted_again_before_a_deferral_is_not_submitted_once_more(night: Night) -> None:
    night.service.job("a", UNKNOWN)
    item = Item("a", "a", SUBMITTED, is_resumed=True, resubmit_count=1)
    night.run(item)
    assert (item.state, night.steps.of("submit")) == (FAILED, [])


@pytest.mark.parametrize("has_worked", [False, True])
def test_a_refused_submit_is_retried_for_longer_if_earlier_ones_were_accepted(
    night: Night, has_worked: bool
) -> None:
    night.service.job("b", s400=DONE)
    for _ in range(20):
        night.outcome("submit", "a", exc.ComplianceRefusedError("Forbidden.", status=403))
    items = [Item("a")] + [Item("b", "b", SUBMITTED)] * has_worked
    if has_worked:
        night.run(*items)
        assert items[0].state == FAILED
    else:
        with pytest.raises(exc.ComplianceRefusedError) as error:
            night.run(*items)
        assert not error.value.transient
    assert (night.steps.of("submit")[-1][0] >= 300) is has_worked


def test_a_job_that_was_to_be_processed_again_before_a_crash_is_now(night: Night) -> None:
    before = {"status": "FAILED", "completed_at": AT}
    night.service.job("a", failed(), s5=DONE)
    item = Item("a", "a", SUBMITTED, retried_from=before)
    night.run(item, retry_failed=1)
    assert night.steps.of("retry") == [(1, "a")]
    assert item.state == COMPLETED


def test_a_job_that_was_processed_again_before_a_crash_is_expected_to_change(night: Night) -> None:
    before = {"status": "FAILED", "completed_at": AT}
    night.service.job("a", failed(), s50=DONE)
    item = Item("a", "a", SUBMITTED, retry_count=1, retried_from=before)
    night.run(item, retry_failed=1)
    assert (item.state, night.steps.of("retry")) == (COMPLETED, [])


def test_a_refused_job_of_a_retry_does_not_keep_the_task_from_deferring(night: Night) -> None:
    night.service.job("a", exc.ComplianceRefusedError("Forbidden.", status=403))
    night.service.job("b", s400=DONE)
    before = {"status": "FAILED", "completed_at": AT}
    items = [Item("a", "a", SUBMITTED, retry_count=1, retried_from=before), Item("b", "b", SUBMITTED)]
    assert night.run(*items, may_defer=True) == ["b"]
    assert items[0].state == FAILED
