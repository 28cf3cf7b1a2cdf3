"""How many jobs a bulk task has at the service: alone, and with other tasks of the host; in virtual time."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import logging
import math
import os
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.bulk import backoff, claims, engine, in_flight
from airflow_provider.bulk.claims import Claim, ClaimsFile, allot
from airflow_provider.bulk.in_flight import InFlightLimit, SharedInFlightLimit, Usage, make_limit
from airflow_provider.bulk.items import COMPLETED, FAILED, SKIPPED, SUBMITTED, Item
from airflow_provider.hooks import runtime_directory as runtime
from tests.support import virtual_time
from tests.support.bulk import Night, ScriptedSteps
from tests.support.polled import PolledService
from tests.support.values import settings_for
from tests.support.virtual_time import seconds

AWAY = exc.ComplianceServerError("The service is away.", status=503)
DONE, RUNNING = {"status": "COMPLETED"}, {"status": "RUNNING"}
AT = "2026-01-01T00:00:00+00:00"
PRODUCTION = {
    engine: {"IDLE_BEFORE_DEFER_SECONDS": 10.0, "CLOCK_CHECK_SECONDS": 1.0},
    backoff: {"FIRST_DELAY_SECONDS": 2.0, "MAX_DELAY_SECONDS": 120.0},
}


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch, _impatient: None, _soon_sure: None) -> None:
    for module, values in PRODUCTION.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(function: Any, *args: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(in_flight, "in_thread", call)


class TimedSteps(ScriptedSteps):
    """Each job takes some seconds from its submit on, and the service counts how many run at a time."""

    job_seconds = 5.0

    def _record(self, item: Item) -> Any:
        self.service.scripts[item.key] = {0.0: RUNNING, seconds() + self.job_seconds: DONE}
        jobs = [self.service.result(each) for each in self.service.scripts]
        self.service.peak = max(self.service.peak, sum(each == RUNNING for each in jobs))
        return {"uuid": item.key, "status": "RUNNING"}


def make_night(service: PolledService | None = None) -> Night:
    """Return a bulk task, of a service that other tasks may use as well."""
    night = Night()
    night.service = service or night.service
    night.service.has_worked = True
    night.steps = type("S", (TimedSteps,), {"kind": night.service.kind()})(night.service)
    return night


@pytest.fixture
def night() -> Night:
    return make_night()


def items(count: int, prefix: str = "") -> list[Item]:
    return [Item(f"{prefix}{number}") for number in range(count)]


@pytest.mark.parametrize("concurrency", [1, 4, 16])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_task_never_has_more_jobs_at_the_service_than_allowed(
    night: Night, limit: int, concurrency: int
) -> None:
    some = items(8)
    night.run(*some, limit=InFlightLimit(limit), concurrency=concurrency)
    assert {each.state for each in some} == {COMPLETED}
    assert night.service.peak == min(limit, 8)


def test_thousands_of_documents_wait_without_a_busy_loop(night: Night) -> None:
    night.steps.job_seconds = 0.5  # type: ignore[attr-defined] # of TimedSteps
    some = items(1000)
    night.run(*some, limit=InFlightLimit(100))
    assert {each.state for each in some} == {COMPLETED}
    assert night.service.peak == 100


def test_jobs_of_an_earlier_attempt_count(night: Night) -> None:
    for key in "abc":  # more than allowed: there may have been no limit
        night.service.job(key, **{f"s{20 + ord(key) - ord('a')}": DONE})
    some = [Item(key, key, SUBMITTED) for key in "abc"] + items(2)
    night.run(*some, limit=InFlightLimit(2), poll_interval=1.0)
    assert {each.state for each in some} == {COMPLETED}
    first, second = (at for at, _ in night.steps.of("submit"))
    assert 21 <= first < 22 <= second  # when one is left, and when none is


def test_a_failed_job_is_processed_again_before_others_are_submitted(night: Night) -> None:
    night.outcome("submit", "0", {"uuid": "0", "status": "RUNNING"})
    night.service.job("0", s3={"status": "FAILED", "completed_at": AT})
    night.run(*items(3), limit=InFlightLimit(1), retry_failed=1, concurrency=2)
    order = [(step, key) for _, step, key in night.steps.calls if step != "fetch"]
    assert order == [("submit", "0"), ("retry", "0"), ("submit", "1"), ("submit", "2")]
    assert night.service.peak == 1


def test_results_are_fetched_while_all_else_waits(night: Night) -> None:
    night.service.job("old", s3=DONE)
    night.service.job("long", s100=DONE)
    some = [Item("old", "old", SUBMITTED), Item("long", "long", SUBMITTED), *items(20)]
    night.run(*some, limit=InFlightLimit(1), concurrency=1)
    assert night.steps.calls[0][1:] == ("fetch", "old")
    assert night.steps.calls[0][0] < 10
    assert night.steps.calls[1][0] >= 100


def test_what_can_be_skipped_does_not_wait(night: Night) -> None:
    night.service.job("long", s100=DONE)
    some = items(10)
    for each in some[3:]:
        night.outcome("skip", each.key, 1.0, True)
    night.run(Item("long", "long", SUBMITTED), *some, limit=InFlightLimit(1), concurrency=2)
    assert [each.state for each in some] == [COMPLETED] * 3 + [SKIPPED] * 7
    assert max(at for at, _ in night.steps.of("skip")) < 10
    assert night.service.peak == 1


def test_what_waits_is_checked_once(night: Night) -> None:
    some = items(3)
    for each in some:
        night.outcome("skip", each.key, False, False)
    night.run(*some, limit=InFlightLimit(1))
    assert {each.state for each in some} == {COMPLETED}
    assert len(night.steps.of("skip")) == 3


def test_the_first_is_submitted_before_all_others_are_checked(night: Night) -> None:
    some = items(20)
    for each in some[1:]:
        night.outcome("skip", each.key, 10.0, True)
    night.run(*some, limit=InFlightLimit(1), concurrency=2)
    assert night.steps.of("submit")[0][0] <= 10


def test_a_submit_that_fails_gives_its_slot_to_others(night: Night) -> None:
    night.outcome("submit", "0", AWAY, AWAY)
    some = items(2)
    night.run(*some, limit=InFlightLimit(1))
    assert {each.state for each in some} == {COMPLETED}
    assert night.steps.of("submit")[:2] == [(0, "0"), (0, "1")]
    assert night.service.peak == 1


def test_while_all_are_refused_no_slot_is_lost(night: Night) -> None:
    some = items(40)
    for each in some:
        night.outcome("submit", each.key, exc.ComplianceRefusedError("Forbidden.", status=403))
    night.run(*some, limit=InFlightLimit(2), concurrency=4)
    assert {each.state for each in some} == {COMPLETED}
    assert night.service.peak == 2


def test_while_all_refreshes_are_refused_no_slot_is_lost(night: Night) -> None:
    some = [Item(str(number), str(number), SUBMITTED) for number in range(20)]
    for each in some:
        night.service.job(each.key, {"status": "FAILED", "completed_at": AT})
        night.outcome("retry", each.key, exc.ComplianceRefusedError("Forbidden.", status=403))
    night.run(*some, limit=InFlightLimit(1), retry_failed=1, deadline=10_000.0)
    assert {each.state for each in some} == {COMPLETED}
    assert night.service.peak == 1


def test_equal_documents_that_share_a_job_count_once(night: Night) -> None:
    for key in "ab":
        night.outcome("submit", key, {"uuid": "j", "status": "RUNNING"})
    night.service.job("j", s20=DONE)
    some = [Item("a"), Item("b"), Item("c")]
    night.run(*some, limit=InFlightLimit(2))
    assert {each.state for each in some} == {COMPLETED}
    assert all(at < 5 for at, _ in night.steps.of("submit"))


@pytest.mark.parametrize(("cancel_on_kill", "at"), [(True, 3.0), (False, 20.0)])
def test_outdated_jobs_count_until_they_are_cancelled_or_end(
    night: Night, cancel_on_kill: bool, at: float
) -> None:
    night.service.cancel_seconds = 3.0
    night.service.job("old", s20=DONE)
    item = Item("a")
    night.run(
        item, limit=InFlightLimit(1), outdated=("old",), cancel_on_kill=cancel_on_kill, poll_interval=1.0
    )
    assert item.state == COMPLETED
    assert at <= night.steps.of("submit")[0][0] <= at + 1


def test_outdated_jobs_do_not_keep_a_task_from_its_end(night: Night) -> None:
    night.service.job("old")
    assert night.run(Item("a"), limit=InFlightLimit(2), outdated=("old",), cancel_on_kill=False) == []


def test_a_task_stays_in_the_worker_while_something_is_left_to_submit(night: Night) -> None:
    """Else a limit of 1 would mean a deferral for each document."""
    night.steps.job_seconds = 100.0  # type: ignore[attr-defined] # of TimedSteps
    some = items(5)
    assert night.run(*some, limit=InFlightLimit(2), may_defer=True) == ["4"]
    assert [each.state for each in some] == [COMPLETED] * 4 + [SUBMITTED]


def test_after_the_deadline_the_error_names_the_limit(night: Night) -> None:
    night.service.job("long")
    some = [Item("long", "long", SUBMITTED), *items(2)]
    night.run(*some, limit=InFlightLimit(1), deadline=20.0)
    assert [each.state for each in some] == [FAILED] * 3
    assert some[1].error == (
        "Not finished in time: it was waiting to be submitted: max_in_flight of the connection is 1."
    )
    assert night.steps.of("submit") == []


# -- shared with other tasks of the host


def now() -> float:
    return asyncio.get_running_loop().time()


class Host:
    """Tasks of one host that share a limit, and one service."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.path = folder / "claims.json"
        self.limit = limit
        self.service = PolledService()
        self.client = SimpleNamespace(throttlings=0, batch_size=100, get_statuses=self._statuses)
        self.checked: list[list[str]] = []

    async def _statuses(self, uuids: list[str]) -> dict[str, Any]:
        self.checked.append(sorted(uuids))
        found = {each: self.service.result(each) for each in uuids if each in self.service.scripts}
        return {
            uuid: SimpleNamespace(model_dump=lambda found=result, **_: dict(found))
            for uuid, result in found.items()
        }

    def shared(self, task: str, until: float = 1e6, **changes: Any) -> SharedInFlightLimit:
        values = {
            "max_in_flight": self.limit,
            "file": ClaimsFile(self.path),
            "log": logging.getLogger("bulk"),
        }
        return SharedInFlightLimit(
            task=["d", "r", task, "-1"], until=until, clock=now, **{**values, **changes}
        )

    async def run(self, task: str, *some: Item, after: float = 0.0, **changes: Any) -> list[str]:
        """Run a task; return the jobs in flight."""
        await asyncio.sleep(after)
        night = make_night(self.service)
        options = {"limit": self.shared(task), "poll_interval": 1.0, **changes}
        running = night.engine(*some, **options)
        running._client = self.client  # type: ignore[assignment] # of the checks
        return await running.run()

    @property
    def claims(self) -> dict[str, Any]:
        """The claims by task."""
        return {each["task"][2]: each for each in json.loads(self.path.read_text()).values()}

    def leave(self, task: str, **changes: Any) -> None:
        """Leave the claim of a task that is deferred or dead."""
        values = {"kind": "job", "jobs": [], "slots": 0, "waiting": 0, "since": 0.0, "seen_at": -100.0,
                  "until": 1e6, "checked_at": 0.0, "unknown": []}  # fmt: skip
        claim = {"task": ["d", "r", task, "-1"], **values, **changes}
        self.path.write_text(json.dumps({json.dumps(claim["task"]): claim}))


@pytest.fixture
def host(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Host:
    caplog.set_level(logging.INFO)
    return Host(tmp_path, 3)


def together(*work: Any) -> list[Any]:
    async def story() -> list[Any]:
        return await asyncio.gather(*work)

    return virtual_time.run(story())


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_tasks_share_a_limit_and_none_waits_for_long(host: Host, limit: int) -> None:
    host.limit = limit
    some, others = items(8, "a"), items(8, "b")
    together(host.run("a", *some), host.run("b", *others, after=0.5))
    assert {each.state for each in some + others} == {COMPLETED}
    assert host.service.peak == min(limit, 16)
    assert host.claims == {}
    if limit == 1:  # in turn
        order = list(host.service.scripts)
        assert all(each[0] != other[0] for each, other in itertools.pairwise(order[2:15]))


def test_a_task_alone_has_the_whole_limit(host: Host) -> None:
    some = items(9)
    together(host.run("a", *some))
    assert host.service.peak == 3
    assert {each.state for each in some} == {COMPLETED}


def test_more_tasks_than_slots_take_turns(host: Host) -> None:
    host.limit = 2
    tasks = {name: items(3, name) for name in "abcde"}
    together(*(host.run(name, *some) for name, some in tasks.items()))
    assert {each.state for some in tasks.values() for each in some} == {COMPLETED}
    assert host.service.peak == 2
    firsts = {each[0]: number for number, each in reversed([*enumerate(host.service.scripts)])}
    assert max(firsts.values()) < 10  # not when the others are done


def claim(
    jobs: int = 0, waiting: int = 0, since: float = 0.0, seen_at: float = 1000.0, slots: int = 0
) -> Claim:
    return Claim(["d", "r", "t", "-1"], "job", ["j"] * jobs, slots, waiting, since, seen_at, 1e6)


@pytest.mark.parametrize(
    ("limit", "own", "others", "granted"),
    [
        (3, claim(waiting=5), [], 3),
        (3, claim(waiting=2), [], 2),
        (3, claim(jobs=1, slots=1, waiting=5), [], 1),
        (3, claim(waiting=5), [claim(jobs=2)], 1),
        (3, claim(waiting=5), [claim(jobs=2, slots=1)], 0),
        (3, claim(jobs=5, waiting=5), [], 0),  # the limit was lowered
        (10, claim(waiting=9), [claim(waiting=9)], 5),  # half each
        (10, claim(jobs=4, waiting=9), [claim(waiting=9)], 1),  # 5 each, then
        (10, claim(waiting=9), [claim(waiting=2)], 8),
        (1, claim(waiting=1, since=5.0), [claim(waiting=1, since=4.0)], 0),  # it has waited for longer
        (1, claim(waiting=1, since=4.0), [claim(waiting=1, since=5.0)], 1),
        (2, claim(jobs=1, waiting=1, since=1.0), [claim(waiting=1, since=9.0)], 0),  # it has none
        (1, claim(waiting=1, since=5.0), [claim(waiting=1, since=4.0, seen_at=969.0)], 1),  # it is dead
        (1, claim(waiting=1, since=5.0), [claim(waiting=1, since=4.0, seen_at=970.0)], 0),
        (1, claim(waiting=1, since=5.0), [claim(waiting=1, since=4.0, seen_at=9e9)], 1),  # the clock was set
        (1, claim(waiting=1), [claim(slots=1, seen_at=700.0)], 0),  # it may have submitted
        (1, claim(waiting=1), [claim(slots=1, seen_at=699.0)], 1),  # not any more
        (1, claim(waiting=1), [claim(jobs=1, seen_at=0.0)], 0),  # it is deferred
    ],
)
def test_a_free_slot_goes_to_the_task_with_the_fewest_jobs(
    limit: int, own: Claim, others: list[Claim], granted: int
) -> None:
    assert allot(limit, own, others, 1000.0) == granted


def test_a_deferred_task_keeps_its_claim_until_its_jobs_have_ended(host: Host) -> None:
    for key in "xyz":
        host.service.job(key, s200=DONE)
    some = items(2)
    jobs, _ = together(
        host.run("deferred", *(Item(key, key, SUBMITTED) for key in "xyz"), may_defer=True),
        host.run("b", *some, after=5.0),
    )
    assert jobs == ["x", "y", "z"]
    assert {each.state for each in some} == {COMPLETED}
    assert min(at for key in "01" for at in host.service.scripts[key] if at) >= 200 + 5
    assert len(host.checked) <= 200 / 30 + 1
    assert host.claims == {}  # which would otherwise be of the deferred task


def test_a_retry_takes_over_the_claim_of_its_task(host: Host) -> None:
    host.limit = 1
    host.leave("a", jobs=["old"], slots=1, seen_at=virtual_time.START)
    host.service.job("old", s10=DONE)
    together(host.run("a", Item("old", "old", SUBMITTED), *items(1)))
    assert host.checked == []
    assert host.service.peak == 1
    assert host.claims == {}


def test_a_job_of_a_dead_task_that_the_service_does_not_know_counts_until_it_is_unknown_twice(
    host: Host,
) -> None:
    host.limit = 1
    host.leave("dead", jobs=["gone"])
    some = items(1)
    together(host.run("a", *some))
    assert some[0].state == COMPLETED
    assert host.checked == [["gone"], ["gone"]]


def test_jobs_of_a_dead_task_that_can_t_be_polled_count_until_its_claim_expires(host: Host) -> None:
    host.limit = 1
    host.leave("dead", jobs=["x"], until=virtual_time.START + 100)

    async def refuse(_: Any) -> Any:
        raise AWAY

    host.client.get_statuses = refuse
    some = items(1)
    together(host.run("a", *some))
    (script,) = host.service.scripts.values()
    assert 100 <= min(at for at in script if at) - 5 <= 102


def test_a_task_that_waits_says_so_and_why_it_has_timed_out(
    host: Host, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[float] = []
    opened = ClaimsFile.open
    monkeypatch.setattr(ClaimsFile, "open", lambda file, now: writes.append(now) or opened(file, now))  # type: ignore[func-returns-value] # of append
    host.leave("other", jobs=["x", "y", "z"])
    for key in "xyz":
        host.service.job(key)
    item = Item("a")
    together(host.run("a", item, deadline=400.0))
    reason = "max_in_flight of the connection is 3, and other tasks of this host have 3 jobs at the service"
    assert item.error == f"Not finished in time: it was waiting to be submitted: {reason}."
    lines = [each for each in caplog.messages if each.startswith("Waiting to submit")]
    assert lines == [f"Waiting to submit: {reason} (d.other)."] * 2
    assert set(host.claims) == {"other"}
    assert len(writes) <= 400  # once a second


@pytest.mark.parametrize(
    "content",
    [
        "",
        json.dumps({"a": asdict(Claim(["d"], "job", [], 0, 0, 0.0, 0.0, 1e9))}),
        "{",
        "[]",
        '{"a": 1}',
        '{"a": {}}',
        '{"a": {"task": ["d"], "kind": "job", "jobs": 3}}',
        "\xff\xfe",
        "[" * 100_000,
        json.dumps({"a": asdict(Claim([*"drtm"], "job", [], math.inf, 0, 0.0, 0.0, 1e9))}),  # type: ignore[arg-type] # on purpose
    ],
)
def test_a_damaged_file_is_replaced_with_one_warning(
    host: Host, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    host.path.write_bytes(content.encode("latin-1"))
    some = items(4)
    together(host.run("a", *some))
    assert {each.state for each in some} == {COMPLETED}
    assert host.claims == {}
    assert sum("which is damaged" in each for each in caplog.messages) == 1
    assert host.path.stat().st_mode & 0o777 == 0o600


def test_a_lock_that_is_held_blocks_nothing_that_is_allowed(
    host: Host, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LOCK_SECONDS", 0.0)
    some = items(4)

    async def hold() -> None:
        await asyncio.sleep(2)
        file = os.open(host.path.with_suffix(".lock"), os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        await asyncio.sleep(20)
        os.close(file)

    together(host.run("a", *some), hold())
    assert {each.state for each in some} == {COMPLETED}
    assert host.service.peak == 3
    lines = [each for each in caplog.messages if each.startswith("Could not write the claim of this task")]
    assert len(lines) == 1
    assert lines[0].endswith("claims.lock' is locked by another process")


def test_a_claim_that_can_t_be_refreshed_is_not_used_for_long(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For others it is quiet then, and they get the slots of its jobs that have ended."""
    opened = ClaimsFile.open

    def fail_later(file: ClaimsFile, at: float) -> Any:
        if 5 < at - virtual_time.START < 100:
            raise OSError("No space left on device")
        return opened(file, at)

    monkeypatch.setattr(ClaimsFile, "open", fail_later)
    some = items(20)
    together(host.run("a", *some))
    assert {each.state for each in some} == {COMPLETED}
    starts = sorted(at - 5 for script in host.service.scripts.values() for at in script if at)
    assert not [at for at in starts if 5 + 15 < at < 100]
    assert len([at for at in starts if at > 100]) > 5


def test_one_task_that_waits_polls_for_all(host: Host) -> None:
    host.limit = 1
    host.leave("deferred", jobs=["x"])
    host.service.job("x", s100=DONE)
    tasks = {name: items(1, name) for name in "abcd"}
    together(*(host.run(name, *some) for name, some in tasks.items()))
    assert {each.state for some in tasks.values() for each in some} == {COMPLETED}
    assert host.service.peak == 1
    assert len(host.checked) == 5  # every 30 s


def test_a_check_that_takes_long_does_not_keep_a_task_from_its_work(host: Host) -> None:
    host.limit = 2
    host.leave("deferred", jobs=["x"])
    host.service.job("x", s1=DONE)

    async def hang(_: Any) -> Any:
        await asyncio.sleep(1e5)

    host.client.get_statuses = hang
    some = items(20)
    together(host.run("a", *some))
    assert {each.state for each in some} == {COMPLETED}


def test_slots_that_could_not_be_claimed_are_not_used(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise OSError("No space left on device")

    monkeypatch.setattr(ClaimsFile, "open", fail)
    item = Item("a")
    together(host.run("a", item, deadline=20.0))
    assert (item.state, host.service.scripts) == (FAILED, {})


@pytest.mark.parametrize("error", [exc.ComplianceSupersededError, exc.ComplianceConfigError])
def test_the_jobs_of_an_attempt_that_fails_stay_claimed(host: Host, error: Any) -> None:
    async def story() -> None:
        night = make_night(host.service)
        night.outcome("submit", "b", 5.0, error("Wrong."))
        await night.engine(Item("a"), Item("b"), limit=host.shared("a")).run()

    with pytest.raises(error):
        together(story())
    if error is exc.ComplianceSupersededError:
        assert host.claims["a"]["slots"] == 1  # as it was: the claim is the other attempt's
    else:
        assert (host.claims["a"]["jobs"], host.claims["a"]["slots"]) == (["a"], 0)


@pytest.mark.parametrize("cancel_on_kill", [False, True])
def test_a_killed_task_keeps_a_claim_for_what_it_has_not_cancelled(host: Host, cancel_on_kill: bool) -> None:
    async def story() -> None:
        night = make_night(host.service)
        running = night.engine(Item("a"), limit=host.shared("a"), cancel_on_kill=cancel_on_kill)
        task = asyncio.create_task(running.run())
        await asyncio.sleep(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    together(story())
    assert list(host.claims) == ([] if cancel_on_kill else ["a"])


def test_what_is_added_while_a_claim_is_written_was_claimed(host: Host) -> None:
    """Writing takes a thread and time; jobs end and documents arrive meanwhile."""

    async def story() -> None:
        limit = host.shared("a")
        await limit._claim(Usage([], 0, 5))
        assert limit.allowed == 3

        def write(usage: Usage) -> int:
            assert limit.allowed == 2  # what is in flight, and nothing else
            limit.on_change(1, 1)
            return 1

        limit._exchange = write  # type: ignore[method-assign] # of the file
        await limit._claim(Usage(["x", "y"], 0, 1))
        assert limit.allowed == 3
        limit._others_wait = True
        assert limit.allowed == 2  # one has ended since, and another task waits for its slot

    together(story())


TI = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=4)


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_limit_is_that_of_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    monkeypatch.setattr(in_flight, "runtime_directory", lambda: tmp_path)
    url = "https://example.com"
    assert make_limit(settings_for(url, share_tokens=is_shared), TI, 5.0, None) is None
    limit = make_limit(settings_for(url, share_tokens=is_shared, max_in_flight=7), TI, 5.0, None)
    assert limit
    assert limit.max_in_flight == 7
    assert isinstance(limit, SharedInFlightLimit) is is_shared
    assert limit.allowed == (0 if is_shared else 7)


def test_without_a_runtime_directory_the_limit_is_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "runtime_directory", lambda: None)
    limit = make_limit(settings_for("https://example.com", share_tokens=True, max_in_flight=7), TI, 5.0, None)
    assert limit
    assert limit.allowed == 7


def test_connections_with_other_accounts_share_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "runtime_directory", lambda: tmp_path)

    def path(**changes: Any) -> Path:
        limit: Any = make_limit(
            settings_for("https://example.com", share_tokens=True, **{"max_in_flight": 7, **changes}),
            TI, 5.0, None,
        )  # fmt: skip
        return Path(limit._file._path)

    assert path() == path(max_in_flight=8)
    assert len({path(), path(username="bob"), path(idp_subject="s")}) == 3


def test_claims_never_outlive_their_end(host: Host) -> None:
    host.leave("dead", jobs=["x"], until=math.nan)
    with ClaimsFile(host.path).open(5.0) as claims:
        assert claims == {}


def test_the_runtime_directory_is_where_claims_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    runtime.runtime_directory.cache_clear()
    try:
        settings = settings_for("https://example.com", share_tokens=True, max_in_flight=7)
        limit: Any = make_limit(settings, TI, 5.0, None)
        assert limit._file._path.parent.parent == tmp_path
    finally:
        runtime.runtime_directory.cache_clear()
