"""`kill -9` of the process that assesses, at random requests: no cell is lost, few are submitted twice."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.operators.assess import ComplianceAssessOperator
from tests.support.attempts import Attempts, allow_tasks_in_thread
from tests.support.forking import Child, may_fork
from tests.support.nights import NightOutcome, Nights
from tests.support.signals import signalled_when, until

DOCUMENTS, CONCURRENCY, KILLS = 30, 6, 5
SEEDS = [int(seed) for seed in os.environ.get("COMPLIANCE_TEST_SEEDS", "7").split(",")]  # of the kills
FRAMEWORKS = ["DORA", "GDPR"]
CELLS = DOCUMENTS * len(FRAMEWORKS)
WORDS = ("exit", "transition period", "audit", "incident", "personal data", "controller", "confidentiality")
SAME = ("source", "framework", "criterion", "title", "category", "rationale", "first_seen", "changed_from")


def texts() -> dict[str, str]:
    """Return texts with verdicts of all kinds."""
    chosen = random.Random(1)
    return {
        f"in/{number:03}.pdf": f"Text {number}. " + ". ".join(chosen.sample(WORDS, chosen.randrange(6)))
        for number in range(DOCUMENTS)
    }


def assess(nights: Nights, documents: Any, **options: Any) -> ComplianceAssessOperator:
    return nights.task(documents, frameworks=FRAMEWORKS, concurrency=CONCURRENCY, **options)


def check_ledger(service: Emulator, night: NightOutcome) -> Counter[tuple[str, str]]:
    """Compare each row with what the emulator has found for that cell; return the submits of each cell."""
    known = {assessment["uuid"]: assessment for assessment in service.assessments()}
    rows = night.rows
    assert len({(row["source"], row["framework"]) for row in rows}) == len(rows) == CELLS
    found: dict[str, dict[str, str]] = {}
    for each in night.findings:
        found.setdefault(each["assessment_id"], {})[each["criterion"]] = each["category"]
    for row in rows:
        assessment = known[row["assessment_id"]]
        assert assessment["payload"] == {"contentUuid": row["uuid"], "framework": row["framework"]}
        expected = {each["criterion"]: each["category"] for each in assessment["results"]}
        assert found[row["assessment_id"]] == expected
    return Counter((each["payload"]["contentUuid"], each["payload"]["framework"]) for each in known.values())


@pytest.mark.once
@pytest.mark.parametrize("seed", SEEDS)
@may_fork
def test_five_kills_leave_one_row_per_cell_with_its_own_verdict(
    service: Emulator, nights: Nights, seed: int
) -> None:
    def attempt() -> Any:
        return nights.attempts().run(assess(nights, documents))

    jitter = random.Random(seed)
    documents = nights.manifest(texts())
    service.configure(jobs="polls:2")
    for _ in range(KILLS):
        steps = jitter.randrange(1, 2 * CELLS // KILLS)
        goal = service.count() + steps
        hang = service.fail("*", delay=3600, skip=steps, times=None)  # it is killed before it ends
        child = Child(attempt)
        until(lambda: service.count() >= goal)  # noqa: B023 - run now
        child.kill()
        assert not list(nights.folder.glob("out/*/_assess/*/*/*/assessments.jsonl"))
        service.clear_faults(hang)
    killed = NightOutcome(Child(attempt).result())
    assert (killed.result["assessed"], killed.result["failed"]) == (CELLS, 0)
    submits = check_ledger(service, killed)
    assert len(submits) == CELLS
    assert CELLS <= service.count("submit_assessment") <= CELLS + KILLS * CONCURRENCY

    # The same documents below another root, undisturbed.
    nights.base = f"{nights.base}undisturbed/"
    result = nights.attempts().run(assess(nights, documents))
    assert [{name: row[name] for name in SAME} for row in NightOutcome(result).findings] == [
        {name: row[name] for name in SAME} for row in killed.findings
    ]
    assert result["categories"] == killed.result["categories"]


def test_of_two_attempts_at_once_the_later_one_finishes_alone(service: Emulator, nights: Nights) -> None:
    """Airflow may take a running attempt for dead and start the next one beside it."""
    documents = nights.manifest(texts())
    service.configure(jobs="manual")
    ended: list[BaseException | dict[str, Any]] = []

    def run(attempts: Attempts) -> None:
        allow_tasks_in_thread()
        try:
            ended.append(attempts.run(assess(nights, documents)))
        except BaseException as error:
            ended.append(error)

    zombie = threading.Thread(target=run, args=(nights.attempts(1),))
    zombie.start()
    until(lambda: service.count("submit_assessment") >= CELLS // 3)
    retry = nights.attempts(1)
    retry.try_number = 1

    def is_taken_over() -> bool:
        leases = [json.loads(each.read_text()) for each in nights.folder.rglob("lease.json")]
        return any(each["try_number"] == 2 for each in leases)

    with signalled_when(is_taken_over, lambda: service.configure(jobs="instant")):
        night = NightOutcome(retry.run(assess(nights, documents)))
    zombie.join(240)
    (error,) = ended
    assert isinstance(error, exc.ComplianceSupersededError)
    assert (night.result["assessed"], night.result["failed"]) == (CELLS, 0)
    check_ledger(service, night)
    assert service.count("submit_assessment") <= CELLS + 2 * CONCURRENCY
    assert service.count("cancel_assessment") == 0


def test_an_attempt_that_is_overtaken_while_it_publishes_writes_no_entry(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other attempt may have other verdicts, and publishes them itself."""
    documents, publish = nights.manifest({"in/a.pdf": "An exit plan."}), Checkpoint.publish

    async def publish_late(self: Checkpoint, manifest: Any) -> None:
        await publish(self, manifest)
        (lease,) = nights.folder.rglob("lease.json")
        lease.write_text(json.dumps({**json.loads(lease.read_text()), "try_number": 2, "token": "another"}))

    monkeypatch.setattr(Checkpoint, "publish", publish_late)
    with pytest.raises(exc.ComplianceSupersededError):
        nights.attempts(1).run(assess(nights, documents))
    assert not list(nights.folder.rglob("_nights/**/*.txt"))
