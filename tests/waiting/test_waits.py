"""How a wait ends, in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.waiting import rules, waits
from airflow_provider.waiting.results import WaitResult
from airflow_provider.waiting.rules import accept_any
from airflow_provider.waiting.waits import cancel, cancel_in_worker, poll_in_worker, wait, wait_in_worker
from tests.support import virtual_time
from tests.support.polled import COMPLETED, RUNNING, PolledService
from tests.support.virtual_time import START, seconds

log = logging.getLogger("task")
EPOCH = 1e9  # of the virtual wall clock
AWAY = exc.ComplianceServerError("The service is away.", status=503)
REFUSED = exc.ComplianceRefusedError("Forbidden.", status=403)
UNKNOWN = {"status": "UNKNOWN"}


@pytest.fixture(autouse=True)
def _virtual(monkeypatch: pytest.MonkeyPatch, _soon_sure: None) -> None:
    def monotonic() -> float:
        try:
            return START + seconds()
        except RuntimeError:  # outside of the event loop
            return START

    clock = SimpleNamespace(time=lambda: EPOCH + monotonic() - START, monotonic=monotonic)
    monkeypatch.setattr(waits, "time", clock)
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 30.0)
    monkeypatch.setattr(waits, "EventLoop", lambda threads: SimpleNamespace(run=virtual_time.run))


@pytest.fixture
def service() -> PolledService:
    return PolledService()


@pytest.fixture
def wait_for(service: PolledService) -> Callable[..., WaitResult]:
    def run(*ids: str, interval: float = 5.0, until: float = 3600.0, **options: Any) -> WaitResult:
        work = wait(service.kind(), service.hook(), ids, interval, until, log, **options)
        return virtual_time.run(work)

    return run


def test_a_wait_ends_when_all_have_ended(service: PolledService, wait_for: Callable[..., WaitResult]) -> None:
    service.job("a", s3=COMPLETED)
    service.job("b", s5=COMPLETED)
    assert wait_for("a", "b", "a") == WaitResult("success", {"a": COMPLETED, "b": COMPLETED}, 5.0)
    assert service.poll_times == [1, 2, 3, 4, 5]


def test_a_wait_for_nothing_ends_at_once(service: PolledService, wait_for: Callable[..., WaitResult]) -> None:
    assert wait_for() == WaitResult("success")
    assert service.polls == []


@pytest.mark.parametrize(("enough", "ended"), [(1, ["a"]), (2, ["a", "b"]), (9, ["a", "b", "c"])])
def test_a_wait_for_some_ends_when_enough_have_ended(
    service: PolledService, wait_for: Callable[..., WaitResult], enough: int, ended: list[str]
) -> None:
    service.job("a", s3=COMPLETED)
    service.job("b", s4=COMPLETED)
    service.job("c", s5=COMPLETED)
    result = wait_for("a", "b", "c", enough=enough)
    assert (result.status, list(result.records)) == ("success", ended)


def test_the_first_poll_can_be_at_once(service: PolledService, wait_for: Callable[..., WaitResult]) -> None:
    service.job("a", s3=COMPLETED)
    assert wait_for("a", poll_first=True).status == "success"
    assert service.poll_times == [0, 1, 2, 3]


def test_the_deadline_ends_a_wait_after_a_last_poll(
    service: PolledService, wait_for: Callable[..., WaitResult]
) -> None:
    service.job("a", s2=COMPLETED)
    service.job("b")
    assert wait_for("a", "b", until=4.5) == WaitResult("timeout", {"a": COMPLETED}, 4.5, pending=["b"])
    assert service.polls[-1] == (4.5, ["b"])


def test_a_job_that_ends_just_before_the_deadline_is_a_success(
    service: PolledService, wait_for: Callable[..., WaitResult]
) -> None:
    service.job("a", **{"s4.2": COMPLETED})
    assert wait_for("a", until=4.5) == WaitResult("success", {"a": COMPLETED}, 4.5)


@pytest.mark.parametrize(
    ("waited", "is_known", "seconds"),
    [
        (50.0, True, 3580.0),  # 30 s later than by the clock of the service, which may be as wrong
        (3600.0, True, 30.0),
        (9000.0, True, 1.0),  # after the first poll, which says what time it is
        (9000.0, False, 3600.0),  # nothing says that it waited before
        (-9000.0, True, 3600.0),
    ],
)
def test_a_restart_of_the_triggerer_does_not_start_a_timeout_again(
    service: PolledService, wait_for: Callable[..., WaitResult], waited: float, is_known: bool, seconds: float
) -> None:
    service.job("a")
    service.clock = SimpleNamespace(is_known=is_known, now=lambda: EPOCH + waited + virtual_time.seconds())
    ends: list[float] = []
    result = wait_for("a", began_at=EPOCH, accepts=lambda *_: ends.append(virtual_time.seconds()))
    assert result.status == "timeout"
    assert ends[-1] == pytest.approx(seconds, abs=30)
    assert result.seconds >= 3600


def test_a_clock_that_jumps_ends_no_wait(
    service: PolledService, wait_for: Callable[..., WaitResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.job("a", s3=COMPLETED)
    service.job("b", s5=COMPLETED)
    monkeypatch.setattr(
        "airflow_provider.waiting.waits.time.time", lambda: EPOCH + (86_400 if seconds() > 2 else 0)
    )
    assert wait_for("a", "b", until=60.0).status == "success"


@pytest.mark.parametrize(("error", "transient"), [(AWAY, True), (REFUSED, False)])
def test_a_timeout_says_what_the_last_poll_met(
    service: PolledService, wait_for: Callable[..., WaitResult], error: exc.ComplianceError, transient: bool
) -> None:
    service.job("a")
    service.job("b", error)
    result = wait_for("a", "b", until=4.5)
    assert (result.status, result.pending) == ("timeout", ["a", "b"])
    assert (result.message, result.transient) == (str(error), transient)


def test_the_log_says_every_five_minutes_that_a_wait_continues(
    service: PolledService, wait_for: Callable[..., WaitResult], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "task")
    service.job("a", s5=COMPLETED)
    service.job("b")
    wait_for("a", "b", interval=60.0, until=900.0)
    assert [each.getMessage() for each in caplog.records if each.name == "task"] == [
        "Still waiting for 1 of 2 jobs after 305 s.",
        "Still waiting for 1 of 2 jobs after 605 s.",
    ]


def test_polling_that_fails_for_good_ends_a_wait(
    service: PolledService, wait_for: Callable[..., WaitResult]
) -> None:
    service.job("a", s2=COMPLETED)
    service.job("b", exc.ComplianceAuthError("A wrong password."))
    assert wait_for("a", "b") == WaitResult("error", {}, 1.0, "A wrong password.")


def test_an_unexpected_error_may_be_transient(
    service: PolledService, wait_for: Callable[..., WaitResult]
) -> None:
    service.job("a", RuntimeError("a bug"))
    assert wait_for("a") == WaitResult("error", {}, 1.0, "a bug", transient=True)


@pytest.mark.parametrize("is_tolerated", [False, True])
def test_one_refused_job_can_be_tolerated(
    service: PolledService, wait_for: Callable[..., WaitResult], is_tolerated: bool
) -> None:
    service.has_worked = True
    service.job("a", REFUSED)
    service.job("b", s1200=COMPLETED)
    result = wait_for("a", "b", **({"enough": 2} if is_tolerated else {}))
    if is_tolerated:
        records = {"a": {"uuid": "a", "status": "UNKNOWN"}, "b": COMPLETED}
        assert (result.status, result.records) == ("success", records)
    else:
        assert (result.status, result.records, result.transient) == ("error", {}, True)


def test_the_states_that_end_a_wait_can_be_chosen(
    service: PolledService, wait_for: Callable[..., WaitResult]
) -> None:
    service.job("a")
    assert wait_for("a", accepts=accept_any) == WaitResult("success", {"a": RUNNING}, 1.0)


def test_a_wait_in_the_worker_polls_at_once(service: PolledService) -> None:
    service.job("a", s2=COMPLETED)
    result = wait_in_worker(service.kind(), service.hook(), ["a"], 5.0, 60.0, log)
    assert result == WaitResult("success", {"a": COMPLETED}, 2.0)
    assert service.poll_times == [0, 1, 2]


@pytest.mark.parametrize("error", [AWAY, exc.ComplianceConfigError("No host.")])
def test_a_worker_without_a_connection_does_not_wait(
    service: PolledService, error: exc.ComplianceError
) -> None:
    service.connection_error = error
    result = wait_in_worker(service.kind(), service.hook(), ["a"], 5.0, 60.0, log)
    assert result == WaitResult("error", message=str(error), transient=error.transient)
    assert service.reads == []


def test_a_poll_returns_any_state(service: PolledService) -> None:
    service.job("a")
    service.job("b", COMPLETED)
    assert poll_in_worker(service.kind(), service.hook(), ["a", "b"], log) == WaitResult(
        "success", {"a": RUNNING, "b": COMPLETED}
    )


def test_a_poll_that_fails_is_repeated(service: PolledService) -> None:
    service.job("a", AWAY, s3=RUNNING)
    result = poll_in_worker(service.kind(), service.hook(), ["a"], log)
    assert result == WaitResult("success", {"a": RUNNING}, 3.0)


def test_polls_that_fail_for_a_quarter_of_an_hour_are_an_outage(service: PolledService) -> None:
    service.job("a", AWAY)
    service.job("b")
    result = poll_in_worker(service.kind(), service.hook(), ["a", "b"], log)
    message = "No request has succeeded for 900 s: The service is away."
    assert result == WaitResult("error", {"b": RUNNING}, 900.0, message, transient=True)


def test_only_what_is_in_flight_is_cancelled(service: PolledService) -> None:
    service.job("a")
    service.job("b", COMPLETED)
    ended = virtual_time.run(cancel(service.kind(), service.hook(), ["a", "b"], log))
    assert (ended, service.cancelled) == ({"b": COMPLETED}, ["a"])
    assert service.reads == [{"max_retries": 2}]
    assert service.cancel_concurrency == 8
    assert not service.clients[0].is_open


@pytest.mark.parametrize("why", ["The service is away.", "Timed out after 25 s."])
def test_a_failed_cancel_is_logged(
    service: PolledService, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    service.connection_error = AWAY
    service.read_seconds = 24.0 if why == str(AWAY) else 26.0
    assert virtual_time.run(cancel(service.kind(), service.hook(), ["a"], log)) == {}
    assert caplog.messages == [f"Could not cancel the job a, which may still be running: {why}"]


def test_a_worker_cancels_one(service: PolledService) -> None:
    service.job("a")
    service.job("b", COMPLETED)
    assert cancel_in_worker(service.kind(), service.hook(), "a", log) is None
    assert cancel_in_worker(service.kind(), service.hook(), "b", log) == COMPLETED
    assert service.cancelled == ["a"]


def test_a_worker_without_a_connection_cancels_nothing(
    service: PolledService, caplog: pytest.LogCaptureFixture
) -> None:
    service.connection_error = AWAY
    assert cancel_in_worker(service.kind(), service.hook(), "a", log) is None
    assert caplog.messages == ["Could not cancel the job a, which may still be running: The service is away."]
