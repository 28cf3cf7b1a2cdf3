"""Nights that are cleared or repeated: what they carry forward, and what they compare with."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.findings import Finding
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.service import state as emulated
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.storage.locations import Location
from tests.support.attempts import Attempts
from tests.support.nights import NightOutcome, Nights

GOOD, MISSING = "SUFFICIENTLY_REGULATED", "MISSING"
EXIT = "An exit plan with a transition period and a migration."


class PickyHook(ComplianceHook):
    """Can't read the results of one assessment any more."""

    unreadable = ""

    def findings_of(self, results: Any) -> list[Finding]:
        """Refuse what is missing."""
        found = super().findings_of(results)
        if self.unreadable in {each.category for each in found}:
            raise ValueError("Another version of the results.")
        return found


class PickyOperator(ComplianceAssessOperator):
    """An operator with that hook."""

    hook_class = PickyHook


def start(
    nights: Nights, texts: dict[str, str], manifest: dict[str, Any] | None = None, **options: Any
) -> tuple[ComplianceAssessOperator, Attempts]:
    """Return the task of the next night, and its attempts."""
    documents = nights.manifest(texts, **(manifest or {}))
    return nights.task(documents, **{"frameworks": "DORA", **options}), nights.attempts()


def run(nights: Nights, texts: dict[str, str], **kwargs: Any) -> NightOutcome:
    task, attempts = start(nights, texts, **kwargs)
    return NightOutcome(attempts.run(task))


def test_a_clear_carries_the_same_verdicts_forward_though_a_newer_night_has_others(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(nights, {"in/a": "x"})
    task, attempts = start(nights, {"in/a": "x"})
    second = NightOutcome(attempts.run(task))
    rows, findings = second.rows, second.findings
    monkeypatch.setattr(emulated, "assess", lambda text, criterion: (GOOD, "A new model."))
    third = run(nights, {"in/a": "x"}, changed_only=False)
    assert third.result["changed"] == 6
    attempts.clear()
    again = NightOutcome(attempts.run(task))
    assert (again.rows, again.findings, again.result) == (rows, findings, second.result)
    assert rows[0]["carried_from"]["night"].startswith("2026-03-01")


def test_equal_texts_keep_the_verdict_of_their_own_source(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers() -> Iterator[tuple[str, str]]:
        for category in (GOOD, MISSING):
            yield from [(category, "because")] * 6

    given = answers()
    monkeypatch.setattr(emulated, "assess", lambda text, criterion: next(given))
    first = run(nights, {"in/a": "x", "in/b": "x"}, concurrency=1)
    assert {finding["category"] for finding in first.findings} == {GOOD, MISSING}
    second = run(nights, {"in/a": "x", "in/b": "x", "in/c": "x"})
    assert (second.result["carried"], second.result["changed"]) == (3, 0)
    names = ("source", "criterion", "category", "assessment_id", "response_id")
    assert [[finding[name] for name in names] for finding in second.findings[:12]] == [
        [finding[name] for name in names] for finding in first.findings
    ]


def test_a_changed_framework_is_seen_by_the_next_attempt_also_where_no_text_can_be_read(
    service: Emulator, nights: Nights
) -> None:
    service.fail("get_content", status=404, times=99)
    task, attempts = start(nights, {"in/a": "x"}, manifest={"sha256": ""})
    attempts.run(task)
    frameworks = copy.deepcopy(service.frameworks())
    frameworks[0]["description"] = "As amended."
    service.set_frameworks(frameworks)
    attempts.clear()
    attempts.run(task)
    assert service.count("submit_assessment") == 2


def test_verdicts_on_texts_that_can_t_be_read_are_compared_from_night_to_night(
    service: Emulator, nights: Nights
) -> None:
    service.fail("get_content", status=404, times=99)
    run(nights, {"in/a": "x"}, manifest={"sha256": ""})
    second = run(nights, {"in/a": EXIT}, manifest={"sha256": ""})
    assert (second.result["assessed"], second.result["carried"], second.result["changed"]) == (1, 0, 1)


def test_a_night_that_carries_everything_forward_keeps_the_rate(service: Emulator, nights: Nights) -> None:
    for _ in range(3):
        run(nights, {"in/a": "x"})
    assert run(nights, {"in/b": "y"}, dry_run=True).result["seconds"] is not None


def test_results_that_become_unreadable_fail_their_own_cell_only(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, attempts = start(nights, {"in/a": "x", "in/b": EXIT}, kind=PickyOperator, max_failed=1)
    assert attempts.run(task)["failed"] == 0
    monkeypatch.setattr(PickyHook, "unreadable", GOOD)
    attempts.clear()
    night = NightOutcome(attempts.run(task))
    assert [row["status"] for row in night.rows] == ["COMPLETED", "FAILED"]
    assert "can't be read" in night.rows[1]["error"]
    assert service.count("submit_assessment") == 2


def test_a_store_that_is_down_for_a_moment_costs_no_assessment(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(location: Location) -> bytes | None:
        if "/results/" in location.uri:
            raise exc.ComplianceStorageError("The store is not available.")
        return read(location)

    read = Location.read

    task, attempts = start(nights, {"in/a": "x"})
    attempts.run(task)
    for assessment in service.assessments():
        service.remove_assessment(assessment["uuid"])  # so that it could not be fetched again
    attempts.clear()
    with monkeypatch.context() as broken:
        broken.setattr(Location, "read", failing)
        with pytest.raises(exc.ComplianceStorageError):
            attempts.run(task)
    assert attempts.run(task)["assessed"] == 1
    assert service.count("submit_assessment") == 1


def test_results_that_were_overwritten_are_fetched_again(service: Emulator, nights: Nights) -> None:
    task, attempts = start(nights, {"in/a": "x"})
    night = NightOutcome(attempts.run(task))
    findings = night.findings
    Path(night.rows[0]["results_path"].removeprefix("file://")).write_text("[]")
    attempts.clear()
    assert NightOutcome(attempts.run(task)).findings == findings


# -- scratch that is deleted, such as by a lifecycle rule


def delete_scratch(nights: Nights) -> None:
    for folder in list(nights.folder.glob("out/**/_work")):
        shutil.rmtree(folder)


def names_below(folder: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in folder.rglob("*") if path.is_file()}


def test_without_scratch_nights_carry_forward_and_compare_as_ever(service: Emulator, nights: Nights) -> None:
    run(nights, {"in/a": "x", "in/b": "y"})
    delete_scratch(nights)
    task, attempts = start(nights, {"in/a": EXIT, "in/b": "y"})
    second = NightOutcome(attempts.run(task))
    rows, findings = second.rows, second.findings
    assert (second.result["assessed"], second.result["carried"], second.result["changed"]) == (1, 1, 1)
    delete_scratch(nights)
    third = run(nights, {"in/a": "x", "in/b": "y"}, changed_only=False)
    assert third.result["changed"] == 1
    submitted = service.count("submit_assessment")
    delete_scratch(nights)
    attempts.clear()
    again = NightOutcome(attempts.run(task))
    assert (again.rows, again.findings, again.result) == (rows, findings, second.result)
    assert service.count("submit_assessment") == submitted


def test_outputs_of_a_night_and_scratch_are_apart(service: Emulator, nights: Nights) -> None:
    task, attempts = start(nights, {"in/a": "x"}, deferrable=True)
    service.configure(jobs="manual")
    while_deferred: list[set[str]] = []

    def finish(_: int) -> None:
        while_deferred.append(names_below(nights.folder / "out"))
        for assessment in service.assessments():
            service.set_assessment(assessment["uuid"], status="COMPLETED")

    attempts.while_deferred = finish
    attempts.run(task)
    (night,) = (nights.folder / "out").glob("dt=*")
    assert while_deferred == [{"journal", "lease.json"}]
    assert names_below(night / "_work/assess") == {"lease.json"}
    outputs = {"assessments.jsonl", "findings.jsonl.gz", "report.html", "DORA.csv"}
    assert names_below(night / "_assess") == outputs
    assert not names_below(nights.folder / "out/_work")
