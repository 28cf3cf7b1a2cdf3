"""Closing survives kill -9 at every step, and others that close at the same time."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.nights.evidence import chain as chains
from airflow_provider.nights.evidence.chain import Chain
from airflow_provider.nights.evidence.tables import NightTable
from airflow_provider.storage import atomic
from airflow_provider.storage.locations import Location
from tests.support.attempts import allow_tasks_in_thread
from tests.support.forking import may_fork
from tests.support.nights import Nights

pytestmark = may_fork

KILLED, COMPLETED = 9, 0
fork = multiprocessing.get_context("fork")


def in_process(work: Callable[..., Any], *arguments: Any, kill_step: int | None = None) -> Any:
    """Start a process that runs this, and ends at once."""

    def run() -> None:
        code = 1
        try:
            if kill_step is not None:
                kill_at(kill_step)
            work(*arguments)
            code = COMPLETED
        finally:
            os._exit(code)

    process = fork.Process(target=run)
    process.start()
    return process


def kill_at(step: int) -> None:
    """End this process at its nth call of the operating system that changes or opens a file.

    Python's audit events see them all, those in threads and in libraries too.
    """
    calls = 0
    lock = threading.Lock()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal calls
        is_write = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if is_write or event in ("os.link", "os.mkdir", "os.rename", "os.remove"):
            with lock:
                calls += 1
                if calls == step:
                    os._exit(KILLED)

    sys.addaudithook(audit)


def test_a_kill_at_any_step_is_completed_by_the_next_attempt(nights: Nights) -> None:
    """Of a first night, of a second one, and of a revision; after each of them there is one head."""
    for number, (day, status) in enumerate([(1, "FAILED"), (2, "FAILED"), (1, "COMPLETED")], 1):
        outputs = {
            "ingested": [nights.ingested(f"i{n}", **{f"s{n}": status}) for n in range(2)],
            "assessed": nights.assessed(f"a{status}", "s0"),
        }

        def close(try_number: int) -> dict[str, Any]:
            return nights.close(day, **outputs, identity={"try_number": try_number})  # noqa: B023 - run now

        step, kills = 0, 0
        while True:
            step += 1
            process = in_process(close, step, kill_step=step)
            process.join()
            if process.exitcode == COMPLETED:
                break
            assert process.exitcode == KILLED
            kills += 1
            assert len(nights.entries) in (number - 1, number)
        # A closed night that is closed again needs few steps, so the first to complete may be an early one.
        assert kills > 3
        result = close(1000)
        assert len(nights.entries) == number
        head = nights.entries[-1]
        assert (head.uri, head.sha256) == (result["night"], result["sha256"])
        assert [entry.record["run"] for entry in nights.in_force].count(f"d/run-{day}") == 1


def test_processes_that_close_at_once_make_one_chain(nights: Nights) -> None:
    days = range(1, 9)
    outputs = {day: nights.ingested(str(day), a="FAILED") for day in days}

    def close(day: int) -> None:
        nights.close(day, ingested=outputs[day])

    processes = [in_process(close, day) for day in days]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [COMPLETED] * len(days)
    assert sorted(entry.record["run"] for entry in nights.entries) == [f"d/run-{day}" for day in days]


def test_revisions_at_once_replace_each_other_one_by_one(nights: Nights) -> None:
    outputs = [nights.ingested(str(n), a="FAILED", **{f"b{n}": "FAILED"}) for n in range(6)]

    def close(output: dict[str, Any]) -> None:
        allow_tasks_in_thread()
        nights.close(1, ingested=output)

    with ThreadPoolExecutor(len(outputs)) as pool:
        list(pool.map(close, outputs))
    assert len(nights.entries) == len(outputs)
    assert [entry.record["replaces"] and entry.record["replaces"]["number"] for entry in nights.entries] == [
        None, *range(1, len(outputs))
    ]  # fmt: skip
    assert len(nights.in_force) == 1


def test_a_store_that_lists_lately_gets_no_fork(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chain, "numbers", lambda self: [])
    for day in (1, 2, 3):
        result = nights.close(day, ingested=nights.ingested(str(day), a="FAILED"))
    report = json.loads(Path(result["report"].removeprefix("file://")).read_text())
    assert report["trend"] == ["2026-03-02", "2026-03-01"]
    nights.close(2, ingested=nights.ingested("2", a="COMPLETED"), identity={"try_number": 2})
    monkeypatch.undo()
    assert [entry.record["night"][8:10] for entry in nights.entries] == ["01", "02", "03", "02"]
    assert nights.entries[3].record["replaces"]["number"] == 2


def test_a_store_that_ignores_conditions_is_noticed(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task has replaced our record before we could read it: ours is added after it."""
    nights.close(1, ingested=nights.ingested("1", a="FAILED"))
    original = atomic.create_once
    replaced: list[str] = []

    def create_once(location: Location, content: Any) -> bool:
        created = original(location, content)
        if not replaced:
            replaced.append(location.uri)
            # The record of another night, with another time.
            path = Path(location.path)
            other = path.read_bytes().replace(b"run-2", b"run-9")
            path.write_bytes(other.replace(b'"night": "2026-03-02', b'"night": "2026-03-09'))
        return created

    monkeypatch.setattr(chains, "create_once", create_once)
    result = nights.close(2, ingested=nights.ingested("2", a="FAILED"))
    assert result["night"].endswith("00000003.json")
    assert [entry.record["run"] for entry in nights.entries] == ["d/run-1", "d/run-9", "d/run-2"]


@pytest.mark.parametrize(("status", "records"), [("FAILED", 1), ("COMPLETED", 2)], ids=["same", "changed"])
def test_an_attempt_that_is_overtaken_knows_what_the_other_has_closed(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, status: str, records: int
) -> None:
    """The other one closes the night between our first look at the chain and our record."""
    ours, theirs = nights.ingested("1", a="FAILED"), nights.ingested("2", a=status)
    original = NightTable.seal
    overtakes = [True]

    def seal(table: NightTable, root: Location) -> None:
        if overtakes:
            overtakes.clear()
            allow_tasks_in_thread()
            nights.close(1, ingested=theirs)
        original(table, root)

    monkeypatch.setattr(NightTable, "seal", seal)
    result = nights.close(1, ingested=ours)
    assert len(nights.entries) == records
    (entry,) = nights.in_force
    assert (entry.uri, entry.record["revision"]) == (result["night"], records)
