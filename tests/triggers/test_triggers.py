"""The triggers: what a kill cancels, what is in their row and their event."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.runtime import compat
from airflow_provider.triggers import base
from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger
from airflow_provider.triggers.content import ComplianceContentTrigger
from tests.support.attempts import fire, until
from tests.support.jobs import completed, running

CONN = "compliance_default"


def trigger(*uuids: str, seconds: float = 240.0, **kwargs: Any) -> ComplianceContentTrigger:
    values: dict[str, Any] = {"poll_interval": 0.1, **kwargs}
    return ComplianceContentTrigger(CONN, list(uuids), deadline=time.time() + seconds, **values)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ComplianceContentTrigger]:
    """Make a trigger whose task a user has marked as failed."""

    async def task_state(_: Any) -> str:
        return "failed"

    monkeypatch.setattr(base, "task_state", task_state)
    return partial(trigger, cancel_on_kill=True)


Killed = Callable[..., ComplianceContentTrigger]


def test_on_kill_cancels_the_jobs_where_asked_to(service: Emulator, killed: Killed) -> None:
    first, second = running(service), running(service)
    asyncio.run(killed(first, cancel_on_kill=False).on_kill())
    assert service.count("cancel") == 0
    asyncio.run(killed(first, "gone", second).on_kill())
    assert service.count("cancel", 200) == service.count("cancel") == 2


def test_on_kill_leaves_jobs_alone_that_have_come_to_their_end(service: Emulator, killed: Killed) -> None:
    uuids = [completed(service), service.add_job(text="x", status="FAILED"), running(service)]
    asyncio.run(killed(*uuids).on_kill())
    assert service.count("cancel", 200) == service.count("cancel") == 1
    assert {job["uuid"] for job in service.jobs()} == set(uuids[:2])


def test_on_kill_cancels_nothing_that_it_could_not_look_at(service: Emulator, killed: Killed) -> None:
    service.fail("get_status*", status=403, times=None)
    asyncio.run(killed(running(service)).on_kill())
    assert service.count("cancel") == 0


def test_jobs_of_a_task_whose_state_airflow_never_says_are_named_in_a_warning(
    service: Emulator, killed: Killed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def hang(_: Any) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(base, "task_state", hang)
    monkeypatch.setattr(base, "ANSWER_SECONDS", 0.01)
    uuid = running(service)
    asyncio.run(killed(uuid).on_kill())
    assert service.count("cancel") == 0
    assert f"Could not cancel the job {uuid}, which may still be running" in capsys.readouterr().out


def test_a_kill_waits_longer_than_airflow_for_the_slow_first_answer_of_a_triggerer(
    service: Emulator, killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        lost_patience = asyncio.Event()

        async def answer(_: Any) -> str:
            await lost_patience.wait()
            return "failed"

        monkeypatch.setattr(base, "task_state", answer)
        killing = asyncio.create_task(killed(running(service)).on_kill())
        await asyncio.sleep(0)
        killing.cancel()  # as Airflow does after `[triggerer] on_kill_timeout`
        lost_patience.set()
        await asyncio.wait([killing])

    asyncio.run(scenario())
    assert base.ANSWER_SECONDS > 4 * 30  # the default of that setting
    assert service.count("cancel", 200) == 1


def test_many_killed_tasks_share_the_slow_first_answer_of_a_triggerer(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[list[str]] = []
    has_all_asked = threading.Event()

    def answer(asked: Sequence[Any]) -> list[str]:
        questions.append([one.task_id for one in asked])
        assert has_all_asked.wait(60)
        return ["failed"] * len(asked)

    monkeypatch.setattr(compat, "read_task_states", answer)
    killed = [trigger(running(service), cancel_on_kill=True) for _ in range(16)]
    for number, one in enumerate(killed):
        one.task_instance = SimpleNamespace(task_id=f"t{number}")  # type: ignore[assignment] # all that is looked at

    async def scenario() -> None:
        killing = [asyncio.create_task(one.on_kill()) for one in killed]
        await until(lambda: questions)
        has_all_asked.set()
        await asyncio.gather(*killing)

    asyncio.run(scenario())
    assert questions == [["t0"], [f"t{number}" for number in range(1, 16)]]
    assert service.count("cancel", 200) == 16


@pytest.mark.skipif(compat.ON_KILL_ENDS_TASK, reason="Airflow 2 has no questions to group")
def test_states_of_many_tasks_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = {
        "r1": {"load_1": "failed", "load": "success", "part_1": "deferred", "part_0": None},
        "r2": {"load": "failed"},
    }
    questions: list[Any] = []

    def ask(*, dag_id: str, task_ids: list[str], run_ids: list[str]) -> Any:
        questions.append((dag_id, task_ids, run_ids))
        return {run_id: states[run_id] for run_id in run_ids}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(ask))
    rows = [
        ("r1", "load", -1, "success"),
        ("r1", "load_1", -1, "failed"),  # not an instance of `load`
        ("r1", "part", 1, "deferred"),
        ("r1", "part", 0, "None"),  # cleared, and not scheduled yet
        ("r1", "part", 2, None),  # does not exist
        ("r2", "load", -1, "failed"),
    ]
    asked = [SimpleNamespace(dag_id="d", run_id=r, task_id=t, map_index=i) for r, t, i, _ in rows]
    assert compat.read_task_states(asked) == [state for *_, state in rows]
    assert questions == [("d", ["load", "load_1"], ["r1", "r2"]), ("d", ["part"], ["r1"])]


def test_a_kill_continues_to_its_end_though_airflow_loses_patience(service: Emulator, killed: Killed) -> None:
    uuid = running(service)
    service.fail("cancel", status=503, retry_after=1)

    async def scenario() -> None:
        killing = asyncio.create_task(killed(uuid).on_kill())
        await until(lambda: service.count("cancel", 503))
        killing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killing
        await until(lambda: service.count("cancel", 200))

    asyncio.run(scenario())
    assert uuid not in [job["uuid"] for job in service.jobs()]


def test_on_kill_that_fails_is_only_a_warning(service: Emulator, killed: Killed) -> None:
    service.fail("cancel", status=403, times=None)
    asyncio.run(killed(running(service)).on_kill())
    assert service.count("cancel", 403) == 1


def test_a_trigger_is_rebuilt_from_its_row() -> None:
    one = trigger("a", "b", cancel_on_kill=True, before={"a": {"uuid": "a", "status": "FAILED"}})
    path, kwargs = one.serialize()
    assert path == "airflow_provider.triggers.content.ComplianceContentTrigger"
    again = ComplianceContentTrigger(**kwargs)
    assert again.serialize() == one.serialize()
    other = ComplianceAssessmentTrigger(CONN, ["a"], 0.1, 1.0, cancel_on_kill=True, hook_class="a.b")
    path, kwargs = other.serialize()
    assert path == "airflow_provider.triggers.assessment.ComplianceAssessmentTrigger"
    assert ComplianceAssessmentTrigger(**kwargs).serialize() == other.serialize()


def test_on_kill_cancels_assessments_alike(service: Emulator, killed: Killed) -> None:
    ids = [service.add_assessment({"text": "audit"})["uuid"] for _ in range(2)]
    service.set_assessment(ids[0], status="RUNNING")
    made = ComplianceAssessmentTrigger(CONN, [*ids, "gone"], 0.1, time.time() + 240, cancel_on_kill=True)
    asyncio.run(made.on_kill())
    assert service.count("cancel_assessment", 200) == service.count("cancel_assessment") == 1
    assert [found["uuid"] for found in service.assessments()] == [ids[1]]


# "None" is a task that was cleared and is not scheduled yet.
@pytest.mark.parametrize("reattaches", [True, False], ids=["next attempt finds the job", "it does not"])
@pytest.mark.parametrize("state", ["deferred", "failed", "success", "skipped", "None", "running", "queued"])
def test_a_trigger_cancels_only_jobs_that_no_attempt_continues_with(
    service: Emulator, monkeypatch: pytest.MonkeyPatch, state: str, reattaches: bool
) -> None:
    monkeypatch.setattr(base, "TRIGGER_HAS_ON_KILL", False)
    monkeypatch.setattr(compat, "read_task_states", lambda asked: [state] * len(asked))
    uuid = running(service)
    trigger = ComplianceContentTrigger(CONN, [uuid], 0.1, time.time() + 60, True, is_durable=reattaches)
    trigger.task_instance = SimpleNamespace(task_id="t")  # type: ignore[assignment] # all that is looked at

    async def scenario() -> None:
        waiting = asyncio.create_task(fire(trigger))
        await until(lambda: service.count("get_statuses"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())
    is_over = state in ("failed", "success", "skipped")
    assert service.count("cancel", 200) == (is_over or (not reattaches and state != "deferred"))


def test_a_trigger_cancels_nothing_at_another_service(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "read_task_states", lambda asked: ["failed"] * len(asked))
    uuid = running(service)
    trigger = ComplianceContentTrigger(CONN, [uuid], 0.1, time.time() + 60, True, account="of staging")
    trigger.task_instance = SimpleNamespace(task_id="t")  # type: ignore[assignment] # all that is looked at
    asyncio.run(trigger.on_kill())
    assert service.count("cancel") == 0


def test_a_state_that_can_not_be_found_out_cancels_nothing(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> str:
        raise RuntimeError("no database")

    trigger = ComplianceContentTrigger("compliance_default", [running(service)], 1, 1, True)
    asyncio.run(trigger.on_kill())
    trigger.task_instance = SimpleNamespace(task_id="t")  # type: ignore[assignment] # all that is looked at
    monkeypatch.setattr(compat, "read_task_states", fail)
    asyncio.run(trigger.on_kill())
    assert service.count("cancel") == 0


def test_an_event_can_be_written_as_json(service: Emulator) -> None:
    uuid = service.add_job(text="x", error="broken", status="FAILED", file_name="f.pdf")
    trigger = ComplianceContentTrigger("compliance_default", [uuid], 0.1, time.time() + 60)
    record = json.loads(json.dumps(asyncio.run(fire(trigger))))["jobs"][uuid]
    assert (record["status"], record["error"], record["file_name"]) == ("FAILED", "broken", "f.pdf")


@pytest.mark.parametrize(("enough", "seconds", "status"), [(1, 60, "success"), (2, 0.5, "timeout")])
def test_a_trigger_with_enough_jobs_fires_without_their_records(
    service: Emulator, enough: int, seconds: float, status: str
) -> None:
    uuids = [completed(service), running(service)]
    event = asyncio.run(
        fire(ComplianceContentTrigger(CONN, uuids, 0.05, time.time() + seconds, enough=enough))
    )
    assert (event["status"], event["jobs"], event["pending"]) == (status, {}, [])
